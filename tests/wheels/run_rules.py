"""Puts the specs of `sglang_rule_cases.py` before the runtime's own code and holds its words against the rules'.

    PYTHONPATH=harness:kernels:tests python tests/wheels/run_rules.py FOLDER --python PATH [--old-python PATH] [VERSION …]

FOLDER has one unpacked wheel per version (`FOLDER/0.5.16/sglang/…`). `--python` is an interpreter with torch (CPU),
torchvision, triton and transformers 5; `--old-python` one with transformers 4.57, which 0.5.9 needs. Needs no GPU.

Writes tests/golden/sglang_rules/executed.json: per rule and version what was executed and whether the text was equal;
the neighbours that the runtime accepted; the defaults per hardware. Exits 1 where a rule and the runtime differ.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from dsabench.model.knobs import KnobValue
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.sglang.accepts import from_table
from dsabench.runtimes.sglang.hardware import Accelerator
from dsabench.runtimes.sglang.models import MODELS
from dsabench.runtimes.sglang.render import render
from dsabench.runtimes.sglang.rules import check
from dsabench.runtimes.sglang.rules.resolve import resolve
from dsabench.runtimes.sglang.rules.setting import Setting
from dsabench.runtimes.sglang.versions import Version, parse_version
from sglang_rule_cases import BY_ID, CASES, DEVICES, changed, topology

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "sglang_rules" / "executed.json"
_HOLES = re.compile(r"\\\{[^}]*\\\}|‹[^›]*›")

Aim = Literal["broken", "legal", "default"]

RAW: dict[str, list[str]] = {
    "FL03": ["--enable-hisparse"],
    "FL04": ["--{prefix}-prefill-backend", "no-such-kernel"],
    "FL07": ["--collect-tokens-histogram"],
}
"""Words that are never rendered, to be put before the parser itself."""

UNSEEN = {"SL03", "SL04", "BE20", "SL02", "SL08", "SL09"}
"""Errors of kernels: the runtime resolves the settings without a word, and that is all that can be seen here."""


@dataclass(frozen=True)
class Question:
    """One spec put before one version."""

    rule: str
    aim: Aim
    index: int
    version: Version
    device: Accelerator
    spec: RuntimeSpec
    words: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def setting(self) -> Setting:
        """What we think the runtime resolves."""
        assert self.spec.topology is not None
        return resolve(self.spec, self.spec.topology.roles[0], self.version, self.device)


def questions(versions: Iterable[Version]) -> Iterator[Question]:
    """Every case in every version, its neighbour, and the defaults."""
    for version in versions:
        for index, case in enumerate(CASES):
            if version not in case.versions():
                continue
            yield _question(case.rule, "broken", index, version, case.device, case.broken)
            change: Mapping[str, KnobValue | None] | None = case.legal
            if change is None:
                findings = check(case.broken, version, case.device)
                change = next(found.change for found in findings if found.rule == case.rule)
            legal = case.spec(changed(case.knobs, change), legal=True)
            yield _question(case.rule, "legal", index, version, case.legal_device, legal)
        for device in DEVICES.values():
            for dtype in ("auto", "bfloat16", "fp8_e4m3"):
                knobs = {"tp_size": 8, "kv_cache_dtype": dtype}
                if device.platform != "npu":
                    spec = RuntimeSpec(kind="sglang", model="v3.2", topology=topology("server", 1, knobs))
                    yield _question(f"{device.name} {dtype}", "default", 0, version, device, spec)


def _question(rule: str, aim: Aim, index: int, version: Version, device: Accelerator, spec: RuntimeSpec) -> Question:
    assert spec.topology is not None
    role = spec.topology.roles[0]
    rendered = render({**spec.knobs, **role.knobs}, {**spec.env, **role.env}, from_table(version))
    words = list(rendered.words)
    if aim == "broken" and rule in RAW:
        words = [word.format(prefix="nsa" if version < (0, 5, 13) else "dsa") for word in RAW[rule]]
    if role.role != "server":
        words += ["--disaggregation-mode", role.role]
    if role.nodes > 1:
        words += ["--nnodes", str(role.nodes), "--node-rank", "0", "--dist-init-addr", "127.0.0.1:20000"]
    return Question(rule, aim, index, version, device, spec, tuple(words), rendered.env)


def config_of(name: str, version: Version) -> dict[str, Any]:
    """A config.json of that model, as the version wants to read it."""
    model = MODELS[name]
    native = version >= (0, 5, 12) and not model.is_glm
    architecture = model.architecture if native or model.is_glm else "DeepseekV3ForCausalLM"
    quantization: dict[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    quantization["weight_block_size"] = [128, 128]
    if model.weights == "nvfp4":
        quantization = {"quant_method": "modelopt_fp4", "quant_algo": "NVFP4", "kv_cache_scheme": None, "ignore": []}
    if model.weights == "mxfp4":
        quantization = {"quant_method": "quark"}
    return {
        "architectures": [architecture],
        "model_type": "deepseek_v32" if native else "deepseek_v3",
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.heads,
        "n_routed_experts": model.experts,
        "index_topk": model.index_topk,
        "index_head_dim": model.index_head_dim,
        "index_n_heads": model.index_heads,
        "kv_lora_rank": model.kv_lora_rank,
        "num_nextn_predict_layers": model.nextn_layers,
        "quantization_config": quantization,
        **_WIDTHS,
    }


_WIDTHS: dict[str, Any] = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "n_shared_experts": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "rope_theta": 10000,
    "max_position_embeddings": 163840,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "rope_scaling": None,
}


def ask(folder: Path, python: str, asked: list[Question], models: Path) -> list[dict[str, Any]]:
    """The runtime's answers to questions about one version and one device."""
    version, device = asked[0].version, asked[0].device
    cases = []
    for question in asked:
        place = models / f"{question.spec.model}-{version}"
        if not place.is_dir():
            place.mkdir()
            (place / "config.json").write_text(json.dumps(config_of(question.spec.model, version)))
        words = [str(models / f"v3.2-{version}") if word == "v3.2" else word for word in question.words]
        if "v3.2" in question.words:
            _question_draft(models, version)
        argv = ["--model-path", str(place), *words, "--skip-tokenizer-init"]
        cases.append(
            {"argv": argv, "env": dict(question.env), "case": question.rule if question.aim == "broken" else ""}
        )
    major, minor = device.capability or (0, 0)
    place = f"{device.platform}:{major}.{minor}:{device.memory_gib}:{device.device_name}"
    command = ["nice", python, "-B", str(HERE / "runtime_child.py"), str(folder / str(version)), place]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{version} on {device.name}: {done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _question_draft(models: Path, version: Version) -> None:
    place = models / f"v3.2-{version}"
    if not place.is_dir():
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config_of("v3.2", version)))


