from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.monkeypatch import MonkeyPatch

from dsabench import rooms
from dsabench.config.load import find_mistakes, load_study
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.errors import ConfigError, InputError
from dsabench.model.study import Axis
from dsabench.reference.runtime import render

from .conftest import MINIMAL, Write

DESIGN_CONFIG = """\
name: local                                   # configs/local.yaml
runtime: {kind: reference, launch: {python: null, env: {}}, model: small, base: {kv_cache_dtype: bfloat16}}
workloads: [{name: c4, dataset: random-ids, input_len: 512, output_len: 32, num_prompts: 32, max_concurrency: 4, seed: 1}]
sweeps: [attention_kernels, mha_threshold]    # sweeps/NAME.yaml, or inline
proposer: {kind: grid, seed: 0}
objective: {metric: output_throughput_tok_s, direction: maximize, constraints: [{metric: ttft_ms.p90, max: 500}]}
budget: {max_trials: 12, max_boots: 12, time_s: 300, confirm_boots: 3}
gate: null                                    # or {eval: gsm8k, margin: 0.01, repeat: 4}
"""
DESIGN_SWEEP = """\
axes: {kv_cache_dtype: [bfloat16, fp8_e4m3], prefill_backend: [flashmla_sparse, flashmla_kv]}   # sweeps/attention_kernels.yaml
when: {prefill_backend: {kv_cache_dtype: fp8_e4m3}}         # the axis is active only if; no expressions
forbid: [{kv_cache_dtype: bfloat16, prefill_backend: flashmla_kv}]
"""


def mistakes(path: Path) -> list[str]:
    """`line: key: message` of every mistake; files other than the config keep their name."""
    return [str(error).removeprefix(f"{path}:") for error in find_mistakes(path)]


def one_mistake(path: Path) -> str:
    (mistake,) = mistakes(path)
    return mistake


