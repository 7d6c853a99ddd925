from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Callable

import pytest

from dsabench.errors import TrialFault
from dsabench.runtimes import ports
from dsabench.runtimes.locks import lock_folder, try_lock
from dsabench.runtimes.ports import PortLease, is_free
from dsabench.runtimes.protocol import Place
from unit.workshop import Workshop, boot

Argv = Callable[[int], tuple[str, ...]]


def program(workshop: Workshop, body: str) -> Argv:
    script = str(workshop.script(body))
    return lambda port: (sys.executable, "-S", script, str(port))


def place_of(workshop: Workshop, **changes: float) -> Place:
    return dataclasses.replace(Place(folder=workshop.folder / "boot", ready_timeout_s=60, stop_timeout_s=3), **changes)


async def fault_of(argv: Argv, place: Place, **env: str) -> TrialFault:
    with pytest.raises(TrialFault) as caught:
        async with boot(argv, place, **env):
            pass
    return caught.value


async def test_serves_while_open(workshop: Workshop) -> None:
    said: list[str] = []
    place = dataclasses.replace(place_of(workshop), on_progress=said.append)
    body = "print('loading'); time.sleep(1.3); listen().serve_forever()"
    async with boot(program(workshop, body), place) as server:
        port = int(server.base_url.rpartition(":")[2])
        assert server.boot == place.boot
        assert 1.2 < server.boot_s < 60
        assert await server.info() == {"version": "1"}
        await server.flush()
        assert not is_free(port)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.died(), 0.1)
    assert is_free(port)
    assert said[-1] == "loading"


async def test_crash_during_boot_is_noticed(workshop: Workshop) -> None:
    body = "raise RuntimeError('Not enough memory. Please try to increase')"
    fault = await fault_of(program(workshop, body), place_of(workshop, ready_timeout_s=60))
    assert (fault.kind, fault.stage) == ("out_of_memory", "boot")
    assert fault.message == "RuntimeError: Not enough memory. Please try to increase"
    assert "Traceback" in fault.log_tail


@pytest.mark.timing  # the program has to say its line within the limit
async def test_never_ready(workshop: Workshop) -> None:
    fault = await fault_of(program(workshop, "print('still loading'); hang()"), place_of(workshop, ready_timeout_s=0.5))
    assert (fault.kind, fault.log_tail) == ("boot_timeout", "still loading")
    assert fault.message.startswith("not ready after 0.5 s (last answer: cannot connect")


@pytest.mark.timing  # the server has to listen within the limit
async def test_never_healthy(workshop: Workshop) -> None:
    fault = await fault_of(
        program(workshop, "Handler.status = 503; listen().serve_forever()"), place_of(workshop, ready_timeout_s=0.6)
    )
    assert "HTTP 503" in fault.message


async def test_dies_after_ready(workshop: Workshop) -> None:
    async def use() -> None:
        async with boot(program(workshop, "listen().serve_forever()"), place_of(workshop)) as server:
            os.kill(server.parts[0].process.pid or 0, signal.SIGKILL)
            await server.died()

    with pytest.raises(TrialFault) as caught:
        await asyncio.wait_for(use(), 60)
    assert (caught.value.kind, caught.value.transient) == ("killed", True)


async def test_taken_port_is_tried_on_the_next(workshop: Workshop) -> None:
    """The first boot meets a port that is listened on already; the second gets another."""
    body = f"""
first_time = not os.path.exists({str(workshop.folder / "second")!r})
open({str(workshop.folder / "second")!r}, "w").close()
if first_time:
    taken = listen()
listen().serve_forever()
"""
    async with boot(program(workshop, body), place_of(workshop)) as server:
        assert "Address already in use" in server.parts[0].process.command.log.read_text()
        assert "Address already in use" not in server.parts[0].process.log_tail()


async def test_port_that_is_always_taken_is_a_transient_fault(workshop: Workshop) -> None:
    fault = await fault_of(program(workshop, "a = listen(); listen()"), place_of(workshop))
    assert (fault.kind, fault.stage, fault.transient) == ("port_in_use", "boot", True)


async def test_port_left_open_is_told(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else listens there when the server is gone: nothing that follows could be trusted."""
    monkeypatch.setattr(ports, "_FREE_TIMEOUT_S", 0.2)

    async def use() -> None:
        async with boot(program(workshop, "listen().serve_forever()"), place_of(workshop)) as server:
            os.kill(server.parts[0].process.pid or 0, signal.SIGKILL)
            with pytest.raises(TrialFault):
                await server.died()
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("127.0.0.1", int(server.base_url.rpartition(":")[2])))
            squatter.listen()

    with socket.socket() as squatter, pytest.raises(TrialFault, match="still open") as caught:
        await use()
    assert (caught.value.kind, caught.value.stage) == ("not_gone", "stop")


async def test_port_leases_differ_and_leave_no_file() -> None:
    async with PortLease() as one, PortLease() as other:
        assert one.port != other.port
        assert is_free(one.port)
        files = [lock_folder() / f"port-{lease.port}.lock" for lease in (one, other)]
        assert [try_lock(file) for file in files] == [None, None]
    assert not any(file.exists() for file in files)


async def test_folder_that_cannot_be_made(workshop: Workshop) -> None:
    (workshop.folder / "boot").write_text("a file")
    fault = await fault_of(program(workshop, "hang()"), place_of(workshop))
    assert (fault.kind, fault.stage) == ("missing_file", "boot")
    assert fault.message.endswith("boot: File exists")


async def test_secrets_stay_out_of_the_record(workshop: Workshop) -> None:
    body = "print('using', os.environ['HF_TOKEN'], os.environ['PLAIN']); sys.exit(1)"
    fault = await fault_of(program(workshop, body), place_of(workshop), HF_TOKEN="hf_abcdef", PLAIN="visible")
    assert fault.log_tail == "using <HF_TOKEN> visible"
    assert "hf_abcdef" not in fault.message
