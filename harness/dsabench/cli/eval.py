"""`dsabench eval NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Thinking = Literal["deepseek-v3", "qwen3", "qwen-3", "glm-45", "kimi-k2", "off"]
"""How the chat template is told to think; the names of sglang's run_eval."""
Benched = Annotated[bool, typer.Option("--bench", help="With --config: measure its workloads first, in the same boot.")]
Lengths = Annotated[
    list[int] | None,
    typer.Option(min=1, help="needle: a length in words; may be repeated.", show_default="those of its file that fit"),
]


def evaluate(
    name: Annotated[
        str,
        typer.Argument(help="gsm8k, gsm8k-20shot, gsm8k-clean, gpqa, aime25, aime25-sglang, mmlu, needle, or a file."),
    ],
    base_url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server.", show_default="http://127.0.0.1:30000")
    ] = None,
    config: Annotated[str | None, typer.Option(help="Boot this config's runtime instead, and ask it.")] = None,
    bench: Benched = False,
    model: Annotated[
        str | None, typer.Option(help="Its name at the server.", show_default="the first at /v1/models")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The data file.", show_default="fetched once, then cached")] = None,
    num_examples: Annotated[int | None, typer.Option(min=1, help="Questions, at most.")] = None,
    num_shots: Annotated[int | None, typer.Option(min=0, help="Examples before each question.")] = None,
    num_subjects: Annotated[int | None, typer.Option(min=1, help="mmlu: subjects, at most.")] = None,
    words: Lengths = None,
    repeat: Annotated[int | None, typer.Option(min=1, help="Passes over the questions.")] = None,
    thinking_mode: Annotated[Thinking | None, typer.Option(help="Keyword for the chat template.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0)] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0)] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="Requests in flight, at most.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one request.")] = None,
    retries: Annotated[int, typer.Option(min=0, help="Further attempts of a request, with growing pauses.")] = 5,
    driver: Annotated[
        Literal["own", "nemo-skills", "sgl-eval"],
        typer.Option(help="Who asks and grades: dsabench itself, or this harness as a program."),
    ] = "own",
    driver_program: Annotated[
        Path | None, typer.Option(help="Its program.", show_default="ns or sgl-eval on the PATH")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where journal and samples lie.")] = Path("results/local-evals"),
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write a page of the samples beside them.")] = True,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")] = False,
) -> None:
    """Ask a server an eval's questions and grade the answers.

    Every answer is on disk as it finishes. The same command goes on where an unfinished run stopped; after a
    finished one it begins anew.
    """
    from dsabench.cli.run_eval import EvalOptions, run_eval
    from dsabench.evals.plan import Wishes

    wishes = Wishes(
        num_examples=num_examples,
        num_shots=num_shots,
        num_subjects=num_subjects,
        words=tuple(dict.fromkeys(words)) if words else None,
        repeat=repeat,
        thinking=None if thinking_mode == "off" else thinking_mode,
        no_thinking=thinking_mode == "off",
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
    )
    options = EvalOptions(
        name=name,
        base_url=base_url,
        config=config,
        bench=bench,
        model=model,
        data=data,
        wishes=wishes,
        parallel=parallel,
        timeout_s=timeout,
        retries=retries,
        driver=None if driver == "own" else driver,
        driver_program=driver_program,
        results=results,
        html=html,
        as_json=json_,
    )
    raise typer.Exit(run_eval(options))
