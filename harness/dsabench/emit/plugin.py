"""Tuned tables as a wheel that sglang loads by itself: `pip install` it beside sglang 0.5.12 or later."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dsabench.emit.manifest import sha256
from dsabench.emit.payload import payload
from dsabench.emit.tables import File, keys_of, table_json
from dsabench.errors import StoreError

_PACKAGE = "sglang_dsa_tuned"
_METADATA = """\
Metadata-Version: 2.3
Name: sglang-dsa-tuned
Version: {version}
Summary: Tuned DSA tables for sglang: {summary}
License-Expression: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: sglang<0.6,>=0.5.12
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: dsabench
Root-Is-Purelib: true
Tag: py3-none-any
"""
_ENTRY_POINTS = f"""\
[sglang.srt.plugins]
dsa_tuned = {_PACKAGE}.plugin:register
"""
_MADE_AT = (2020, 1, 1, 0, 0, 0)
"""Of every file, so that equal tables give an equal wheel."""
_MODE = 0o100644 << 16


def build_plugin(files: Sequence[File], out: Path) -> Path:
    """Write the wheel into a folder. Equal tables give an equal wheel, byte for byte.

    Raises:
        InputError: two tables with one key.
        StoreError: the folder cannot be written.

    """
    tables = dict(zip(keys_of(files), (table_json(file.table) for file in files), strict=True))
    contents = {f"{_PACKAGE}/dsa_tuned_configs/{name}": text for name, text in tables.items()}
    contents |= {f"{_PACKAGE}/{name}": payload(name) for name in ("dsa_tuned.py", "plugin.py")}
    contents[f"{_PACKAGE}/__init__.py"] = '"""Tuned DSA tables for sglang, applied at start-up."""\n'
    version = "1.0+" + sha256("".join(text for _, text in sorted(contents.items())).encode())[:12]
    summary = ", ".join(sorted({f"{file.table.kind} for {file.table.device}" for file in files}))
    about = f"{_PACKAGE}-{version}.dist-info"
    contents |= {
        f"{about}/METADATA": _METADATA.format(version=version, summary=summary),
        f"{about}/WHEEL": _WHEEL,
        f"{about}/entry_points.txt": _ENTRY_POINTS,
    }
    rows = [(name, f"sha256={_digest(text)}", len(text.encode())) for name, text in sorted(contents.items())]
    record = io.StringIO()
    csv.writer(record, lineterminator="\n").writerows([*rows, (f"{about}/RECORD", "", "")])
    contents[f"{about}/RECORD"] = record.getvalue()
    wheel = out / f"{_PACKAGE}-{version}-py3-none-any.whl"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in sorted(contents.items()):
            info = zipfile.ZipInfo(name, _MADE_AT)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, _MODE
            archive.writestr(info, text)
    try:
        out.mkdir(parents=True, exist_ok=True)
        wheel.write_bytes(made.getvalue())
    except OSError as error:
        with suppress(OSError):
            wheel.unlink(missing_ok=True)
        raise StoreError(f"{out}: {error.strerror}: the wheel was not written") from error
    return wheel


def _digest(text: str) -> str:
    """As RECORD has it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
