"""The training: its texts, and that it learns, is interrupted and goes on."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsabench import rooms
from dsabench.config.load import load_eval
from dsabench.errors import ConfigError
from dsabench.evals.question import fill
from dsabench.evals.readers.tasks import make_tasks
from dsabench.reference.engine import weights
from dsabench.reference.engine.sizes import SIZES
from dsabench.reference.server.openai_api import ChatBody, chat_prompt
from dsabench.reference.train import __main__ as program
from dsabench.reference.train import rows, scores, steps, texts
from dsabench.reference.train.rows import Rows, asked, asked_in_steps
from dsabench.reference.train.stages import STAGES, Stage

TEMPLATES = {
    name: (getattr(texts, name.removesuffix("_HELD_OUT")), getattr(texts, name))
    for name in vars(texts)
    if name.endswith("_HELD_OUT")
}


def words_of(templates) -> set[str]:
    return {word for template in templates for word in re.findall(r"[A-Za-z]+", re.sub(r"\{.*?\}", "", template))}


@pytest.mark.parametrize("name", TEMPLATES)
def test_held_out_templates_are_new_and_their_words_are_not(name):
    trained, held_out = TEMPLATES[name]
    assert not set(trained) & set(held_out)
    everything = words_of(one for pair, _ in TEMPLATES.values() for one in pair)
    assert {word.lower() for word in words_of(held_out)} <= {word.lower() for word in everything}


@pytest.mark.parametrize("skill", ["arithmetic", "choice", "boxed"])
@pytest.mark.parametrize("held_out", [False, True])
def test_the_work_leads_to_the_answer(skill, held_out):
    """Every equation holds, and the last number, or what the letter stands for, is what the work ends with."""
    for number in range(300):
        task = texts.draw(skill, random.Random(number), held_out=held_out)
        for left, operator, right, result in re.findall(r"(\d+) ([-+*]) (\d+) = (\d+)", task.work):
            found = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator]
            assert found == int(result), task
        if skill == "choice":
            assert len(set(task.options)) == 4
            assert re.search(rf"\b{task.options['ABCD'.index(task.answer)]}\b", task.work)
        else:
            assert re.findall(r"\d+", task.work)[-1] == task.answer


def test_the_value_of_a_lookup_stands_behind_its_key():
    for number in range(100):
        size = texts.RecallSize(1500, 10, 4, "prose")
        text = texts.draw_recall(size, random.Random(number), held_out=True)
        assert 1200 < len(text.text) < 1600
        for one in text.lookups:
            key = re.fullmatch(r"\nThe access code of the (.*):", one.question)
            assert key
            assert f"The access code of the {key[1]} is{one.value}." in text.text


@pytest.mark.parametrize(("length", "count"), [(192, 256), (1024, 96)])
def test_the_prompts_of_the_sweeps_are_held_out_text(length, count):
    lines = (CHECKOUT / f"configs/data/reports-{length}.jsonl").read_text().splitlines()
    assert len(lines) == count
    for number, line in enumerate(lines):
        text = texts.draw_report(random.Random(f"workload {length} {number}"), length + 128, held_out=True)
        said = [turn["value"] for turn in json.loads(line)["conversations"]]
        assert said == [text[:length], text[length : length + 64]]


def test_every_owner_of_an_exercise_is_asked_for_and_stands_behind_the_thing():
    for number in range(50):
        text = texts.draw_owners(random.Random(number))
        facts = [fact.strip(". ") for fact in re.split(r"\.", text.text) if fact.strip()]
        assert len(text.lookups) == len(facts)
        for one in text.lookups:
            thing = one.question.removeprefix("\nThe ").removesuffix(" is with")
            (fact,) = (fact for fact in facts if thing in fact)
            assert one.value in fact.partition(thing)[2]


@pytest.mark.parametrize(
    ("skill", "name"),
    [
        *(("arithmetic", "gsm8k"), ("choice", "gpqa"), ("boxed", "aime25")),
        *(("arithmetic", "gsm8k-form"), ("choice", "gpqa-form"), ("boxed", "aime-form")),
    ],
)
def test_prompts_are_those_of_the_evals(skill, name):
    spec, task = load_eval(name), texts.draw(skill, random.Random(1), held_out=True)
    values = {"shots": "", "question": task.question, "Question": task.question, "problem": task.question}
    options = dict(zip("ABCD", task.options, strict=True)) if task.options else {}
    text = fill(spec.prompt.template, values | options)
    if spec.prompt.endpoint == "chat":
        text = chat_prompt(ChatBody.model_validate({"messages": [{"role": "user", "content": text}]}))
    assert asked(skill, task)[0] == text


@pytest.mark.parametrize(("skill", "wanted"), [("arithmetic", "the number"), ("choice", "the letter")])
def test_the_prompt_of_the_demo_is_that_of_the_eval(skill, wanted):
    task = texts.draw(skill, random.Random(1), held_out=True)
    listed = "".join(f"\n{letter}) {option}" for letter, option in zip("ABCD", task.options, strict=False))
    text = fill(load_eval("demo").prompt.template, {"question": task.question + listed, "wanted": wanted})
    assert asked_in_steps(task)[0] == chat_prompt(
        ChatBody.model_validate({"messages": [{"role": "user", "content": text}]})
    )


def test_the_same_seed_gives_the_same_rows():
    stage = STAGES[4]
    drawn = Rows(7, stage.name, stage.length, 4, stage.mix)
    tokens, weights = drawn[3]
    assert torch.equal(tokens, drawn[3][0])
    assert not torch.equal(tokens, drawn[4][0])
    assert not torch.equal(tokens, replace(drawn, seed=8)[3][0])
    assert tokens.shape == weights.shape == (4, stage.length + 1)
    assert (weights >= 1).any(dim=1).all() or "report" in stage.mix


def test_a_letter_weighs_more_than_the_bytes_in_front_of_it():
    tokens, weights = Rows(1, "letters", 512, 8, {"short": 1})[0]
    heavy = {chr(token) for token in tokens[weights > 1].tolist()}
    assert heavy <= set("ABCD")
    assert len(heavy) > 1
    assert set(weights.unique().tolist()) <= {0.0, float(torch.tensor(rows._PROMPT_WEIGHT).half()), 1.0, 3.0}


CHECKOUT = Path(__file__).parents[3]
SHORT = {"short": 1.0}
TINY = (
    Stage(name="dense", kind="dense", length=96, batch=2, mix=SHORT, rate=2e-3, steps=16),
    Stage(name="indexer", kind="indexer", length=144, batch=1, mix=SHORT, rate=1e-3, steps=8),
    Stage(name="sparse", kind="sparse", length=144, batch=1, mix=SHORT, rate=1e-3, steps=8),
    Stage(name="draft", kind="draft", length=144, batch=1, mix=SHORT, rate=1e-3, steps=8),
)


class Killed(Exception):
    pass


def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(program, "_NOTED", 4)
    monkeypatch.setattr(program, "_SAVE_S", 0)
    monkeypatch.setattr(scores, "of_skills", lambda _network, _mode: {})
    monkeypatch.setattr(scores, "of_selections", lambda _network: {})
    monkeypatch.setattr(scores, "of_drafts", lambda _network: {})
    take, taken = steps.take, 0

    def dies_in_the_second_stage(*arguments):
        nonlocal taken
        taken += 1
        if taken == 22:
            raise Killed
        return take(*arguments)

    monkeypatch.setattr(steps, "take", dies_in_the_second_stage)
    with pytest.raises(Killed):
        program.Training(tmp_path, 0, "cpu", 0).run(TINY)
    with (tmp_path / "curve.jsonl").open("a") as curve:  # as if it had died between a note and its state
        curve.write(json.dumps({"stage": "indexer", "step": 8, "loss": 0.0, "right": 0.0, "s": 0.0}) + "\n")
    program.Training(tmp_path, 0, "cpu", 0).run(TINY)
    curve = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    places = [(line["stage"], line["step"]) for line in curve]
    assert places == [(stage.name, step) for stage in TINY for step in range(4, stage.steps + 1, 4)]
    assert curve[3]["loss"] < 4.0  # guessing is ln 259 = 5.6
    assert list(json.loads((tmp_path / "scores.json").read_text())) == [stage.name for stage in TINY]
    trunk, head = weights.trained_model(SIZES["trained"], torch.float32, 64, "cpu", tmp_path / "model.safetensors")
    assert len(trunk.blocks) == 6
    assert head.project.shape == (256, 512)


def test_each_stage_changes_what_it_trains_and_nothing_else(tmp_path: Path):
    torch.manual_seed(0)
    training = program.Training(tmp_path, 0, "cpu", 0)
    network = training._network
    for stage in TINY:
        before = {name: one.clone() for name, one in network.state_dict().items()}
        training._train(replace(stage, steps=2))
        training._step = 0
        changed = {name for name, one in network.state_dict().items() if not torch.equal(one, before[name])}
        head = {name for name in before if name.startswith("layers.6.")}
        indexers = {name for name in before if ".indexer." in name} - head
        expected = {
            "dense": set(before) - head - indexers, "indexer": indexers, "sparse": set(before) - head, "draft": head,
        }[stage.kind]  # fmt: skip
        assert changed == expected, stage.kind


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("num_examples: 200\n", "", "num_examples: reader tasks needs it: there is no end of questions"),
        ("tasks: {skill: arithmetic, seed: 1}\n", "", "tasks: stands exactly where reader is tasks"),
        ("reader: tasks", "reader: demo", "tasks: stands exactly where reader is tasks"),
    ],
)
def test_an_eval_of_tasks_says_which_and_how_many(tmp_path: Path, old, new, complaint):
    text = rooms.find("evals", "gsm8k-form").read_text()
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=complaint):
        load_eval(str(tmp_path / "mine.yaml"))


def test_more_questions_begin_with_the_fewer():
    spec = load_eval("gpqa-form")
    more = make_tasks(spec.model_copy(update={"num_examples": 300}), None)
    assert len(more) == 300
    assert more[:200] == make_tasks(spec, None)
    assert len({one.prompt for one in more}) > 290
