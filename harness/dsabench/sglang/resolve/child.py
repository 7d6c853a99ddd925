"""Puts command lines before SGLang's own argument code (standard library only; `client.py` starts it).

The first line of standard input is `{"tree": FOLDER, "packages": [FOLDER, …], "device": {…}, "warm": {…}}`, the first
line of standard output the greeting. Then each line asks about one command line, and each is answered by one line, in
any order. SGLang is imported once, from the unpacked wheel `tree`, or as this interpreter finds it. Every case runs in a
fork, so that nothing that it sets is left for the next. The GPU is pretended, and torch and kernels are stubs also where
they are installed: a real question to CUDA would open a context, whose memory a later check would blame on the server.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import hashlib
import importlib
import importlib.metadata
import json
import logging
import os
import re
import selectors
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsabench.sglang import tell_facts as facts
    from dsabench.sglang.resolve import stubs
else:
    import dsabench_facts as facts
    import dsabench_stubs as stubs

_SIDE_BY_SIDE = 4
_CASE_TIMEOUT_S = 20.0
_IDLE_S = 60.0
"""Nobody asks: it ends, and is started again when somebody does."""
_MOST_LEARNED = 40
"""Packages that nothing named and that the import turned out to need."""
_REFUSALS = (ValueError, AssertionError, RuntimeError, TypeError, ArithmeticError, LookupError, FileNotFoundError)
"""What the argument code raises, or dies of where it does not look at a value first. Anything else says more about what is
stubbed, or not on this machine, than about the setting."""
_ARCHITECTURES = {(9, 0): "gfx90a", (9, 4): "gfx942"}
"""AMD's names that do not end in 0."""
_INFINIBAND = "/sys/class/infiniband"
_IS_DIR = os.path.isdir