def same_text(template: str, text: str) -> bool:
    """Whether the runtime's text is the rule's, `{…}` and `‹…›` standing for anything."""
    pattern = _HOLES.sub(".+?", re.escape(" ".join(template.split()))).replace("‹", "").replace("›", "")
    return re.fullmatch(pattern, " ".join(text.split()), re.DOTALL) is not None


def verdict(question: Question, answer: Mapping[str, Any]) -> tuple[str, str]:
    """One word on how rule and runtime compare, and what the runtime said."""
    rule, error = BY_ID[question.rule], answer.get("error")
    words = rule.words_in(question.version)
    said = f"{error['kind']}: {error['text']} [{error.get('at', '')}]" if error else ""
    if words.kind == "document":
        return "document", said
    if words.kind == "log":
        lines = [line for line in answer["log"] if same_text(words.text, line)]
        return ("equal" if lines else "different"), lines[0] if lines else said or " | ".join(answer["log"])[-600:]
    if words.kind == "silent":
        return ("different" if error else "silent"), said
    if rule.id in UNSEEN:
        return ("different" if error else "silent"), said
    if error is None:
        return "no error", ""
    if words.kind == "argparse":
        return ("equal" if error["kind"] == "argparse" else "different"), said
    equal = error["kind"] == words.kind and same_text(words.text, error["text"])
    return ("equal" if equal else "different"), said


