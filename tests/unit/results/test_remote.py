"""Results folders at fsspec paths: a copy that a study keeps, and a merge from it. The store is an FTP server: a process, reached over sockets."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from dsabench.cli.main import run
from dsabench.errors import InputError, StoreError
from dsabench.model.record import Measured, Metric, Record
from dsabench.results.journal import Journal, read_journal
from dsabench.results.merge import Merged, merge_journals
from dsabench.results.remote import RemoteCopy, RemoteFolder, kept_copy
from factories import make_record

METRICS = {"output_throughput_tok_s": Metric(value=1.0, n=1)}
SERVER = """
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
people = DummyAuthorizer()
people.add_anonymous(sys.argv[1], perm="elradfmwMT")
class Handler(FTPHandler):
    authorizer, permit_foreign_addresses = people, True
FTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[int]:
    """A server of the folder; gives its port."""
    folder.mkdir(exist_ok=True)
    log = folder.with_suffix(".log")
    with log.open("w") as said:
        server = subprocess.Popen([sys.executable, "-c", SERVER, str(folder), str(port)], stdout=said, stderr=said)
    try:
        wait_until(lambda: "starting FTP server" in log.read_text())
        yield int(log.read_text().split("127.0.0.1:")[1].split(",")[0])
    finally:
        server.kill()
        server.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def measure(place: Path, boot: str, **fields) -> Record:
    """A record with samples of its own."""
    name = f"samples/{boot}.parquet"
    record = make_record(boot=boot, outcome=Measured(metrics=METRICS, samples=name), **fields)
    (place / "samples").mkdir(parents=True, exist_ok=True)
    (place / name).write_text(f"samples of {boot}")
    Journal(place).append(record)
    return record


def files(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}


