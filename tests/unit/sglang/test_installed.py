from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.runtimes.command import Launch
from dsabench.sglang.accepts import Flag
from dsabench.sglang.installed import Installed
from dsabench.sglang.versions import Version

from .stand_in import install_stand_in, record


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dsabench"


def launch(site: Path, prefix: tuple[str, ...] = ()) -> Launch:
    return Launch(python=Path(sys.executable), env={"PYTHONPATH": str(site)}, command_prefix=prefix)


async def test_what_the_installed_parser_takes(tmp_path: Path) -> None:
    accepted = await Installed(launch(install_stand_in(tmp_path / "site", "0.5.24.post1"))).accepted()
    assert accepted.version == Version(0, 5, 24)
    assert accepted.flags["--tp-size"] == Flag("tensor_parallel_size", "value")
    assert accepted.flags["--kv-cache-dtype"].choices == ("auto", "fp8_e4m3")
    assert accepted.flags["--enable-metrics"].takes == "nothing"
    assert accepted.flags["--lora-paths"].takes == "values"
    assert accepted.flags["--collect-tokens-histogram"].state == "no-op"
    assert accepted.flags["--cuda-graph-max-bs"].state == "alias"
    assert accepted.variables == {"SGLANG_DSA_FUSE_TOPK", "SGLANG_SOMETHING_NEW"}
    assert "0.5.24.post1" in accepted.source


async def test_it_is_asked_once_per_wheel(tmp_path: Path, cache: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    first = await Installed(launch(site)).accepted()
    (file,) = cache.iterdir()
    (site / "sglang/srt/server_args.py").write_text("raise SystemExit('asked again')")
    assert await Installed(launch(site)).accepted() == first
    record(site, "0.5.16", "other")
    with pytest.raises(InputError, match="asked again"):
        await Installed(launch(site)).accepted()
    file.write_text("{ torn")
    record(site, "0.5.16", "first")
    with pytest.raises(InputError, match="asked again"):
        await Installed(launch(site)).accepted()


async def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    accepted = await Installed(launch(install_stand_in(tmp_path / "site", "0.5.16"))).accepted()
    assert "--model-path" in accepted.flags


async def test_it_is_asked_through_the_prefix(tmp_path: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    identity = await Installed(launch(site, ("nice", "-n", "1"))).identity()
    assert (identity.kind, identity.version) == ("sglang", "0.5.16")
    assert len(identity.wheel_hash) == 64


async def test_identity_does_not_import_it(tmp_path: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    (site / "sglang/__init__.py").write_text("raise RuntimeError('imported')")
    assert (await Installed(launch(site)).identity()).version == "0.5.16"
    with pytest.raises(InputError, match="could not tell of its sglang: RuntimeError: imported"):
        await Installed(launch(site)).accepted()


async def test_sources_without_a_record_have_a_hash_of_their_own(tmp_path: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    record(site, "0.5.16", None)
    before = (await Installed(launch(site)).identity()).wheel_hash
    (site / "sglang/srt/environ.py").write_text("")
    assert (await Installed(launch(site)).identity()).wheel_hash != before


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (Launch(python=Path("/no/such/python")), "cannot run /no/such/python"),
        (Launch(python=Path(sys.executable)), "has no sglang; name the interpreter that has it"),
        (Launch(python=Path(sys.executable), command_prefix=("false",)), "false could not tell .*: exit 1"),
    ],
)
async def test_one_line_where_there_is_no_sglang(how: Launch, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        await Installed(how).accepted()
    assert "\n" not in str(error.value)


async def test_a_patch_and_a_plugin_make_it_another_program(tmp_path: Path) -> None:
    site = install_stand_in(tmp_path / "site", "0.5.16")
    before = await Installed(launch(site)).identity()
    (site / "sglang" / ".dsabench-patch.json").write_text("{}")
    patched = await Installed(launch(site)).identity()
    assert patched.wheel_hash != before.wheel_hash
    assert (patched.packages or {})["sglang-patch"] == hashlib.sha256(b"{}").hexdigest()[:12]
    info = site / "some_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nsome = some:plugin\n")
    extended = await Installed(launch(site)).identity()
    assert (extended.packages or {})["some-plugin"] == "1.2"
    assert extended.wheel_hash == patched.wheel_hash