FIELDS = {
    "kv_cache_dtype": lambda s: s.kernels.kv,
    "dsa_prefill_backend": lambda s: s.kernels.prefill,
    "dsa_decode_backend": lambda s: s.kernels.decode,
    "nsa_prefill_backend": lambda s: s.kernels.prefill,
    "nsa_decode_backend": lambda s: s.kernels.decode,
    "page_size": lambda s: s.kernels.page if s.cuda else None,
    "ep_size": lambda s: s.parallel.ep,
    "attn_cp_size": lambda s: s.parallel.attn_cp,
    "moe_a2a_backend": lambda s: s.parallel.a2a,
    "quantization": lambda s: s.parallel.quantization,
    "disable_radix_cache": lambda s: not s.prefix_cache,
    "enable_mixed_chunk": lambda s: s.mixed_chunk,
    "speculative_num_steps": lambda s: s.speculation.steps if s.speculation.is_eagle_like else None,
    "speculative_eagle_topk": lambda s: s.speculation.topk if s.speculation.is_eagle_like else None,
    "speculative_num_draft_tokens": lambda s: s.speculation.draft_tokens if s.speculation.is_eagle_like else None,
}


def differences(question: Question, answer: Mapping[str, Any]) -> list[str]:
    """Fields that the runtime resolved to something else than `resolve` did."""
    setting = question.setting
    if not setting.model.is_dsa:
        return []
    found = answer.get("resolved", {})
    ours = {name: ask_for(setting) for name, ask_for in FIELDS.items() if name in found}
    return [
        f"{name}: the runtime {found[name]}, we {ours[name]}"
        for name in ours
        if ours[name] is not None and found[name] != ours[name]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--old-python")
    parser.add_argument("--only", help="a rule id")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    present = sorted(parse_version(path.name) for path in given.folder.iterdir() if (path / "sglang").is_dir())
    versions = [version for version in present if not given.versions or str(version) in given.versions]
    groups: dict[tuple[Version, str], list[Question]] = defaultdict(list)
    for question in questions(versions):
        if given.only in {None, question.rule}:
            groups[question.version, question.device.name].append(question)
    record: dict[str, Any] = {
        "versions": [str(version) for version in versions],
        "rules": {},
        "neighbours": {},
        "defaults": {},
    }
    wrong = 0
    with TemporaryDirectory(prefix="sglang-models-") as models:
        for (version, device), asked in groups.items():
            python = given.old_python if version < (0, 5, 10) and given.old_python else given.python
            answers = ask(given.folder, python, asked, Path(models))
            for question, answer in zip(asked, answers, strict=True):
                wrong += note(record, question, answer, verbose=given.verbose)
            print(f"{version} on {device}: {len(asked)} specs", file=sys.stderr)
    if not given.only and not given.versions:
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return 1 if wrong else 0


def note(record: dict[str, Any], question: Question, answer: Mapping[str, Any], *, verbose: bool) -> int:
    """Write one answer down; 1 where it differs from what the rules say."""
    version, key = str(question.version), question.rule
    apart = differences(question, answer)
    wrong = bool(apart)
    error = answer.get("error")
    said = f"{error['kind']}: {error['text']} [{error.get('at', '')}]" if error else ""
    if question.aim == "broken":
        word, text = verdict(question, answer)
        wrong |= word in {"different", "no error"}
        before = record["rules"].setdefault(key, {}).get(version)
        record["rules"][key][version] = word if before in {None, word} else "different"
        said = text
        label = word
    elif question.aim == "legal":
        label = "accepted" if error is None else "refused for another reason"
        if error is not None and same_text(BY_ID[key].words_in(question.version).text or "\0", error["text"]):
            label, wrong = "refused", True
        record["neighbours"].setdefault(key, {})[version] = label
    else:
        label = "refused" if error else "accepted"
        kernels = [
            answer.get("resolved", {}).get(f"{p}_{w}_backend") for w in ("prefill", "decode") for p in ("dsa", "nsa")
        ]
        record["defaults"].setdefault(key, {})[version] = [name for name in kernels if name] or label
    if wrong or verbose or (question.aim == "legal" and label != "accepted"):
        print(
            f"{'!' if wrong else ' '} {version} {key} {question.aim} {label}: {' '.join(question.words)} -> {said[:400]} {apart or ''}"
        )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
