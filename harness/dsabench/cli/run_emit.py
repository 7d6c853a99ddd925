"""From the options of `emit` to a patch, a plugin or launch commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dsabench
from dsabench.cli.emit import EmitForm
from dsabench.emit.expiry import examine, installed_at, installed_here
from dsabench.emit.fit import require_emittable
from dsabench.emit.importable import broken_by_patch, import_changed
from dsabench.emit.patch import Patch, apply_patch, changed_since, plan_patch, require_writable, revert_patch, state_of
from dsabench.emit.tables import File, read_delivered, read_tables
from dsabench.emit.tree import Tree, find_tree
from dsabench.errors import DsabenchError, InputError
from dsabench.signals import run_loop


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """The command line of an emit."""

    tables: tuple[str, ...]
    form: EmitForm
    runtime: Path | None
    actions: tuple[str, ...]
    out: Path | None
    config: str | None
    runtime_version: str | None
    image: str | None
    allow_simulated: bool
    as_json: bool

    def files(self) -> list[File]:
        """The tables, every one fit to be emitted.

        Raises:
            InputError: one is not.

        """
        return read_delivered(self.tables, allow_simulated=self.allow_simulated)


@contextmanager
def refusal_as_json(*, asked: bool) -> Iterator[None]:
    """A program reads one document, whatever came out; the line for people follows."""
    try:
        yield
    except DsabenchError as error:
        if asked:
            print(json.dumps({"reason": str(error)}, indent=1), flush=True)
        raise


def run_emit(options: EmitOptions) -> int:
    """Do what was ordered; returns the exit code."""
    if options.form == "patch":
        return _patch(options)
    if options.form == "text":
        return _text(options)
    form = "command" if options.form == "flags" else options.form
    folder = options.out or Path("results") / f"local-{options.form}"
    if form != "plugin":
        from dsabench.cli.run_emit_launch import EmitLaunchOptions, write_launch

        more = (options.runtime_version, options.image, options.allow_simulated, options.as_json)
        return write_launch(EmitLaunchOptions(options.tables, form, options.config, folder, *more))
    from dsabench.emit.plugin import build_plugin

    wheel = build_plugin(options.files(), folder)
    print(
        json.dumps({"wheel": str(wheel)})
        if options.as_json
        else f"{wheel}\npip install it beside sglang 0.5.12 or later"
    )
    return 0


def _text(options: EmitOptions) -> int:
    """Launch settings in words: no code reads them, so they are no patch."""
    from dsabench.emit.launch_text import TEXT_FILE, launch_text
    from dsabench.emit.schedulers import write_files

    tables = [file.table for file in read_tables(options.tables)]
    for table in tables:
        require_emittable(table, table.runtime, allow_simulated=options.allow_simulated)
        if table.kind != "launch":
            raise InputError(
                f"{table.file_name}: --as text is for launch settings; `dsabench emit pr` writes of tables"
            )
    folder = options.out or Path("results") / "local-text"
    (path,) = write_files(folder, {TEXT_FILE: launch_text(tables, dsabench.__version__)})
    print(json.dumps([str(path)]) if options.as_json else path)
    return 0


def _patch(options: EmitOptions) -> int:
    if options.runtime is None:
        raise InputError("--as patch needs --runtime: sglang's package folder, a site-packages or a source checkout")
    if len(options.actions) > 1:
        raise InputError(f"--{options.actions[0]} and --{options.actions[1]}: one of them")
    action = options.actions[0] if options.actions else "check"
    tree = find_tree(options.runtime)
    if action == "revert":
        changed = revert_patch(tree)
        _say(options, tree, None, changed=changed, text="reverted" if changed else "nothing is patched")
        return 0
    patch = plan_patch(tree, options.files())
    if action == "diff":
        print(
            json.dumps({"diff": patch.diff()}) if options.as_json else patch.diff(), end="\n" if options.as_json else ""
        )
        return 0
    changed = apply_patch(patch) if action == "apply" else False
    imports = _imports(patch) if changed else None
    words = {
        "clean": "not applied",
        "applied": "applied" if changed else "applied already",
        "other tables": "another set of tables is applied; --apply replaces it",
        "incomplete": "half applied, or left over from another version; --apply or --revert completes",
        "changed since": f"changed since it was patched: {', '.join(changed_since(tree))}; --apply and --revert refuse",
    }
    state = state_of(tree, patch)
    if state not in {"applied", "changed since"}:  # --apply would write
        require_writable(tree, patch.after)
    refused = state == "changed since"  # --apply would be
    _say(options, tree, patch, changed=changed, text=words[state], imports=imports, refused=refused)
    return 2 if refused else 0


def _imports(patch: Patch) -> dict[str, str | None]:
    """Of every changed module; a patch that breaks one is taken back."""
    answers = import_changed(patch.tree, patch.after)
    if (broken := broken_by_patch(answers)) is not None:
        revert_patch(patch.tree)
        raise InputError(f"{patch.tree.package}: taken back, it does not import: {broken}")
    return answers


def _say(
    options: EmitOptions,
    tree: Tree,
    patch: Patch | None,
    *,
    changed: bool,
    text: str,
    imports: dict[str, str | None] | None = None,
    refused: bool = False,
) -> None:
    files = sorted(patch.after) if patch is not None else []
    if options.as_json:
        facts = {
            "runtime": str(tree.package),
            "version": str(tree.version),
            "state": state_of(tree, patch),
            "changed": changed,
            "tables": list(patch.tables) if patch is not None else [],
            "files": files,
            "notes": list(patch.notes) if patch is not None else [],
            **({} if imports is None else {"imports": imports}),
            **({"reason": text} if refused else {}),
        }
        print(json.dumps(facts, indent=1))
        return
    print(f"sglang {tree.version} in {tree.package}: {text}")
    for file in files:
        print(f"  {'adds' if patch is not None and patch.before[file] is None else 'changes'} {file}")
    for note in patch.notes if patch is not None else ():
        print(f"  note: {note}")
    for module, why in (imports or {}).items():
        print(f"  {module}: {'imports' if why is None else 'compiles; cannot be imported here: ' + why}")


def check_tables(given: list[str], runtime: Path | None, device: str | None, *, as_json: bool) -> int:
    """1 where a table does not match what is installed."""
    from dsabench.machine.environment import collect_hardware

    tree = None if runtime is None else find_tree(runtime)
    hardware = run_loop(collect_hardware())
    here = device or (hardware.gpus[0].name if hardware.gpus else None)
    installed = {
        "sglang": installed_at(tree, here, hardware.driver),
        "reference": installed_here(here, hardware.driver),
    }
    files = read_tables(given)
    found = [(file, examine(file.table, installed[file.table.runtime])) for file in files]
    if as_json:
        listed = [{"table": str(file.path), "matches": not why, "reasons": why} for file, why in found]
        print(json.dumps(listed, indent=1))
    else:
        # What several tables have in common is said once.
        for reasons in dict.fromkeys(tuple(why) for _, why in found):
            for file, why in found:
                if tuple(why) == reasons:
                    print(f"{file.path}: {'no longer matches' if why else 'matches'}")
            for reason in reasons:
                print(f"  {reason}")
        if tree is None and any(file.table.runtime == "sglang" for file in files):
            print(
                "--runtime says where sglang and its packages are; no --runtime, so none was looked at", file=sys.stderr
            )
    return 1 if any(why for _, why in found) else 0
