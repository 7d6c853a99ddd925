"""Runs a wheel's own argument parser where its dependencies are not installed. Started by path, in a fresh process.

Every package that is missing is replaced by one whose attributes exist and do nothing, and so is every module of the
wheel itself that fails to import that way, but the ones that hold the arguments. What is left is the real parser.

    python -I stand_ins.py FOLDER < command-lines.json > facts.json

FOLDER holds the unpacked wheel. Standard input is a list of argument lists; standard output has the parser's actions
and, for each list, null or the parser's error. Wheels from 0.5.20 on declare their arguments with msgspec, which has
to be installed (it is small and needs nothing).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types

ARGUMENTS = "sglang.srt.server_args"


class Anything(type):
    """A class whose attributes are classes like it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything(name, (Nothing,), {})
        setattr(cls, name, made)
        return made

    def __or__(cls, other):
        return object

    __ror__ = __or__

    def __getitem__(cls, key):
        return cls

    def __iter__(cls):
        return iter(())

    def __lt__(cls, other):
        return False

    __gt__ = __lt__

    def __ge__(cls, other):
        return True

    __le__ = __ge__

    def __bool__(cls):
        return False

    def __len__(cls):
        return 0


class Nothing(metaclass=Anything):
    """An object that takes every call; as a decorator it gives back what it decorates."""

    def __init_subclass__(cls, **_):
        pass

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else Nothing()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __iter__(self):
        return iter(())

    def __lt__(self, other):
        return False

    def __ge__(self, other):
        return True

    def __bool__(self):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

    def __or__(self, other):
        return object

    def __index__(self):
        return 0


class MissingModule(types.ModuleType):
    """A module in which every name is found."""

    __path__ = ()

    def __getattr__(self, name):
        if name == "__version__":
            return "99.0.0"  # passes every check for a minimum
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        made = Anything(name, (Nothing,), {})
        setattr(self, name, made)
        return made


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nothing else finds."""

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "sglang":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MissingModule(spec.name)

    def exec_module(self, module):
        pass


class Tolerant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the wheel's modules, and keeps what there is of one that fails."""

    def __init__(self):
        self.loaders = {}
        self.failed = {}

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "sglang":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            self.loaders[name] = spec.loader
            spec.loader = self
        return spec

    def create_module(self, spec):
        return self.loaders[spec.name].create_module(spec)

    def exec_module(self, module):
        name = module.__name__
        try:
            self.loaders[name].exec_module(module)
        except Exception as error:
            if name == ARGUMENTS:
                raise
            self.failed[name] = repr(error)
            stand_in = MissingModule(name)
            stand_in.__dict__.update(module.__dict__)
            sys.modules[name] = stand_in


class Refused(Exception):
    """The parser's complaint."""


class Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process."""

    def error(self, message):
        raise Refused(message)


def describe(action):
    return {
        "names": action.option_strings,
        "dest": action.dest,
        "action": type(action).__name__,
        "choices": None if action.choices is None else sorted(map(str, action.choices)),
        "nargs": action.nargs,
    }


def verdict(parser, words):
    try:
        parser.parse_args(words)
    except Refused as refusal:
        return str(refusal)
    return None


def main():
    command_lines = json.load(sys.stdin)
    tolerant = Tolerant()
    sys.path.insert(0, sys.argv[1])
    sys.meta_path.insert(0, tolerant)
    sys.meta_path.append(Missing())
    with contextlib.redirect_stdout(sys.stderr):
        parser = Parser(prog="launch_server")
        importlib.import_module(ARGUMENTS).ServerArgs.add_cli_args(parser)
        facts = {
            "actions": [describe(action) for action in parser._actions if action.option_strings],
            "verdicts": [verdict(parser, words) for words in command_lines],
            "stood_in": tolerant.failed,
        }
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    main()
