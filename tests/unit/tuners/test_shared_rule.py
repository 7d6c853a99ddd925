"""One rule of round numbers for several tables."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.emit.tables import read_tables, write_table
from dsabench.errors import InputError
from dsabench.model.tuned_table import RatioRule, choose
from dsabench.tuners.shared_rule import find_shared_rule, read_case, read_launched
from unit.emit.made import as_file, made_table

H200 = Path(__file__).parents[3] / "results" / "h200"


@pytest.fixture(scope="module")
def cases():
    return [read_case(file, None) for file in read_tables([str(H200 / "tables")])]


def test_the_committed_tables_share_a_pair_of_round_numbers(cases):
    found = find_shared_rule(cases)
    assert found.rule == RatioRule(kv_per_new_token=90, from_new_tokens=100)
    for effect, one in zip(found.effects, cases, strict=True):
        assert effect.excess < 0.001
        assert effect.gains.least >= 0.0
        # by hand: the mean of what the chosen kernel takes more than the faster one, less the same of the table's rule
        weights = one.case.weights / one.case.weights.sum()
        lost = [
            sum(
                weight * (point.us[kernel] / min(point.us.values()) - 1)
                for weight, point in zip(weights, one.case.points, strict=True)
                for kernel in [choose(rule, new_tokens=point.step.new_tokens, kv_tokens=point.step.kv_tokens)]
            )
            for rule in (found.rule, one.rule)
        ]
        assert effect.excess == pytest.approx(lost[0] - lost[1], abs=1e-9)


def test_times_with_launches_choose_what_slows_none_of_them(cases):
    """Inside CUDA graphs the sparse kernel gains from 91 new tokens on, with its launches from more."""
    here, other = ([H200 / "prefill-rule" / name] for name in ("h200.csv", "h100.csv"))
    found = find_shared_rule(cases, read_launched([*here, *other]))
    assert found.rule == RatioRule(kv_per_new_token=80, from_new_tokens=200)
    assert all(effect.launched.slowest <= 0.02 for effect in found.effects)
    assert max(effect.excess for effect in found.effects) < 0.002
    assert {(gpu, heads) for gpu, heads, _ in found.elsewhere} == {
        ("NVIDIA_H100_80GB_HBM3", heads) for heads in (16, 64, 128)
    }
    assert max(one.slowest for _, _, one in found.elsewhere) > 0.4, "which another GPU's rule would have to avoid"
    assert find_shared_rule(cases, read_launched([*here, *here])).rule == found.rule
    assert find_shared_rule(cases, read_launched(other)).rule == find_shared_rule(cases).rule


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "prints the GPU's name"),
        ("NVIDIA H200\nbest: none\n", "prints the GPU's name"),
        ("16,128,128,1,1,1,1\n16,128,128,1,1,1,1\n", "prints the GPU's name"),
        ("NVIDIA H200\n16,128,128,fast,1,1,1\n", ":2: could not convert"),
        ("NVIDIA H200\n16,128,128,nan,1,1,1\n", ":2: no counts and times"),
        ("NVIDIA H200\n16,0,128,1,1,1,1\n", ":2: no counts and times"),
    ],
)
def test_a_file_without_times_is_refused_with_its_line(tmp_path, text, reason):
    (tmp_path / "times.csv").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_launched([tmp_path / "times.csv"])
    with pytest.raises(InputError, match="none: No such file"):
        read_launched([tmp_path / "none"])


def test_tables_that_contradict_each_other_share_none(cases):
    """Where the kernels' times are exchanged, what is best for one is worst for the other."""
    turned = [
        replace(point, us=dict(zip(point.us, reversed(point.us.values()), strict=True)))
        for point in cases[0].case.points
    ]
    other = replace(cases[0], case=replace(cases[0].case, points=tuple(turned)))
    with pytest.raises(InputError, match=r"every pair slows a shape down .*--as tables"):
        find_shared_rule([cases[0], other])


def test_times_are_found_beside_the_tables_or_where_kernels_says_and_must_be_those_of_the_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [table] = list((H200 / "tables").glob("*H=16,*.json"))
    [file] = read_tables([str(shutil.copy(table, tmp_path))])
    with pytest.raises(
        InputError, match=r"its kernel times are not at results/h200/kernels: --kernels names their folder"
    ):
        read_case(file, None)
    assert read_case(file, H200 / "kernels").case.points
    with pytest.raises(InputError, match=r"not the times that .* was fitted to"):
        read_case(file, H200 / "kernels-rest")
    table = file.table
    without = table.evidence.model_copy(update={"command": "dsabench tune flashmla-auto h200-tp8"})
    for other in (made_table(), table.model_copy(update={"evidence": without})):
        with pytest.raises(InputError, match=r"no table of `tune flashmla-auto`"):
            read_case(as_file(other), None)
    with pytest.raises(InputError, match="is for NVIDIA_B200; a constant is for Hopper"):
        read_case(as_file(table.model_copy(update={"device": "NVIDIA_B200"})), None)


def test_a_checkout_of_an_older_form_is_refused_in_one_line(tmp_path, capsys):
    words = ["emit", "pr", str(H200 / "tables"), "--as", "constant", "--tree", str(tmp_path / "none"), "--json"]
    assert run(words) == 2
    assert "no such folder" in json.loads(capsys.readouterr().out)["reason"]
    other = write_table(tmp_path, made_table("mha_threshold", {"form": "threshold", "max_tokens": 512}))
    assert run(["emit", "pr", str(other), "--as", "constant", "--tree", str(tmp_path)]) == 2
    assert "a constant is made of kernel times" in capsys.readouterr().err
