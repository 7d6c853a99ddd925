"""Make a trace from SGLang's request log, so that a sweep replays the traffic of a deployment.

SGLang writes what it served with one of

    --log-requests --log-requests-level 3 --log-requests-format json --log-requests-target FOLDER
    --enable-metrics --export-metrics-to-file --export-metrics-to-file-dir FOLDER

The trace has no text and no token: a prompt becomes its length and a number for each block of tokens, the same number for
the same tokens after the same beginning. Blocks have 64 tokens, SGLang's page with DSA and so the unit that its prefix
cache shares. Where the log has the tokens of prompts and answers (level 3), a request that begins with an earlier one and
its answer becomes that session's next turn, with the time between as its delay.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from dsabench.errors import InputError
from dsabench.load.draw.tokenizers import Tokenizer

BLOCK_TOKENS = 64
_CLOCK = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_WORD = r"'{}': (-?[\d.e+]+)"
_WORDS = ("prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency", "request_received_ts")
_WARM_UP = [10, 11, 12], "The capital city of France is"
"""What sglang asks itself before it is ready, as ids or as text."""
_IDS = {name: re.compile(name + r"'?[=:] ?(\[[\d, ]*\])(?! \.\.\.)") for name in ("input_ids", "output_ids")}
_HEALTH = "HEALTH_CHECK"


class LoggedRequest(NamedTuple):
    """A request that the server answered."""

    received_s: float
    finished_s: float
    input_len: int
    output_len: int
    cached: int | None = None
    """Prompt tokens that the prefix cache had; None where the log does not say."""
    input_ids: Sequence[int] | None = None
    output_ids: Sequence[int] | None = None
    text: str | None = None
    is_exact: bool = True
    """Whether the time is finer than a second."""


@dataclass(slots=True)
class RecordedTrace:
    """Rows as `traces.read_trace` takes them, and what was seen on the way."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    """Requests that were aborted, or had no prompt or no answer."""
    prompt_tokens: int = 0
    shared_tokens: int = 0
    """Of those, tokens in blocks that an earlier request had."""
    cached_tokens: int | None = None
    """Of those, what the server's own prefix cache had; None where it did not say for each."""
    without_tokens: int = 0
    """Requests whose prompts' tokens are not in the log: they share nothing in the trace."""
    rounded: int = 0
    """Requests whose time is known to the second."""

    @property
    def duration_s(self) -> float:
        """From the first request to the last."""
        return (self.rows[-1]["timestamp"] - self.rows[0]["timestamp"]) / 1e3 if self.rows else 0.0

    @property
    def sessions(self) -> int:
        """Conversations with more than one turn."""
        return len({row["session_id"] for row in self.rows if "delay" in row})

    def notes(self) -> Iterator[str]:
        """What limits the trace, one line each."""
        count = len(self.rows)
        if self.left_out:
            yield f"{self.left_out} requests were aborted, or have no prompt or no answer: they are left out"
        if self.without_tokens:
            yield (
                f"{self.without_tokens} of {count} prompts share nothing in the trace, because the log has not all of their "
                "tokens: log with --log-requests-level 3, and give --tokenizer where it has only text"
            )
        if self.rounded:
            yield (
                f"{self.rounded} of {count} requests came at a time that is known to the second: log with "
                "--log-requests-format json for finer ones"
            )


def record_trace(files: Iterable[Path], tokenizer: Tokenizer | None = None) -> RecordedTrace:
    """The requests of all files in the order in which they came. `tokenizer` reads prompts that the log has as text.

    Raises:
        InputError: a file cannot be read, or none of them holds a request that was answered.

    """
    trace, found, named = RecordedTrace(), list[LoggedRequest](), list[Path]()
    for file in files:
        named.append(file)
        for request in read_log(file):
            if request is not None and (request.text == _WARM_UP[1] or [*(request.input_ids or ())] == _WARM_UP[0]):
                continue
            if request is None:
                trace.left_out += 1
            else:
                found.append(request)
    if not found:
        raise InputError(
            f"{', '.join(map(str, named))}: no answered request; SGLang logs them with --log-requests (`Finish: …`, or "
            "`request.finished` in JSON) or --export-metrics-to-file"
        )
    found.sort(key=lambda request: request.received_s)
    blocks, sessions = _BlockNumbers(), _Sessions()
    for request in found:
        row: dict[str, Any] = {
            "timestamp": round((request.received_s - found[0].received_s) * 1e3, 3),
            "input_length": request.input_len,
            "output_length": request.output_len,
        }
        ids = request.input_ids
        if ids is None and request.text is not None and tokenizer is not None:
            ids = tokenizer.encode(request.text)[: request.input_len]
        if ids is None:
            trace.without_tokens += 1
        else:
            digests = _chain(ids)
            trace.shared_tokens += BLOCK_TOKENS * sum(digest in blocks.known for digest in digests)
            row |= {"block_size": BLOCK_TOKENS, "hash_ids": [blocks.number(digest) for digest in digests]}
            sessions.place(row, request, digests)
        trace.prompt_tokens += request.input_len
        trace.rounded += not request.is_exact
        trace.rows.append(row)
    told = [request.cached for request in found if request.cached is not None]
    trace.cached_tokens = sum(told) if len(told) == len(found) else None
    return trace


def read_log(file: Path) -> Iterator[LoggedRequest | None]:
    """Every request that ended; None is one that cannot be replayed.

    Raises:
        InputError: the file cannot be read.

    """
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if "Finish: obj=" in line:
                    yield _of_text(line)
                elif "prompt_tokens" in line and (told := _json_of(line)) is not None:
                    yield _of_json(told)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error