def test_the_design_s_examples_load_as_they_stand(write: Write, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    write(DESIGN_SWEEP, "sweeps/attention_kernels.yaml")
    write("axes: {mha_threshold_tokens: [128, 512]}\n", "sweeps/mha_threshold.yaml")
    path = write(DESIGN_CONFIG, "configs/local.yaml")
    monkeypatch.chdir(tmp_path)
    assert find_mistakes("local") == ()
    config = load_study("local")
    assert config == load_study(path)
    assert [axis.name for axis in config.space.axes] == ["kv_cache_dtype", "prefill_backend", "mha_threshold_tokens"]
    assert config.space.when == {"prefill_backend": {"kv_cache_dtype": "fp8_e4m3"}}
    assert config.workloads[0].max_concurrency == 4
    assert config.budget.time_s == 300.0
    assert config.objective.constraints[0].max == 500.0


@pytest.mark.parametrize("room", ["configs", "sweeps"])
def test_every_shipped_file_is_right(room: str) -> None:
    shipped = [file for folder in rooms.folders(room) for file in folder.glob("*.yaml")]
    assert shipped
    assert [str(error) for file in shipped for error in find_mistakes(file)] == []


def test_the_main_job_has_a_gate_and_stays_within_five_minutes() -> None:
    config = load_study("local")
    assert len(config.workloads) == 2
    assert (config.budget.max_boots, config.budget.time_s, config.budget.confirm_boots) == (22, 300.0, 4)
    assert [gate.measure for gate in config.gates] == ["score"]
    axes = {axis.name for axis in config.space.axes}
    kernels = {"kv_cache_dtype", "prefill_backend", "mha_threshold_tokens", "chunked_prefill_size"}
    assert axes == kernels | {"speculative_algorithm", "dp_size", "index_topk_pattern"}


def test_the_full_job_has_every_axis_and_stays_within_fourteen_boots_and_eight_minutes() -> None:
    config = load_study("local-full")
    assert (config.budget.max_boots, config.budget.time_s) == (14, 480.0)
    axes = {axis.name for axis in config.space.axes}
    left_out = {
        "dtype",
        "random_seed",
        "cpu_threads",
        "max_running_requests",
        "pp_max_micro_batch_size",
        "max_total_tokens",
        "context_length",
        "device",
    }
    numbers = {
        name for name in (runtime_kinds()["reference"].knobs or {}) if name.startswith(("speculative_", "hisparse_"))
    }
    assert axes | left_out | numbers | {"simulated_accept_length"} == set(runtime_kinds()["reference"].knobs or {})
    assert {"speculative_algorithm", "hisparse_device_buffer_size"} <= axes


def test_the_smallest_config_has_a_base_and_defaults(write: Write) -> None:
    config = load_study(write(MINIMAL))
    assert config.space.axes == ()
    assert config.proposer.kind == "gp"
    assert config.budget.max_boots is None
    assert config.default.model_dump(exclude_none=True) == {
        "kind": "reference", "model": "tiny", "knobs": {}, "env": {}
    }  # fmt: skip


def test_a_sweep_asks_for_a_gpu_and_its_kernels(write: Write) -> None:
    space = "{axes: {device: [cpu, cuda], decode_backend: [flashmla_sparse, triton]}, "
    space += "forbid: [{device: cpu, decode_backend: triton}]}"
    config = load_study(write(MINIMAL.replace("tiny", "small") + f"sweeps: [{space}]\n"))
    spec = config.spec({"device": "cuda", "decode_backend": "triton"})
    assert render(spec.knobs)[0] == ("--dsa-decode-backend", "triton", "--device", "cuda")


def test_the_first_mistake_is_raised_with_the_count_of_the_others(write: Write) -> None:
    path = write(MINIMAL + "budgt: 1\nsweps: 1\nbudget: {time_s: soon}\n")
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    error = caught.value
    assert (error.file, error.line, error.key) == (str(path), 5, "budgt")
    assert str(error).startswith(
        f"{path}:5: budgt: unknown key 'budgt'; did you mean budget? (allowed: name, runtime, "
    )
    assert str(error).endswith(f" (and 2 more: dsabench config check {path})")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("objective:", "objetive:"), ":4: objetive: unknown key 'objetive'; did you mean objective?"),
        (("model: tiny", "modle: tiny"), ":2: runtime.modle: unknown key 'modle'; did you mean model?"),
        (("input_len", "inpt_len"), ":3: workloads[0].inpt_len: unknown key 'inpt_len'; did you mean input_len?"),
    ],
)
def test_a_misspelt_key_is_one_mistake_with_its_suggestion(write: Write, wrong: tuple[str, str], said: str) -> None:
    path = write(MINIMAL.replace(*wrong))
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    assert str(caught.value).startswith(f"{path}{said}")
    assert "more: dsabench config check" not in str(caught.value)


