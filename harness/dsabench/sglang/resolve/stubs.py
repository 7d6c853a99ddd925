"""Packages that SGLang imports and this interpreter lacks, and a GPU that is not there (standard library only).

A stub's attributes exist and do nothing. SGLang alone sees stubs, and only of what its wheel requires: for transformers
torch stays absent, and an optional package that a real installation lacks (`torchada`, `aiter` on NVIDIA) is absent too.
"""

from __future__ import annotations

import abc
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import re
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

_IMPORT_NAMES = {
    "apache-tvm-ffi": ("tvm_ffi",),
    "cuda-python": ("cuda",),
    "decord2": ("decord",),
    "fastapi": ("fastapi", "starlette"),
    "flash-attn-4": ("flash_attn",),
    "flashinfer-python": ("flashinfer",),
    "humming-kernels": ("humming",),
    "ipython": ("IPython",),
    "nvidia-cutlass-dsl": ("cutlass",),
    "nvidia-ml-py": ("pynvml",),
    "pillow": ("PIL",),
    "python-dateutil": ("dateutil",),
    "python-multipart": ("multipart",),
    "pyzmq": ("zmq",),
    "quack-kernels": ("quack",),
    "sgl-deep-ep": ("deep_ep",),
    "sgl-deep-gemm": ("deep_gemm",),
    "sgl-flash-mla": ("flash_mla",),
    "sgl-kernel": ("sgl_kernel", "deep_gemm"),
    "sglang-kernel": ("sgl_kernel", "deep_gemm"),
    "torch": ("torch", "triton"),
}
"""Distribution → what it is imported as, where that is not its own name."""

_OPTIONAL = ("mooncake", "deep_ep", "nixl")
"""Transports that a setting may ask for. Whether they are installed is doctor's question, not this one's."""


_OTHER_DEVICES = ("npu", "hpu", "musa", "mlu")
"""What torch has only with a plugin for that device: SGLang asks whether the name is there."""


def pinned(requirements: Iterable[str]) -> dict[str, str]:
    """Name → pinned version of a wheel's requirements (`Requires-Dist` lines); a high one without a pin. No extras."""
    pins = {}
    for line in requirements:
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:[=>~]=\s*([0-9][A-Za-z0-9.+!]*))?", line)
        if match is not None and "extra ==" not in line:
            pins[_plain(match[1])] = match[2] or _StubModule.__version__
    return pins


def _plain(name: str) -> str:
    """A distribution's name in the one form in which names are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_as(names: Iterable[str]) -> set[str]:
    """Top-level modules of distributions, and of the transports that a setting may ask for."""
    modules = (_IMPORT_NAMES.get(name, (name.replace("-", "_"),)) for name in names)
    return {*_OPTIONAL, *(module for own in modules for module in own)}


_LIGHT = {
    "huggingface_hub",
    "msgspec",
    "numpy",
    "packaging",
    "PIL",
    "pydantic",
    "regex",
    "requests",
    "tokenizers",
    "tqdm",
    "transformers",
}
"""Requirements that are real wherever they are: the configs of models are read with them."""


def hide(names: Iterable[str]) -> None:
    """Make packages look absent where they are installed, so that their stubs are found."""
    hidden = set(names) - _LIGHT

    class Finder(importlib.machinery.PathFinder):
        @classmethod
        def find_spec(
            cls, fullname: str, path: Any = None, target: Any = None
        ) -> importlib.machinery.ModuleSpec | None:
            if fullname.partition(".")[0] in hidden:
                return None
            return super().find_spec(fullname, path, target)

    sys.meta_path[:] = [Finder if one is importlib.machinery.PathFinder else one for one in sys.meta_path]


class _StubClass(abc.ABCMeta):
    """A class whose attributes are classes like it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _StubClass(name, (Stub,), {})
        setattr(cls, name, made)
        return made

    def register(cls, *args: Any, **_: object) -> Any:  # ABCMeta has one of its own
        return args[0] if len(args) == 1 else None

    def __or__(cls, other: object) -> Any:
        return object

    __ror__ = __or__

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __lt__(cls, other: object) -> bool:
        return False

    def __ge__(cls, other: object) -> bool:
        return True

    __gt__ = __lt__
    __le__ = __ge__

    def __bool__(cls) -> bool:
        return False

    def __int__(cls) -> int:
        return 0

    __index__ = __int__

    def __len__(cls) -> int:
        return 0


