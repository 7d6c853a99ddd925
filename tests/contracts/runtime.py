"""What every `Runtime` must do. A runtime's test subclasses the suite and gives the fixtures."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from dsabench.errors import InputError, TrialFault
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.ports import is_free
from dsabench.runtimes.protocol import Place, Runtime, Server


class RuntimeContract:
    """Real servers, real sockets."""

    starts_servers = True
    """Whether leaving the context must end the server."""

    @pytest.fixture
    def runtime(self) -> Runtime:
        raise NotImplementedError

    @pytest.fixture
    def spec(self) -> RuntimeSpec:
        """One that boots fast."""
        raise NotImplementedError

    @pytest.fixture
    def illegal(self) -> RuntimeSpec:
        """One that the runtime must refuse."""
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(folder=tmp_path / "boot", ready_timeout_s=60, stop_timeout_s=10)

    async def kill(self, server: Server) -> None:
        """End the server by force, from outside."""
        raise NotImplementedError

    async def test_identity_is_stable(self, runtime: Runtime, spec: RuntimeSpec) -> None:
        identity = await runtime.identity()
        assert identity == await runtime.identity()
        assert identity.kind == spec.kind
        assert identity.version
        assert identity.wheel_hash

    async def test_answers_before_a_boot(self, runtime: Runtime, spec: RuntimeSpec) -> None:
        (checked,) = await asyncio.to_thread(runtime.check, (spec,))
        assert checked.refusal is None
        plan = await asyncio.to_thread(runtime.plan, spec)
        assert bool(plan.processes) is self.starts_servers
        assert plan.processes or plan.note
        assert runtime.gpus(spec) >= 0
        assert [knob.name for knob in runtime.readback(spec, {}, "0.5.23")] == list(spec.knobs)

    async def test_serves_while_the_context_is_open(self, runtime: Runtime, spec: RuntimeSpec, place: Place) -> None:
        said: list[str] = []
        place = dataclasses.replace(place, on_progress=said.append)
        async with runtime.serve(spec, place) as server:
            assert server.boot == place.boot == str(uuid.UUID(server.boot))
            assert 0 <= server.boot_s < 60
            assert server.resolved
            async with aiohttp.ClientSession() as session, session.get(f"{server.base_url}/health") as answer:
                assert answer.status == 200
            assert await server.info()
            await server.flush()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.died(), 0.1)
            port = urlsplit(server.base_url).port
            assert port
        assert is_free(port) == self.starts_servers

    async def test_refuses_what_is_illegal(self, runtime: Runtime, illegal: RuntimeSpec, place: Place) -> None:
        with pytest.raises((TrialFault, InputError)) as caught:
            async with runtime.serve(illegal, place):
                pass
        if isinstance(caught.value, TrialFault):
            assert (caught.value.kind, caught.value.stage) == ("illegal_config", "boot")
            assert not caught.value.transient
        assert "\n" not in str(caught.value)

    async def test_death_is_noticed(self, runtime: Runtime, spec: RuntimeSpec, place: Place) -> None:
        async def use() -> None:
            async with runtime.serve(spec, place) as server:
                await self.kill(server)
                await asyncio.wait_for(server.died(), 60)

        with pytest.raises(TrialFault) as caught:
            await use()
        assert caught.value.kind in {"killed", "unreachable"}
        assert caught.value.stage == "load"