def test_a_missing_file_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean local"):
        load_study("locale")
    (error,) = find_mistakes("locale")
    assert str(error).startswith("locale: no such file; did you mean local?")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("runtime: {kind: refrence, model: tiny}", "runtime.kind: must be reference, sglang or external, not 'refrence'; did you mean reference?"),
        ("runtime: {kind: reference}", "runtime: missing key 'model'"),
        ("runtime: {kind: reference, model: smal}", "runtime.model: unknown reference model 'smal'; did you mean small? (allowed: tiny, small, tiny-moe, small-moe, trained)"),
        ("runtime: reference", "runtime: must be a mapping of keys, not 'reference'"),
        ("runtime: {kind: reference, model: tiny, ready_timeout_s: -1}", "runtime.ready_timeout_s: must be greater than 0, not -1"),
        ("runtime: {kind: reference, model: tiny, version: 0.5}", "runtime.version: must be text or null, not 0.5; put it in quotes"),
        ("runtime: {kind: reference, model: tiny, base: {tp: 2}}", "runtime.base.tp: unknown key 'tp'; did you mean tp_size? (allowed: "),
        ("gate: {eval: gsm8k, margin: 1}", "gate.margin: must be less than 1, not 1"),
        ("runtime: {kind: reference, model: tiny, base: {prefil_backend: x}}", "runtime.base.prefil_backend: unknown key 'prefil_backend'; did you mean prefill_backend? (allowed: "),
        ("runtime: {kind: reference, model: tiny, base: {kv_cache_dtype: fp8}}", "runtime.base.kv_cache_dtype: must be bfloat16, fp8_e4m3, "),
        ("runtime: {kind: reference, model: tiny, base: {prefix_cache: off}}", "runtime.base.prefix_cache: must be true or false, not 'off'; YAML 1.2 reads that as text"),
        ("runtime: {kind: reference, model: tiny, base: {device: gpu}}", "runtime.base.device: must be cpu, cuda or auto, not 'gpu'"),
        ("runtime: {kind: reference, model: tiny, base: {cpu_threads: true}}", "runtime.base.cpu_threads: must be a whole number, not true"),
        ("runtime: {kind: reference, model: tiny, base: {context_length: 1e3}}", "runtime.base.context_length: must be a whole number, not 1000.0; write 1000"),
        ("runtime: {kind: reference, model: tiny, base: {context_length: '8'}}", "runtime.base.context_length: must be a whole number, not '8'; write it without quotes"),
        ("runtime: {kind: reference, model: tiny, base: {context_length: null}}", "runtime.base.context_length: must be a whole number, not null; leave the key out for the default"),
        ("runtime: {kind: reference, model: tiny, base_url: http://h:1}", "runtime.base_url: only kind external attaches to a server"),
        ("runtime: {kind: reference, model: tiny, env: {HF_TOKEN: x}}", "runtime.env.HF_TOKEN: looks like a secret, and env is recorded; move it to runtime.launch.env"),
        ("runtime: {kind: reference, model: tiny, env: {A: 1}}", "runtime.env.A: must be text, not a number; put it in quotes"),
        ("runtime: {kind: reference, model: tiny, env: {A-B: '1'}}", "runtime.env.A-B: is no name of an environment variable"),
        ("runtime: {kind: reference, model: tiny, env: {SGLANG_A: '1'}, launch: {env: {SGLANG_A: '2'}}}", "runtime.launch.env.SGLANG_A: stands in runtime.env as well, with another value"),
        ("runtime: {kind: external, model: m}", "runtime: missing key 'base_url'"),
        ("runtime: {kind: external, model: m, base_url: 'localhost:30000'}", "runtime.base_url: is no base URL; write http://HOST:PORT"),
        ("runtime: {kind: external, model: m, base_url: 'http://h:x'}", "runtime.base_url: is no URL"),
        ("runtime: {kind: external, model: m, base_url: 'http://h:1', base: {cpu_threads: 1}}", "runtime.base: has no effect on a server that runs already"),
        ("proposer: {kind: gird}", "proposer.kind: must be gp, tpe, nsga2, random, grid or coordinate, not 'gird'; did you mean grid?"),
        ("budget: {max_boots: 6}", "budget.max_boots: 6 leaves no boot for the search: 2 × confirm_boots = 6 are kept"),
        ("budget: {stop_when_decided: true}", "budget.stop_when_decided: the first look is at 3 boots a side, so confirm_boots must be 4 or more"),
        ("budget: {gpu_hours: 8}", "budget.gpu_hours: kind reference says nothing of the GPUs that it takes"),
        ("price_per_gpu_hour: 2.5", "price_per_gpu_hour: kind reference says nothing of the GPUs that it takes"),
        ("objective: {metric: cost_per_million_tokens_usd, direction: minimize}", "objective.metric: cost_per_million_tokens_usd needs price_per_gpu_hour"),
        ("budget: {max_trials: 1_000}", "budget.max_trials: must be a whole number or null, not '1_000'; write it without quotes and separators"),
        ("objective: {metric: ttft_ms, direction: minimize}", "objective.metric: 'ttft_ms' needs a statistic: ttft_ms.mean (allowed: mean, p50, "),
        ("objective: {metric: tpto_ms.p50, direction: minimize}", "objective.metric: unknown metric 'tpto_ms.p50'; did you mean tpot_ms.p50?"),
        ("objective: {metric: throughput, direction: maximize}", "objective.metric: unknown metric 'throughput'"),
        ("objective: {metric: tpot_ms.p50, direction: maximize}", "objective.direction: lower tpot_ms.p50 is better; write minimize"),
        ("objective: {metric: gpu.busy_share.mean, direction: maximize}", "objective.metric: neither more nor less of gpu.busy_share.mean is better: it may be a constraint, but no objective"),
        ("objective: {metric: duration_s, direction: minimize, constraints: [{metric: itl_ms.max}]}", "objective.constraints[0]: needs max or min"),
        ("objective: {metric: duration_s, direction: minimize, constraints: [{metric: itl_ms.max, min: 2, max: 1}]}", "objective.constraints[0]: min 2 is above max 1"),
        ("objective: {metric: duration_s, direction: minimize, constraints: [{metric: itl_ms.max, max: .inf}]}", "objective.constraints[0].max: must be a finite number"),
        ("gate: {eval: gsm8k}\nbudget: {confirm_boots: 0}", "gate: a gate needs confirm_boots of 1 or more"),
        ("gate: [{eval: gsm8k, ask: settings}, aime25]\nbudget: {confirm_boots: 0}", "gate: a gate needs confirm_boots of 1"),
        ("budget: {confirm_second: true}\ngate: {eval: gsm8k}", "budget.confirm_second: goes without a gate"),
        ("gate: {eval: gsm8q}", "gate.eval: gsm8q: no such file"),
        ("gate: gsm8q", "gate: gsm8q: no such file"),
        ("gate: []", "gate: must not be empty"),
        ("gate: [gsm8k, gsm8q]", "gate[1]: gsm8q: no such file"),
        ("gate: [gsm8k, {eval: gpqa, margin: 2}]", "gate[1].margin: must be less than 1, not 2"),
        ("gate: [gsm8k, {eval: gpqa, data: /no/such.csv}]", "gate[1].data: /no/such.csv: no such file"),
        ("gate: [gsm8k, 7]", "gate[1]: "),
        ("gate: 7", "gate: "),
        ("gate: {eval: gsm8k, data: /no/such.jsonl}", "gate.data: /no/such.jsonl: no such file"),
        ("name: ../up", "name: must be letters, digits"),
        ("name: null", "name: must be text, not null"),
        ("workloads: []", "workloads: must not be empty"),
        ("workloads: {a: 1}", "workloads: must be a list, not a mapping of keys"),
        ("workloads: [{name: w, dataset: custom, num_prompts: 1}]", "workloads[0]: missing key 'dataset_path'"),
        ("workloads: [{name: w, dataset: random, input_len: 1, output_len: 1, num_prompts: 1, dataset_path: /no/such}]", "workloads[0].dataset_path: /no/such: no such file"),
        ("workloads: [{name: w, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1, request_rate: 4, capacity: {lowest: 1}}]", "workloads[0].capacity: is the highest load that meets the slo, which is missing"),
        ("workloads: [{name: w, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1, slo: {ttft_ms: 9}, capacity: {lowest: 1}}]", "workloads[0].capacity: needs request_rate or max_concurrency"),
        ("workloads: [{name: w, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1, request_rate: 4, slo: {ttft_ms: 9}, capacity: {lowest: 4}}]", "workloads[0].capacity.lowest: must be less than request_rate, 4"),
        ("workloads: [{name: w, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1, max_concurrency: 4, slo: {ttft_ms: 9}, capacity: {lowest: 1.5}}]", "workloads[0].capacity.lowest: must be a whole number of requests in flight"),
        ("workloads: [{name: w, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1, max_concurrency: 4, slo: {ttft_ms: 9}, capacity: {lowest: 1, start: 2.5}}]", "workloads[0].capacity.start: must be a whole number of requests in flight"),
        ("workloads: [{name: w, dataset: random-ids, input_len: 1, output_len: 1, num_prompts: 1, request_rate: 4, slo: {ttft_ms: 9}, capacity: {lowest: 1, start: 5}}]", "workloads[0].capacity.start: must be from lowest, 1, to request_rate, 4"),
        ("workloads: [{name: w, dataset: mooncake, dataset_path: README.md, num_prompts: 1, max_concurrency: 4, slo: {ttft_ms: 9}, capacity: {lowest: 1}}]", "workloads[0].capacity: needs a request_rate: without one the trace says when requests go"),
        ("sweeps: [3]", "sweeps[0]: must be the name of a sweep or a mapping of keys, not 3"),
        ("sweeps: [attention_kernel]", "sweeps[0]: attention_kernel: no such file; did you mean attention_kernels?"),
        ("sweeps: ['" + "x" * 199 + "é']", "sweeps[0]: "),
        ("sweeps: [{axes: {dtype: []}}]", "sweeps[0].axes.dtype: must not be empty"),
        ("sweeps: [{axes: {dtype: [float32, float32]}}]", "sweeps[0].axes.dtype: the same value stands twice"),
        ("sweeps: [{axes: {dtype: [float32, flot16]}}]", "sweeps[0].axes.dtype[1]: must be bfloat16 or float32, not 'flot16'; did you mean bfloat16?"),
        ("sweeps: [{axes: {dtype: float32}}]", "sweeps[0].axes.dtype: must be a list, not 'float32'"),
        ("sweeps: [{axes: {dtype: [float32]}, forbid: [{}]}]", "sweeps[0].forbid[0]: forbids everything"),
        ("sweeps: [{axes: {dtype: [float32]}, when: {dtype: {}}}]", "sweeps[0].when.dtype: must not be empty"),
        ("sweeps: [{axes: {dtype: [float32]}, when: {cpu_threads: {dtype: float32}}}]", "sweeps[0].when.cpu_threads: unknown axis 'cpu_threads' (allowed: dtype)"),
        ("sweeps: [{axes: {dtype: [float32]}, when: {dtype: {cpu_threads: 1}}}]", "sweeps[0].when.dtype.cpu_threads: cpu_threads is no axis and not set in runtime.base, so dtype would never be tried"),
        ("sweeps: [{axes: {dtype: [float32], cpu_threads: [1, 2]}, when: {dtype: {cpu_threads: 3}}}]", "sweeps[0].when.dtype.cpu_threads: cpu_threads is never 3 here (only 1, 2), so dtype would never be tried"),
        ("sweeps: [{axes: {dtype: [float32]}, when: {dtype: {dtype: float32}}}]", "sweeps[0].when.dtype: the conditions go round in a circle: dtype → dtype"),
    ],
)  # fmt: skip
def test_each_mistake_names_line_key_and_what_is_allowed(write: Write, line: str, said: str) -> None:
    section = line.partition(":")[0] + ":"
    others = [kept for kept in MINIMAL.splitlines() if not kept.startswith(section)]
    path = write("\n".join([*others, line]) + "\n")
    assert one_mistake(path).startswith(f"{len(others) + 1}: {said}")