class _Log(logging.Handler):
    """Keeps the warnings that SGLang logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage()))


class _Sglang:
    """One imported SGLang that believes in a device."""

    def __init__(self, hello: dict[str, Any], models: Path) -> None:
        self.device, self.is_installed = hello["device"], hello["tree"] is None
        self.packages = tuple(hello["packages"])
        sys.path[:0] = [*([hello["tree"]] if hello["tree"] else []), *self.packages]
        self.version, pins = _distribution(hello["tree"])
        wanted = stubs.imported_as(pins) | ({"aiter"} if self.device["platform"] == "rocm" else set())
        self.stubs, self.models, self.log = stubs.Stubs(wanted), models, _Log()
        _keep_log(self.log)
        stubs.hide(wanted)
        stubs.tell_versions(pins)
        stubs.settle_transformers()
        stubs.write_stubs_as_json()
        sys.meta_path.insert(0, stubs.Tolerant())
        sys.meta_path.append(self.stubs)
        self.args = self._import()
        self.read_by_parser = set(re.findall(r"SGLANG_\w+", Path(self.args.__file__).read_text(encoding="utf-8")))

    def _import(self) -> Any:
        """`sglang.srt.server_args`. What it lacks beyond its wheel's list is stubbed, and the import begun anew."""
        for _ in range(_MOST_LEARNED):
            try:
                _pretend(self.device, self.stubs)
                importlib.import_module("sglang.srt.utils")
                _tell_memory(self.device["memory_gib"])
                return importlib.import_module("sglang.srt.server_args")
            except ModuleNotFoundError as error:
                if not self._learn(error):
                    raise
                for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
                    del sys.modules[name]
        raise ImportError("too many packages are missing")

    def keep_parser(self) -> None:
        """Make the parser once: its 500 flags take three times as long as all the checks."""
        with contextlib.suppress(ImportError):
            structs = importlib.import_module("msgspec.structs")
            vars(structs)["fields"] = functools.cache(structs.fields)
        kept = argparse.ArgumentParser()
        add = self.args.ServerArgs.add_cli_args
        add(kept)

        def add_kept(parser: argparse.ArgumentParser) -> None:
            if self.read_by_parser & set(os.environ):  # its choices may depend on them
                add(parser)
            else:
                vars(parser).update({name: value for name, value in vars(kept).items() if name != "prog"})

        self.args.ServerArgs.add_cli_args = staticmethod(add_kept)

    def answer(self, case: dict[str, Any], folders: dict[str, str]) -> dict[str, Any]:
        """What SGLang's argument code says to one command line."""
        self.log.lines.clear()
        os.environ.update(case["env"])
        argv = [*(folders.get(word, word) for word in case["argv"]), "--skip-tokenizer-init"]
        _pretend_infiniband(argv)
        said: dict[str, Any] = {}
        for _ in range(_MOST_LEARNED):
            try:
                said = self._resolve(argv)
            except ModuleNotFoundError as error:
                if self._learn(error):
                    continue
                said = self._raised(error)
            except Exception as error:  # whatever it raises is the answer
                said = self._raised(error)
            break
        return {"id": case["id"], **_renamed({**said, "warnings": self.log.lines}, folders)}

    def _resolve(self, argv: list[str]) -> dict[str, Any]:
        errors = _CapturedErrors()
        try:
            with errors:
                args = self.args.prepare_server_args(argv)
            if hasattr(args, "resolve_once"):
                args.resolve_once()
            args.check_server_args()
        except SystemExit:
            return {"verdict": "refused", "kind": "argparse", "text": errors.last(), "at": "the parser"}
        return {"verdict": "runs", "resolved": _fields(args)}

    def _learn(self, error: ModuleNotFoundError) -> bool:
        """Stub a package that nothing named and that SGLang turned out to need; False where that is no help."""
        lacking = (error.name or "sglang").partition(".")[0]
        if lacking == "sglang" or lacking in self.stubs.names:
            return False
        self.stubs.names.add(lacking)
        return True

    def folders(self, models: dict[str, Any]) -> dict[str, str]:
        """Name of a model → a folder with the config.json that was sent for it."""
        found = {}
        for name, config in models.items():
            text = json.dumps(config, sort_keys=True)
            folder = self.models / hashlib.sha256(text.encode()).hexdigest()[:16]
            if not folder.is_dir():
                folder.mkdir()
                (folder / "config.json").write_text(text, encoding="utf-8")
            found[name] = str(folder)
        return found

    def _raised(self, error: Exception) -> dict[str, Any]:
        frames = traceback.extract_tb(error.__traceback__)
        last = frames[-1]
        kind, text = type(error).__name__, str(error) or last.line or ""  # an assertion without words
        place = f"{last.filename.partition('/sglang/')[2] or last.filename}:{last.lineno}"
        through_stub = any(frame.filename == stubs.__name__ for frame in frames)
        elsewhere = last.filename.startswith(self.packages)  # another transformers may know the model
        # A file that a wheel does not find may be on the machine that serves.
        elsewhere = elsewhere or (isinstance(error, FileNotFoundError) and not self.is_installed)
        if through_stub or elsewhere or not isinstance(error, _REFUSALS):
            return {"verdict": "cannot_say", "why": f"{kind}: {text} ({place})"}
        return {"verdict": "refused", "kind": kind, "text": text, "at": place}


def _pretend_infiniband(argv: list[str]) -> None:
    """The devices that are asked for are there, where this machine has none at all: another one serves."""
    if _IS_DIR(_INFINIBAND) or not any("ib-device" in word for word in argv):
        return
    named = sorted({name for word in argv for name in re.findall(r"[\w.-]+", word)})
    listed = os.listdir
    os.path.isdir = lambda path: path == _INFINIBAND or _IS_DIR(path)  # type: ignore[assignment]
    os.listdir = lambda path=".": named if path == _INFINIBAND else listed(path)  # type: ignore[assignment]


def _renamed(said: Any, folders: dict[str, str]) -> Any:
    """With the models' names in place of their folders."""
    if isinstance(said, dict):
        return {key: _renamed(value, folders) for key, value in said.items()}
    if isinstance(said, list):
        return [_renamed(value, folders) for value in said]
    if isinstance(said, str):
        for name, folder in folders.items():
            said = said.replace(folder, name)
    return said


