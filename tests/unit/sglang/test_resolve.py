"""A release's own argument code, asked in a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.cli.app import app
from dsabench.errors import InputError
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.hardware import HARDWARE, accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.command import Launch
from dsabench.runtimes.plan import LaunchPlan
from dsabench.sglang.accepts import flags_of_release
from dsabench.sglang.resolve import adding, releases, settings
from dsabench.sglang.resolve.client import ArgumentAnswer, ArgumentCase, ArgumentProcess, source_of, source_of_launch
from dsabench.sglang.resolve.releases import AddedRelease
from dsabench.sglang.rules.table import judge, rules_gone
from dsabench.sglang.runtime import SglangRuntime
from far_sides import far_side
from sglang_wheel import VERSION, build_wheel

MODEL = {"v3.2": {"model_type": "deepseek_v32"}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; and another one for what a killed process leaves."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "cache" / "dsabench"


@pytest.fixture
def release(cache: Path, tmp_path: Path) -> AddedRelease:
    """The wheel, added."""
    return adding.add_release(str(build_wheel(tmp_path)), lambda _: None)


@pytest.fixture
def process(release: AddedRelease) -> Iterator[ArgumentProcess]:
    """The wheel's argument code on an H200."""
    started = ArgumentProcess(source_of(release), HARDWARE["h200"])
    yield started
    started.close()


def ask(process: ArgumentProcess, *words: str, **env: str) -> ArgumentAnswer:
    """What it says to one command line."""
    (answer,) = process.ask([ArgumentCase(("--model-path", "v3.2", *words), env, MODEL)])
    return answer


def test_a_legal_setting_comes_back_resolved_with_what_was_logged(process: ArgumentProcess) -> None:
    answer = ask(process, "--tp-size", "8")
    assert (process.failed, answer.verdict) == (None, "runs")
    assert answer.resolved["kv_cache_dtype"] == "bfloat16"
    assert answer.resolved["memory"] == 141
    assert answer.resolved["model_type"] == "deepseek_v32"
    assert answer.resolved["plugin"] is False  # a package that nothing requires is not there
    assert answer.warnings == ("Setting KV cache dtype to bfloat16 for v3.2",)


def test_the_gpu_decides(release: AddedRelease) -> None:
    process = ArgumentProcess(source_of(release), HARDWARE["b200"])
    assert ask(process).resolved["kv_cache_dtype"] == "fp8_e4m3"
    process.close()


@pytest.mark.parametrize(
    ("name", "architecture"), [("mi300x", "gfx942"), ("mi355x", "gfx950"), ("gfx90a-64gib", "gfx90a")]
)
def test_amds_architecture_has_its_own_name(release: AddedRelease, name: str, architecture: str) -> None:
    process = ArgumentProcess(source_of(release), accelerator(name))
    assert ask(process).resolved["architecture"] == architecture
    process.close()


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        (("--tp-size", "8", "--dp-size", "3"), "ValueError", "tp_size 8 must be divisible by dp_size 3"),
        (("--tp-size", "16"), "AssertionError", "more ranks than GPUs"),
        (("--tp-size", "8", "--dp-size", "4"), "TypeError", "unsupported operand type"),
        (("--tp", "8", "--kv-cache-dtype", "int3"), "argparse", "argument --kv-cache-dtype: invalid choice: 'int3'"),
        (("--no-such-flag",), "argparse", "unrecognized arguments: --no-such-flag"),
    ],
)
def test_a_refusal_is_told_in_sglangs_words(
    process: ArgumentProcess, words: tuple[str, ...], kind: str, text: str
) -> None:
    answer = ask(process, *words)
    assert (answer.verdict, answer.kind) == ("refused", kind)
    assert answer.text.startswith(text)
    assert answer.at == "the parser" or answer.at.startswith("srt/server_args.py:")


def test_what_a_stub_breaks_is_no_refusal(process: ArgumentProcess) -> None:
    answer = ask(process, "--tp-size", "5", "--dp-size", "5")
    assert answer.verdict == "cannot_say"
    assert answer.text.startswith("AttributeError")


def test_what_only_the_serving_machine_has_is_no_refusal(process: ArgumentProcess) -> None:
    assert ask(process, "--disaggregation-ib-device", "mlx5_0").verdict == "runs"
    missing = ask(process, "--speculative-adaptive-config", "/models/adaptive.json")
    assert (missing.verdict, "No such file" in missing.text) == ("cannot_say", True)


