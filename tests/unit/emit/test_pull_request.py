from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.emit.patch import apply_patch, plan_patch, revert_patch
from dsabench.emit.pull_request import commit_tables
from dsabench.emit.tables import write_table
from dsabench.emit.touch import LOADER, TABLES
from dsabench.emit.tree import find_tree
from dsabench.errors import InputError
from dsabench.results.tuned_tables import read_table
from unit.emit.made import as_file, made_table, made_tree

EVIDENCE = {
    "label": "measured",
    "versions": {"sglang": "0.5.9"},
    "regret": 0.004,
    "regret_shipped": 0.11,
    "regret_static": 0.02,
    "gains": {"weighted": 0.08, "least": 0.0, "median": 0.05, "effective_shapes": 4.2, "slower_shapes": 0},
    "n": 30,
    "command": "dsabench tune flashmla-auto h200",
    "conditions": ["prefill batches of 64 to 8192 new tokens"],
}

OTHER = {"form": "ratio", "kv_per_new_token": 8}


def git(folder, *words):
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    made_tree(folder / "python")
    (folder / "python/pyproject.toml").write_text('[tool.setuptools.package-data]\nsglang = ["srt/a/*.json"]\n')
    (folder / ".gitignore").write_text("*.json\n_version.py\n")
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    for name, value in (("user.name", "A"), ("user.email", "a@example.org")):
        git(folder, "config", name, value)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_branch_commits_and_text(checkout, tmp_path, capsys):
    table = write_table(tmp_path, made_table(evidence=EVIDENCE))
    table.with_suffix(".svg").write_text("<svg/>")
    (checkout / "untracked.txt").write_text("mine")
    before = git(checkout, "rev-parse", "HEAD")
    assert run(["emit", "pr", str(table), "--runtime", str(checkout), "--out", str(tmp_path / "pr")]) == 0
    said = capsys.readouterr().out
    assert "push -u origin dsa-tuned-tables" in said
    assert "gh pr create --head dsa-tuned-tables" in said
    assert git(checkout, "status", "--porcelain") == "?? untracked.txt"
    assert git(checkout, "branch", "--show-current") == "main"
    assert git(checkout, "rev-parse", "HEAD") == before
    assert git(checkout, "log", "--format=%s", "main..dsa-tuned-tables").splitlines() == [
        "DSA: tuned tables for NVIDIA_H200",
        "DSA: read tuned tables (flashmla_auto)",
    ]
    changed = git(checkout, "diff", "--name-only", "main", "dsa-tuned-tables").splitlines()
    assert "python/pyproject.toml" in changed
    assert any(made_table().file_name in name for name in changed), "although git ignores JSON"
    assert not any("dsabench" in name for name in changed)
    assert git(checkout, "worktree", "list").count("\n") == 0
    body = (tmp_path / "pr/pull-request.md").read_text()
    assert all(f"- `{name}`\n" in body for name in changed), "as the repository names them"
    for wanted in (
        "speed +8.0% weighted, +0.0% at least, +5.0% in the median of 30 shapes (4.2 by weight); slower: none",
        "kernels bench sparse_prefill",
        "0.40% | 11.00% | 2.00%",
        "dsabench tune flashmla-auto h200",
        "figure-1.svg",
    ):
        assert wanted in body
    assert (tmp_path / "pr/figure-1.svg").read_text() == "<svg/>"


REGISTER = "def register_cpu_ci(est_time, suite):\n    assert (est_time, suite) == (5, 'base-a-test-cpu')\n"


