"""A trace from SGLang's request log.

`tests/golden/request_log` has lines that sglang 0.5.16 wrote on an H100: its own warm-up, one conversation of three turns
with 0.2 s between them (457, 577 and 707 prompt tokens, behind a system prompt of 320), and a request on its own (203).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.cli.main import run
from dsabench.errors import InputError
from dsabench.load.draw.as_bench_serving import DatasetSelection, SeededGenerators
from dsabench.load.draw.request_log import RecordedTrace, record_trace
from dsabench.load.draw.tokenizers import ByteTokenizer, NoTokenizer
from dsabench.load.draw.traces import draw_trace

GOLDEN = Path(__file__).parents[2] / "golden" / "request_log"


@pytest.mark.parametrize(
    ("name", "delays_ms", "hashes"),
    [("json", [204.349, 203.056], 11), ("text", [0.0, 802.42], 11), ("level0", [], 0), ("export", [], 11)],
)
def test_what_sglang_wrote(name: str, delays_ms: list[float], hashes: int) -> None:
    trace = record_trace([GOLDEN / f"{name}.log"])
    rows = {row["input_length"]: row for row in trace.rows}
    assert {length: row["output_length"] for length, row in rows.items()} == {457: 70, 577: 80, 707: 90, 203: 20}
    assert [row["delay"] for row in trace.rows if "delay" in row] == delays_ms
    assert trace.left_out == 0
    assert trace.cached_tokens == 512 + 640  # of the second and third turn, in pages of 64 tokens
    assert (trace.without_tokens, trace.rounded) == (4 * (hashes == 0), 4 * (name in {"text", "level0"}))
    if hashes:
        first, second, third = (rows[length]["hash_ids"] for length in (457, 577, 707))
        assert (third[:7], third[:9], len(third)) == (first, second, hashes)
        assert not set(first) & set(rows[203]["hash_ids"])


SYSTEM = list(range(100, 228))
"""Two blocks."""


def finished(
    at: str, asked: list[int] | None, answered: int, *, took_s: float = 1.0, first: int = 5000, **more: Any
) -> str:
    """A line of `--log-requests-format json`; the answer's ids count up from `first`."""
    count = len(asked) if asked is not None else more.pop("prompt_tokens")
    meta = {
        "prompt_tokens": count,
        "completion_tokens": answered,
        "e2e_latency": took_s,
        "finish_reason": {"type": "length"},
    }
    obj = {"rid": "r", "text": more.pop("text", None), "input_ids": asked}
    out = {"output_ids": list(range(first, first + answered)), "meta_info": meta | more}
    event = {"timestamp": f"2026-11-27T10:00:{at}", "event": "request.finished", "rid": "r", "obj": obj, "out": out}
    return f"[2026-11-27 10:00:{at[:2]}] {json.dumps(event)}"


def recorded(path: Path, *lines: str, **options: Any) -> RecordedTrace:
    path.write_text("\n".join(lines) + "\n")
    return record_trace([path], **options)


def test_times_lengths_and_what_prompts_share(tmp_path: Path) -> None:
    trace = recorded(
        tmp_path / "a.log",
        "[2026-11-27 10:00:00] The server is fired up and ready to roll!",
        finished("03.500000", [*SYSTEM, *range(70)], 7, took_s=0.25, cached_tokens=128),
        finished("02.000000", [*SYSTEM, 9, 9, 9], 8, took_s=1.5, cached_tokens=0),
        finished("04.000000", list(range(1000, 1100)), 9, took_s=0.5, cached_tokens=0),
    )
    assert trace.rows == [
        {"timestamp": 0.0, "input_length": 131, "output_length": 8, "block_size": 64, "hash_ids": [0, 1]},
        {"timestamp": 2750.0, "input_length": 198, "output_length": 7, "block_size": 64, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000.0, "input_length": 100, "output_length": 9, "block_size": 64, "hash_ids": [3]},
    ]
    assert (trace.prompt_tokens, trace.shared_tokens, trace.cached_tokens) == (429, 128, 128)
    assert (list(trace.notes()), trace.sessions) == ([], 0)


def test_a_block_is_the_same_only_after_the_same_beginning(tmp_path: Path) -> None:
    one, other = list(range(64)), list(range(64, 128))
    trace = recorded(tmp_path / "a.log", finished("01.0", one + other, 1), finished("02.0", other + one, 1))
    assert [row["hash_ids"] for row in trace.rows] == [[0, 1], [2, 3]]


def test_a_request_that_goes_on_from_an_answer_is_the_next_turn(tmp_path: Path) -> None:
    first = [*SYSTEM, 1, 2, 3]
    second = [*first, *range(5000, 5080), *range(90)]
    lines = (
        finished("01.0", first, 80),  # received at 0.0
        finished("04.5", second, 80, took_s=2.0, first=7000),  # 1.5 s after that answer
        finished(
            "05.0", [*second, *range(7000, 7080), 4], 80, took_s=1.0, first=9000
        ),  # before the answer: not its turn
        finished(
            "06.5", [*first, *range(5000, 5080), *range(200, 290)], 9, took_s=0.5
        ),  # a second one from the first answer
    )
    trace = recorded(tmp_path / "a.log", *lines)
    assert [(row.get("session_id"), row.get("delay")) for row in trace.rows] == [
        ("0", None),
        ("0", 1500.0),
        (None, None),
        (None, None),
    ]
    assert trace.sessions == 1