def test_a_case_that_dies_takes_no_other_with_it(process: ArgumentProcess) -> None:
    cases = [ArgumentCase(("--model-path", "v3.2", "--tp-size", "7", "--dp-size", n), {}, MODEL) for n in "17171"]
    verdicts = [answer.verdict for answer in process.ask(cases)]
    assert verdicts == ["runs", "cannot_say", "runs", "cannot_say", "runs"]


def test_more_cases_than_are_sent_at_once_are_answered_in_order(process: ArgumentProcess) -> None:
    words = [("--tp-size", str(1 + number % 8)) for number in range(60)]
    answers = process.ask([ArgumentCase(("--model-path", "v3.2", *own), {}, MODEL) for own in words])
    assert [answer.resolved["tp_size"] for answer in answers] == [int(size) for _, size in words]


def test_nothing_is_left_when_it_is_closed(
    release: AddedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (room := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    process = ArgumentProcess(source_of(release), HARDWARE["h200"])
    ask(process, "--tp-size", "8")
    assert [*room.glob("dsabench-models-*/*/config.json")]
    process.close()
    assert not [*room.iterdir()]


def test_a_killed_process_is_no_refusal(process: ArgumentProcess) -> None:
    process._process.kill()
    answer = ask(process, "--tp-size", "8")
    assert answer.verdict == "cannot_say"
    assert process.failed


def test_adding_keeps_flags_and_leaves_libraries_out(release: AddedRelease) -> None:
    assert (release.version, release.packages) == (VERSION, None)
    assert not [*release.tree.rglob("*.so")]
    assert releases.added_releases() == (release,)
    accepted = flags_of_release(VERSION)
    assert accepted.flags["--kv-cache-dtype"].choices == ("auto", "bfloat16", "fp8_e4m3")
    assert "SGLANG_SLEEP_S" in accepted.variables


def test_a_release_that_does_not_start_is_not_added(cache: Path, tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, args="import torch\nraise RuntimeError('made for another Python')\n")
    with pytest.raises(InputError, match="does not start: RuntimeError: made for another Python"):
        adding.add_release(str(wheel), lambda _: None)
    assert releases.added_releases() == ()
    assert not [*(cache / "runtimes").iterdir()]


@pytest.mark.parametrize("wanted", ["none.whl", "sglang", "torch==2.9.1"])
def test_what_is_no_release_is_one_line(cache: Path, wanted: str) -> None:
    with pytest.raises(InputError, match=r"no such file|write sglang==VERSION") as caught:
        adding.add_release(wanted, lambda _: None)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_wheel_is_one_line(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "sglang-1.whl").write_text("no archive")
    with pytest.raises(InputError, match="cannot be added"):
        adding.add_release(str(tmp_path / "sglang-1.whl"), lambda _: None)


def test_removing(release: AddedRelease) -> None:
    releases.remove_release(VERSION)
    assert releases.added_releases() == ()
    with pytest.raises(InputError, match=r"was not added \(added: none\)"):
        releases.remove_release(VERSION)


def setting(**knobs: str | int | bool) -> RuntimeSpec:
    """A setting of DeepSeek-V3.2 on H200s."""
    return RuntimeSpec(kind="sglang", model="deepseek-ai/DeepSeek-V3.2", hardware="h200", knobs=knobs)


def test_check_refuses_in_the_runtimes_words(release: AddedRelease) -> None:
    runtime = SglangRuntime(Launch())
    good, bad = runtime.check((setting(tp_size=8), setting(tp_size=8, dp_size=3)), VERSION)
    assert good.refusal is None
    assert good.basis.startswith("its own argument code")
    assert bad.refusal is not None
    assert bad.refusal.by == "runtime"
    assert bad.refusal.rule.startswith("server_args.py:")
    assert bad.refusal.line == (
        f"sglang 0.5.99.post1 refuses it: ValueError: tp_size 8 must be divisible by dp_size 3 (srt/{bad.refusal.rule})"
    )
    assert runtime.nearest(setting(tp_size=8, dp_size=3), VERSION) == ("dp_size",)
    assert runtime.nearest(setting(tp_size=8), VERSION) == ()


def test_an_argument_is_asked_about_like_a_knob(release: AddedRelease) -> None:
    runtime = SglangRuntime(Launch())
    asked = [{"args.hicache_ratio": value} for value in ("much", 3)]
    bad, good = runtime.check([setting(tp_size=8, **args) for args in asked], VERSION)
    assert bad.refusal is not None
    assert "argument --hicache-ratio: invalid float value: 'much'" in bad.refusal.line
    assert (good.refusal, [note.rule for note in good.notes]) == (None, ["VR01"])
    assert runtime.nearest(setting(tp_size=8, **asked[0]), VERSION) == ("args.hicache_ratio",)


def test_what_is_installed_is_asked_before_a_release_of_the_same_version(release: AddedRelease) -> None:
    """It may be patched."""
    runtime = SglangRuntime(Launch())
    identity = RuntimeIdentity(kind="sglang", version=VERSION, wheel_hash="of a patched one")
    vars(runtime).update(_identity=identity, _accepted=flags_of_release(VERSION))
    runtime.check((setting(tp_size=8),))
    asked = runtime.checks[None]
    assert asked is not None
    assert (asked.source.tree, asked.source.wheel_hash) == (None, "of a patched one")
    asked.close()


@contextmanager
def far_shell(folder: Path) -> Iterator[Launch]:
    """A program named ssh that hands its words to a shell as one text, as sshd does, after a greeting."""
    program = folder / "ssh"
    program.write_text('#!/bin/sh\nshift\necho "Welcome to {far}"\nexec sh -c "$*"\n')
    program.chmod(0o755)
    yield Launch(python=Path(sys.executable), command_prefix=(str(program), "far"))


@pytest.mark.parametrize("client", ["env", "shell", "ssh"])
def test_an_interpreter_behind_a_prefix_is_asked_there(client: str, release: AddedRelease, tmp_path: Path) -> None:
    """Only what is there: the wheel is no longer among the added releases."""
    there = tmp_path / "there"
    release.tree.rename(there)
    accepted = flags_of_release(VERSION)
    releases.remove_release(VERSION)
    (tmp_path / "far").mkdir()
    with far_shell(tmp_path / "far") if client == "shell" else far_side(client, tmp_path / "far") as far:
        prefix = (*far.command_prefix, "env", f"PYTHONPATH={there}")
        runtime = SglangRuntime(replace(far, command_prefix=prefix))
        vars(runtime).update(
            _identity=RuntimeIdentity(kind="sglang", version=VERSION, wheel_hash="far"), _accepted=accepted
        )
        good, bad = runtime.check((setting(tp_size=8), setting(tp_size=8, dp_size=3)))
        assert good.refusal is None
        assert good.resolved["kv_cache_dtype"] == "bfloat16"
        assert bad.refusal is not None
        assert bad.refusal.by == "runtime"
        asked = runtime.checks[None]
        assert asked is not None
        assert asked.source.launch is not None
        asked.close()


def test_behind_a_terminal_nobody_is_asked() -> None:
    """It repeats what it hears, and cuts long lines."""
    identity = RuntimeIdentity(kind="sglang", version=VERSION, wheel_hash="far")
    assert source_of_launch(Launch(command_prefix=("ssh", "-tt", "host")), identity) is None


def test_two_mistakes_take_two_steps(release: AddedRelease) -> None:
    spec = setting(tp_size=8, dp_size=3, max_running_requests=1)
    assert SglangRuntime(Launch()).nearest(spec, VERSION) == ("dp_size", "max_running_requests")


def test_who_was_not_asked_is_said(release: AddedRelease) -> None:
    (checked,) = SglangRuntime(Launch()).check((setting(tp_size=8, moe_dense_tp_size=3),), "0.5.23")  # not added
    assert checked.violations == ()
    assert checked.basis == "the rules for sglang 0.5.23"
    assert [note.line for note in checked.notes] == [
        "sglang 0.5.23's own checks were not asked; `dsabench runtime add sglang==0.5.23` makes them available"
    ]


CONFIG = """
name: grid
runtime: {kind: sglang, model: deepseek-ai/DeepSeek-V3.2, hardware: h200, base: {tp_size: 8, max_running_requests: 8}}
sweeps: [{axes: {dp_size: [1, 3, 8]}}]
proposer: {kind: grid}
objective: {metric: output_throughput_tok_s, direction: maximize}
workloads:
  - {name: chat, dataset: random-ids, num_prompts: 64, input_len: 64, output_len: 64}
"""


def test_config_check_asks_about_every_setting(
    release: AddedRelease, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(CONFIG)
    with pytest.raises(SystemExit) as ended:
        app(["config", "check", str(file), "--runtime-version", VERSION, "--json"])
    assert ended.value.code == 0
    ((told,),) = [json.loads(capsys.readouterr().out)]
    (refused,) = told["refused"]
    assert (told["settings"], refused["setting"], refused["by"]) == (4, "dp_size=3", "runtime")
    assert (refused["verdict"], refused["nearest"]) == ("refused", {"dp_size": None})


def test_config_check_ends_with_2_where_the_default_is_refused(
    release: AddedRelease, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(CONFIG.replace("tp_size: 8", "tp_size: 16"))
    with pytest.raises(SystemExit) as ended:
        app(["config", "check", str(file), "--runtime-version", VERSION])
    assert ended.value.code == 2
    first, *reasons = capsys.readouterr().out.splitlines()
    assert "4 of 4 settings are refused, by its own argument code" in first
    assert ["more ranks than GPUs" in line for line in reasons] == [True, False]


def test_check_tells_what_a_knob_becomes(release: AddedRelease) -> None:
    (checked,) = SglangRuntime(Launch()).check((setting(tp_size=8, max_running_requests=9),), VERSION)
    assert [note.line for note in checked.notes if note.replaced] == ["max_running_requests: asked 9, runs with 4"]


def test_what_sglang_logs_of_this_setting_alone_is_told(release: AddedRelease) -> None:
    for _ in ("asked", "remembered"):
        plain, split = SglangRuntime(Launch()).check((setting(tp_size=8), setting(tp_size=8, dp_size=2)), VERSION)
        assert [note.line for note in plain.notes if note.rule == "logged"] == []
        lines = [note.line for note in split.notes if note.rule == "logged"]
        assert lines == [f"sglang {VERSION} logs: The chunked prefill size is adjusted."]


def test_answers_are_remembered_and_torn_lines_are_not_believed(release: AddedRelease, cache: Path) -> None:
    first = settings.ArgumentCheck(source_of(release), flags_of_release(VERSION))
    said = first.ask([setting(tp_size=8), setting(tp_size=8, dp_size=3)])
    first.close()
    (file,) = (cache / "resolved").iterdir()
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0][:40], '["x", {}]', "[1", *lines]) + '\n["y"')
    again = settings.ArgumentCheck(source_of(release), flags_of_release(VERSION))
    assert again.ask([setting(tp_size=8), setting(tp_size=8, dp_size=3)]) == said
    assert again.processes == {}
    assert [json.loads(line)[1]["verdict"] for line in lines] == ["runs", "refused"]