def test_where_the_runtime_has_unit_tests_one_comes_along_and_passes(checkout, tmp_path):
    there = checkout / "test/registered/unit/layers"
    there.mkdir(parents=True)
    for number in (1, 2):
        (there / f"test_{number}.py").write_text('register_cpu_ci(est_time=1, suite="base-a-test-cpu")\n')
    (there / "test_3.py").write_text('register_cpu_ci(est_time=1, suite="nightly", nightly=True)\n')
    register = checkout / "python/sglang/test/ci/ci_register.py"
    register.parent.mkdir(parents=True)
    register.write_text(REGISTER)
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "tests")
    table = write_table(tmp_path, made_table(evidence=EVIDENCE))
    assert run(["emit", "pr", str(table), "--runtime", str(checkout), "--out", str(tmp_path / "pr")]) == 0
    git(checkout, "checkout", "-q", "dsa-tuned-tables")
    test = "test/registered/unit/attention/test_dsa_tuned.py"
    assert git(checkout, "log", "--format=%s", "--", test) == "DSA: read tuned tables (flashmla_auto)"
    assert f"- `{test}`\n" in (tmp_path / "pr/pull-request.md").read_text()
    assert upstream(checkout, test).returncode == 0
    loader = checkout / "python/sglang" / LOADER
    text, wrong = loader.read_text(), "kv_tokens >= new_tokens"
    assert wrong in text
    loader.write_text(text.replace(wrong, "kv_tokens > new_tokens"))
    assert upstream(checkout, test).returncode == 1, "it notices a loader that is wrong"
    assert "hisparse" not in text + (checkout / test).read_text(), "what other kinds need stays away"


def upstream(checkout: Path, test: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(checkout / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, test], cwd=checkout, env=path, capture_output=True, text=True, check=False)


def test_servers_with_and_without_the_tables_are_compared_in_the_text(checkout, tmp_path, capsys):
    table = write_table(tmp_path, made_table(evidence=EVIDENCE))
    words = ["emit", "pr", str(table), "--runtime", str(checkout), "--out", str(tmp_path / "pr")]
    auto = Path(__file__).parents[3] / "results" / "h200" / "auto"
    assert run([*words, "--before", str(auto / "shipped")]) == 2
    assert "--before and --after go together" in capsys.readouterr().err
    small = auto.parent / "small-steps"
    pairs = [["--before", str(folder / "shipped"), "--after", str(folder / "patched")] for folder in (small, auto)]
    assert run([*words, *pairs[0], "--before", str(auto / "shipped")]) == 2
    assert "--before and --after go together" in capsys.readouterr().err
    assert run([*words, *pairs[0], *pairs[1], "--metric", "input_throughput_tok_s"]) == 0
    body = (tmp_path / "pr/pull-request.md").read_text()
    assert body.index(f"### {small}/patched against") < body.index(f"### {auto}/patched against")
    assert "| p3000 | input_throughput_tok_s | +11.5 % |" in body
    assert "| p7000 | input_throughput_tok_s | +1" in body
    assert "--metric input_throughput_tok_s --across-environments" in body
    for limit in (
        "- sglang 0.5.16 on NVIDIA H200, model slices/v3.2-dp8-ep8-20l.",
        "- That model is what one of 8 GPUs computes (dp 8, ep 8), in fewer than the 61 layers of the whole",
        "- h200-auto: without CUDA graphs, ",
        "- Random weights: these are speeds",
        "- At the server this was not shown for every table above",
    ):
        assert body.count(limit) == 1


def test_a_text_for_another_version_than_the_measured_one_says_so(checkout, tmp_path):
    table = write_table(tmp_path, made_table(evidence={**EVIDENCE, "versions": {"sglang": "0.5.16"}}))
    assert run(["emit", "pr", str(table), "--runtime", str(checkout), "--out", str(tmp_path / "pr")]) == 0
    body = (tmp_path / "pr/pull-request.md").read_text()
    assert f"- {table.name} was measured with sglang 0.5.16, this is 0.5.9.\n" in body.partition("## Limits")[2]


