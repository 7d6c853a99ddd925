"""`dsabench trace LOG… --out FILE`: a trace of a deployment's own traffic."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer


def trace(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG…", help="Log files of SGLang, or folders of them.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)],
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder with tokenizer.json, for logs that have prompts only as text.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Make a trace from SGLang's request log. It has times, lengths and what prompts share, but no text and no token.

    Replay it with `dsabench bench --dataset-name mooncake --dataset-path FILE`, or in a sweep's workload.
    """
    from dsabench.cli.bench_checks import why_unwritable
    from dsabench.errors import InputError
    from dsabench.load.draw.request_log import record_trace
    from dsabench.load.draw.tokenizers import load_tokenizer

    if out.exists() and not force:
        raise InputError(f"--out {out}: is there already; --force replaces it")
    if (reason := why_unwritable(out)) is not None:
        raise InputError(f"--out: {out}: {reason}")
    files = [file for log in logs for file in (sorted(filter(Path.is_file, log.iterdir())) if log.is_dir() else [log])]
    recorded = record_trace(files, None if tokenizer is None else load_tokenizer(tokenizer))
    part = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        part.write_text("".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in recorded.rows))
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"--out {out}: {error.strerror or error}") from error
    count, tokens = len(recorded.rows), recorded.prompt_tokens
    found = {
        "file": str(out),
        "requests": count,
        "duration_s": recorded.duration_s,
        "prompt_tokens": tokens,
        "output_tokens": sum(row["output_length"] for row in recorded.rows),
        "shared_prompt_tokens": recorded.shared_tokens,
        "cached_prompt_tokens": recorded.cached_tokens,
        "sessions": recorded.sessions,
        "notes": list(recorded.notes()),
    }
    if as_json:
        print(json.dumps(found))
        return
    print(f"{out}: {count} requests in {recorded.duration_s:.0f} s, {tokens / count:.0f} prompt tokens on average")
    said = f"{recorded.shared_tokens / tokens:.0%} of the prompt tokens repeat an earlier prompt"
    if recorded.cached_tokens is not None:
        said += f"; the server's prefix cache had {recorded.cached_tokens / tokens:.0%}"
    print(f"{said}; {recorded.sessions} conversations of several turns")
    for note in recorded.notes():
        print(f"note: {note}")