def _json_of(line: str) -> dict[str, Any] | None:
    """The object of a line that tells of a finished request; a time in brackets may stand before it."""
    try:
        value = json.loads(line[line.index("{") :])
    except ValueError:
        return None
    is_one = isinstance(value, dict) and (value.get("event") == "request.finished" or "request_parameters" in value)
    return value if is_one else None


def _of_json(told: Mapping[str, Any]) -> LoggedRequest | None:
    """A line of the log has `obj` and `out`; one of the export has the parameters as text and meta_info's keys beside it."""
    try:
        asked = told["obj"] if "obj" in told else json.loads(told["request_parameters"])
        out = told.get("out") or {}
        meta = out["meta_info"] if out else told
    except (KeyError, TypeError, ValueError):
        return None
    if not isinstance(asked, dict) or not isinstance(meta, dict) or _HEALTH in str(asked.get("rid") or told.get("rid")):
        return None
    written, text = told.get("timestamp"), asked.get("text")
    written_s: float | None
    if isinstance(written, str):
        written_s = datetime.fromisoformat(written).timestamp()
    else:  # of a stream it is when the first part was sent
        written_s = None if asked.get("stream") else _number(meta.get("response_sent_to_client_ts"))
    return _request(
        meta,
        written_s,
        input_ids=_ids(asked.get("input_ids")),
        output_ids=_ids(out.get("output_ids")),
        text=text if isinstance(text, str) else None,
        is_exact=True,
    )


def _of_text(line: str) -> LoggedRequest | None:
    """Python's own notation, in which texts may hold anything: what is found is checked against the counts."""
    asked, _, answered = line.partition("out={")
    if _HEALTH in asked[:400]:
        return None
    meta: dict[str, Any] = {
        word: float(found[-1]) for word in _WORDS if (found := re.findall(_WORD.format(word), answered))
    }
    if "'type': 'abort'" in answered:
        meta["finish_reason"] = "abort"
    clock = _CLOCK.search(line)
    written_s = None if clock is None else datetime.fromisoformat(clock[1]).timestamp()
    ids = {
        name: None if found is None else _ids(json.loads(found[1]))
        for name, found in (
            ("input_ids", _IDS["input_ids"].search(asked)),
            ("output_ids", _IDS["output_ids"].search(answered)),
        )
    }
    return _request(meta, written_s, text=None, is_exact=False, **ids)


def _ids(value: object) -> Sequence[int] | None:
    """Token ids; None for a list that the log cut short."""
    if not isinstance(value, list):
        return None
    try:
        return array("q", value)
    except (TypeError, OverflowError):
        return None


def _request(
    meta: Mapping[str, Any],
    written_s: float | None,
    *,
    input_ids: Sequence[int] | None,
    output_ids: Sequence[int] | None,
    text: str | None,
    is_exact: bool,
) -> LoggedRequest | None:
    """`written_s`: when its line was written, which is when it ended."""
    input_len, output_len, took_s = (_number(meta.get(word)) for word in _WORDS[:2] + _WORDS[3:4])
    received_s, cached = _number(meta.get("request_received_ts")), _number(meta.get("cached_tokens"))
    reason = meta.get("finish_reason")
    aborted = (reason.get("type") if isinstance(reason, dict) else reason) == "abort"
    if received_s is None and written_s is not None:
        received_s = written_s - (took_s or 0.0)
    else:
        is_exact = True
    if aborted or received_s is None or not input_len or not output_len:
        return None
    return LoggedRequest(
        received_s=received_s,
        finished_s=received_s + (took_s or 0.0),
        input_len=int(input_len),
        output_len=int(output_len),
        cached=None if cached is None else int(cached),
        input_ids=input_ids if input_ids is not None and len(input_ids) == input_len else None,
        output_ids=output_ids if output_ids is not None and len(output_ids) == output_len else None,
        text=text,
        is_exact=is_exact,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else None


def _chain(ids: Sequence[int]) -> list[bytes]:
    """A digest for each whole block, of it and of everything before it."""
    running, digests = hashlib.blake2b(digest_size=16), list[bytes]()
    data = array("q", ids)
    for end in range(BLOCK_TOKENS, len(data) + 1, BLOCK_TOKENS):
        running.update(data[end - BLOCK_TOKENS : end])
        digests.append(running.digest())
    return digests


class _BlockNumbers:
    """0, 1, 2, … in the order in which blocks are first seen: they say nothing of the tokens."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}

    def number(self, digest: bytes) -> int:
        """The same for the same digest."""
        return self.known.setdefault(digest, len(self.known))


class _Sessions:
    """Finds the request that another one goes on from: its last block, with the answer in it, is in the other's prompt."""

    def __init__(self) -> None:
        self._ended: dict[bytes, tuple[float, dict[str, Any]]] = {}
        self._count = 0

    def place(self, row: dict[str, Any], request: LoggedRequest, digests: Sequence[bytes]) -> None:
        """Give a row, and the one before it, their session. Requests come in the order in which they were received.

        Where two go on from one answer, the first is its next turn.
        """
        for digest in reversed(digests):
            finished_s, before = self._ended.get(digest, (float("inf"), row))
            if finished_s <= request.received_s + (0.0 if request.is_exact else 1.0):
                if "session_id" not in before:
                    before["session_id"] = str(self._count)
                    self._count += 1
                row |= {
                    "session_id": before["session_id"],
                    "delay": max(0.0, round((request.received_s - finished_s) * 1e3, 3)),
                }
                del self._ended[digest]
                break
        if request.input_ids is not None and request.output_ids is not None:
            whole = _chain([*request.input_ids, *request.output_ids])
            if len(whole) * BLOCK_TOKENS > request.input_len:
                self._ended[whole[-1]] = request.finished_s, row
