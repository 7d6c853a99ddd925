"""A small package of the runtime's shape, and tables, for tests that need no wheel."""

from __future__ import annotations

from pathlib import Path

from dsabench.emit.tables import File
from dsabench.model.tuned_table import TunedTable

BACKEND = '''"""Ünïcode before the place that is changed."""

from sglang.srt.environ import envs
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend


class Backend:
    def set_nsa_prefill_impl(self, forward_batch=None):
        """Docstring."""
        mha_max_kv_len = (
            capacity() if self.nsa_prefill_impl == "trtllm" else self.nsa_index_topk
        )
        self.use_mha = longest() <= mha_max_kv_len and not is_nsa_enable_prefill_cp()
        # Which kernel — only without MHA
        if not self.use_mha and self.enable_auto_select_prefill_impl:
            self.nsa_prefill_impl = "flashmla_kv"
'''
ARGUMENTS = """class ServerArgs:
    def _set_default_nsa_backends(self, kv_cache_dtype, major):
        if kv_cache_dtype == "fp8_e4m3":
            if self.nsa_prefill_backend is None:
                self.nsa_prefill_backend = "flashmla_kv"
        else:
            self.nsa_prefill_backend = "flashmla_sparse"
"""
VERSION = "__version__ = version = '0.5.9'\n"


def made_tree(folder: Path, *, newline: str = "\n", backend: str = BACKEND) -> Path:
    """`folder/sglang`, which has 0.5.9's form of the threshold and 0.5.12's of the default."""
    files = {
        "_version.py": VERSION,
        "srt/server_args.py": ARGUMENTS,
        "srt/layers/attention/nsa_backend.py": backend,
    }
    for name, text in files.items():
        file = folder / "sglang" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.replace("\n", newline).encode())
    return folder / "sglang"


def made_table(kind: str = "flashmla_auto", rule: dict | None = None, **changes) -> TunedTable:
    """A measured table for an H200 with 16 heads a rank."""
    content = {
        "kind": kind,
        "runtime": "sglang",
        "device": "NVIDIA_H200",
        "heads_per_rank": 16,
        "index_topk": 2048,
        "kv_cache_dtype": "fp8_e4m3",
        "evidence": {"label": "measured", "versions": {"sglang": "0.5.9"}},
        "rule": rule or {"form": "constant", "kernel": "flashmla_sparse"},
        **changes,
    }
    return TunedTable.model_validate(content)


def as_file(table: TunedTable) -> File:
    """As if it had been read."""
    return File(Path(table.file_name), table)