def test_settings_of_first_take_all_boots(write: Write) -> None:
    lines = [line for line in MINIMAL.splitlines() if not line.startswith("budget:")]
    path = write("\n".join([*lines, "budget: {stop_when_decided: true, confirm_boots: 5, confirm_first: true}"]) + "\n")
    assert any("stop_when_decided: goes without confirm_first" in str(error) for error in find_mistakes(path))


def test_mistakes_of_all_sections_and_files_are_found_at_once(write: Write) -> None:
    write("axes:\n  dtype: [bfloat16]\n  cpu_thread: [1]\n", "wide.yaml")
    path = write(
        """\
        name: x/y
        runtime:
          kind: reference
          modle: tiny
        workloads:
          - {name: w, dataset: random-ids, input_len: 8, output_len: 4, num_prompts: 2}
          - name: w
            dataset: random-ids
            input_len: 0
            output_len: 4
            num_prompts: 2
        sweeps:
          - wide.yaml
          - nowhere
        objective: {metric: ttft, direction: minimize}
        extra: 1
        """
    )
    found = [(Path(error.file).name, error.line, error.key) for error in find_mistakes(path)]
    assert found == [
        ("config.yaml", 1, "name"),
        ("config.yaml", 4, "runtime.modle"),
        ("config.yaml", 9, "workloads[1].input_len"),
        ("config.yaml", 14, "sweeps[1]"),
        ("config.yaml", 15, "objective.metric"),
        ("config.yaml", 16, "extra"),
        ("wide.yaml", 3, "axes.cpu_thread"),
    ]


