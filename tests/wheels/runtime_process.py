"""One version's own resolution of arguments as a process that answers one command line after the other.

Started from `runtime_child.py` with an interpreter that has torch; see there what else it needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any

from questions import Question, config_of

from dsabench.model.hardware import Accelerator
from dsabench.sglang.versions import Version

CHILD = Path(__file__).with_name("runtime_child.py")

Answer = Mapping[str, Any]
"""`error` or `resolved`, and `log`."""


@dataclass(frozen=True)
class Runtime:
    """An unpacked wheel on a device that its process believes in."""

    process: subprocess.Popen[str]
    models: Path
    errors: IO[str]

    def resolve(self, argv: Sequence[str], env: Mapping[str, str], rule: str = "") -> Answer:
        """What it says to a command line. Some of the later checks are made for their rule alone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"argv": list(argv), "env": dict(env), "case": rule}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            sys.exit(self._last_words())
        line = self.process.stdout.readline()
        if not line:
            sys.exit(self._last_words())
        answer: Answer = json.loads(line)
        return answer

    def ask(self, question: Question) -> Answer:
        """What it says to a question."""
        place = self._model(question.spec.model, question.version)
        words = [str(self._model(word, question.version)) if word == "v3.2" else word for word in question.words]
        argv = ["--model-path", str(place), *words, "--skip-tokenizer-init"]
        return self.resolve(argv, question.env, question.rule if question.aim == "broken" else "")

    def _model(self, name: str, version: Version) -> Path:
        """A folder with that model's config.json."""
        place = self.models / f"{name}-{version}"
        if not place.is_dir():
            place.mkdir()
            (place / "config.json").write_text(json.dumps(config_of(name, version)))
        return place

    def _last_words(self) -> str:
        self.process.wait()
        self.errors.seek(0)
        return f"{' '.join(map(str, self.process.args))}: {self.errors.read()[-3000:]}"  # type: ignore[arg-type]


@contextmanager
def started(root: Path, python: str, device: Accelerator) -> Iterator[Runtime]:
    """The runtime of an unpacked wheel (`root/sglang/…`), ended with the context."""
    major, minor = device.capability or (0, 0)
    place = f"{device.platform}:{major}.{minor}:{device.memory_gib}:{device.device_name}"
    command = ["nice", python, "-B", str(CHILD), str(root), place]
    with (
        TemporaryDirectory(prefix="sglang-models-") as models,
        TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            yield Runtime(process, Path(models), errors)
        finally:
            process.terminate()