class _CapturedErrors(contextlib.redirect_stderr[Any]):
    """argparse's complaint."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile("w+")
        super().__init__(self.file)

    def last(self) -> str:
        self.file.seek(0)
        lines = self.file.read().strip().splitlines()
        return re.sub(r"^.*?: error: ", "", lines[-1]) if lines else ""


def _keep_log(log: _Log) -> None:
    """Into the root's handlers, also after SGLang has configured logging anew."""
    basic = logging.basicConfig

    def configure(**kwargs: Any) -> None:
        basic(**{**kwargs, "stream": sys.stderr})
        logging.getLogger().addHandler(log)

    logging.basicConfig = configure
    logging.getLogger().addHandler(log)


def _distribution(tree: str | None) -> tuple[str, dict[str, str]]:
    """Version and requirements of the unpacked wheel, or of what is installed; see `stubs.pinned`."""
    where: dict[str, Any] = {} if tree is None else {"path": [tree]}
    found = next(iter(importlib.metadata.distributions(name="sglang", **where)), None)
    if found is None:
        raise ImportError(f"no sglang-*.dist-info in {tree or 'this environment'}")
    return found.version, stubs.pinned(found.requires or [])


def _fields(args: Any) -> dict[str, Any]:
    """Every field as resolved, whichever way the version keeps them."""
    view = args
    with contextlib.suppress(ImportError, AttributeError):
        view = importlib.import_module("sglang.srt.arg_groups.overrides").resolved_view(args)
    names = getattr(args, "__struct_fields__", None) or getattr(args, "__dataclass_fields__", None) or vars(args)
    found = {}
    for name in names:
        value = getattr(view, name, getattr(args, name, None))
        with contextlib.suppress(TypeError, ValueError):
            found[name] = json.loads(json.dumps(value))
    return found


def _pretend(device: dict[str, Any], finder: stubs.Stubs) -> None:
    """Make the stub of torch say that the device is there."""
    finder.used |= {"torch", "triton"}
    # A submodule that is imported later would replace what is set here.
    for name in ("cuda", "version", "xpu", "backends", "backends.mps"):
        importlib.import_module(f"torch.{name}")
    torch = importlib.import_module("torch")
    total, capability = device["memory_gib"] * 1024**3, tuple(device["capability"])
    properties = types.SimpleNamespace(
        total_memory=total,
        name=device["name"],
        major=capability[0],
        minor=capability[1],
        multi_processor_count=132,
        gcnArchName=_ARCHITECTURES.get(capability, f"gfx{capability[0]}{capability[1]}0"),
    )
    for name, value in {
        "is_available": True,
        "device_count": device["count"],
        "current_device": 0,
        "get_device_capability": capability,
        "get_device_name": device["name"],
        "get_device_properties": properties,
        "mem_get_info": (total, total),
    }.items():
        setattr(torch.cuda, name, _always(value))
    rocm = device["platform"] == "rocm"
    torch.version.hip, torch.version.cuda = ("7.0", None) if rocm else (None, "12.9")
    for other in (torch.xpu, torch.backends.mps):
        other.is_available = _always(False)
    torch.__version__ = "2.9.1"  # type: ignore[attr-defined]


def _always(value: object) -> Callable[..., object]:
    return lambda *_, **__: value