def test_workloads_need_names_of_their_own(write: Write) -> None:
    again = "  - {name: w, dataset: random-ids, input_len: 8, output_len: 4, num_prompts: 2}\n"
    path = write(MINIMAL.replace("workloads: [", "workloads:\n  - ").replace("2}]", "2}") + "").as_posix()
    text = Path(path).read_text().replace("num_prompts: 2}\n", "num_prompts: 2}\n" + again)
    assert one_mistake(write(text)) == "5: workloads[1].name: 'w' names the workload in line 4 already"


def test_several_sweeps_make_one_joint_space(write: Write) -> None:
    write(
        "axes: {cpu_threads: [1, 2], dtype: [float32, bfloat16]}\nforbid: [{cpu_threads: 2, dtype: float32}]\n",
        "a.yaml",
    )
    write(
        "axes: {dtype: [float32, bfloat16], context_length: [64, 128]}\nwhen: {context_length: {cpu_threads: 2}}\n",
        "b.yaml",
    )
    inline = "{axes: {prefix_cache: [true, false]}, forbid: [{cpu_threads: 2, dtype: float32}]}"
    config = load_study(write(MINIMAL + f"sweeps: [a.yaml, b.yaml, {inline}]\n"))
    assert config.space.axes == (
        Axis(name="cpu_threads", values=(1, 2)),
        Axis(name="dtype", values=("float32", "bfloat16")),
        Axis(name="context_length", values=(64, 128)),
        Axis(name="prefix_cache", values=(True, False)),
    )
    assert config.space.forbid == ({"cpu_threads": 2, "dtype": "float32"},)
    assert config.space.when == {"context_length": {"cpu_threads": 2}}


