from __future__ import annotations

import difflib
import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.emit import patch as patching
from dsabench.emit.manifest import FILE_NAME
from dsabench.emit.package_data import with_tables_listed
from dsabench.emit.patch import apply_patch, plan_patch, revert_patch, state_of
from dsabench.emit.tables import read_tables, table_json, write_table
from dsabench.emit.touch import LOADER, TABLES
from dsabench.emit.tree import find_tree
from dsabench.errors import InputError, StoreError
from unit.emit.made import ARGUMENTS, BACKEND, VERSION, as_file, made_table, made_tree

THRESHOLD = made_table("mha_threshold", {"form": "threshold", "max_tokens": 1024})


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in files}


def folders(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_dir()}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_applied_again_and_reverted(tmp_path, newline):
    package = made_tree(tmp_path, newline=newline)
    (package / "srt/server_args.py").chmod(0o600)
    before, made = content(tmp_path), folders(tmp_path)
    tree = find_tree(tmp_path)
    patch = plan_patch(tree, [as_file(made_table()), as_file(THRESHOLD)])
    assert content(tmp_path) == before, "planning writes nothing"
    assert apply_patch(patch)
    after = content(tmp_path)
    assert set(after) - set(before) == {
        f"sglang/{name}"
        for name in (LOADER, f"{TABLES}/{made_table().file_name}", f"{TABLES}/{THRESHOLD.file_name}", FILE_NAME)
    }
    assert after["sglang/srt/server_args.py"][1] == before["sglang/srt/server_args.py"][1]
    assert not apply_patch(plan_patch(tree, [as_file(made_table()), as_file(THRESHOLD)]))
    assert content(tmp_path) == after
    assert revert_patch(tree)
    assert content(tmp_path) == before
    assert folders(tmp_path) == made
    assert not revert_patch(tree)


def test_only_the_bytes_of_the_touch_points_change(tmp_path):
    package = made_tree(tmp_path, newline="\r\n")
    apply_patch(plan_patch(find_tree(package), [as_file(made_table())]))
    text = (package / "srt/layers/attention/nsa_backend.py").read_bytes().decode()
    assert "\n" not in text.replace("\r\n", "")
    lost = [line for line in difflib.ndiff(BACKEND.splitlines(), text.splitlines()) if line.startswith("- ")]
    assert lost == []


def test_tables_whose_names_differ_at_their_ends(tmp_path):
    package = made_tree(tmp_path)
    tables = [THRESHOLD, THRESHOLD.model_copy(update={"kv_cache_dtype": "bfloat16"})]
    apply_patch(plan_patch(find_tree(package), [as_file(table) for table in tables]))
    written = {path.name: path.read_text() for path in (package / TABLES).iterdir()}
    assert written == {table.file_name: table_json(table) for table in tables}


def test_other_tables_take_the_place_of_the_first(tmp_path):
    package = made_tree(tmp_path)
    before = content(tmp_path)
    tree = find_tree(package)
    apply_patch(plan_patch(tree, [as_file(made_table()), as_file(THRESHOLD)]))
    other = plan_patch(tree, [as_file(made_table(rule={"form": "ratio", "kv_per_new_token": 8}))])
    assert state_of(tree, other) == "other tables"
    apply_patch(other)
    assert state_of(tree, other) == "applied"
    assert [path.name for path in (package / TABLES).iterdir()] == [made_table().file_name]
    revert_patch(tree)
    assert content(tmp_path) == before


def test_a_file_changed_since_is_left_alone(tmp_path):
    package = made_tree(tmp_path)
    tree = find_tree(package)
    patch = plan_patch(tree, [as_file(made_table())])
    apply_patch(patch)
    file = package / "srt/server_args.py"
    file.write_text(file.read_text() + "# mine\n")
    before = content(tmp_path)
    assert state_of(tree, patch) == "changed since"
    for act in (lambda: revert_patch(tree), lambda: apply_patch(patch)):
        with pytest.raises(InputError, match=r"server_args\.py: changed since it was patched"):
            act()
    assert content(tmp_path) == before


