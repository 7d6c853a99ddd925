"""A results folder at any fsspec path (`s3://`, `gs://`, `sftp://` …): a copy that is kept while a study runs, and one that a merge reads.

It has the layout of the folder: `journal.jsonl`, and the samples that its records name. Logs of boots stay where they are.
"""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from dsabench.errors import InputError, StoreError, one_line
from dsabench.model.record import Record
from dsabench.results.journal import FILE_NAME, PACKED, Journal, parse_journal, place_inside, stored_samples, whole_file

_Result = TypeVar("_Result")
EVERY_S: Final = 5.0
"""How often a copy that is kept looks for new records."""
_BLOCK: Final = 1 << 20
_PART: Final = ".part"
"""Behind the name of a file that is under way: most stores show half a file, and a reader must not."""


def is_remote(place: str | Path) -> bool:
    """Whether it names an fsspec path, not one of this machine."""
    return "://" in str(place)


class RemoteFolder:
    """A folder at an fsspec path."""

    def __init__(self, url: str) -> None:
        """Find the store of the path. It is not yet asked for anything.

        Raises:
            InputError: there is no such kind of store, its package is missing, or the path holds a password.

        """
        if urlsplit(url).password is not None:  # not repeated
            raise InputError(
                "no password in the path: it would be in command lines; fsspec reads its own config for it"
            )
        self.url = url.rstrip("/")
        self._open()

    def _open(self) -> None:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415  (PyTorch brings it)
        except ImportError as error:
            raise InputError(f"{self.url}: pip install fsspec") from error
        try:
            self._store, self._root = url_to_fs(self.url, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            raise InputError(f"{self.url}: {_said(error)}") from error
        except Exception as error:  # a store that is asked for its address at once
            raise StoreError(f"{self.url}: {_said(error)}") from error

    def _ask(self, ask: Callable[[], _Result]) -> _Result | None:
        """The answer of the store, None where it has no such file; of a new connection if this one is broken.

        Raises:
            StoreError: it cannot be reached, or refuses.

        """
        for last in (False, True):
            try:
                return ask()
            except FileNotFoundError:
                return None
            except Exception as error:  # each kind of store has exceptions of its own
                if last:
                    raise StoreError(f"{self.url}: {_said(error)}") from error
                self._open()
        raise AssertionError

    def require_bucket(self) -> None:
        """Refuse a path in a bucket that is not there: stores would make one of any name.

        Raises:
            InputError: it is not there.
            StoreError: the store cannot be asked.

        """
        bucket = self._root.partition("/")[0]  # "" of a path from the root of a file system
        if bucket and not self._ask(lambda: self._store.exists(bucket)):
            raise InputError(f"{self.url}: there is no {bucket}; make it first")

    def sizes(self) -> dict[str, int]:
        """Every file → bytes, by its name relative to the folder; none where the folder is not there.

        Raises:
            StoreError: it cannot be asked.

        """

        def ask() -> dict[str, int]:
            self._store.invalidate_cache()
            found: dict[str, dict[str, Any]] = self._store.find(self._root, detail=True)
            start = len(self._at(""))
            return {name[start:]: int(info["size"] or 0) for name, info in found.items()}

        return self._ask(ask) or {}

    def size(self, name: str) -> int | None:
        """Bytes of a file now; None if there is no such one.

        Raises:
            StoreError: it cannot be asked.

        """

        def ask() -> int:
            self._store.invalidate_cache()
            return int(self._store.info(self._at(name))["size"] or 0)

        return self._ask(ask)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such one.

        Raises:
            StoreError: it cannot be read.

        """
        return self._ask(lambda: bytes(self._store.cat_file(self._at(name))))

    def write(self, name: str, source: Path | bytes) -> None:
        """Write a file that is there whole or not at all.

        Raises:
            StoreError: it cannot be written.

        """
        final = self._at(name)

        def ask() -> bool:
            self._store.makedirs(final.rpartition("/")[0], exist_ok=True)
            opened = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
            with opened as data, self._store.open(final + _PART, "wb") as copy:
                shutil.copyfileobj(data, copy, _BLOCK)
            self._store.mv(final + _PART, final)
            return True

        if not self._ask(ask):
            raise StoreError(f"{self.url}: {name} cannot be made there")

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def fetch_samples(self, name: str, folder: Path) -> None:
        """Bring a record's samples into the folder, packed or not; nothing where the store does not have them.

        Raises:
            InputError: the name is outside of the folder.
            StoreError: they cannot be read, or not be written.

        """
        place = place_inside(folder, name)
        for end in ("", PACKED):
            if (data := self.read(name + end)) is not None:
                with whole_file(place.with_name(place.name + end), "the samples were not copied") as file:
                    file.write(data)
                return


def _said(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__


class RemoteCopy:
    """The copy of one results folder. Only what is new is sent; samples go before the journal that names them."""

    def __init__(self, folder: Path, url: str) -> None:
        """Look at what the copy has already.

        Raises:
            InputError: the path cannot be used, its bucket is not there, or it holds records that the folder does not have, which
                a copy would take away.
            StoreError: it cannot be asked.

        """
        self._remote = RemoteFolder(url)
        self._journal = Journal(folder)
        self._folder = folder
        self._remote.require_bucket()
        self._there = self._remote.sizes()
        self._sent: int | None = None
        """Bytes of the journal that was sent last, whether or not the store said that it has it."""
        there = self._remote.read(FILE_NAME) or b""
        if not self._lines().startswith(there):
            own = {record.measurement for record in self._journal.read().records}
            kept = parse_journal(there, Path(f"{url}/{FILE_NAME}"))
            foreign = sum(record.measurement not in own for record in kept.records) + len(kept.problems)
            if foreign:
                raise InputError(
                    f"{url}: has {foreign} records that {folder} lacks: take them first "
                    f"(dsabench results merge {url} --into {folder}), or copy to another path"
                )

    def _lines(self) -> bytes:
        """The whole lines of the journal."""
        path = self._journal.path
        data = path.read_bytes() if path.is_file() else b""
        return data[: data.rfind(b"\n") + 1]

    def update(self, told: Callable[[int, int], None] = lambda _done, _of: None) -> int:
        """Send what is new; returns the number of files. `told` hears after each how many are done, and of how many.

        Raises:
            InputError: the journal cannot be read.
            StoreError: the store cannot be written, or another run writes there. The next call goes on.

        """
        journal, there = self._journal.path, self._there.get(FILE_NAME, 0)
        if not journal.is_file() or journal.stat().st_size == there or len(lines := self._lines()) == there:
            return 0
        samples = dict(filter(None, map(self._unsent, self._journal.read().records)))
        for number, (name, file) in enumerate(samples.items()):
            self._remote.write(name, file)
            self._there[name] = file.stat().st_size
            told(number + 1, len(samples) + 1)
        if self._remote.size(FILE_NAME) not in {self._there.get(FILE_NAME), self._sent}:
            raise StoreError(f"{self._remote.url}: another run writes its journal there: give each a path of its own")
        self._sent = len(lines)
        self._remote.write(FILE_NAME, lines)
        self._there[FILE_NAME] = len(lines)
        return len(samples) + 1

    def _unsent(self, record: Record) -> tuple[str, Path] | None:
        """Name and file of a record's samples; None where the copy has them, or the folder does not."""
        file = None if record.samples is None else stored_samples(self._folder, record.samples)
        if file is None:
            return None
        name = file.relative_to(self._folder).as_posix()
        return None if self._there.get(name) == file.stat().st_size else (name, file)


@contextmanager
def kept_copy(folder: Path, url: str, note: Callable[[str], None]) -> Iterator[None]:
    """Keep a copy up to date while the context is open, from a thread; and once more at its end.

    A store that does not answer meanwhile is told of once, and asked again.

    Raises:
        InputError, StoreError: as `RemoteCopy` raises; at the end too, where nothing else went wrong.

    """
    copy = RemoteCopy(folder, url)
    done = threading.Event()
    thread = threading.Thread(target=_follow, args=(copy, done, note), name="copy", daemon=True)
    thread.start()
    is_whole = False
    try:
        yield
        is_whole = True
    finally:
        done.set()
        thread.join()
        try:
            copy.update()
        except (InputError, StoreError) as error:
            if is_whole:
                raise
            note(f"the last records were not copied: {error}")


def _follow(copy: RemoteCopy, done: threading.Event, note: Callable[[str], None]) -> None:
    told = ""
    while not done.wait(EVERY_S):
        try:
            copy.update()
            told = ""
        except (InputError, StoreError) as error:
            if str(error) != told:
                told = str(error)
                note(f"not copied, and tried again: {told}")