def test_sweeps_that_contradict_each_other_name_both_places(write: Write) -> None:
    first = write("axes:\n  dtype: [bfloat16]\n  cpu_threads: [1]\nwhen: {dtype: {cpu_threads: 1}}\n", "a.yaml")
    second = write("axes:\n\n  dtype: [float32]\n  cpu_threads: [1]\nwhen: {dtype: {prefix_cache: true}}\n", "b.yaml")
    found = mistakes(write(MINIMAL.replace("tiny", "tiny, base: {prefix_cache: true}") + "sweeps: [a.yaml, b.yaml]\n"))
    assert found == [
        f"{second}:3: axes.dtype: stands in {first}:2 as well, with other values",
        f"{second}:5: when.dtype: stands in {first}:4 as well, with other conditions",
    ]


def test_an_axis_says_which_limit_it_lifts(write: Write) -> None:
    write("axes: {dtype: [float32, bfloat16]}\nwhen_bound: {dtype: kv_cache}\n", "a.yaml")
    inline = "{axes: {cpu_threads: [1, 2]}, when_bound: {cpu_threads: host_cpu}}"
    config = load_study(write(MINIMAL + f"sweeps: [a.yaml, {inline}]\n"))
    assert config.space.when_bound == {"dtype": "kv_cache", "cpu_threads": "host_cpu"}
    (said,) = mistakes(write("axes: {dtype: [float32]}\nwhen_bound: {dtype: memory}\n", "a.yaml"))
    assert "when_bound.dtype: must be 'kv_cache', " in said or "when_bound.dtype: must be kv_cache, " in said
    (said,) = mistakes(write("axes: {dtype: [float32]}\nwhen_bound: {dtyp: kv_cache}\n", "a.yaml"))
    assert said.endswith("when_bound.dtyp: unknown axis 'dtyp'; did you mean dtype? (allowed: dtype)"), said