def test_a_check_ends_with_2_where_apply_would_be_refused(tmp_path, capsys):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    other = write_table(tmp_path / "other", made_table(rule={"form": "ratio", "kv_per_new_token": 8}))

    def ends(action, of=table):
        code = run(["emit", str(of), "--as", "patch", "--runtime", str(package), action, "--json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out).get("state", printed.err)

    assert ends("--check") == (0, "clean")
    assert ends("--apply") == ends("--check") == (0, "applied")
    assert ends("--check", other) == (0, "other tables")
    file = package / "srt/server_args.py"
    file.write_text(file.read_text() + "# mine\n")
    assert ends("--check") == ends("--check", other) == (2, "changed since")
    code, why = ends("--apply")
    assert (code, "changed since it was patched" in why) == (2, True)


def test_what_an_upgrade_left_of_a_patch_is_taken_off_and_the_new_version_is_not_touched(tmp_path):
    """An installer takes away what it brought and leaves what the patch added."""
    package = made_tree(tmp_path)
    table = [as_file(made_table())]
    apply_patch(plan_patch(find_tree(package), table))
    for name, text in {"srt/server_args.py": ARGUMENTS, "srt/layers/attention/nsa_backend.py": BACKEND}.items():
        (package / name).write_text(text + "# of 0.5.12\n")
    (package / "_version.py").write_text(VERSION.replace("0.5.9", "0.5.12"))
    tree = find_tree(package)
    upgraded = content(tmp_path)
    assert state_of(tree) == "incomplete"
    apply_patch(plan_patch(tree, table))
    text = (package / "srt/layers/attention/nsa_backend.py").read_text()
    assert "dsa_tuned.prefill_impl(" in text
    assert text.endswith("# of 0.5.12\n")
    revert_patch(tree)
    assert set(upgraded) - set(content(tmp_path)) == {
        f"sglang/{name}" for name in (LOADER, f"{TABLES}/{made_table().file_name}", FILE_NAME)
    }
    assert content(tmp_path).items() <= upgraded.items()


def test_a_rebuilt_checkout_that_still_asks_for_the_loader_is_left_alone(tmp_path):
    package = made_tree(tmp_path)
    apply_patch(plan_patch(find_tree(package), [as_file(made_table())]))
    file = package / "srt/server_args.py"
    file.write_text(file.read_text() + "# mine\n")
    (package / "_version.py").write_text(VERSION.replace("0.5.9", "0.5.9.post1.dev3"))
    with pytest.raises(InputError, match=r"server_args\.py: changed since it was patched"):
        revert_patch(find_tree(package))


def test_links_of_an_installer_are_links_again(tmp_path):
    package, cache = made_tree(tmp_path / "site"), tmp_path / "cache"
    cache.mkdir()
    for name in ("srt/server_args.py", "srt/layers/attention/nsa_backend.py"):
        file = package / name
        file.rename(cache / file.name)
        file.symlink_to(cache / file.name)
    before = content(cache)
    tree = find_tree(package)
    apply_patch(plan_patch(tree, [as_file(made_table())]))
    assert content(cache) == before, "what other environments point to stays"
    assert not (package / "srt/server_args.py").is_symlink()
    revert_patch(tree)
    assert (package / "srt/server_args.py").readlink() == cache / "server_args.py"
    assert sorted(path.name for path in (package / "srt").iterdir()) == ["layers", "server_args.py"]


def test_a_package_behind_a_link_and_a_table_of_somebody_else(tmp_path):
    package = made_tree(tmp_path / "real")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sglang").symlink_to(package)
    before = content(tmp_path / "real")
    apply_patch(plan_patch(find_tree(tmp_path / "site"), [as_file(made_table())]))
    (package / TABLES / "mine.json").write_text("{}")
    assert revert_patch(find_tree(package))
    assert content(tmp_path / "real").keys() - before.keys() == {f"sglang/{TABLES}/mine.json"}
    assert state_of(find_tree(package)) == "clean"


def test_two_tables_with_one_key_are_named_and_one_given_twice_is_one(tmp_path):
    first, second = (write_table(tmp_path / name, made_table()) for name in "ab")
    package = made_tree(tmp_path)
    with pytest.raises(InputError, match=f"{first} and {second}: both have the key flashmla_auto,H=16,"):
        plan_patch(find_tree(package), read_tables([str(first), str(second)]))
    assert len(read_tables([str(first), str(first.parent)])) == 1


def test_no_room_for_a_file_is_one_line_with_its_name_and_nothing_is_left(tmp_path):
    package = made_tree(tmp_path)
    table = write_table(tmp_path / "tables", made_table())
    before = content(package)
    words = ["emit", str(table), "--as", "patch", "--runtime", str(package), "--apply"]
    unmeasured = {key: value for key, value in os.environ.items() if "COV" not in key}  # coverage's file is larger
    done = subprocess.run(
        [sys.executable, "-m", "dsabench", *words],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
        env=unmeasured,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"error: {package}/")
    assert done.stderr.endswith("File too large: the patch was not applied\n")
    assert content(package) == before


def die_in_the_middle(act, steps):
    """Do it in a process that is killed before its step number `steps`; a step writes a file or puts one in its place."""
    child = os.fork()
    if not child:
        left = [None] * steps

        def counted(step):
            def do(file, *words):
                if not left:
                    if words:
                        file.parent.mkdir(exist_ok=True)
                        patching._beside(file).write_bytes(words[0][: len(words[0]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                left.pop()
                step(file, *words)

            return do

        patching._stage, patching._swap = counted(patching._stage), counted(patching._swap)
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def asks_only_what_is_there(package: Path) -> bool:
    sources = [file for file in package.rglob("*.py") if file.name != "dsa_tuned.py"]
    return (package / LOADER).exists() or not any(b"dsa_tuned" in file.read_bytes() for file in sources)


APPLY_STEPS, REVERT_STEPS = 10, 4
"""Manifest and four files, written and put in place; two files of the runtime."""


@pytest.mark.parametrize("steps", range(APPLY_STEPS + 1))
def test_killed_while_it_applies(tmp_path, steps):
    """Whatever was written, revert restores it, apply completes it, and a server that starts before asks no loader in vain."""
    package = made_tree(tmp_path)
    before = content(tmp_path)
    tree = find_tree(package)
    patch = plan_patch(tree, [as_file(made_table())])
    assert die_in_the_middle(lambda: apply_patch(patch), steps) is (steps == APPLY_STEPS)
    assert asks_only_what_is_there(package)
    revert_patch(tree)
    assert content(tmp_path) == before
    die_in_the_middle(lambda: apply_patch(patch), steps)
    state = {0: "clean", 1: "clean", APPLY_STEPS: "applied"}.get(steps, "incomplete")
    assert state_of(tree, patch) == state
    apply_patch(patch)
    assert state_of(tree, patch) == "applied"
    revert_patch(tree)
    assert content(tmp_path) == before


@pytest.mark.parametrize("steps", range(REVERT_STEPS + 1))
def test_killed_while_it_reverts(tmp_path, steps):
    package = made_tree(tmp_path)
    before = content(tmp_path)
    tree = find_tree(package)
    patch = plan_patch(tree, [as_file(made_table())])
    apply_patch(patch)
    assert die_in_the_middle(lambda: revert_patch(tree), steps) is (steps == REVERT_STEPS)
    assert asks_only_what_is_there(package)
    revert_patch(tree)
    assert content(tmp_path) == before


def test_no_room_to_revert_leaves_the_patch_whole(tmp_path, monkeypatch):
    package = made_tree(tmp_path)
    before = content(tmp_path)
    tree = find_tree(package)
    apply_patch(plan_patch(tree, [as_file(made_table())]))
    after, stage, left = content(tmp_path), patching._stage, [None]

    def full_after_one(file, *words):
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        left.pop()
        stage(file, *words)

    with monkeypatch.context() as disk:
        disk.setattr(patching, "_stage", full_after_one)
        with pytest.raises(StoreError, match="No space left on device: revert again to go on"):
            revert_patch(tree)
    assert content(tmp_path) == after
    revert_patch(tree)
    assert content(tmp_path) == before


def test_another_process_at_the_tree_is_waited_for_by_nobody(tmp_path):
    """Whatever its TMPDIR; a plan made of half of its patch would take that for the runtime's own."""
    package = made_tree(tmp_path)
    tree = find_tree(package)
    patch = plan_patch(tree, [as_file(made_table())])
    held = os.open(package, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    for act in (
        lambda: plan_patch(tree, [as_file(made_table())]),
        lambda: apply_patch(patch),
        lambda: revert_patch(tree),
    ):
        with pytest.raises(InputError, match="another dsabench is patching it"):
            act()
    os.close(held)
    assert apply_patch(patch)


def test_an_edit_after_the_plan_is_not_written_over(tmp_path):
    package = made_tree(tmp_path)
    patch = plan_patch(find_tree(package), [as_file(made_table())])
    file = package / "srt/server_args.py"
    file.write_text(file.read_text() + "# mine\n")
    before = content(tmp_path)
    with pytest.raises(InputError, match=r"server_args\.py: changed since the patch was planned"):
        apply_patch(patch)
    assert content(tmp_path) == before


def test_what_cannot_be_written_is_taken_back(tmp_path):
    package = made_tree(tmp_path)
    before = content(tmp_path)
    patch = plan_patch(find_tree(package), [as_file(made_table())])
    (package / "srt/layers/attention/dsa_tuned_configs").write_text("a file where a folder should be")
    blocked = content(tmp_path)
    with pytest.raises(StoreError, match="was not applied"):
        apply_patch(patch)
    assert content(tmp_path) == blocked
    (package / "srt/layers/attention/dsa_tuned_configs").unlink()
    assert content(tmp_path) == before


def test_the_call_is_laid_out_as_the_runtime_lays_out_its_own(tmp_path):
    in_graph = "        if is_in_a_cuda_graph() or is_in_another_cuda_graph():\n            self.use_mha = False\n"
    package = made_tree(tmp_path, backend=BACKEND.replace("        # Which", in_graph + "        # Which"))
    apply_patch(plan_patch(find_tree(package), [as_file(made_table())]))
    file = package / "srt/layers/attention/nsa_backend.py"
    assert "cp()\n                or is_in_a_cuda_graph()\n                or is_in_another" in file.read_text()
    ruff = ["ruff", "format", "--isolated", "--line-length", "88", "--check", str(file), str(package / LOADER)]
    subprocess.run([sys.executable, "-m", *ruff], check=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BACKEND.replace("is_nsa_enable_prefill_cp()", "False"), "does not ask for context parallelism"),
        (BACKEND + "        return None\n", "does not end with the choice of flashmla_auto"),
        (BACKEND.replace("enable_auto_select_prefill_impl", "auto"), "no sparse attention backend with flashmla_auto"),
        (BACKEND + BACKEND.partition("\n\n\n")[2], "2 times, expected once"),
        ("if enable_auto_select_prefill_impl\n", "is no valid Python"),
    ],
)
def test_a_tree_of_another_form_is_refused_with_the_reason(tmp_path, text, reason):
    package = made_tree(tmp_path, backend=text)
    before = content(tmp_path)
    with pytest.raises(InputError) as caught:
        plan_patch(find_tree(package), [as_file(made_table())])
    assert reason in str(caught.value)
    assert "0.5.9" in str(caught.value)
    assert content(tmp_path) == before


def test_hard_links_of_an_installers_cache_keep_their_content(tmp_path):
    package = made_tree(tmp_path / "site")
    cached = tmp_path / "cached.py"
    os.link(package / "srt/server_args.py", cached)
    before = cached.read_bytes()
    apply_patch(plan_patch(find_tree(package), [as_file(made_table())]))
    assert cached.read_bytes() == before


def test_a_checkout_lists_the_tables_among_its_package_data(tmp_path):
    made_tree(tmp_path / "python")
    project = tmp_path / "python/pyproject.toml"
    project.write_text('[tool.setuptools.package-data]\n# kept\n"sglang" = [\n    "srt/a/*.json",\n]\n')
    before = content(tmp_path)
    tree = find_tree(tmp_path)
    apply_patch(plan_patch(tree, [as_file(made_table())]))
    text = project.read_text()
    assert '    "srt/a/*.json",\n    "srt/layers/attention/dsa_tuned_configs/*.json",\n' in text
    assert "# kept" in text
    revert_patch(tree)
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("listed", "is_taken"),
    [
        ("srt/**/*", True),
        ("srt/layers/attention/*/*.json", True),
        ("srt/*.json", False),
        ("srt/layers/moe/**/*", False),
    ],
)
def test_a_build_that_takes_the_tables_already_stays_as_it_is(listed, is_taken):
    project = f'[tool.setuptools.package-data]\nsglang = ["{listed}"]\n'.encode()
    assert (with_tables_listed(project, f"{TABLES}/*.json") == project) is is_taken


def test_no_tree_and_no_version(tmp_path):
    with pytest.raises(InputError, match="no sglang here"):
        find_tree(tmp_path)
    package = made_tree(tmp_path)
    (package / "_version.py").unlink()
    with pytest.raises(InputError, match=r"no _version\.py and no tag of git"):
        find_tree(package)
    (package / "_version.py").write_text("__version__ = 'of today'\n")
    with pytest.raises(InputError, match=r"_version\.py: of today: no version"):
        find_tree(package)


def test_a_record_of_a_patch_that_cannot_be_read_is_named_with_the_way_out(tmp_path):
    package = made_tree(tmp_path)
    (package / FILE_NAME).write_text("{")
    with pytest.raises(InputError, match=r"dsabench-patch\.json: Invalid JSON.*install sglang anew"):
        revert_patch(find_tree(package))
