"""The samples file of one run: each sample is appended as it finishes, so that a killed run goes on where it stopped."""

from __future__ import annotations

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import ValidationError

from dsabench.errors import BusyError, InputError, StoreError
from dsabench.evals.lm_eval import is_lm_eval, parse_lm_eval
from dsabench.evals.sample import EvalSample
from dsabench.results.journal import stored_samples


class SampleLog:
    """The open samples file of an unfinished run. Made by `open_log`."""

    def __init__(self, path: Path, descriptor: int, done: tuple[EvalSample, ...]) -> None:
        self.path, self._descriptor = path, descriptor
        self.samples = list(done)
        """Every finished sample, those of earlier runs first."""
        self.resumed = len(done)
        """How many an earlier run left."""

    def append(self, sample: EvalSample) -> None:
        """Write one sample; a kill after this loses nothing.

        Raises:
            StoreError: disk full or read-only.

        """
        line = (sample.model_dump_json(exclude_none=False) + "\n").encode()
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}: the sample was not written") from error
        if written < len(line):
            raise StoreError(f"{self.path}: disk full: the sample was not written")
        self.samples.append(sample)

    @contextmanager
    def finished_as(self, final: Path) -> Iterator[None]:
        """Give the file the name of a finished run, which nothing resumes, if the body succeeds.

        Until it has, the file keeps the name of an unfinished run as well: a record that cannot be written loses no
        sample.
        """
        os.fsync(self._descriptor)
        with ExitStack() as undo:
            final.hardlink_to(self.path)
            undo.callback(final.unlink)
            yield
            undo.pop_all()
        self.path.unlink()


@contextmanager
def open_log(path: Path) -> Iterator[SampleLog]:
    """Open or resume; a torn last line and failed requests are asked again.

    Raises:
        BusyError: another process runs the same eval into the same file.
        StoreError: the file cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(f"{path}: the same eval runs already: wait for it or name another --results") from None
        kept, whole = _finished(path)
        if not whole:
            descriptor = _rewritten(path, descriptor, [line for line, _ in kept])
        yield SampleLog(path, descriptor, tuple(sample for _, sample in kept))
    finally:
        os.close(descriptor)


def _rewritten(path: Path, descriptor: int, lines: list[bytes]) -> int:
    """Leave only these lines in the file; a kill in between leaves the old file. Returns the new file, locked.

    Raises:
        StoreError: it could not be written; the old file is as it was.

    """
    new = path.with_suffix(".new")
    try:
        new.write_bytes(b"".join(line + b"\n" for line in lines))
        fresh = os.open(new, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fsync(fresh)
        new.rename(path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    os.close(descriptor)
    return fresh


def read_samples(path: Path) -> tuple[EvalSample, ...]:
    """The samples of a finished run; where the file is packed, those of `FILE.gz`.

    Raises:
        InputError: it cannot be read, or a line is no sample.

    """
    stored = stored_samples(path.parent, path.name) or path
    try:
        data = stored.read_bytes() if stored == path else gzip.decompress(stored.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{stored}: damaged: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    return parse_samples(data, str(path))


def parse_samples(data: bytes, name: str) -> tuple[EvalSample, ...]:
    """The samples in the bytes of a finished run's file, ours or lm-evaluation-harness's; `name` is for mistakes.

    Raises:
        InputError: a line is no sample, or there is none.

    """
    if is_lm_eval(data.partition(b"\n")[0]):
        return parse_lm_eval([(name, data)])
    samples = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            samples.append(EvalSample.model_validate_json(line))
        except ValidationError as error:
            raise InputError(f"{name}:{number}: not a sample of an eval") from error
    if not samples:
        raise InputError(f"{name}: holds no sample")
    return tuple(samples)


def _finished(path: Path) -> tuple[list[tuple[bytes, EvalSample]], bool]:
    """The lines to keep, and whether the file holds nothing else."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    torn = bool(lines.pop())
    kept = []
    for line in lines:
        try:
            sample = EvalSample.model_validate_json(line)
        except ValidationError:
            continue
        if sample.standing != "failed":
            kept.append((line, sample))
    return kept, not torn and len(kept) == len(lines)