def test_a_model_whose_widths_are_not_known_is_not_judged(release: AddedRelease) -> None:
    spec = setting(tp_size=8).model_copy(update={"model": "somebody/Else"})
    (checked,) = SglangRuntime(Launch()).check((spec,), VERSION)
    assert checked.refusal is None
    (line,) = [note.line for note in checked.notes if note.rule in {"unasked", "MD05"}]
    assert line.startswith("MD05: somebody/Else is neither a folder here nor a known model")
    assert checked.basis == "the rules for sglang 0.5.99.post1"


def test_of_a_release_that_nobody_read_those_rules_hold_whose_words_it_has(release: AddedRelease) -> None:
    gone = rules_gone(release.tree)
    assert "BE06" not in gone, "its words stand in the sources, in two halves"
    assert {"BE07", "HS12", "SL10"} <= gone
    assert not gone & {"SL03", "HS22", "IX01"}, "they quote nothing"
    asked = setting(tp_size=8, prefill_backend="flashmla_sparse_q8", mixed_chunk=True, kv_cache_dtype="fp8_e4m3")
    objections = judge(LaunchPlan(()), asked, flags_of_release(VERSION))
    assert "BE07" not in {one.rule for one in objections}
    (note,) = [str(one) for one in objections if one.rule == "VR01"]
    assert "sglang 0.5.99 was not read; the rules of 0.5.23 are taken for it, as far as its sources have their" in note
    decode = {"decode_backend": "flashmla_kv"}
    elsewhere = asked.model_copy(update={"hardware": "b200", "knobs": {**asked.knobs, **decode}})
    assert "BE06" in {one.rule for one in judge(LaunchPlan(()), elsewhere, flags_of_release(VERSION))}
