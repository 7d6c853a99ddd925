"""MMLU as sglang's benchmark/mmlu/bench_sglang.py asks it: five examples of the subject, then one letter."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dsabench.errors import InputError
from dsabench.evals.question import Question
from dsabench.evals.readers.files import read_cells, read_text
from dsabench.evals.readers.frames import shown_column
from dsabench.model.evals import EvalSpec

Table = Sequence[Sequence[str]]
"""Rows of (question, choices…, letter)."""
_TOKENS_MAX = 1536
_CERTAIN_BYTES = 3 * _TOKENS_MAX
"""English has more than four bytes a token: a text below this needs no counting."""


def read_mmlu(spec: EvalSpec, data: Path | None, /) -> tuple[Question, ...]:
    """`data` is Hendrycks' data.tar, or the folder that it unpacks to."""
    assert data is not None
    files = _from_folder(data) if data.is_dir() else _from_tar(data)
    subjects = sorted(name.removesuffix("_test.csv") for name in files if name.endswith("_test.csv"))
    if not subjects:
        raise InputError(f"{data}: no SUBJECT_test.csv below test/")
    questions: list[Question] = []
    for subject in subjects[: spec.num_subjects]:
        dev, test = (_table(files, f"{subject}_{part}.csv", data) for part in ("dev", "test"))
        examples = few_shot(dev[: spec.prompt.shots], subject, count_tokens)
        questions += [
            Question(f"{subject}-{number}", examples + _shown(row), row[-1], subject) for number, row in enumerate(test)
        ]
    return tuple(questions[: spec.num_examples])


def few_shot(dev: Table, subject: str, count: Callable[[str], int]) -> str:
    """The examples before a question: as many as fit into 1,536 tokens of gpt-3.5-turbo."""
    head = f"The following are multiple choice questions (with answers) about {subject.replace('_', ' ')}.\n\n"
    shown = [f"{_shown(row)} {row[-1]}\n\n" for row in dev]
    while count(text := head + "".join(shown)) > _TOKENS_MAX and shown:
        shown.pop()
    return text


def count_tokens(text: str) -> int:
    """Tokens of gpt-3.5-turbo, or any number below the limit where the text is short enough beyond doubt.

    Raises:
        InputError: the text must be counted, and tiktoken or its vocabulary is not there.

    """
    if len(text.encode()) <= _CERTAIN_BYTES:
        return 0
    try:
        import tiktoken  # noqa: PLC0415  (of the extra `evals`)

        return len(tiktoken.encoding_for_model("gpt-3.5-turbo").encode(text))
    except ImportError as error:
        raise InputError("mmlu: long examples are cut by tiktoken: pip install tiktoken") from error
    except OSError as error:  # requests' errors are among them
        raise InputError(
            f"mmlu: long examples are cut by tiktoken, whose vocabulary cannot be fetched: {error}"
        ) from error


def _shown(row: Sequence[str]) -> str:
    choices = "".join(f"\n{letter}. {text}" for letter, text in zip("ABCD", row[1:-1], strict=False))
    return f"{row[0]}{choices}\nAnswer:"


def _from_folder(folder: Path) -> Mapping[str, str]:
    found = [file for part in ("dev", "test") for file in sorted((folder / part).glob("*.csv"))]
    return {file.name: read_text(file) for file in found}


def _from_tar(path: Path) -> Mapping[str, str]:
    files = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if member.isfile() and name.endswith(("_dev.csv", "_test.csv")) and not name.startswith("."):
                    content = archive.extractfile(member) or io.BytesIO()
                    files[name] = content.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {name}: not UTF-8 text") from error
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InputError(f"{path}: not a whole tar archive (truncated?): {error}") from error
    return files


def _table(files: Mapping[str, str], name: str, data: Path) -> Table:
    place = f"{data}/{name}"
    if name not in files:
        raise InputError(f"{place}: missing")
    rows = list(read_cells(files[name], place))
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths < {3}:
        raise InputError(f"{place}: every row must have a question, the choices and the letter")
    for number, row in enumerate(rows, start=1):
        if row[-1] not in {"A", "B", "C", "D"}:
            raise InputError(f"{place}: row {number}: the answer must be one of A, B, C, D, not {row[-1][:20]!r}")
    return list(zip(*map(shown_column, zip(*rows, strict=True)), strict=True))
