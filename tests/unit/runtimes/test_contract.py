from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from contracts.runtime import RuntimeContract
from dsabench.model.runtime import RuntimeSpec
from dsabench.reference.runtime import ReferenceRuntime
from dsabench.runtimes.command import Launch
from dsabench.runtimes.deployment import Deployment
from dsabench.runtimes.external import ExternalRuntime
from dsabench.runtimes.orphans import MARK
from dsabench.runtimes.protocol import Place, Runtime, Server

TINY = RuntimeSpec(kind="reference", model="tiny")


class TestReference(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> Runtime:
        return ReferenceRuntime(Launch())

    @pytest.fixture
    def spec(self) -> RuntimeSpec:
        return TINY

    @pytest.fixture
    def illegal(self) -> RuntimeSpec:
        return TINY.model_copy(update={"knobs": {"kv_cache_dtype": "int3"}})

    async def kill(self, server: Server) -> None:
        assert isinstance(server, Deployment)
        os.kill(server.parts[0].process.pid or 0, signal.SIGKILL)


class TestExternal(RuntimeContract):
    starts_servers = False

    @pytest.fixture
    async def theirs(self, tmp_path: Path) -> AsyncIterator[Server]:
        """A server that somebody else started."""
        async with ReferenceRuntime(Launch()).serve(TINY, Place(folder=tmp_path / "theirs")) as server:
            self.pid = server.parts[0].process.pid or 0
            yield server

    @pytest.fixture
    def runtime(self, theirs: Server) -> Runtime:
        return ExternalRuntime(Launch(base_url=theirs.base_url))

    @pytest.fixture
    def spec(self, theirs: Server) -> RuntimeSpec:
        return RuntimeSpec(kind="external", model="tiny", base_url=theirs.base_url)

    @pytest.fixture
    def illegal(self) -> RuntimeSpec:
        return RuntimeSpec(kind="external", model="tiny", base_url="http://127.0.0.1:9", knobs={"dtype": "float32"})

    async def kill(self, server: Server) -> None:
        os.kill(self.pid, signal.SIGKILL)


async def test_every_knob_reaches_the_server(tmp_path: Path) -> None:
    """Flags and variables are accepted by the server, and read back."""
    knobs = {
        "kv_cache_dtype": "fp8_e4m3",
        "prefill_backend": "flashmla_sparse",
        "decode_backend": "flashmla_kv",
        "mha_threshold_tokens": 17,
        "chunked_prefill_size": 256,
        "max_running_requests": 3,
        "max_total_tokens": 4096,
        "context_length": 1024,
        "prefix_cache": False,
        "dtype": "float32",
        "random_seed": 5,
        "cpu_threads": 1,
        "device": "cpu",
        "index_topk_pattern": "FS",
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 3,
    }
    place = dataclasses.replace(Place(folder=tmp_path, ready_timeout_s=60), cores=(min(os.sched_getaffinity(0)),))
    async with ReferenceRuntime(Launch()).serve(TINY.model_copy(update={"knobs": knobs}), place) as server:
        process = psutil.Process(server.parts[0].process.pid)
        assert process.cpu_affinity() == list(place.cores)
        assert process.environ()[MARK] == place.boot
        resolved = server.resolved
    expected = {
        "kv_cache_dtype": "fp8_e4m3",
        "dsa_prefill_backend": "flashmla_sparse",
        "dsa_decode_backend": "flashmla_kv",
        "chunked_prefill_size": 256,
        "max_running_requests": 3,
        "context_length": 1024,
        "disable_radix_cache": True,
        "dtype": "float32",
        "random_seed": 5,
        "device": "cpu",
        "json_model_override_args": '{"index_topk_pattern": "FS"}',
        "speculative_num_steps": 2,
        "speculative_num_draft_tokens": 3,
    }
    assert {name: resolved.get(name) for name in expected} == expected
