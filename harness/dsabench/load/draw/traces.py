"""Traces of real traffic, replayed token for token: every row's prompt is as long as the row says.

A row of a Mooncake trace (https://github.com/kvcache-ai/Mooncake, FAST25-release) is a JSON object:

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …]}

`timestamp` is in ms. A hash names a block of 512 tokens (`block_size`), so prompts share prefixes where their hashes are
equal; tokens beyond the hashes are the row's own. Rows with `text_input` send that text. Rows with one `session_id` go one
after another, `delay` ms after the answer before. bench_serving's own draw of such a trace (`--draw exact`) makes 128
words of a block and does not look at `input_length`.

A row of BurstGPT (https://github.com/HPMLL/BurstGPT) or of Azure's LLM inference traces is a line of CSV with a time and
two lengths. It says nothing of shared prefixes, so its prompt is its own from the first token on.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dsabench.errors import InputError, printable
from dsabench.load.draw.as_bench_serving import DatasetSelection, DrawnDataset, SeededGenerators
from dsabench.load.draw.recorded import (
    dataset_file,
    milliseconds,
    numbered_lines,
    rows_of_part,
    trace_selection,
)
from dsabench.load.draw.tokenizers import Tokenizer
from dsabench.model.sample import Prompt

BLOCK_TOKENS = 512
OUTPUT_TOKENS = 256
"""Of a row that does not say; bench_serving's."""
_LENGTH_MAX = 1 << 24
_TEXT_KEYS = ("text_input", "prompt", "text")
_KEYS = ("timestamp", "input_length", "output_length", "hash_ids", "block_size", "text_input", "session_id", "delay")


class TraceRow(NamedTuple):
    """One request of a trace."""

    at_ms: float
    input_len: int | None
    """None where its text decides."""
    output_len: int | None
    hash_ids: tuple[int, ...] = ()
    block_tokens: int = BLOCK_TOKENS
    text: str | None = None
    session: str | None = None
    delay_ms: float = 0.0
    line: int = 0