def test_a_circle_through_two_files_is_found(write: Write) -> None:
    a = write("axes: {dtype: [float32]}\nwhen: {dtype: {cpu_threads: 1}}\n", "a.yaml")
    write("axes: {cpu_threads: [1]}\nwhen: {cpu_threads: {dtype: float32}}\n", "b.yaml")
    (said,) = mistakes(write(MINIMAL + "sweeps: [a.yaml, b.yaml]\n"))
    assert said.startswith(f"{a}:2: when.")
    assert "the conditions go round in a circle: " in said


def test_the_default_must_not_be_forbidden(write: Write) -> None:
    text = MINIMAL.replace("tiny", "tiny, base: {dtype: float32, cpu_threads: 2}")
    said = one_mistake(write(text + "sweeps:\n- axes: {cpu_threads: [1]}\n  forbid:\n  - {dtype: float32}\n"))
    assert said == "8: sweeps[0].forbid[0]: forbids the default: runtime.base has just these settings"


def test_a_broken_sweep_named_twice_is_reported_once(write: Write) -> None:
    write("axes: [\n", "a.yaml")
    assert len(find_mistakes(write(MINIMAL + "sweeps: [a.yaml, a.yaml]\n"))) == 1


def test_a_sweep_file_can_be_checked_by_itself(write: Write) -> None:
    path = write("axes: {dtype: [float32]}\nwhen: {dtype: {cpu_threads: 1}}\nforbid: [{prefill_backend: x}]\n")
    assert one_mistake(path).startswith("3: forbid[0].prefill_backend: must be flashmla_sparse, ")
    assert find_mistakes(write("axes: {dtype: [float32]}\nwhen: {dtype: {cpu_threads: 1}}\n")) == ()


def test_no_message_repeats_a_secret(write: Write) -> None:
    path = write(
        """\
        name: mini
        runtime:
          kind: external
          model: m
          base_url: http://me:hunter2@host:1
          env: {HF_TOKEN: hunter2, "A B": hunter2}
          launch: {env: {HF_TOKEN: [hunter2]}}
        workloads: [{name: w, dataset: random-ids, input_len: 8, output_len: 4, num_prompts: 2}]
        objective: {metric: output_throughput_tok_s, direction: maximize}
        """
    )
    assert [error.line for error in find_mistakes(path)] == [7]
    path.write_text(path.read_text().replace("[hunter2]", "hunter2"))
    assert {error.line for error in find_mistakes(path)} == {5, 6, 7}
    assert "hunter2" not in "".join(mistakes(path))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("[{dtype: float32}]", "first[0].dtype: unknown axis 'dtype'"),
        (
            "[{prefill_backend: flashmla_auto}]",
            "flashmla_auto is not searched (the axis has flashmla_kv, flashmla_sparse)",
        ),
        ("[{prefill_backend: flashmla_sparse}]", "first[0]: is forbidden by the sweeps"),
    ],
)
def test_settings_to_begin_with_lie_in_the_space(write, first: str, said: str) -> None:
    axes = "axes: {prefill_backend: [flashmla_kv, flashmla_sparse], kv_cache_dtype: [fp8_e4m3]}"
    sweeps = f"sweeps: [{{{axes}, forbid: [{{prefill_backend: flashmla_sparse}}]}}]\n"
    text = MINIMAL.replace("model: tiny", "model: tiny, base: {kv_cache_dtype: fp8_e4m3, prefill_backend: flashmla_kv}")
    (error,) = find_mistakes(write(text + sweeps + f"first: {first}\n"))
    assert said in str(error)


SHARED = "shared_prefix: {groups: 1, prompts_per_group: 2, system_prompt_len: 9, question_len: 9, output_len: 1}"
OF_TEXT = MINIMAL.replace("input_len: 8, output_len: 4", SHARED).replace("random-ids", "generated-shared-prefix")


def test_text_for_a_server_needs_a_tokenizer_on_both_sides(write: Write) -> None:
    assert mistakes(write(OF_TEXT)) == []  # the reference runtime tells its own
    served = OF_TEXT.replace("{kind: reference, model: tiny}", "{kind: sglang, model: m, base: {tokenizer: false}}")
    missing, refused = mistakes(write(served))
    assert missing.endswith("counts tokens of text; name a folder with tokenizer.json")
    assert "tokenizer: false; take random-ids" in refused
