"""`python -m dsabench.reference.train --out FOLDER`: train the model that `--model trained` serves, from a seed.

Writes `model.safetensors` (bfloat16, with DeepSeek-V3.2's names), `curve.jsonl` (a line every 20 steps) and `scores.json`,
anew behind each stage. Interrupted, the same command goes on where it was: `state.pt` is written every minute.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader

from dsabench.reference.engine.sizes import SIZES
from dsabench.reference.train import scores, steps
from dsabench.reference.train.network import DENSE, SPARSE, Network
from dsabench.reference.train.rows import Rows
from dsabench.reference.train.stages import STAGES, Stage

_SAVE_S = 60
_NOTED = 20
"""Steps per line of the curve."""
_SHOWN = 200
"""Steps per line on the terminal."""
_SMOOTHING = 0.7
_COMPILED_FROM = 300
"""Steps from which on a stage gains more by compiled layers than compiling takes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Train; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dsabench.reference.train", description="Train the model that `--model trained` serves."
    )
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        required=True,
        help="folder for weights, loss curve and scores; the state to go on from, too",
    )
    add("--seed", type=int, default=0, help="of weights and texts")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", choices=("cuda", "cpu"), default=device, help="where it trains; a CPU is slow")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that write texts")
    args = parser.parse_args(argv)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {args.out}: {error.strerror}")
    Training(args.out, args.seed, args.device, args.workers).run(STAGES)
    return 0


class Training:
    """The network on its way through the stages."""

    def __init__(self, out: Path, seed: int, device: str, workers: int) -> None:
        self._out, self._seed, self._device, self._workers = out, seed, device, workers
        torch.manual_seed(seed)
        self._network = Network(SIZES["trained"]).to(device)
        if device == "cuda":
            for layer in self._network.layers:
                layer.compile(dynamic=False)
        self._state, self._curve = out / "state.pt", out / "curve.jsonl"
        self._done: dict[str, dict[str, float]] = {}
        """Stages that are over, with their scores."""
        self._step, self._spent_s = 0, 0.0
        self._interrupted: dict[str, Any] | None = None
        if self._state.exists():
            state = torch.load(self._state, map_location=device)
            self._network.load_state_dict(state["network"])
            self._done, self._interrupted = state["done"], state["optimizer"]
            self._step, self._spent_s = state["step"], state["spent_s"]
        self._drop_what_comes_again()

    def run(self, stages: Sequence[Stage]) -> None:
        """Go on to the end of the stages."""
        for stage in stages:
            if stage.name in self._done:
                continue
            eager = self._device == "cuda" and stage.steps < _COMPILED_FROM
            with torch.compiler.set_stance("force_eager") if eager else nullcontext():
                self._train(stage)
            self._done[stage.name] = found = {"steps": self._step, "s": round(self._spent_s, 1), **self._score(stage)}
            _say(f"{stage.name}: {json.dumps(found)}")
            self._step = 0
            self._save(None)
            (self._out / "scores.json").write_text(json.dumps(self._done, indent=1) + "\n", encoding="utf-8")
            weights = {name: one.bfloat16().contiguous() for name, one in self._network.state_dict().items()}
            save_file(weights, self._out / "model.safetensors")

    def _train(self, stage: Stage) -> None:
        if self._device == "cuda":
            torch.compiler.reset()  # every stage has its own shape
        learned = steps.learning(self._network, stage.kind)
        fused = self._device == "cuda"
        optimizer = torch.optim.AdamW(learned, lr=stage.rate, betas=(0.9, 0.95), weight_decay=0.05, fused=fused)
        if self._interrupted is not None:
            optimizer.load_state_dict(self._interrupted)
            self._interrupted = None
        smooth: float | None = None
        saved = began = time.monotonic()
        for tokens, weights in self._batches(stage):
            for group in optimizer.param_groups:
                group["lr"] = stage.rate * _share_of_rate(stage, self._step)
            with torch.autocast(self._device, torch.bfloat16):
                outcome = steps.take(self._network, stage, tokens, weights)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(outcome.loss)
            torch.nn.utils.clip_grad_norm_(learned, 1.0)
            optimizer.step()
            self._step += 1
            if self._step % _NOTED:
                continue
            right, now = outcome.right.item(), time.monotonic()
            smooth = right if smooth is None else _SMOOTHING * smooth + (1 - _SMOOTHING) * right
            self._spent_s, began = self._spent_s + now - began, now
            self._note(stage, outcome.loss.item(), right)
            if stage.until is not None and smooth >= stage.until:
                break
            if now - saved > _SAVE_S:
                self._save(optimizer)
                saved = now
        self._spent_s += time.monotonic() - began

    def _batches(self, stage: Stage) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        rows = Rows(self._seed, stage.name, stage.length, stage.batch, stage.mix)
        loader = DataLoader(
            rows, batch_size=None, sampler=range(self._step, stage.steps), num_workers=self._workers,
            pin_memory=self._device == "cuda",
        )  # fmt: skip
        for tokens, weights in loader:
            yield tokens.to(self._device, non_blocking=True).int(), weights.to(self._device, non_blocking=True)

    def _note(self, stage: Stage, loss: float, right: float) -> None:
        line = json.dumps({
            "stage": stage.name, "step": self._step, "loss": round(loss, 5), "right": round(right, 4),
            "s": round(self._spent_s, 1),
        })  # fmt: skip
        with self._curve.open("a", encoding="utf-8") as curve:
            curve.write(line + "\n")
        if self._step % _SHOWN == 0:
            _say(line)

    def _drop_what_comes_again(self) -> None:
        """Lines of the curve behind the saved state, of which an interrupted training may have written some."""
        if not self._curve.exists():
            return
        lines = self._curve.read_text(encoding="utf-8").splitlines(keepends=True)
        notes = [json.loads(line) for line in lines]
        kept = [one["stage"] in self._done or one["step"] <= self._step for one in notes]
        self._curve.write_text("".join(itertools.compress(lines, kept)), encoding="utf-8")

    def _score(self, stage: Stage) -> dict[str, float]:
        """Scores on held-out templates; ledgers have none."""
        if [*stage.mix] == ["ledger"]:
            return {}
        with torch.compiler.set_stance("force_eager"):  # every batch has its own shape
            if stage.kind == "draft":
                return scores.of_drafts(self._network)
            if stage.kind == "sparse":
                return scores.of_skills(self._network, SPARSE) | scores.of_selections(self._network)
            return scores.of_skills(self._network, DENSE if stage.kind == "dense" else SPARSE)

    def _save(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Write what an interrupted training goes on from."""
        state = {
            "network": self._network.state_dict(), "optimizer": optimizer.state_dict() if optimizer else None,
            "done": self._done, "step": self._step, "spent_s": self._spent_s,
        }  # fmt: skip
        part = self._state.with_suffix(".part")
        torch.save(state, part)
        part.replace(self._state)


def _share_of_rate(stage: Stage, step: int) -> float:
    """The learning rate at a step, as a share of the stage's."""
    if step < stage.warm_up:
        return (step + 1) / stage.warm_up
    return 0.05 + 0.95 * (1 + math.cos(math.pi * step / stage.steps)) / 2 if stage.decay else 1.0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
