from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from importlib.metadata import distributions

import pytest
import yaml

from dsabench.cli.main import run
from dsabench.config.load import load_launch
from dsabench.emit.flags import knobs_of
from dsabench.emit.plugin import build_plugin
from dsabench.emit.tables import write_table
from dsabench.errors import InputError
from unit.emit.made import as_file, made_table, made_tree


def test_a_rule_becomes_knobs_where_a_flag_can_say_it():
    assert knobs_of(made_table()) == {"prefill_backend": "flashmla_sparse"}
    assert knobs_of(made_table("mha_threshold", {"form": "threshold", "max_tokens": 512})) == {
        "mha_threshold_tokens": 512
    }
    buffer = {"form": "buffer", "device_buffer_size": 6144, "host_to_device_ratio": 8}
    assert knobs_of(made_table("hisparse", buffer))["hisparse_device_buffer_size"] == 6144
    with pytest.raises(InputError, match="a flag names one kernel"):
        knobs_of(made_table(rule={"form": "ratio", "kv_per_new_token": 8}))


def test_command_and_config_of_tables(tmp_path, capsys):
    table = write_table(tmp_path, made_table())
    config = tmp_path / "mine.yaml"
    base = {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}
    runtime = {"kind": "sglang", "model": "deepseek-ai/DeepSeek-V3.2", "hardware": "h200", "base": base}
    secret = {"python": None, "env": {"HF_TOKEN": "hf_secret"}}
    config.write_text(yaml.safe_dump({"name": "mine", "runtime": {**runtime, "launch": secret}}))
    words = ["emit", str(table), "--as", "flags", "--config", str(config), "--runtime-version", "0.5.16"]
    assert run([*words, "--out", str(tmp_path / "out"), "--json"]) == 0
    assert [path.rpartition("/")[2] for path in json.loads(capsys.readouterr().out)] == ["best.sh", "best.yaml"]
    script = (tmp_path / "out/best.sh").read_text()
    assert "--dsa-prefill-backend flashmla_sparse" in script
    assert "hf_secret" not in script + (tmp_path / "out/best.yaml").read_text()
    assert load_launch(tmp_path / "out/best.yaml").base == {**base, "prefill_backend": "flashmla_sparse"}


def test_a_table_for_another_cache_is_refused(tmp_path, capsys):
    table = write_table(tmp_path, made_table())
    assert run(["emit", str(table), "--as", "flags", "--config", "h200", "--out", str(tmp_path / "out")]) == 2
    assert "is for kv_cache_dtype fp8_e4m3, the config has bfloat16" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"heads_per_rank": 128}, "is for heads per rank 128, the config has 16"),
        ({"device": "NVIDIA_B200"}, "is for the GPU NVIDIA_B200, the config has NVIDIA_H200"),
        ({"index_topk": 1024}, "is for index_topk 1024, the config has 2048"),
    ],
)
def test_a_table_for_another_gpu_or_shape_than_the_configs_is_refused(tmp_path, capsys, changes, reason):
    words = ["emit", str(write_table(tmp_path, made_table(**changes))), "--as", "flags", "--out", str(tmp_path / "out")]
    assert run([*words, "--config", "h200-tp8", "--runtime-version", "0.5.16"]) == 2
    assert reason in capsys.readouterr().err


def test_settings_that_the_runtime_forbids_are_refused_and_nothing_is_written(tmp_path, capsys):
    rule = {"form": "buffer", "device_buffer_size": 1024, "host_to_device_ratio": 8}
    table = write_table(tmp_path, made_table("hisparse", rule))
    words = ["emit", str(table), "--as", "flags", "--out", str(tmp_path / "out")]
    assert run([*words, "--config", "h200-tp8", "--runtime-version", "0.5.16"]) == 2
    assert "HS07: a hot buffer smaller than hisparse_top_k" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_wheel_is_the_same_twice_and_holds_the_entry_point(tmp_path):
    files = [as_file(made_table())]
    first, second = (build_plugin(files, tmp_path / name) for name in "ab")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
        points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "[sglang.srt.plugins]" in archive.read(points).decode()
    assert f"sglang_dsa_tuned/dsa_tuned_configs/{made_table().file_name}" in names
    other = build_plugin([as_file(made_table(rule={"form": "ratio", "kv_per_new_token": 2}))], tmp_path / "c")
    assert other.name != first.name


def test_the_wheel_is_one_that_pip_installs(tmp_path):
    wheel = build_plugin([as_file(made_table())], tmp_path)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        tmp_path / "site",
        wheel,
    ]
    subprocess.run(pip, check=True)
    found = distribution_at(tmp_path / "site")
    assert (found.name, found.requires) == ("sglang-dsa-tuned", ["sglang<0.6,>=0.5.12"])
    assert found.version == wheel.name.split("-")[1]
    for file in found.files:
        if file.hash is not None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest()).rstrip(b"=").decode()
            assert file.hash.value == digest, file


def distribution_at(folder):
    [found] = distributions(path=[str(folder)])
    return found


