"""Prompts from files: ShareGPT, custom JSONL, OpenAI requests, Mooncake traces (sglang/benchmark/datasets/).

A file is named by its path or address. What was downloaded once is kept, and a change of it is noticed.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dsabench import rooms
from dsabench.errors import HttpFault, InputError, printable
from dsabench.http import download
from dsabench.load.draw.as_bench_serving import DatasetSelection, DrawnDataset, SeededGenerators
from dsabench.load.draw.tokenizers import Tokenizer, count_chat
from dsabench.model.sample import Prompt
from dsabench.model.value import digest_of_file

SHAREGPT_URL = (
    "https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/main/"
    "ShareGPT_V3_unfiltered_cleaned_split.json"
)
KNOWN_SHA256 = {SHAREGPT_URL: "35f0e213ce091ed9b9af2a1f0755e9d39f9ccec34ab281cd4ca60d70f6479ba4"}
"""Address → checksum, where it is published."""


def dataset_file(place: str, sha256: str | None = None) -> Path:
    """The file at a path, or the kept copy of an address, which is downloaded the first time.

    The checksum must be `sha256`, else the published one, else that of the first download (kept beside the copy).

    Raises:
        InputError: no such file, no download, or another checksum; one line.

    """
    if urlsplit(place).scheme not in ("http", "https"):
        path = rooms.find_data(place)
        if path is None:
            raise InputError(f"dataset {place}: no such file")
        if sha256 is not None:
            _check(place, digest_of_file(path), sha256)
        return path
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    folder = rooms.cache_folder() / "datasets" / name
    path, note = folder / (Path(urlsplit(place).path).name or "data"), folder / "sha256"
    expected = sha256 or KNOWN_SHA256.get(place)
    if not path.is_file():
        _download(place, path, note, expected or _noted(note))
        return path
    expected = expected or _noted(note)
    if expected is None:
        raise InputError(f"dataset {place}: {note} is missing, so the copy cannot be checked; delete {folder}")
    _check(f"{place} (kept at {path}; delete it to download again)", digest_of_file(path), expected)
    return path


def _noted(note: Path) -> str | None:
    return note.read_text().strip() if note.is_file() else None


def _download(address: str, path: Path, note: Path, expected: str | None) -> None:
    try:
        asyncio.run(download(address, path, sha256=expected, note=note))
    except HttpFault as fault:
        changed = ": the file changed" if fault.kind == "changed" else ""
        raise InputError(
            f"dataset {address}: {fault}{changed}; without a network name a file with --dataset-path (dataset_path in a "
            "config), or take random-ids, which needs none"
        ) from fault


def _check(place: str, found: str, expected: str) -> None:
    if found != expected:
        raise InputError(f"dataset {place}: its checksum is {found[:16]}…, expected {expected[:16]}…: the file changed")


_ASSISTANT = "Assistant:"
Turns = tuple[str, str]


def draw_conversations(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """Shuffled; pairs shorter than two tokens or longer than the context are left out.

    Raises:
        InputError: the file is missing or of another format, or no conversation is left.

    """
    turns = list(read_custom(selection) if selection.dataset == "custom" else read_sharegpt(selection))
    return _as_prompts(turns, selection, tokenizer, generators)


def _as_prompts(
    turns: list[Turns], selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators
) -> list[Prompt]:
    generators.python.shuffle(turns)
    prompts: list[Prompt] = []
    for question, answer in turns:
        if len(prompts) == selection.num_prompts:
            break
        text = _dressed(question, selection, tokenizer)
        input_len = len(tokenizer.encode(text))
        output_len = selection.fixed_output_len
        if output_len is None:
            output_len = len(tokenizer.encode(answer))
        too_long = selection.context_len and input_len + output_len > selection.context_len
        if input_len >= 2 and output_len >= 2 and not too_long:
            prompts.append(Prompt(input_len, output_len, text=text))
    if not prompts:
        raise InputError(f"{selection.path or SHAREGPT_URL}: no conversation with two turns of fitting length")
    return prompts


def read_sharegpt(selection: DatasetSelection) -> Iterator[Turns]:
    """First two turns of each conversation in a JSON list."""
    path = dataset_file(selection.path or SHAREGPT_URL, selection.sha256)
    try:
        entries = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise InputError(f"{path}: ShareGPT's JSON is a list of conversations")
    for entry in entries:
        match _turns(entry):
            case [{"value": str(question)}, {"value": str(answer)}, *_]:
                yield question, answer


def read_custom(selection: DatasetSelection) -> Iterator[Turns]:
    """First two turns of each line that is JSON; the text is under `content` or `value`."""
    if selection.path is None:
        raise _no_path()
    for entry in read_json_lines(selection):
        match _turns(entry):
            case [dict(question), dict(answer), *_]:
                yield _said(question), _said(answer)


def read_json_lines(selection: DatasetSelection) -> Iterator[Any]:
    """Every line that is JSON; others are passed over, as in bench_serving."""
    return (value for _, value in numbered_lines(selection))


def numbered_lines(selection: DatasetSelection) -> Iterator[tuple[int, Any]]:
    """Number and value of every line that the selection may draw from. One that is no JSON is refused, or passed over in an
    exact draw.
    """
    path = dataset_file(selection.path or "", selection.sha256)
    try:
        with path.open(encoding="utf-8") as file:
            written = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
            rows = _values(written, path, exact=selection.exact)
            yield from rows_of_part(rows, selection.rows)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from error


def _values(lines: Iterator[tuple[int, str]], path: Path, *, exact: bool) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            if exact:
                continue
            raise InputError(f"{path}:{number}: not JSON: {error.msg} (character {error.pos + 1})") from error
        yield number, value


T = TypeVar("T")


def rows_of_part(rows: Iterable[tuple[int, T]], part: tuple[float, float] | None) -> Iterator[tuple[int, T]]:
    """Those from one share of the file to another; None is all of them. The rows of a session go with its first one."""
    if part is None:
        yield from rows
        return
    listed = list(rows)
    begin, end = (round(share * len(listed)) for share in part)
    sessions: dict[str, bool] = {}
    for place, (number, value) in enumerate(listed):
        inside = begin <= place < end
        if isinstance(value, dict) and (session := value.get("session_id")) is not None:
            inside = sessions.setdefault(str(session), inside)
        if inside:
            yield number, value


def _turns(entry: object) -> object:
    return entry.get("conversations", entry.get("conversation", [])) if isinstance(entry, dict) else []


def _said(turn: dict[str, Any]) -> str:
    return str(turn.get("content", turn.get("value", "")))


def _dressed(question: str, selection: DatasetSelection, tokenizer: Tokenizer) -> str:
    """With the suffix and inside the chat template, where they are asked for."""
    text = question
    if selection.prompt_suffix:
        text = text.removesuffix(_ASSISTANT) + selection.prompt_suffix + _ASSISTANT
    if selection.apply_chat_template:
        rendered = tokenizer.render_chat([{"role": "user", "content": text}])
        if rendered is None:
            raise InputError("--apply-chat-template: the tokenizer has no chat template")
        text = rendered.replace(tokenizer.bos_token, "") if tokenizer.bos_token else rendered
    return text


_OURS = frozenset({"messages", "max_tokens", "max_completion_tokens", "model"})
"""Fields that the client sets; every other one is sent as it stands."""


def draw_openai(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """The first `num_prompts` lines that are JSON, in their order; those without messages are left out.

    Raises:
        InputError: the file is missing, holds no request, or the tokenizer has no chat template to count with.

    """
    del generators
    if selection.path is None:
        raise InputError("dataset openai needs a path (JSONL: {messages: […], max_tokens: …} a line)")
    lines = numbered_lines(selection)
    prompts: list[Prompt] = []
    for line, request in itertools.islice(lines, selection.num_prompts if selection.num_prompts > 0 else None):
        place = f"{selection.path}:{line}"
        if not isinstance(request, dict) or not (messages := request.get("messages")):
            if not selection.exact:
                raise InputError(f"{place}: messages: a row is an object with a list of messages")
            continue
        extra = {name: value for name, value in request.items() if name not in _OURS}
        timed = {} if selection.exact else _timed(extra, place)
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise InputError(f"{place}: messages is no list of objects")
        input_len = count_chat(tokenizer, messages)
        if input_len is None:
            raise InputError("dataset openai: the tokenizer has no chat template, so prompts cannot be counted")
        if "tools" in extra:
            input_len += len(tokenizer.encode(json.dumps(extra["tools"])))
        output_len = selection.fixed_output_len or request.get("max_tokens", 256)
        prompts.append(Prompt(input_len, output_len, messages=tuple(messages), extra=extra, **timed))
    if not prompts:
        raise InputError(f"{selection.path}: no line with messages")
    return prompts


def _timed(extra: dict[str, Any], place: str) -> dict[str, Any]:
    """When a row is sent: its `timestamp` (ms), `session_id` and `delay` (ms), which are taken out of its body."""
    try:
        found: dict[str, Any] = {
            field: ms / 1e3 for key, field in _TIMES.items() if (ms := milliseconds(extra, key)) is not None
        }
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error
    session = extra.get("session_id")
    for key in (*_TIMES, "session_id"):
        extra.pop(key, None)
    return found if session is None else found | {"session": str(session)}


_TIMES = {"timestamp": "due_s", "delay": "pause_s"}


def milliseconds(row: Mapping[str, Any], key: str) -> float | None:
    """A time of a row; None where it has none. Raises ValueError for what is no time."""
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e15:
        raise ValueError(f"{key}: is a number of ms, not {printable(json.dumps(value), 40)}")
    return float(value)


def draw_checked(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> DrawnDataset:
    """As bench_serving draws, but no row is dropped without a word: what cannot be read is refused, the rest is told.

    Raises:
        InputError: see `draw_conversations`, `draw_openai`.

    """
    if selection.dataset == "openai":
        return DrawnDataset(_from_first(draw_openai(selection, tokenizer, generators)))
    entries = list(_conversations(selection))
    turns = [pair for entry in entries if (pair := _first_two(entry)) is not None]
    if not turns:
        keys = ", ".join(entries[0]) if entries and isinstance(entries[0], dict) else "none"
        raise InputError(
            f"{selection.path or SHAREGPT_URL}: no conversation with two turns of text; looked for {', '.join(_LISTS)} with "
            f"{', '.join(_TEXTS)} in each turn; the keys of the first entry: {printable(keys, 80)}"
        )
    notes: list[str] = []
    if left_out := len(entries) - len(turns):
        notes.append(f"{left_out} of {len(entries)} conversations have no two turns of text and are left out")
    if other := sum(_speaker(entry) in _ANSWERERS for entry in entries):
        notes.append(
            f"{other} of {len(entries)} conversations begin with a system prompt or with the assistant: as in bench_serving, "
            "that first turn is what is asked"
        )
    return DrawnDataset(_as_prompts(turns, selection, tokenizer, generators), tuple(notes))


_LISTS, _TEXTS = ("conversations", "conversation", "messages"), ("value", "content", "text")
_ANSWERERS = frozenset({"gpt", "chatgpt", "bard", "bing", "assistant", "model", "system"})


def _conversations(selection: DatasetSelection) -> Iterator[Any]:
    """The entries of a JSON list, or one of each line."""
    path = dataset_file(selection.path or SHAREGPT_URL, selection.sha256)
    if selection.dataset == "sharegpt":
        try:
            whole = json.loads(path.read_bytes())
        except ValueError as error:
            if path.suffix != ".jsonl":
                raise InputError(f"{path}: not JSON: {error}") from error
            whole = None
        if isinstance(whole, list):
            yield from (entry for _, entry in rows_of_part(enumerate(whole), selection.rows))
            return
    elif selection.path is None:
        raise _no_path()
    yield from (entry for _, entry in numbered_lines(selection._replace(path=str(path))))


def _no_path() -> InputError:
    return InputError("dataset custom needs a path (JSONL: {conversations: [{content: …}, {content: …}]} a line)")


def _listed(entry: object) -> list[Any]:
    found: object = next((entry[key] for key in _LISTS if key in entry), []) if isinstance(entry, dict) else []
    return found if isinstance(found, list) else []


def _first_two(entry: object) -> Turns | None:
    texts = [_text_of(turn) for turn in _listed(entry)[:2]]
    match texts:
        case [str(question), str(answer)]:
            return question, answer
    return None


def _text_of(turn: object) -> str | None:
    if not isinstance(turn, dict):
        return None
    text = next((turn[key] for key in _TEXTS if key in turn), None)
    return text if isinstance(text, str) else None


def _speaker(entry: object) -> object:
    turns = _listed(entry)
    first = turns[0] if turns and isinstance(turns[0], dict) else {}
    name = first.get("from", first.get("role"))
    return name if isinstance(name, str) else None


def _from_first(prompts: list[Prompt]) -> list[Prompt]:
    """In the order of their times, counted from the first; as they are where no row has one."""
    if all(prompt.due_s is None for prompt in prompts):
        return prompts
    first_s = min(prompt.due_s or 0.0 for prompt in prompts)
    timed = [replace(prompt, due_s=(prompt.due_s or 0.0) - first_s) for prompt in prompts]
    return sorted(timed, key=lambda prompt: prompt.due_s or 0.0)


_RELEASE = "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release"
_BURSTGPT_URL = "https://github.com/HPMLL/BurstGPT/releases/download/v1.1/BurstGPT_without_fails_2.csv"
TRACE_URLS: Mapping[str, str] = {
    "mooncake": f"{_RELEASE}/arxiv-trace/mooncake_trace.jsonl",
    "conversation": f"{_RELEASE}/traces/conversation_trace.jsonl",
    "synthetic": f"{_RELEASE}/traces/synthetic_trace.jsonl",
    "toolagent": f"{_RELEASE}/traces/toolagent_trace.jsonl",
}
_BLOCK = " ".join(["hi"] * 128)
_QUESTION = "Tell me a story based on this context."


def draw_mooncake(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """`num_prompts` sessions in the order of their timestamps, `rounds` prompts each; `due_s` says when.

    A block of the trace becomes its hash and 128 words, so prompts share prefixes as the trace says, but are shorter.
    The rounds of a session are due together: what the model answered is not known, a placeholder stands for it.
    """
    del generators
    records: list[dict[str, Any]] = []
    for record in read_json_lines(trace_selection(selection)):
        if len(records) == selection.num_prompts:
            break
        if not isinstance(record, dict) or not isinstance(record.get("timestamp"), int | float):
            raise InputError(f"{selection.path}: a line of a Mooncake trace is an object with a timestamp (ms)")
        if not isinstance(record.get("hash_ids", []), list) or not isinstance(record.get("output_length", 1), int):
            raise InputError(f"{selection.path}: hash_ids is a list and output_length a number of tokens")
        records.append(record)
    if not records:
        raise InputError(f"{selection.path}: the trace is empty")
    records.sort(key=itemgetter("timestamp"))
    return [prompt for record in records for prompt in _session(record, records[0], selection, tokenizer)]


def warm_up_prompt(selection: DatasetSelection, tokenizer: Tokenizer) -> Prompt:
    """What bench_serving warms up with: another text of the trace's first line."""
    record = next(read_json_lines(trace_selection(selection)))
    text = "".join(f"{hash_id}" + " ".join(["hi"] * 512) for hash_id in record.get("hash_ids", []))
    text += "Can you tell me a detailed story in 1000 words?"
    return Prompt(len(tokenizer.encode(text)), record.get("output_length", 32), text=text)


def trace_selection(selection: DatasetSelection) -> DatasetSelection:
    """With the public trace's address where no file is named."""
    public = _BURSTGPT_URL if selection.dataset == "burstgpt" else TRACE_URLS[selection.trace.name]
    return selection if selection.path else selection._replace(path=public)


def _session(
    record: dict[str, Any], first: dict[str, Any], selection: DatasetSelection, tokenizer: Tokenizer
) -> list[Prompt]:
    due_s = (record["timestamp"] - first["timestamp"]) / 1000.0 * selection.trace.slowdown
    question = "".join(f"{hash_id}{_BLOCK}" for hash_id in record.get("hash_ids", [])) + _QUESTION
    output_len = record.get("output_length", 256)
    history: list[dict[str, str]] = []
    prompts = []
    for place in range(selection.trace.rounds):
        history.append({"role": "user", "content": f"Round {place + 1}: {question}"})
        text = tokenizer.render_chat(history)
        if text is None:
            text = "\n".join(f"{message['role']}: {message['content']}" for message in history)
        prompts.append(Prompt(len(tokenizer.encode(text)), output_len, text=text, due_s=due_s))
        history.append({"role": "assistant", "content": " ".join(["story"] * output_len)})
    return prompts
