from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

import pytest

from dsabench.errors import InputError, TrialFault
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes import external
from dsabench.runtimes.command import Launch
from dsabench.runtimes.endpoint import Endpoint
from dsabench.runtimes.external import ExternalRuntime
from dsabench.runtimes.protocol import Place
from unit.workshop import Workshop, boot

SERVER = """
import json
settings = json.loads(sys.argv[2])
refusals = [400, 400, 200]

class Sglang(Handler):
    def do_GET(self):
        old = settings.get("old")
        missing = self.path == ("/server_info" if old else "/get_server_info")
        self.answer(404 if missing else 200, json.dumps({**settings, "internal_states": [time.time()]}))
    def do_POST(self):
        self.answer(refusals.pop(0), "busy")
    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

server = listen()
server.RequestHandlerClass = Sglang
server.serve_forever()
"""


def program(workshop: Workshop, settings: str) -> Callable[[int], tuple[str, ...]]:
    script = str(workshop.script(SERVER))
    return lambda port: (sys.executable, "-S", script, str(port), settings)


def spec_of(url: str, **changes: object) -> RuntimeSpec:
    return RuntimeSpec.model_validate({"kind": "external", "model": "m", "base_url": url, **changes})


async def hash_of(workshop: Workshop, settings: str) -> str:
    async with boot(program(workshop, settings), Place(folder=workshop.folder)) as server:
        runtime = ExternalRuntime(Launch(base_url=server.base_url))
        identity = await runtime.identity()
        assert identity == await runtime.identity()
        assert identity.version == "0.5.9"
        return identity.wheel_hash


async def test_identity_is_what_the_server_reports(workshop: Workshop) -> None:
    """Settings tell environments apart; what a new boot draws by chance does not."""
    first = await hash_of(workshop, '{"version": "0.5.9", "kv": "bf16", "random_seed": 1}')
    assert first.startswith("reported:")
    assert await hash_of(workshop, '{"version": "0.5.9", "kv": "bf16", "random_seed": 2}') == first
    assert await hash_of(workshop, '{"version": "0.5.9", "kv": "fp8", "random_seed": 1}') != first
    nested = '{"version": "0.5.9", "old": true, "reference": {"threshold": %d, "counters": {"tokens": %d}}}'
    assert await hash_of(workshop, nested % (1, 1)) == await hash_of(workshop, nested % (1, 2))
    assert await hash_of(workshop, nested % (1, 1)) != await hash_of(workshop, nested % (2, 1))


async def test_identity_of_what_is_no_such_server(workshop: Workshop) -> None:
    with pytest.raises(InputError, match=r"cannot connect.*start the server first"):
        await ExternalRuntime(Launch(base_url="http://127.0.0.1:9")).identity()
    with pytest.raises(InputError, match=r"runtime\.base_url"):
        await ExternalRuntime(Launch()).identity()
    async with boot(program(workshop, "{}"), Place(folder=workshop.folder)) as server:
        with pytest.raises(InputError, match="does not tell its version"):
            await ExternalRuntime(Launch(base_url=server.base_url)).identity()


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"knobs": {"dtype": "x"}}, "dtype"), ({"env": {"A": "1"}}, "A"), ({"base_url": None}, "url")],
)
async def test_refuses_what_it_cannot_set(workshop: Workshop, changes: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        async with ExternalRuntime(Launch()).serve(
            spec_of("http://127.0.0.1:9", **changes), Place(folder=workshop.folder)
        ):
            pass


async def test_nobody_there(workshop: Workshop) -> None:
    with pytest.raises(TrialFault) as caught:
        async with ExternalRuntime(Launch()).serve(spec_of("http://127.0.0.1:9"), Place(folder=workshop.folder)):
            pass
    assert (caught.value.kind, caught.value.stage) == ("unreachable", "boot")


async def test_attached(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "_PULSE_INTERVAL_S", 0.2)
    place = Place(folder=workshop.folder)
    argv = program(workshop, '{"version": "1", "old": true}')
    async with (
        boot(argv, place) as theirs,
        ExternalRuntime(Launch()).serve(spec_of(theirs.base_url + "/"), place) as server,
    ):
        assert server.resolved["version"] == (await server.info())["version"] == "1"
        await server.flush()  # refused twice: requests were running
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.died(), 0.5)
        os.kill(theirs.parts[0].process.pid or 0, signal.SIGKILL)
        with pytest.raises(TrialFault, match="accepts no connection"):
            await asyncio.wait_for(server.died(), 60)
        with pytest.raises(TrialFault, match="cannot connect") as caught:
            await server.info()
    assert caught.value.kind == "unreachable"


async def test_answers_that_are_no_answer(workshop: Workshop) -> None:
    async with boot(program(workshop, '{"version": "1"}'), Place(folder=workshop.folder)) as server:
        endpoint = Endpoint(server.base_url)
        with pytest.raises(TrialFault, match="/get_server_info: HTTP 404"):
            await endpoint.info("load", ("/get_server_info",))
    script = str(workshop.script("listen().serve_forever()"))
    async with boot(lambda port: (sys.executable, "-S", script, str(port)), Place(folder=workshop.folder)) as plain:
        assert await Endpoint(plain.base_url).info("load") == {"version": "1"}