def _tell_memory(gib: int) -> None:
    """SGLang asks nvidia-smi for the memory; here it is told, before any module takes the function for itself."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.") and "get_device_memory_capacity" in vars(module):
            module.get_device_memory_capacity = _always(gib * 1024)  # type: ignore[attr-defined]


class _Forks:
    """Cases under way, each in a fork of its own."""

    def __init__(self, sglang: _Sglang, out: int) -> None:
        self.sglang, self.out = sglang, out
        self.selector = selectors.DefaultSelector()
        self.waiting: list[dict[str, Any]] = []
        self.alive = 0

    def serve(self, stdin: int) -> None:
        """Read cases until standard input ends, then finish what is under way."""
        self.selector.register(stdin, selectors.EVENT_READ, None)
        buffer, open_ = b"", True
        while open_ or self.alive or self.waiting:
            while self.waiting and self.alive < _SIDE_BY_SIDE:
                self._start(self.waiting.pop(0))
            ready = self.selector.select(timeout=1.0 if self.alive else _IDLE_S)
            if not (ready or self.alive):
                return
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if key.data is not None:
                    self._heard(key, chunk)
                elif not chunk:
                    open_ = False
                    self.selector.unregister(stdin)
                else:
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    self.waiting += [json.loads(line) for line in lines if line.strip()]
            self._end_silent()

    def _start(self, case: dict[str, Any]) -> None:
        reader, writer = os.pipe()
        folders = self.sglang.folders(case["models"])  # before the fork: two of them would write one file
        pid = os.fork()
        if not pid:
            with os.fdopen(writer, "w") as file:
                json.dump(self.sglang.answer(case, folders), file)
            os._exit(0)
        os.close(writer)
        self.alive += 1
        fork = types.SimpleNamespace(id=case["id"], pid=pid, text=b"", until=time.monotonic() + _CASE_TIMEOUT_S, why="")
        self.selector.register(reader, selectors.EVENT_READ, fork)

    def _heard(self, key: selectors.SelectorKey, chunk: bytes) -> None:
        key.data.text += chunk
        if chunk:
            return
        self.selector.unregister(key.fd)
        os.close(key.fd)
        os.waitpid(key.data.pid, 0)
        self.alive -= 1
        why = key.data.why or "the process that resolved it died"
        try:
            json.loads(key.data.text)
            text = key.data.text
        except ValueError:
            text = json.dumps({"id": key.data.id, "verdict": "cannot_say", "why": why, "warnings": []}).encode()
        _write(self.out, text)

    def _end_silent(self) -> None:
        for key in list(self.selector.get_map().values()):
            if key.data is not None and time.monotonic() > key.data.until:
                key.data.why = f"no answer within {_CASE_TIMEOUT_S:.0f} s"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(key.data.pid, signal.SIGKILL)


def _write(out: int, text: bytes) -> None:
    rest = text + b"\n"
    while rest:
        rest = rest[os.write(out, rest) :]


def _greet(hello: dict[str, Any], models: Path) -> tuple[_Sglang | None, dict[str, Any]]:
    """SGLang, imported and warm, and what to say of it; None where it cannot be."""
    try:
        sglang = _Sglang(hello, models)
    except Exception as error:  # whatever keeps it from starting is told
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = frame.filename.partition("/sglang/")[2] or frame.filename
        return None, {"failed": f"{type(error).__name__}: {error} ({place}:{frame.lineno})"}
    if not hasattr(sglang.args, "prepare_server_args"):
        return None, {"failed": f"sglang {sglang.version} has no prepare_server_args in srt/server_args.py"}
    before = dict(os.environ)
    warm = {"id": None, "env": {}, **hello["warm"]}
    said = sglang.answer(warm, sglang.folders(warm["models"]))  # what is imported late
    os.environ.clear()
    os.environ.update(before)
    return sglang, {"usual": said["warnings"], **({"flags": facts.flags()} if hello["flags"] else {})}


def main() -> None:
    """Greet, then answer."""
    out = os.dup(1)
    os.dup2(2, 1)  # what SGLang prints must not end up among the answers
    stdin = sys.stdin.fileno()
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(stdin, 1)
        if not byte:
            return
        line += byte
    os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""})
    with tempfile.TemporaryDirectory(prefix="dsabench-models-") as models:
        hello = json.loads(line)
        sglang, greeting = _greet(hello, Path(models))
        _write(out, json.dumps(greeting).encode())
        if sglang is not None:
            sglang.keep_parser()
            gc.freeze()
            gc.disable()  # a collection in a fork would copy every page
            _Forks(sglang, out).serve(stdin)


main()
