"""Dataset files over real HTTP: kept, checked, and one clear line for whatever is wrong."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.load.draw.recorded import dataset_file


class Shelf(ThreadingHTTPServer):
    """Serves `files`; counts what was asked."""

    files: dict[str, bytes]
    asked: list[str]
    promise: int | None = None


class _Handler(BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(self.server.promise or len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Shelf(("127.0.0.1", 0), _Handler) as server:
        server.files, server.asked = {"/data.json": b"[1]"}, []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def address(shelf: Shelf, path: str = "/data.json") -> str:
    return f"http://127.0.0.1:{shelf.server_address[1]}{path}"


def test_an_address_is_downloaded_once(shelf: Shelf) -> None:
    first, again = (dataset_file(address(shelf)) for _ in range(2))
    assert first == again
    assert first.name == "data.json"
    assert first.read_bytes() == b"[1]"
    assert shelf.asked == ["/data.json"]


def test_a_copy_that_changed_is_noticed(shelf: Shelf) -> None:
    path = dataset_file(address(shelf))
    path.write_bytes(b"[2]")
    with pytest.raises(InputError, match="the file changed") as caught:
        dataset_file(address(shelf))
    assert str(path) in str(caught.value)


def test_what_changed_at_its_place_is_not_taken_for_the_same(shelf: Shelf) -> None:
    dataset_file(address(shelf)).unlink()
    shelf.files["/data.json"] = b"[3]"
    with pytest.raises(InputError, match="the file changed"):
        dataset_file(address(shelf))


def test_a_checksum_that_is_given_counts(shelf: Shelf) -> None:
    with pytest.raises(InputError, match="expected 000000"):
        dataset_file(address(shelf), "0" * 64)
    assert dataset_file(address(shelf), hashlib.sha256(b"[1]").hexdigest()).read_bytes() == b"[1]"


def test_a_download_that_is_cut_off_leaves_nothing(shelf: Shelf, tmp_path: Path) -> None:
    shelf.promise = 10
    with pytest.raises(InputError, match=r"cut off: .*received 3 of 10 bytes"):
        dataset_file(address(shelf))
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_what_is_not_there_is_one_line(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="404"):
        dataset_file(address(shelf, "/none.json"))
    with pytest.raises(InputError, match="refused"):
        dataset_file("http://127.0.0.1:1/x.json")
    with pytest.raises(InputError, match="no such file"):
        dataset_file(str(tmp_path / "none.json"))


def test_a_path_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(b"[1]")
    assert dataset_file(str(path), hashlib.sha256(b"[1]").hexdigest()) == path
    with pytest.raises(InputError, match="its checksum is"):
        dataset_file(str(path), "0" * 64)


def test_a_refused_download_leaves_nothing_behind(shelf: Shelf, tmp_path: Path) -> None:
    for wrong in (address(shelf, "/none"), "http://127.0.0.1:1/data.json", "http://127.0.0.1:1/a b"):
        with pytest.raises(InputError):
            dataset_file(wrong)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_copy_without_its_checksum_is_not_trusted(shelf: Shelf) -> None:
    path = dataset_file(address(shelf))
    path.with_name("sha256").unlink()
    with pytest.raises(InputError, match="cannot be checked; delete") as caught:
        dataset_file(address(shelf))
    assert "\n" not in str(caught.value)
