"""Settings of one role of a deployment: `decode: {hisparse: true}` in base, axes, conditions and first."""

from __future__ import annotations

import pytest
import yaml

from dsabench.config.load import load_launch, load_study
from dsabench.emit.fit import why_not_emitted
from dsabench.errors import ConfigError
from dsabench.model.numerics import changed_numerics
from dsabench.model.runtime import labels_of
from dsabench.model.space import legal
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.plan import role_specs, settle

STUDY = """
name: pair
runtime:
  kind: sglang
  version: 0.5.23
  model: deepseek-ai/DeepSeek-V3.2
  hardware: h200
  topology:
    roles: [{role: prefill}, {role: decode, knobs: {max_running_requests: 64}}]
    router: {policy: round_robin}
  base: {tp_size: 8, load_format: dummy, decode: {hisparse: false, max_running_requests: 32}}
workloads:
  - {name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}
sweeps:
  - axes:
      decode: {hisparse: [false, true], hisparse_device_buffer_size: [4096, 6144]}
    when:
      decode: {hisparse_device_buffer_size: {decode: {hisparse: true}}}
objective: {metric: output_throughput_tok_s, direction: maximize}
"""


@pytest.fixture
def pair(tmp_path):
    def load(text=STUDY):
        (tmp_path / "pair.yaml").write_text(text)
        return load_study(tmp_path / "pair.yaml")

    return load


def test_an_axis_of_a_role_changes_its_servers_alone(pair):
    config = pair()
    settings = list(legal(config.space, config.default.knobs))
    assert len(settings) == 3
    spec = config.spec(settings[2])
    prefill, decode = (own.knobs for _, own in role_specs(spec))
    assert "hisparse" not in prefill
    assert (decode["hisparse"], decode["hisparse_device_buffer_size"]) == (True, 6144)
    assert decode["max_running_requests"] == 32  # over what the topology says
    assert spec.changes(config.default) == "decode.hisparse=True decode.hisparse_device_buffer_size=6144"
    assert settle(spec).topology.roles[0].knobs == {}
    commands = [" ".join(one.argv) for one in make_runtime(config.runtime).plan(spec, "0.5.23").processes]
    assert ["--enable-hisparse" in words for words in commands] == [False, True, False]
    assert '"device_buffer_size": 6144' in commands[1]


def test_labels_and_numerics_see_it(pair):
    config = pair()
    on = config.spec({"decode.hisparse": True})
    assert labels_of(config.default) == ("random weights",)
    assert labels_of(on) == ("random weights", "simulated")
    assert changed_numerics(config.default, on) == ("decode.hisparse",)


def test_dense_attention_on_prefill_servers_alone_takes_a_gate_as_well(pair):
    """What may be no default without an eval may not for one role either."""
    default = pair().default
    dense = default.model_copy(update={"knobs": {**default.knobs, "prefill.mha_threshold_tokens": 4096}})
    real = [
        one.model_copy(update={"knobs": {k: v for k, v in one.knobs.items() if k != "load_format"}})
        for one in (dense, default)
    ]
    why = why_not_emitted(*real, (), index_topk=2048, allow_simulated=False)
    assert why is not None
    assert "dense attention beyond index_topk=2048 changes answers" in why
    assert why_not_emitted(*real, (), index_topk=4096, allow_simulated=False) is None


def test_a_launch_config_has_them_and_gives_them_back(tmp_path):
    study = yaml.safe_load(STUDY)
    (tmp_path / "launch.yaml").write_text(yaml.safe_dump({key: study[key] for key in ("name", "runtime")}))
    config = load_launch(tmp_path / "launch.yaml")
    assert config.model_dump(mode="json")["base"]["decode"] == {"hisparse": False, "max_running_requests": 32}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{hisparse: [false", "{hispars: [false", "axes.decode.hispars: unknown key 'hispars'; did you mean hisparse?"),
        ("decode: {hisparse: false, ", "prefill: {tp_size: 0}, decode: {", "base.prefill.tp_size: "),
        ("role: prefill}, {role: decode, knobs: {max_running_requests: 64}}", "role: prefill}", "the topology has no role decode"),
        ("decode: {hisparse_device_buffer_size: {decode: {hisparse: true}}}", "decode: {hisparse_device_buffer_size: {tp_size: 4}}", "tp_size is never 4"),
        ("decode: {hisparse: false,", "decode: {args: {x: 1},", "unknown key 'args'"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_and_key(pair, old, new, said):
    assert old in STUDY
    text = STUDY.replace(old, new)
    if "no role" in said:
        text = text.replace("    router: {policy: round_robin}\n", "")
    with pytest.raises(ConfigError, match=r"pair\.yaml:") as caught:
        pair(text)
    assert said in str(caught.value)
