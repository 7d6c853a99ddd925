"""The overview and every study in one HTML file that needs no other: to attach, to commit, to send."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from dsabench.errors import StoreError

_MAIN = re.compile(r"<main>(.*)</main>", re.DOTALL)
_STUDY = re.compile(r'href="(?:\.\./)?studies/([^"#]+)\.html(?:#([^"]*))?"')
_ELSEWHERE = re.compile(
    r'<a\b[^>]*href="(?:\.\./)?(?:records|evals|kernels|tables|history)\b[^"]*"[^>]*>(.*?)</a>', re.DOTALL
)
"""A link to a page that the file does not hold; an anchor holds no other."""
_POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")[^"]*(">)')
_LINKED = re.compile(r'<link rel="stylesheet"[^>]*>|<script[^>]*></script>')


def write_one_file(site: Path, file: Path) -> None:
    """Write the file from a site that was built.

    Raises:
        StoreError: a file cannot be read or written.

    """
    try:
        text = _merged(site)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{error.filename or file}: {error.strerror or error}: the report was not written") from error


def _merged(site: Path) -> str:
    index, style, script = ((site / name).read_text(encoding="utf-8") for name in ("index.html", "site.css", "site.js"))
    names = list(dict.fromkeys(name for name, _ in _STUDY.findall(index)))
    studies = (_main((site / "studies" / f"{name}.html").read_text(encoding="utf-8"), name) for name in names)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head, _, rest = _LINKED.sub("", index).partition("</head>")
    head = _POLICY.sub(lambda found: f"{found[1]}{policy}{found[2]}", head)
    foot = rest.partition("</main>")[2].replace("</body>", f"<script>{script}</script></body>")
    body = '<body><header class="top"><a class="brand" href="#">dsabench</a></header><main>'
    sections = "".join(
        f'<article id="{name}" class="part">{html}</article>' for name, html in zip(names, studies, strict=True)
    )
    return f"{head}<style>{style}</style></head>{body}{_inside(_main_of(index))}{sections}</main>{foot}"


def _main_of(page: str) -> str:
    found = _MAIN.search(page)
    assert found is not None, "every page has one"
    return found[1]


def _main(page: str, name: str) -> str:
    """A study's page, its ids told apart from the other studies'."""
    html = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', _main_of(page))
    html = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', html)
    return _inside(re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", html))


def _inside(html: str) -> str:
    """With links to other pages led to their places in this one, or taken off."""
    html = _STUDY.sub(lambda found: f'href="#{found[1]}{f"-{found[2]}" if found[2] else ""}"', html)
    return _ELSEWHERE.sub(r"\1", html)
