"""MkDocs hooks: generated reference pages, pages from other folders, and links that lead to the right place.

Pages link to files of the repository, as a reader of the repository needs it. In the site, pages and pictures of other folders are
included; a link to any other file becomes its path as text.
"""

from __future__ import annotations

import posixpath
import re
import runpy
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_PICTURES = (".svg", ".png")
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}  # of the root folder


def _uri(path: Path) -> str | None:
    """Where a file of the repository stands in the site; None if it is not part of it."""
    if path.is_dir():
        path /= "README.md"
    if not path.is_file() or not path.is_relative_to(ROOT):
        return None
    inside = path.relative_to(ROOT)
    if inside.parts[0] == "docs":
        return posixpath.join(*inside.parts[1:]) if path.suffix in {".md", *_PICTURES} else None
    if path.suffix in _PICTURES or (path.suffix == ".md" and inside.parts[0] == "results"):
        return inside.as_posix()
    return _PAGES.get(inside.as_posix())


def _sources() -> dict[str, Path]:
    """Pages outside docs/ by their place in the site."""
    found = [*(ROOT / name for name in _PAGES), *sorted((ROOT / "results").rglob("*.md"))]
    return {uri: path for path in found if (uri := _uri(path)) is not None}


def on_files(files: Files, *, config: Any) -> Files:
    """Add generated pages, pages of other folders, and the pictures that they show."""
    made = runpy.run_path(str(HERE / "reference.py"))
    for uri, text in made["pages"]().items():
        files.append(File.generated(config, uri, content=text))
    added: set[str] = set()
    for uri, path in _sources().items():
        files.append(File.generated(config, uri, content=path.read_text(encoding="utf-8")))
    everything = [*_sources().values(), *sorted((ROOT / "docs").rglob("*.md"))]
    for path in everything:
        for _, _, target, _ in _LINK.findall(path.read_text(encoding="utf-8")):
            picture = (path.parent / target).resolve() if target and "://" not in target else None
            uri = None if picture is None else _uri(picture)
            if picture is not None and uri is not None and picture.suffix in _PICTURES and uri not in added:
                added.add(uri)
                if files.get_file_from_path(uri) is None:
                    files.append(File.generated(config, uri, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Rewrite links from places in the repository to places in the site."""
    del config, files
    source = _sources().get(page.file.src_uri, ROOT / "docs" / page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        uri = _uri((source.parent / target).resolve())
        if uri is None:
            exists = (source.parent / target).resolve()
            shown = exists.relative_to(ROOT).as_posix() if exists.is_relative_to(ROOT) else target
            return f"{text} (`{shown}`)"
        return f"{mark}[{text}]({posixpath.relpath(uri, folder or '.')}{anchor or ''})"

    return _LINK.sub(link, markdown) if source.is_file() else markdown