def draw_trace(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> DrawnDataset:
    """The first `num_prompts` rows in the order of their timestamps.

    Raises:
        InputError: a row cannot be replayed; with its file, line and key.

    """
    del generators
    selection = trace_selection(selection)
    rows: list[TraceRow] = []
    failed = 0
    for row in read_burstgpt(selection) if selection.dataset == "burstgpt" else read_trace(selection):
        if len(rows) == selection.num_prompts:
            break
        if row.output_len == 0:
            failed += 1
        else:
            rows.append(row)
    if not rows:
        raise InputError(f"{selection.path}: the trace is empty")
    rows.sort(key=attrgetter("at_ms"))
    replay = _Replay(selection, tokenizer, rows)
    prompts = [prompt for row in rows for prompt in replay.prompts_of(row)]
    silent = sum(row.output_len is None for row in rows)
    return DrawnDataset(prompts, tuple(_notes(silent, failed, len(rows))))


def _notes(silent: int, failed: int, rows: int) -> Iterator[str]:
    if silent:
        yield f"{silent} of {rows} rows of the trace have no output_length: {OUTPUT_TOKENS} tokens are asked for"
    if failed:
        yield f"{failed} of {rows + failed} rows of the trace failed when it was recorded (0 tokens) and are left out"


def read_trace(selection: DatasetSelection) -> Iterator[TraceRow]:
    """Every row of the file, checked.

    Raises:
        InputError: the first that is wrong.

    """
    last_ms: dict[str, float] = {}
    for line, value in numbered_lines(selection):
        try:
            row = _row(value, line, last_ms)
        except ValueError as error:
            raise InputError(f"{selection.path}:{line}: {error}") from error
        if row.session is not None:
            last_ms[row.session] = row.at_ms
        yield row


def _row(row: object, line: int, last_ms: Mapping[str, float]) -> TraceRow:
    """A later turn without a time has that of the turn before it: its place is after that."""
    if not isinstance(row, dict):
        raise ValueError(f"a row is an object with {', '.join(_KEYS)}")  # noqa: TRY004  (the file's mistake)
    text = next((row[key] for key in _TEXT_KEYS if key in row), None)
    if text is not None and (not isinstance(text, str) or not text):
        raise ValueError("text_input: is a text that is not empty")
    hashes = row.get("hash_ids", [])
    if not isinstance(hashes, list) or not all(_is_whole(one) for one in hashes):
        raise ValueError("hash_ids: is a list of whole numbers")
    session = None if row.get("session_id") is None else str(row["session_id"])
    at_ms = milliseconds(row, "timestamp")
    if at_ms is None and (session is None or (at_ms := last_ms.get(session)) is None):
        raise ValueError("timestamp: is missing; only a later row of a session needs none")
    input_len, block_tokens = _tokens(row, "input_length"), _tokens(row, "block_size") or BLOCK_TOKENS
    if text is None:
        input_len = input_len if input_len is not None else len(hashes) * block_tokens or None
        if input_len is None:
            raise ValueError(
                "needs input_length, hash_ids or text_input; it has " + (printable(", ".join(row), 80) or "no key")
            )
        if len(hashes) > (needed := -(-input_len // block_tokens)):
            raise ValueError(
                f"hash_ids: {len(hashes)} blocks of {block_tokens} tokens, but input_length {input_len} fills {needed}"
            )
    return TraceRow(
        at_ms=at_ms,
        input_len=input_len,
        output_len=_tokens(row, "output_length"),
        hash_ids=tuple(hashes),
        block_tokens=block_tokens,
        text=text,
        session=session,
        delay_ms=milliseconds(row, "delay") or 0.0,
        line=line,
    )


_BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_burstgpt(selection: DatasetSelection) -> Iterator[TraceRow]:
    """Every row of a CSV file, checked. `output_len` is 0 where a request failed when the trace was recorded.

    Raises:
        InputError: the first that is wrong.

    """
    path = dataset_file(selection.path or "", selection.sha256)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            named = reader.fieldnames or ()
            columns = next((form for form in (_BURSTGPT, _AZURE) if set(form) <= set(named)), None)
            if columns is None:
                found = printable(", ".join(named), 80) or "none"
                raise InputError(f"{path}:1: needs the columns {', '.join(_BURSTGPT)}; it has {found}")
            lines = ((reader.line_num, row) for row in reader)
            for line, row in rows_of_part(lines, selection.rows):
                try:
                    yield _csv_row(*(row[name] or "" for name in columns), line=line)
                except ValueError as error:
                    raise InputError(f"{path}:{line}: {error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not CSV in UTF-8: {error}") from error


def _csv_row(time: str, request: str, response: str, *, line: int) -> TraceRow:
    input_len, output_len = _count(request), _count(response)
    if output_len and not input_len:
        raise ValueError(f"{output_len} tokens answer a request of none")
    return TraceRow(at_ms=_csv_ms(time), input_len=input_len, output_len=output_len, line=line)


def _count(text: str) -> int:
    try:
        value = float(text)  # pandas writes whole numbers as 472.0 where a column has gaps
    except ValueError:
        value = -1.0
    if not (0 <= value <= _LENGTH_MAX and value == int(value)):
        raise ValueError(f"tokens: is a whole number from 0 on, not {printable(text, 40) or 'empty'}")
    return int(value)


def _csv_ms(text: str) -> float:
    """BurstGPT counts seconds, Azure writes the moment."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        seconds = -1.0 if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < 1e12:
        raise ValueError(
            f"Timestamp: is a number of seconds or a date with a time, not {printable(text, 40) or 'empty'}"
        )
    return seconds * 1e3


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tokens(row: Mapping[str, Any], key: str) -> int | None:
    value = row.get(key)
    if value is not None and not (_is_whole(value) and 1 <= value <= _LENGTH_MAX):
        raise ValueError(f"{key}: is a whole number of tokens from 1 on, not {printable(json.dumps(value), 40)}")
    return value


class _Replay:
    """Makes the prompts of rows."""

    def __init__(self, selection: DatasetSelection, tokenizer: Tokenizer, rows: Sequence[TraceRow]) -> None:
        self._trace, self._tokenizer = selection.trace, tokenizer
        self._blocks = _Blocks(selection.seed, tokenizer.vocab_size)
        self._first_ms = rows[0].at_ms
        self._turns = Counter(row.session for row in rows if row.session is not None)

    def prompts_of(self, row: TraceRow) -> Iterator[Prompt]:
        """One, or as many as there are rounds: each repeats the row after what was said, and a placeholder answer."""
        output_len = OUTPUT_TOKENS if row.output_len is None else row.output_len
        session = row.session if row.session is not None and self._turns[row.session] > 1 else None
        due_s = (row.at_ms - self._first_ms) / 1e3 * self._trace.slowdown
        pause_s = row.delay_ms / 1e3 * self._trace.slowdown
        if self._trace.rounds > 1:
            session = session or f"line {row.line}"
        if row.text is not None:
            length = len(self._tokenizer.encode(row.text))
            for _ in range(self._trace.rounds):
                yield Prompt(length, output_len, text=row.text, due_s=due_s, session=session, pause_s=pause_s)
            return
        ids = once = self._blocks.prompt(row)
        for round_ in range(self._trace.rounds):
            if round_:
                ids = (*ids, *self._blocks.answer(row, round_, output_len), *once)
            yield Prompt(len(ids), output_len, input_ids=ids, due_s=due_s, session=session, pause_s=pause_s)


class _Blocks:
    """The tokens of each hash: the same wherever it occurs, others for each seed."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._seed, self._vocab_size = seed, vocab_size
        self._known: dict[tuple[int, int], npt.NDArray[np.int64]] = {}

    def prompt(self, row: TraceRow) -> tuple[int, ...]:
        """A row's ids: its blocks, then ids that no other row has."""
        length = row.input_len or 0
        parts = [self._block(one, row.block_tokens) for one in row.hash_ids]
        if (own := length - len(parts) * row.block_tokens) > 0:
            parts.append(self._draw((1, row.line), own))
        ids: list[int] = np.concatenate(parts)[:length].tolist()
        return tuple(ids)

    def answer(self, row: TraceRow, round_: int, length: int) -> list[int]:
        """As long as the answer to a round."""
        drawn: list[int] = self._draw((2, row.line, round_), length).tolist()
        return drawn

    def _block(self, name: int, tokens: int) -> npt.NDArray[np.int64]:
        if (name, tokens) not in self._known:
            self._known[name, tokens] = self._draw((0, abs(name), name < 0), tokens)
        return self._known[name, tokens]

    def _draw(self, key: tuple[int, ...], count: int) -> npt.NDArray[np.int64]:
        return np.random.default_rng([self._seed, 3, *map(int, key)]).integers(0, self._vocab_size, size=count)