def test_text_is_counted_by_a_tokenizer_and_missing_tokens_are_said(tmp_path: Path) -> None:
    lines = [finished(f"0{at}.0", None, 5, text="a" * 80, prompt_tokens=80) for at in (1, 2)]
    assert [row["hash_ids"] for row in recorded(tmp_path / "a.log", *lines, tokenizer=ByteTokenizer()).rows] == [
        [0],
        [0],
    ]
    trace = recorded(tmp_path / "a.log", *lines)
    assert "hash_ids" not in trace.rows[0]
    [note] = trace.notes()
    assert note.startswith("2 of 2 prompts share nothing in the trace, because the log has not all of their tokens: ")


def test_what_cannot_be_replayed_is_counted(tmp_path: Path) -> None:
    trace = recorded(
        tmp_path / "a.log",
        finished("01.0", SYSTEM, 5),
        finished("02.0", SYSTEM, 5, finish_reason={"type": "abort", "message": "x"}),
        finished("02.0", SYSTEM, 0),
        finished("02.0", SYSTEM, 5, prompt_tokens=float("nan")),
    )
    assert (len(trace.rows), trace.left_out) == (1, 3)
    assert next(trace.notes()) == "3 requests were aborted, or have no prompt or no answer: they are left out"
    with pytest.raises(InputError, match=r"no answered request; SGLang logs them with --log-requests"):
        recorded(tmp_path / "b.log", '{"event": "request.received"}', "Prefill batch. #new-seq: 1")
    with pytest.raises(InputError, match="No such file"):
        record_trace([tmp_path / "none.log"])


def test_what_sglang_asks_itself_is_passed_over(tmp_path: Path) -> None:
    check = finished("02.0", [0], 1).replace('"rid": "r"', '"rid": "HEALTH_CHECK_17"')
    text = (
        "[2026-11-27 10:00:02] Finish: obj=X(rid='HEALTH_CHECK_18'), out={'prompt_tokens': 1, 'completion_tokens': 1}"
    )
    trace = recorded(
        tmp_path / "a.log",
        finished("01.0", [10, 11, 12], 8),
        finished("01.0", None, 8, text="The capital city of France is", prompt_tokens=6),
        check,
        text,
        finished("03.0", SYSTEM, 5),
    )
    assert (len(trace.rows), trace.left_out) == (1, 0)


TEXT = (
    "[2026-11-27 10:00:0{}] Finish: obj=X({}), out={{'prompt_tokens': {}, 'completion_tokens': 4, 'e2e_latency': {}}}"
)


@pytest.mark.parametrize(
    ("line", "left_out"),
    [
        (finished("01.0", SYSTEM, 5).replace("T10:00:01.0", "T77"), 1),
        (TEXT.format(2, "", "..", 1.0), 1),
        (TEXT.format(2, "input_ids=[ , ]", 5, 1.0), 0),
        (TEXT.format(2, "", 5, "9.5e-05"), 0),
        (TEXT.format(2, "", 5, 1.0).replace("2026-11-27", "9999-99-99"), 1),
    ],
)
def test_a_line_that_is_odd_stops_nothing(tmp_path: Path, line: str, left_out: int) -> None:
    trace = recorded(tmp_path / "a.log", finished("01.0", SYSTEM, 5), line)
    assert (len(trace.rows), trace.left_out) == (2 - left_out, left_out)


ODD = [
    "Finish: obj=",
    "out={",
    "'prompt_tokens': 7",
    "'prompt_tokens': ",
    "'e2e_latency': ",
    "input_ids=[1, 2]",
    "input_ids=[",
]
ODD += [
    "]",
    "[2026-11-27 10:00:01] ",
    "[0000-00-00 00:00:00] ",
    "'completion_tokens': 9",
    "rid='",
    "...",
    "e",
    "1",
    ",",
]


@given(st.lists(st.text(max_size=30) | st.sampled_from(ODD)))
def test_any_line_is_read_or_passed_over(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    file = tmp_path_factory.getbasetemp() / "any.log"
    lines = [
        finished("01.0", SYSTEM, 5),
        "".join(words),
        '{"prompt_tokens": 3, "request_parameters": ' + "".join(words),
    ]
    assert recorded(file, *(line.replace("\n", " ") for line in lines)).rows[0]["input_length"] == 128


def test_the_command_writes_a_trace_that_can_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, out = tmp_path / "logs", tmp_path / "t.jsonl"
    logs.mkdir()
    (logs / "a.log").write_text(finished("01.0", [*SYSTEM, 5], 4) + "\n")
    (logs / "b.log").write_text(finished("03.0", [*SYSTEM, 6], 5) + "\n")
    assert run(["trace", str(logs), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{out}: 2 requests in 2 s, 129 prompt tokens on average",
        "50% of the prompt tokens repeat an earlier prompt; 0 conversations of several turns",
    ]
    first, second = draw_trace(
        DatasetSelection("mooncake", 2, 1, str(out)), NoTokenizer(1000), SeededGenerators.of(1)
    ).prompts
    assert [(one.input_len, one.output_len, one.due_s) for one in (first, second)] == [(129, 4, 0.0), (129, 5, 2.0)]
    assert first.input_ids
    assert second.input_ids
    assert first.input_ids[:128] == second.input_ids[:128]
    assert run(["trace", str(logs), "--out", str(out)]) == 2
    assert "is there already; --force replaces it" in capsys.readouterr().err
    assert run(["trace", str(logs), "--out", str(out), "--force", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["shared_prompt_tokens"], found["cached_prompt_tokens"]) == (2, 128, None)