TARGETS = {
    "srt/plugins/hook_registry.py": """
import enum
HookType = enum.Enum("HookType", ["AFTER", "AROUND"])
class HookRegistry:
    @staticmethod
    def register(target, hook, when):
        print(target, when.name)
""",
    "srt/layers/attention/dsa_backend.py": "class DeepseekSparseAttnBackend:\n    def set_dsa_prefill_impl(self): ...\n",
    "srt/arg_groups/overrides.py": "raise SystemExit('imported')\ndef _dsa_split_backend_resolution(): ...\n",
    "srt/server_args.py": "class ServerArgs:\n    def _handle_model_specific_adjustments(self): ...\n",
}


@pytest.mark.parametrize(
    ("without", "left_out", "hooked"),
    [
        (None, None, ["set_dsa_prefill_impl AFTER", "_resolution AFTER", "_adjustments AROUND"]),
        ("srt/arg_groups/overrides.py", "arg_groups.overrides._dsa_split_backend_resolution; flashmla_auto", ["_adjustments AROUND"]),
        ("srt/layers/attention/dsa_backend.py", "set_dsa_prefill_impl; flashmla_auto", ["_adjustments AROUND"]),
        ("srt/server_args.py", "handle_model_specific_adjustments; mha_threshold", ["set_dsa_prefill_impl AFTER", "_resolution AFTER"]),
    ],
)  # fmt: skip
def test_the_plugin_looks_for_each_place_and_stands_aside_where_one_is_missing(tmp_path, without, left_out, hooked):
    for name, text in {"__init__.py": "__version__ = '0.5.99'\n", **TARGETS}.items():
        if name != without:
            file = tmp_path / "site/sglang" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    tables = [made_table(), made_table("mha_threshold", {"form": "threshold", "max_tokens": 512})]
    said, lines = registered(tmp_path, tables)
    assert len(said) == len(hooked)
    assert all(line.endswith(end) for line, end in zip(said, hooked, strict=True)), said
    if left_out is None:
        assert lines == [f"DSA tuned tables of the plugin: {'; '.join(sorted(table.file_name for table in tables))}"]
    else:
        assert lines[0].startswith("DSA tuned tables: sglang 0.5.99 has no sglang.srt.")
        assert lines[0].endswith(f"{left_out} tables are left out.")
        assert len(lines) == 2


def test_a_plugin_of_which_nothing_is_left_says_one_line(tmp_path):
    (tmp_path / "site/sglang").mkdir(parents=True)
    (tmp_path / "site/sglang/__init__.py").write_text("")
    said, lines = registered(tmp_path, [made_table()])
    assert (said, len(lines)) == ([], 1)
    assert lines[0].endswith("set_dsa_prefill_impl; flashmla_auto tables are left out.")


def registered(folder, tables):
    """Lines of the hook registry, and of the log, of a start beside `folder/site/sglang`."""
    with zipfile.ZipFile(build_plugin([as_file(table) for table in tables], folder)) as wheel:
        wheel.extractall(folder / "site")
    program = "import sys; sys.path.insert(0, sys.argv[1]); from sglang_dsa_tuned.plugin import register; register()"
    words = [sys.executable, "-I", "-B", "-c", program, str(folder / "site")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_the_plugin_without_sglang_says_so_and_does_nothing(tmp_path):
    with zipfile.ZipFile(build_plugin([as_file(made_table())], tmp_path)) as wheel:
        wheel.extractall(tmp_path / "site")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from importlib.metadata import entry_points; "
        "[one] = entry_points(group='sglang.srt.plugins'); one.load()()"
    )
    words = [sys.executable, "-I", "-c", program, str(tmp_path / "site")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == "DSA tuned tables: no sglang here; the plugin does nothing.\n"


def test_expired_tables_end_the_check_with_1(tmp_path, capsys):
    table = write_table(tmp_path, made_table())
    assert run(["emit", "check", str(table), "--device", "NVIDIA B200"]) == 1
    said = capsys.readouterr()
    assert "is for NVIDIA_H200, here is NVIDIA_B200" in said.out
    assert "--runtime says where sglang" in said.err


def test_what_several_tables_have_in_common_is_said_once(tmp_path, capsys):
    tables = [made_table(), made_table("mha_threshold", {"form": "threshold", "max_tokens": 512})]
    files = [str(write_table(tmp_path, table)) for table in tables]
    assert run(["emit", "check", *files, "--device", "NVIDIA B200"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{file}: no longer matches" for file in files]
    assert lines[2] == "  is for NVIDIA_H200, here is NVIDIA_B200"
    assert len(lines) == len(set(lines))


def test_a_patch_says_what_its_tables_were_measured_with_where_that_is_another_version(tmp_path, capsys):
    tables = [
        made_table(),
        made_table(device="NVIDIA_B200", evidence={"label": "measured", "versions": {"sglang": "0.5.16"}}),
    ]
    words = ["emit", *(str(write_table(tmp_path, table)) for table in tables), "--as", "patch"]
    assert run([*words, "--runtime", str(made_tree(tmp_path)), "--json"]) == 0
    note = f"{tables[1].file_name} was measured with sglang 0.5.16, this is 0.5.9"
    assert json.loads(capsys.readouterr().out)["notes"] == [note]