def test_a_runtime_that_reads_tables_already_takes_those_alone(checkout, tmp_path, capsys):
    """A second pull request, after the first was merged."""
    commit_tables(checkout, [as_file(made_table())], "first")
    git(checkout, "merge", "-q", "first")
    with pytest.raises(InputError, match="are in its HEAD already"):
        commit_tables(checkout, [as_file(made_table())], "again")
    assert git(checkout, "branch", "--list", "again") == ""
    b200 = write_table(tmp_path, made_table(device="NVIDIA_B200", evidence=EVIDENCE))
    words = ["emit", "pr", str(b200), "--runtime", str(checkout), "--out", str(tmp_path / "pr"), "--branch", "second"]
    assert run([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["commits"]) == 1
    added = f"python/sglang/{TABLES}/{b200.name}"
    assert git(checkout, "diff", "--name-only", "main", "second") == added
    assert "the code that reads them is there" in (tmp_path / "pr/pull-request.md").read_text()
    more = made_table("mha_threshold", {"form": "threshold", "max_tokens": 1024})
    third = commit_tables(checkout, [as_file(made_table(rule=OTHER)), as_file(more)], "third")
    assert [name.rpartition("/")[2] for name in third.files] == [
        "dsa_tuned.py",
        made_table().file_name,
        more.file_name,
        "nsa_backend.py",
    ], "another rule in place of the first, the loader with the other kind, and the one place that was not asked before"
    patched = plan_patch(find_tree(checkout), [as_file(made_table(rule=OTHER))])
    before = git(checkout, "status", "--porcelain")
    assert apply_patch(patched)
    assert revert_patch(find_tree(checkout))
    assert git(checkout, "status", "--porcelain") == before


def test_a_sweeps_interval_says_its_boots_and_that_its_level_may_be_higher(checkout, tmp_path):
    evidence = {**EVIDENCE, "gains": None, "ci_low": 0.08, "ci_high": 0.13, "metric": "input_throughput_tok_s", "n": 6}
    table = write_table(
        tmp_path, made_table("mha_threshold", {"form": "threshold", "max_tokens": 1024}, evidence=evidence)
    )
    assert run(["emit", "pr", str(table), "--runtime", str(checkout), "--out", str(tmp_path / "pr")]) == 0
    assert "+8.0% … +13.0% (95 % or more, 6 boots a side)" in (tmp_path / "pr/pull-request.md").read_text()


@pytest.mark.parametrize("name", ["two words", "a..b", "-x", ""])
def test_what_git_takes_for_no_branch_is_refused(checkout, name):
    with pytest.raises(InputError, match="git allows no branch of that name"):
        commit_tables(checkout, [as_file(made_table())], name)


def test_a_checkout_without_a_build_is_of_the_version_of_its_last_tag(checkout):
    (checkout / "python/sglang/_version.py").unlink()
    with pytest.raises(InputError, match="no tag of git"):
        find_tree(checkout)
    git(checkout, "tag", "v0.5.16")
    git(checkout, "tag", "gateway-v0.3.1")
    git(checkout, "commit", "-qm", "later", "--allow-empty")
    assert str(find_tree(checkout).version) == "0.5.16"


def test_a_branch_that_exists_is_refused(checkout):
    git(checkout, "branch", "taken")
    with pytest.raises(InputError, match="there is a branch taken already"):
        commit_tables(checkout, [as_file(made_table())], "taken")


def test_a_repository_without_a_commit_is_refused(tmp_path):
    made_tree(tmp_path / "python")
    git(tmp_path, "init", "-q", "-b", "main")
    for name, value in (("user.name", "A"), ("user.email", "a@example.org")):
        git(tmp_path, "config", name, value)
    with pytest.raises(InputError, match="has no commit yet"):
        commit_tables(tmp_path, [as_file(made_table())], "new")


def test_a_refused_patch_leaves_no_branch(checkout):
    file = checkout / "python/sglang/srt/layers/attention/nsa_backend.py"
    file.write_text("pass\n")
    git(checkout, "commit", "-qam", "emptied")
    with pytest.raises(InputError, match="no sparse attention backend"):
        commit_tables(checkout, [as_file(made_table())], "new")
    assert git(checkout, "branch", "--list", "new") == ""
    assert git(checkout, "worktree", "list").count("\n") == 0


def test_what_is_committed_is_what_the_patch_applies(checkout, tmp_path):
    path = write_table(tmp_path, made_table(evidence=EVIDENCE))
    patch = plan_patch(find_tree(checkout), [as_file(read_table(path))])
    commit_tables(checkout, [as_file(read_table(path))], "new")
    git(checkout, "switch", "-q", "new")
    package = find_tree(checkout).package
    assert all((package / name).read_bytes() == content for name, content in patch.after.items())
