"""The highest load that meets an SLO."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.errors import TrialFault
from dsabench.model.workload import Workload
from dsabench.study.capacity import Capacity, find_capacity


def workload(highest: float, lowest: float, probes: int, *, closed: bool, start: float | None = None) -> Workload:
    limit = {"max_concurrency": round(highest)} if closed else {"request_rate": highest}
    return Workload.model_validate(
        {
            "name": "chat",
            "dataset": "random-ids",
            "input_len": 8,
            "output_len": 8,
            "num_prompts": 8,
            "slo": {"ttft_ms": 100},
            "capacity": {"lowest": lowest, "probes": probes, "start": start},
            **limit,
        }
    )


def found(load: Workload, bears: float, fault: str | None = None) -> Capacity:
    """On a server that meets the SLO up to a load, and above it fails, or serves half of the requests in time."""

    async def attainment_at(given: float) -> float:
        if given > bears and fault is not None:
            raise TrialFault(fault, "too much", stage="load")
        return 0.95 if given <= bears else 0.5

    return asyncio.run(find_capacity(load, attainment_at))


@given(
    width=st.integers(1, 2000),
    bears=st.floats(0.5, 4000),
    probes=st.integers(2, 20),
    how=st.tuples(st.booleans(), st.booleans()),
    begun=st.tuples(st.integers(1, 20), st.none() | st.floats(0, 1)),
)
def test_it_is_a_load_that_was_seen_to_meet_the_slo_beside_one_that_was_not(
    width: int, bears: float, probes: int, how: tuple[bool, bool], begun: tuple[int, float | None]
) -> None:
    (closed, fails), (lowest, at) = how, begun
    start = None if at is None else lowest + round(at * width)
    load = workload(lowest + width, lowest, probes, closed=closed, start=start)
    fault = "request_timeout" if fails and bears >= lowest else None
    capacity = found(load, bears, fault)
    loads = [one.load for one in capacity.probes]
    if loads[0] in loads[1:]:
        assert not closed
        assert loads[0] == loads.pop() > bears >= max(loads[1:])
    assert len(loads) == len(set(loads)) <= probes
    assert loads[0] == (lowest + width if start is None else start)
    assert all(lowest <= one <= lowest + width for one in loads)
    assert capacity.load == max((one for one in loads if one <= bears), default=None)
    above = min((one for one in loads if one > bears), default=None)
    if start is None and bears >= lowest + width:
        assert len(loads) == 1
    if capacity.load is None:
        assert loads[-1] == lowest, "it is not said that none bears it before the lowest was tried"
    elif len(loads) < probes and above is None:
        assert capacity.load == lowest + width
    elif len(loads) < probes:
        assert above - capacity.load <= 1 if closed else above / capacity.load <= 1.06


def test_from_a_start_it_goes_in_steps_until_the_slo_breaks() -> None:
    def loads(bears: float, probes: int = 6) -> list[float]:
        return [one.load for one in found(workload(16, 0.25, probes, closed=False, start=1), bears).probes]

    assert loads(2) == [1, 1.5, 2.25, 1.84, 2.03, 1.93]
    assert loads(0.5) == [1, 0.667, 0.445, 0.545, 0.492, 0.518]
    assert loads(0.1) == [1, 0.667, 0.445, 0.297, 0.25]
    assert loads(0.1, probes=3) == [1, 0.667, 0.25]
    assert loads(99, probes=9) == [1, 1.5, 2.25, 3.38, 5.07, 7.61, 11.4, 16]


def test_a_first_rate_that_alone_did_not_meet_it_is_tried_again() -> None:
    def loads(bears: float, *, spoiled: bool = True, closed: bool = False) -> list[float]:
        """On a server that still compiles kernels under its first load."""
        asked: list[float] = []

        async def attainment_at(given: float) -> float:
            asked.append(given)
            return 0.95 if given <= bears and not (spoiled and len(asked) == 1) else 0.875

        load = workload(16, 2, 4, closed=closed, start=8)
        capacity = asyncio.run(find_capacity(load, attainment_at))
        assert [one.load for one in capacity.probes] == asked
        assert capacity.load == max(one for one in asked if one <= bears)
        return asked

    assert loads(13) == [8, 5.33, 6.53, 7.23, 8, 12, 16, 13.9]
    assert loads(7.5, spoiled=False) == [8, 5.33, 6.53, 7.23, 8]
    assert loads(7, spoiled=False) == [8, 5.33, 6.53, 7.23], "another one did not either"
    assert loads(7.5, spoiled=False, closed=True) == [8, 5, 6, 7], "each has its rehearsal"


def test_faults_of_the_lowest_load_and_of_the_server_end_the_trial() -> None:
    load = workload(16, 4, 6, closed=True)
    for fault, bears in (("request_timeout", 2), ("unreachable", 8)):
        with pytest.raises(TrialFault, match="too much"):
            found(load, bears, fault)


def test_a_load_that_fails_is_told() -> None:
    capacity = found(workload(16, 4, 3, closed=True), 8, "request_errors")
    assert [one.words for one in capacity.probes] == ["16: request_errors", "4: 95 %", "8: 95 %"]
    assert capacity.load == 8


def test_a_probe_is_the_workload_at_its_load() -> None:
    for closed, key, value in ((True, "max_concurrency", 6), (False, "request_rate", 6.5)):
        load = workload(16, 4, 3, closed=closed)
        assert load.at_load(value) == load.model_copy(update={key: value, "capacity": None})
