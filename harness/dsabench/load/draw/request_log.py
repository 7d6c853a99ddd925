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
_NUMBERS = ("prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency", "request_received_ts")
_NUMBER = r"'{}': (\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_IDS = r"{}'?[=:] ?(\[[\d, ]*\])(?! \.\.\.)"
_RID = re.compile(r"rid='([^']*)'")
_HEALTH = "HEALTH_CHECK"
_WARM_UP_IDS, _WARM_UP_TEXT = [10, 11, 12], "The capital city of France is"
"""What sglang asks itself before it is ready."""


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
    files = list(files)
    logged = [request for file in files for request in read_log(file)]
    found = [request for request in logged if request is not None]
    if not found:
        raise InputError(
            f"{', '.join(map(str, files))}: no answered request; SGLang logs them with --log-requests (`Finish: …`, or "
            "`request.finished` in JSON) or --export-metrics-to-file"
        )
    trace = RecordedTrace(left_out=len(logged) - len(found))
    found.sort(key=lambda request: request.received_s)
    numbers: dict[
        bytes, int
    ] = {}  # of each block, in the order in which blocks are first seen: it says nothing of the tokens
    sessions = _Sessions()
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
            digests = _chain([*ids, *(request.output_ids or ())])
            asked, answered = digests[: len(ids) // BLOCK_TOKENS], digests[len(ids) // BLOCK_TOKENS :]
            trace.shared_tokens += BLOCK_TOKENS * sum(digest in numbers for digest in asked)
            hashes = [numbers.setdefault(digest, len(numbers)) for digest in asked]
            row |= {"block_size": BLOCK_TOKENS, "hash_ids": hashes}
            sessions.place(row, request, asked, answered[-1] if answered else None)
        trace.prompt_tokens += request.input_len
        trace.rounded += not request.is_exact
        trace.rows.append(row)
    told = [request.cached for request in found if request.cached is not None]
    trace.cached_tokens = sum(told) if len(told) == len(found) else None
    return trace


def read_log(file: Path) -> Iterator[LoggedRequest | None]:
    """Every request of a user that ended; None is one that cannot be replayed. What sglang asked itself is passed over.

    Raises:
        InputError: the file cannot be read.

    """
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                finished = None
                if "Finish: obj=" in line:
                    finished = _of_text(line)
                elif "prompt_tokens" in line:
                    finished = _of_json(line)
                if finished is not None and not finished.is_own:
                    yield finished.request()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error


class _Finished(NamedTuple):
    """What a line tells of a request that ended."""

    rid: str
    meta: Mapping[str, Any]
    """Of the answer: SGLang's `meta_info`."""
    written_s: float | None
    """When the line was written, which is when the request ended; None where nothing says so."""
    is_exact: bool
    input_ids: Sequence[int] | None
    output_ids: Sequence[int] | None
    text: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether sglang asked it itself: a health check, or the warm-up before it is ready."""
        ids = self.input_ids
        is_warm_up = ids is not None and len(ids) == len(_WARM_UP_IDS) and list(ids) == _WARM_UP_IDS
        return is_warm_up or self.text == _WARM_UP_TEXT or self.rid.startswith(_HEALTH)

    def request(self) -> LoggedRequest | None:
        """None where it cannot be replayed."""
        input_len, output_len, cached, took_s, received_s = (_number(self.meta.get(name)) for name in _NUMBERS)
        is_exact = self.is_exact or received_s is not None
        if received_s is None and self.written_s is not None:
            received_s = self.written_s - (took_s or 0.0)
        reason = self.meta.get("finish_reason")
        aborted = (reason.get("type") if isinstance(reason, dict) else reason) == "abort"
        if aborted or received_s is None or not input_len or not output_len:
            return None
        ids, answer = self.input_ids, self.output_ids
        return LoggedRequest(
            received_s=received_s,
            finished_s=received_s + (took_s or 0.0),
            input_len=int(input_len),
            output_len=int(output_len),
            cached=None if cached is None else int(cached),
            input_ids=ids if ids is not None and len(ids) == input_len else None,
            output_ids=answer if answer is not None and len(answer) == output_len else None,
            text=self.text,
            is_exact=is_exact,
        )


def _of_json(line: str) -> _Finished | None:
    """A line of the log has `obj` and `out`, and may begin with a time in brackets. One of the export has the parameters as
    text, and meta_info's keys beside it. None for other lines.
    """
    try:
        told = json.loads(line[line.index("{") :])
        if told.get("event") == "request.finished":
            asked, out, meta = told["obj"], told["out"], told["out"]["meta_info"]
        else:
            asked, out, meta = json.loads(told["request_parameters"]), {}, told
        written, text = told.get("timestamp"), asked.get("text")
        if written is not None:
            written_s = _seconds(written)
        else:  # of a stream it is when the first part was sent
            written_s = None if asked.get("stream") else _number(meta.get("response_sent_to_client_ts"))
        return _Finished(
            rid=str(asked.get("rid")),
            meta=meta,
            written_s=written_s,
            is_exact=True,
            input_ids=_ids(asked.get("input_ids")),
            output_ids=_ids(out.get("output_ids")),
            text=text if isinstance(text, str) else None,
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _of_text(line: str) -> _Finished:
    """Python's own notation, in which texts may hold anything: what is found is checked against the counts."""
    asked, _, answered = line.partition("out={")
    rid, clock = _RID.search(asked), _CLOCK.search(line)
    meta: dict[str, Any] = {
        name: float(found[-1]) for name in _NUMBERS if (found := re.findall(_NUMBER.format(name), answered))
    }
    if "'type': 'abort'" in answered:
        meta["finish_reason"] = "abort"
    return _Finished(
        rid="" if rid is None else rid[1],
        meta=meta,
        written_s=None if clock is None else _seconds(clock[1]),
        is_exact=False,
        input_ids=_ids_in(asked, "input_ids"),
        output_ids=_ids_in(answered, "output_ids"),
    )


def _seconds(text: object) -> float | None:
    """A moment in ISO's notation; None for what is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def _ids_in(text: str, name: str) -> Sequence[int] | None:
    found = re.search(_IDS.format(name), text)
    try:
        return None if found is None else _ids(json.loads(found[1]))
    except ValueError:
        return None


def _ids(value: object) -> Sequence[int] | None:
    """Token ids; None for a list that the log cut short."""
    if not isinstance(value, list):
        return None
    try:
        return array("q", value)
    except (TypeError, OverflowError):
        return None


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


class _Sessions:
    """Finds the request that another one goes on from: its last block, with the answer in it, is in the other's prompt."""

    def __init__(self) -> None:
        self._ended: dict[bytes, tuple[float, dict[str, Any]]] = {}
        self._count = 0

    def place(self, row: dict[str, Any], request: LoggedRequest, asked: Sequence[bytes], end: bytes | None) -> None:
        """Give a row, and the one before it, their session. Requests come in the order in which they were received.

        `asked` are the digests of its prompt's blocks, `end` is that of the last block with tokens of its answer. Where two
        go on from one answer, the first is its next turn.
        """
        for digest in reversed(asked):
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
        if end is not None:
            self._ended[end] = request.finished_s, row
