"""`--cache-report`: how much of the prompts the server's prefix cache answered (serving.py:1755-1811, 1883-1892)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsabench.load.read.json_stream import ReplyText
from dsabench.model.sample import RequestSample


class CacheReport(NamedTuple):
    """Tokens, of the requests that ended well."""

    prompt_tokens: int
    cached_tokens: int
    device: int | None
    """In the accelerator's memory; None where the server gives no places."""
    host: int | None
    storage: int | None
    """None where there were none."""
    storage_backend: str | None

    @property
    def hit_rate_pct(self) -> float:
        """Share of the prompts' tokens."""
        return self.cached_tokens / self.prompt_tokens * 100 if self.prompt_tokens > 0 else 0.0

    @property
    def places(self) -> dict[str, int]:
        """Shown name → tokens, of the places that the server tells."""
        if self.device is None or self.host is None:
            return {}
        shown = {"Device": self.device, "Host": self.host}
        if self.storage:
            shown[f"Storage ({self.storage_backend})" if self.storage_backend else "Storage"] = self.storage
        return shown

    def as_json(self) -> dict[str, int | float | str | None]:
        """The record's `cache_report`."""
        return {
            "total_prompt_tokens": self.prompt_tokens,
            "total_cached_tokens": self.cached_tokens,
            "cache_hit_rate_pct": round(self.hit_rate_pct, 2),
            "device_cached_tokens": self.device,
            "host_cached_tokens": self.host,
            "storage_cached_tokens": self.storage,
            "storage_backend": self.storage_backend,
        }


def report_cache(samples: Sequence[RequestSample], spoken: Sequence[ReplyText | None]) -> CacheReport:
    """Sum over the requests; a prompt counts as long as the server says, else as long as it was drawn."""
    ended = [(sample, words) for sample, words in zip(samples, spoken, strict=True) if sample.error is None]
    details = [words.cached_tokens_details for _, words in ended if words and words.cached_tokens_details]
    storage = sum(_count(one.get("storage")) for one in details)
    names = [one.get("storage_backend") for one in details if one.get("storage")]
    return CacheReport(
        prompt_tokens=sum(sample.input_tokens or sample.input_len for sample, _ in ended),
        cached_tokens=sum(sample.cached_tokens or 0 for sample, _ in ended),
        device=sum(_count(one.get("device")) for one in details) if details else None,
        host=sum(_count(one.get("host")) for one in details) if details else None,
        storage=storage or None,
        storage_backend=str(names[-1]) if names and names[-1] else None,
    )


def _count(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0
