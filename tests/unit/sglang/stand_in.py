"""A package named sglang with a parser of its own and a server that says how it was started, for tests of launching."""

from __future__ import annotations

from pathlib import Path

_SERVER_ARGS = """
import argparse

class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)

class DeprecatedAliasStoreAction(argparse.Action):
    pass

print("a library greets everybody on standard output")

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True)
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=1)
        parser.add_argument("--kv-cache-dtype", choices=["auto", "fp8_e4m3"])
        parser.add_argument("--enable-metrics", action="store_true")
        parser.add_argument("--collect-tokens-histogram", action=DeprecatedAction)
        parser.add_argument("--cuda-graph-max-bs", action=DeprecatedAliasStoreAction, dest="max_bs")
        parser.add_argument("--lora-paths", nargs="*")
"""
_ENVIRON = "NAMES = ['SGLANG_DSA_FUSE_TOPK', 'SGLANG_SOMETHING_NEW']\n"
_LAUNCH = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "env": {k: v for k, v in os.environ.items() if k.startswith("SGLANG_")}}))
sys.exit(7)
"""


def install_stand_in(site: Path, version: str) -> Path:
    """Write the package and its metadata into a folder for PYTHONPATH."""
    srt = site / "sglang" / "srt"
    srt.mkdir(parents=True)
    (site / "sglang" / "__init__.py").write_text("")
    (srt / "__init__.py").write_text("")
    (srt / "server_args.py").write_text(_SERVER_ARGS)
    (srt / "environ.py").write_text(_ENVIRON)
    (site / "sglang" / "launch_server.py").write_text(_LAUNCH)
    info = site / f"sglang-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    record(site, version, "first")
    return site


def record(site: Path, version: str, content: str | None) -> None:
    """The list of the wheel's files; without content there are none, as in an editable install."""
    lines = [f"sglang-{version}.dist-info/RECORD,,", "sglang/__pycache__/__init__.cpython-311.pyc,,"]
    lines += [] if content is None else [f"sglang/__init__.py,sha256={content},0"]
    (site / f"sglang-{version}.dist-info" / "RECORD").write_text("\n".join(lines) + "\n")
