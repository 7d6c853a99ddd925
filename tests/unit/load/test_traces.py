"""Traces and conversations as people have them (public reports guidellm#948, aiperf#273, aiperf#581, sglang#15057)."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import mix_trace
from dsabench.cli.bench_choices import selection_for
from dsabench.cli.bench_flags import parse_flags
from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.load.draw.as_bench_serving import DrawnDataset, SeededGenerators, draw_dataset
from dsabench.load.draw.prompts import draw_prompts
from dsabench.load.draw.tokenizers import ByteTokenizer, NoTokenizer, Tokenizer
from dsabench.load.plan import OpenLoop, SessionPacing
from dsabench.load.requests import LoadTarget
from dsabench.load.schedule import pacing_for, sessions_of
from dsabench.model.workload import Workload

BYTES = ByteTokenizer()
ROOT = Path(__file__).parents[3]


def rows(path: Path, *values: Any) -> Path:
    path.write_text("".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values))
    return path


def drawn(dataset: str, path: Path, *words: str, tokenizer: Tokenizer = BYTES) -> DrawnDataset:
    backend = "sglang-oai-chat" if dataset == "openai" else "sglang"
    flags = [
        "--dataset-name",
        dataset,
        "--dataset-path",
        str(path),
        "--num-prompts",
        "10",
        "--backend",
        backend,
        *words,
    ]
    args = parse_flags(flags)
    return draw_dataset(selection_for(args), tokenizer, SeededGenerators.of(args.seed))


def refused(dataset: str, path: Path) -> str:
    with pytest.raises(InputError) as caught:
        drawn(dataset, path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


def test_a_row_is_as_long_as_it_says_and_shares_what_its_hashes_say(tmp_path: Path) -> None:
    trace = rows(
        tmp_path / "t.jsonl",
        {"timestamp": 1000, "input_length": 6758, "output_length": 5, "hash_ids": list(range(14))},
        {"timestamp": 1100, "input_length": 7322, "output_length": 7, "hash_ids": [0, *range(14, 28)]},
        {"timestamp": 900, "input_length": 700, "output_length": 3, "hash_ids": [0]},
    )
    for tokenizer in (BYTES, NoTokenizer(50_000)):
        early, first, second = drawn("mooncake", trace, tokenizer=tokenizer).prompts
        assert [len(one.input_ids or ()) for one in (early, first, second)] == [700, 6758, 7322]
        assert (first.input_len, first.output_len, second.output_len) == (6758, 5, 7)
        assert [early.due_s, first.due_s, second.due_s] == pytest.approx([0.0, 0.1, 0.2])
        assert first.input_ids
        assert second.input_ids
        assert early.input_ids
        assert first.input_ids[:512] == second.input_ids[:512] == early.input_ids[:512]
        assert first.input_ids[512:1024] != second.input_ids[512:1024]
        assert max(first.input_ids) < tokenizer.vocab_size
        assert early.input_ids[512:] != first.input_ids[512:700]  # beyond its hashes a row is its own
    again, other = (drawn("mooncake", trace, "--seed", seed).prompts for seed in ("1", "2"))
    assert again == drawn("mooncake", trace, "--seed", "1").prompts
    assert again[0].input_ids != other[0].input_ids


def test_a_rows_own_text_is_sent_and_a_missing_length_is_said(tmp_path: Path) -> None:
    trace = rows(
        tmp_path / "t.jsonl",
        {"timestamp": 0, "text_input": "Why do rivers bend?", "output_length": 5},
        {"timestamp": 100, "text_input": "What is a delta?"},
        {"timestamp": 200, "input_length": 700, "hash_ids": [1, 2]},
    )
    data = drawn("mooncake", trace)
    assert [one.text for one in data.prompts] == ["Why do rivers bend?", "What is a delta?", None]
    assert [one.input_len for one in data.prompts] == [19, 16, 700]
    assert [one.output_len for one in data.prompts] == [5, 256, 256]
    assert data.notes == ("2 of 3 rows of the trace have no output_length: 256 tokens are asked for",)
    with pytest.raises(InputError, match="needs a tokenizer"):
        drawn("mooncake", trace, tokenizer=NoTokenizer(1000))


GOOD = {"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [1]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"timestamp": 100, "hash_ids": [2', "not JSON: "),
        (
            {**GOOD, "input_length": 20, "hash_ids": [0, 1]},
            "hash_ids: 2 blocks of 512 tokens, but input_length 20 fills 1",
        ),
        ({**GOOD, "timestamp": "soon"}, 'timestamp: is a number of ms, not "soon"'),
        ({**GOOD, "timestamp": None}, "timestamp: is missing; only a later row of a session needs none"),
        ({**GOOD, "timestamp": None, "session_id": "b"}, "timestamp: is missing"),
        ({**GOOD, "timestamp": -1}, "timestamp: is a number of ms, not -1"),
        ({**GOOD, "input_length": 1.5}, "input_length: is a whole number of tokens from 1 on, not 1.5"),
        ({**GOOD, "output_length": 0}, "output_length: is a whole number of tokens from 1 on, not 0"),
        ({**GOOD, "output_length": 10**18}, "output_length: is a whole number of tokens"),
        ({**GOOD, "hash_ids": "1"}, "hash_ids: is a list of whole numbers"),
        ({**GOOD, "text_input": ""}, "text_input: is a text that is not empty"),
        ({"timestamp": 5, "query": "x"}, "needs input_length, hash_ids or text_input; it has timestamp, query"),
        ("[]", "a row is an object with timestamp, "),
        ('{"timestamp": NaN, "input_length": 3}', "timestamp: is a number of ms, not NaN"),
    ],
)
def test_a_row_that_cannot_be_replayed_is_refused_by_its_line(tmp_path: Path, row: Any, message: str) -> None:
    said = refused("mooncake", rows(tmp_path / "t.jsonl", GOOD, row, GOOD))
    assert said.startswith(f"FILE:2: {message}"), said


def test_damaged_rows_of_other_files_are_refused_by_their_line_too(tmp_path: Path) -> None:
    pair = {"conversations": [{"content": "Why?"}, {"content": "Because."}]}
    assert refused("custom", rows(tmp_path / "c", pair, "{oops")).startswith("FILE:2: not JSON: ")
    chat = {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 3}
    assert refused("openai", rows(tmp_path / "o", chat, {"prompt": "x"})).startswith(
        "FILE:2: messages: a row is an object"
    )
    assert len(drawn("custom", rows(tmp_path / "d", pair, "{oops"), "--draw", "exact").prompts) == 1


def test_turns_of_a_session_go_one_after_another(tmp_path: Path) -> None:
    trace = rows(
        tmp_path / "t.jsonl",
        {**GOOD, "session_id": "a"},
        {**GOOD, "timestamp": 50, "hash_ids": [9]},
        {**GOOD, "timestamp": 60, "input_length": 900, "hash_ids": [1, 2], "session_id": "a", "delay": 250},
    )
    prompts = drawn("mooncake", trace).prompts
    assert sessions_of(prompts) == ((0, 2), (1,))
    assert [one.pause_s for one in prompts] == [0.0, 0.0, 0.25]
    assert (prompts[2].input_ids or ())[:512] == prompts[0].input_ids
    point = Workload(name="w", dataset="mooncake", dataset_path=str(trace), num_prompts=3, max_concurrency=2)
    found = draw_prompts(LoadTarget("http://h:1", "m", vocab_size=1000), point)
    pacing = pacing_for(point, found)
    assert isinstance(pacing, SessionPacing)
    assert (list(pacing.turns), list(pacing.think_s)) == ([(0, 2), (1,)], [0.0, 0.0, 0.25])
    assert pacing.due_s == pytest.approx([0.0, 0.05])


def test_a_later_turn_without_a_time_comes_after_the_one_before_it(tmp_path: Path) -> None:
    later = {"input_length": 700, "output_length": 3, "session_id": "a", "delay": 100}
    trace = rows(tmp_path / "t", {**GOOD, "timestamp": 5000, "session_id": "a"}, later, {**GOOD, "timestamp": 4000})
    prompts = drawn("mooncake", trace).prompts
    assert [(one.input_len, one.due_s, one.session) for one in prompts] == [
        (512, 0.0, None),
        (512, 1.0, "a"),
        (700, 1.0, "a"),
    ]


def test_rounds_grow_the_history(tmp_path: Path) -> None:
    prompts = drawn("mooncake", rows(tmp_path / "t", GOOD), "--mooncake-num-rounds", "3").prompts
    assert [one.input_len for one in prompts] == [512, 512 * 2 + 5, 512 * 3 + 10]
    assert (prompts[2].input_ids or ())[:1029] == prompts[1].input_ids
    assert sessions_of(prompts) == ((0, 1, 2),)


def test_chats_may_have_times(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 3, "temperature": 0.5}
    file = rows(tmp_path / "o", {**chat, "timestamp": 2500}, {**chat, "timestamp": 2000, "session_id": 7}, chat)
    assert (
        refused("openai", rows(tmp_path / "p", {**chat, "timestamp": "x"}))
        == 'FILE:1: timestamp: is a number of ms, not "x"'
    )
    first, second, third = drawn(
        "openai", rows(file, {**chat, "timestamp": 2500}, {**chat, "timestamp": 2000}, chat)
    ).prompts
    assert [first.due_s, second.due_s, third.due_s] == [0.0, 2.0, 2.5]
    assert first.extra == {"temperature": 0.5}
    point = Workload(name="w", dataset="openai", dataset_path=str(file), num_prompts=3, endpoint="chat")
    found = draw_prompts(LoadTarget("http://h:1", "m", endpoint="chat", tokenizer="bytes"), point)
    pacing = pacing_for(point, found)
    assert isinstance(pacing, OpenLoop)
    assert list(pacing.due_s) == [0.0, 2.0, 2.5]


HUMAN = {"from": "human", "value": "Tell me about rivers please"}
GPT = {"from": "gpt", "value": "Rivers carry water to the sea and more."}


def test_conversations_in_the_forms_that_people_export(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": HUMAN["value"]}, {"role": "assistant", "content": GPT["value"]}]
    for name, content in {
        "list.json": json.dumps([{"conversations": [HUMAN, GPT]}]),
        "messages.json": json.dumps([{"id": "1", "messages": chat}]),
        "lines.jsonl": json.dumps({"conversations": [HUMAN, GPT]}) + "\n",
    }.items():
        (tmp_path / name).write_text(content)
        [prompt] = drawn("sharegpt", tmp_path / name).prompts
        assert prompt.text == HUMAN["value"]
    [prompt] = drawn("custom", rows(tmp_path / "cu.jsonl", {"messages": chat})).prompts
    assert prompt.text == HUMAN["value"]


def test_what_is_left_out_or_odd_is_said(tmp_path: Path) -> None:
    system = {"from": "system", "value": "You are a helpful assistant"}
    entries = [{"conversations": turns} for turns in ([HUMAN, GPT], [GPT, HUMAN], [system, HUMAN, GPT], [HUMAN])]
    (tmp_path / "f.json").write_text(json.dumps(entries))
    data = drawn("sharegpt", tmp_path / "f.json")
    assert len(data.prompts) == 3
    assert data.notes[0] == "1 of 4 conversations have no two turns of text and are left out"
    assert data.notes[1] == (
        "2 of 4 conversations begin with a system prompt or with the assistant: as in bench_serving, that first turn is what "
        "is asked"
    )
    (tmp_path / "g.json").write_text(json.dumps([{"id": "1", "dialogue": []}]))
    assert refused("sharegpt", tmp_path / "g.json") == (
        "FILE: no conversation with two turns of text; looked for conversations, conversation, messages with value, content, "
        "text in each turn; the keys of the first entry: id, dialogue"
    )
    (tmp_path / "h.json").write_text("{")
    assert re.match("FILE: not JSON: ", refused("sharegpt", tmp_path / "h.json"))


BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def csv_trace(path: Path, *lines: str, header: str = BURST) -> Path:
    path.write_text("\n".join((header, *lines)) + "\n")
    return path


def test_burstgpt_is_replayed_with_its_times_and_lengths(tmp_path: Path) -> None:
    lines = (
        "45,ChatGPT,1087,230,1317,Conversation log",
        "5,ChatGPT,472,18,490,Conversation log",
        "50,GPT-4,900,0,900,API log",
        "118,GPT-4,417.0,276.0,693.0,API log",
    )
    data = drawn("burstgpt", csv_trace(tmp_path / "b.csv", *lines), "--mooncake-slowdown-factor", "0.5")
    assert [(one.input_len, one.output_len, one.due_s) for one in data.prompts] == [
        (472, 18, 0.0),
        (1087, 230, 20.0),
        (417, 276, 56.5),
    ]
    assert [len(one.input_ids or ()) for one in data.prompts] == [472, 1087, 417]
    assert len({(one.input_ids or ())[:8] for one in data.prompts}) == 3  # nothing shared
    assert data.notes == ("1 of 4 rows of the trace failed when it was recorded (0 tokens) and are left out",)
    [first] = drawn("burstgpt", tmp_path / "b.csv", "--num-prompts", "1").prompts  # the file's first row
    assert first.input_len == 1087


def test_azures_trace_has_moments(tmp_path: Path) -> None:
    lines = ("2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:48.1805900,4808,10")
    trace = csv_trace(tmp_path / "a.csv", *lines, header="TIMESTAMP,ContextTokens,GeneratedTokens")
    assert [(one.input_len, one.output_len) for one in drawn("burstgpt", trace).prompts] == [(374, 44), (4808, 10)]
    assert [one.due_s for one in drawn("burstgpt", trace).prompts] == pytest.approx([0.0, 1.5])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("soon,ChatGPT,5,5,10,x", "Timestamp: is a number of seconds or a date with a time, not soon"),
        ("nan,ChatGPT,5,5,10,x", "Timestamp: is a number of seconds or a date with a time, not nan"),
        ("-3,ChatGPT,5,5,10,x", "Timestamp: is a number of seconds"),
        ("9,ChatGPT,5", "tokens: is a whole number from 0 on, not empty"),
        ("9,ChatGPT,5.5,5,10,x", "tokens: is a whole number from 0 on, not 5.5"),
        ("9,ChatGPT,inf,5,10,x", "tokens: is a whole number from 0 on, not inf"),
        ("9,ChatGPT,1e18,5,10,x", "tokens: is a whole number from 0 on, not 1e18"),
        ("9,ChatGPT,0,5,5,x", "5 tokens answer a request of none"),
    ],
)
def test_a_line_of_csv_that_cannot_be_replayed_is_refused(tmp_path: Path, row: str, message: str) -> None:
    said = refused("burstgpt", csv_trace(tmp_path / "b.csv", "5,ChatGPT,4,4,8,x", row))
    assert said.startswith(f"FILE:3: {message}"), said


def test_another_csv_is_refused_by_its_columns(tmp_path: Path) -> None:
    other = csv_trace(tmp_path / "o.csv", "1,2", header="time,prompt")
    assert refused("burstgpt", other) == (
        "FILE:1: needs the columns Timestamp, Request tokens, Response tokens; it has time, prompt"
    )
    (tmp_path / "e.csv").write_text("")
    assert refused("burstgpt", tmp_path / "e.csv").endswith("it has none")
    assert refused("burstgpt", csv_trace(tmp_path / "n.csv")) == "FILE: the trace is empty"
    (tmp_path / "z.csv").write_bytes(b"Timestamp,Request tokens,Response tokens\n\xff\xfe,1,1\n")
    assert refused("burstgpt", tmp_path / "z.csv").startswith("FILE: not CSV in UTF-8")


def test_the_committed_mix_is_drawn_again_and_needs_no_tokenizer() -> None:
    place = ROOT / "configs" / "data" / "mix-4k.jsonl"
    written = [json.dumps(row, separators=(",", ":")) for row in mix_trace.rows()]
    assert place.read_text().splitlines() == written
    config = load_study(ROOT / "configs" / "h200-rank.yaml")
    (workload,) = config.workloads
    target = LoadTarget("http://127.0.0.1:1", config.runtime.model, vocab_size=129280)
    prompts = draw_prompts(target, workload).measured
    assert [one.input_len for one in prompts] == [json.loads(row)["input_length"] for row in written[: len(prompts)]]
    begun = Counter((one.input_ids or ())[:512] for one in prompts)
    assert len(begun) <= 6, "each begins with one of six system prompts"