def test_only_what_is_new_is_sent_and_a_merge_takes_it_back(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    measure(here, "a", minute=0)
    with serving(there) as port:
        url = f"ftp://127.0.0.1:{port}/studies/one"
        copy = RemoteCopy(here, url)
        assert (copy.update(), copy.update()) == (2, 0)
        second = measure(here, "b", minute=1, occasion=1)
        assert copy.update() == 2
        assert second.samples is not None
        (here / second.samples).unlink()  # as where only the journal was committed
        assert RemoteCopy(here, url).update() == 0
        assert files(there / "studies" / "one") == {
            "journal.jsonl": (here / "journal.jsonl").read_text(),
            "samples/a.parquet": "samples of a",
            "samples/b.parquet": "samples of b",
        }
        assert merge_journals([url], tmp_path / "back") == Merged(added=2, samples=2)
        assert merge_journals([url, here], tmp_path / "back") == Merged(known=4)
    back = {name: text for name, text in files(tmp_path / "back").items() if not name.startswith(".")}
    assert back == files(there / "studies" / "one")


def test_packed_samples_stay_packed(tmp_path: Path) -> None:
    here = tmp_path / "here"
    record = measure(here, "a", minute=0)
    assert record.samples is not None
    (here / record.samples).rename(here / f"{record.samples}.gz")
    with serving(tmp_path / "there") as port:
        url = f"ftp://127.0.0.1:{port}/one"
        assert RemoteCopy(here, url).update() == 2
        assert merge_journals([url], tmp_path / "back") == Merged(added=1, samples=1)
    assert (tmp_path / "back" / f"{record.samples}.gz").read_text() == "samples of a"


def test_records_of_another_machine_are_not_taken_away(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    measure(a, "a", minute=0)
    measure(b, "b", minute=1)
    with serving(tmp_path / "there") as port:
        url = f"ftp://127.0.0.1:{port}/one"
        RemoteCopy(a, url).update()
        with pytest.raises(InputError, match=rf"has 1 records that .*/b lacks: .*results merge {url} --into .*/b"):
            RemoteCopy(b, url)
        merge_journals([url], b)  # the occasion of one of them moves
        assert RemoteCopy(b, url).update() == 2
        assert merge_journals([url], tmp_path / "all") == Merged(added=2, samples=2)


def test_two_runs_do_not_write_over_each_other(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with serving(tmp_path / "there") as port:
        url = f"ftp://127.0.0.1:{port}/one"
        first, second = RemoteCopy(a, url), RemoteCopy(b, url)  # both begin before either has a record
        measure(a, "a", minute=0)
        measure(b, "b", minute=1)
        assert first.update() == 2
        with pytest.raises(StoreError, match="another run writes its journal there"):
            second.update()
        assert [one.boot for one in read_journal(tmp_path / "there/one/journal.jsonl").records] == ["a"]


def test_a_damaged_line_is_copied_as_it_is(tmp_path: Path) -> None:
    here = tmp_path / "here"
    measure(here, "a", minute=0)
    with (here / "journal.jsonl").open("a") as journal:
        journal.write("no record\n")
    with serving(tmp_path / "there") as port:
        url = f"ftp://127.0.0.1:{port}/one"
        RemoteCopy(here, url).update()
        measure(here, "b", minute=1, occasion=1)
        RemoteCopy(here, url).update()
    assert files(tmp_path / "there/one")["journal.jsonl"] == (here / "journal.jsonl").read_text()


def test_a_copy_follows_a_run_and_outlives_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsabench.results.remote.EVERY_S", 0.05)
    here, there, notes = tmp_path / "here", tmp_path / "there", list[str]()
    journal = there / "one" / "journal.jsonl"
    with serving(there) as port:
        url = f"ftp://127.0.0.1:{port}/one"
        run_of_study = kept_copy(here, url, notes.append)
        run_of_study.__enter__()
        measure(here, "a", minute=0)
        wait_until(journal.is_file)
    measure(here, "b", minute=1, occasion=1)
    wait_until(lambda: bool(notes))
    with serving(there, port):
        measure(here, "c", minute=2, occasion=2)
        run_of_study.__exit__(None, None, None)
    assert [one.boot for one in read_journal(journal).records] == ["a", "b", "c"]
    assert len(notes) == 1
    assert notes[0].startswith(f"not copied, and tried again: {url}: ")


def test_a_run_whose_last_copy_fails_says_so(tmp_path: Path) -> None:
    here, notes = tmp_path / "here", list[str]()

    def run_of_study(fault: BaseException | None) -> bool | None:
        """Whether an exception that ends the run was swallowed."""
        with serving(tmp_path / "there") as port:
            context = kept_copy(here, f"ftp://127.0.0.1:{port}/one", notes.append)
            context.__enter__()
        measure(here, f"boot {fault}", minute=0, occasion=0 if fault is None else 1)
        return context.__exit__(None if fault is None else type(fault), fault, None)

    with pytest.raises(StoreError, match=r"ftp://127\.0\.0\.1"):
        run_of_study(None)
    assert not run_of_study(KeyboardInterrupt())
    assert [note.split(":")[0] for note in notes] == ["the last records were not copied"]


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("nowhere://bucket/one", "nowhere"),
        ("ftp://me:secret@127.0.0.1/one", "no password in the path"),
    ],
)
def test_a_path_that_cannot_be_used_is_one_line(url: str, line: str) -> None:
    with pytest.raises(InputError, match=line) as told:
        RemoteFolder(url)
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)


def test_a_bucket_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As S3: a path begins with a bucket, and `makedirs` makes one."""
    (tmp_path / "store" / "mine").mkdir(parents=True)
    measure(tmp_path / "here", "a", minute=0)
    of_buckets = DirFileSystem(path=str(tmp_path / "store"), fs=LocalFileSystem())
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url, **_: (of_buckets, url.partition("://")[2]))
    with pytest.raises(InputError, match="there is no mime; make it first"):
        RemoteCopy(tmp_path / "here", "s3://mime/study")
    assert not (tmp_path / "store" / "mime").exists()
    assert RemoteCopy(tmp_path / "here", "s3://mine/study").update() == 2
    assert merge_journals(["s3://mine/study"], tmp_path / "back") == Merged(added=1, samples=1)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = tmp_path / "here"
    measure(here, "a", minute=0)
    with serving(tmp_path / "there") as port:
        url, said = f"ftp://127.0.0.1:{port}/one", []
        for words in (
            ["results", "copy", str(here), "--to", url],
            ["results", "copy", str(here), "--to", url],
            ["results", "merge", url, "--into", str(tmp_path / "back")],
            ["results", "merge", f"{url}/no", "--into", str(tmp_path / "back")],
        ):
            run(words)
            said.append(capsys.readouterr())
    assert said[0].out == f"{url}: 2 files sent\n"
    assert said[1].out == f"{url}: has everything already\n"
    assert "1 record added" in said[2].out
    assert said[3].err.endswith(f"{url}/no: no journal there (journal.jsonl)\n")
    assert run(["results", "copy", str(here), "--to", url]) == 3  # nobody listens any more
    assert capsys.readouterr().err.count("\n") == 1