class Stub(metaclass=_StubClass):
    """An object that takes every call; as a decorator it gives back what it decorates."""

    def __init_subclass__(cls, **_: object) -> None:
        pass

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else Stub()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __iter__(self) -> Any:
        return iter(())

    def __lt__(self, other: object) -> bool:
        return False

    def __ge__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: object) -> None:
        return None

    def __or__(self, other: object) -> Any:
        return object

    def __index__(self) -> int:
        return 0

    def __neg__(self) -> Any:
        return self

    def __add__(self, other: object) -> Any:
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __pow__ = __rpow__ = __add__


class _StubModule(types.ModuleType):
    """A module in which every name is found."""

    __path__: list[str] = []
    __version__ = "99.0.0"
    """Passes every check for a minimum."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _OTHER_DEVICES:
            raise AttributeError(name)
        made = _StubClass(name, (Stub,), {})
        setattr(self, name, made)
        return made


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages of `names` where nothing else does, for SGLang's modules and for stubs."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = set(names)
        self.used: set[str] = set()
        """Packages that were stubbed, so far."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top not in self.used and (top not in self.names or not _sglang_asks()):
            return None
        self.used.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Tolerant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports SGLang's modules. One of its layers or kernels that fails is left with what it had, and stubs for the rest.

    The argument code itself has to import whole.
    """

    def __init__(self) -> None:
        self.loaders: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("sglang.") or name.startswith(_ARGUMENT_CODE):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            self.loaders[name] = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self.loaders[spec.name].create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        try:
            self.loaders[name].exec_module(module)
        except ModuleNotFoundError:
            raise
        except Exception:  # whatever stops it
            stub = _StubModule(name)
            stub.__dict__.update(module.__dict__)
            sys.modules[name] = stub


_ARGUMENT_CODE = tuple(
    f"sglang.srt.{name}" for name in ("server_args", "arg_groups", "configs", "environ", "utils", "runtime_context")
)


def tell_versions(pins: Mapping[str, str]) -> None:
    """`importlib.metadata.version` tells SGLang that its wheel's requirements are there, in the version it pins."""
    ask = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return ask(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            pin = pins.get(_plain(distribution_name))
            if pin is None or not _sglang_asks():
                raise
            return pin

    importlib.metadata.version = version


def _sglang_asks() -> bool:
    """Whether the import or the question that is under way stands in a module of SGLang's."""
    frame = sys._getframe(2)  # noqa: SLF001 (nothing else tells who imports)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("importlib", "_frozen_importlib")):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "sglang"


def write_stubs_as_json() -> None:
    """A stub is an empty text in JSON."""
    plain = json.JSONEncoder.default

    def default(self: json.JSONEncoder, o: Any) -> Any:
        return "" if isinstance(o, (Stub, _StubClass)) else plain(self, o)

    json.JSONEncoder.default = default  # type: ignore[method-assign]


def settle_transformers() -> None:
    """Let transformers find out what is installed before stubs are there; what it then cannot load becomes a stub."""
    try:
        module = importlib.import_module("transformers")
        known = importlib.import_module("transformers.utils.import_utils")
    except ImportError:
        return
    for name, ask in list(vars(known).items()):
        if name.startswith("is_") and name.endswith("_available"):
            with contextlib.suppress(Exception):  # some take arguments; all remember their answer
                ask()
    _stub_broken_names(module)


def _stub_broken_names(module: types.ModuleType) -> None:
    """Names that a lazy module lists and cannot load, for lack of torch, become stubs."""
    kind = type(module)
    load = getattr(kind, "__getattr__", None)
    if load is None:
        return

    def found(self: types.ModuleType, name: str) -> Any:
        with contextlib.suppress(ModuleNotFoundError):
            value = load(self, name)
            if type(value).__name__ != "DummyObject":  # transformers' own stub, which raises at every use
                return value
        made = _StubClass(name, (Stub,), {})
        setattr(self, name, made)
        return made

    kind.__getattr__ = found  # type: ignore[method-assign]
