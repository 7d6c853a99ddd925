from __future__ import annotations

from typing import Any

import pytest

from dsabench.errors import TrialFault
from dsabench.load.judge.summary import summarise
from dsabench.load.judge.validity import ServerInfoPair
from factories import make_workload
from unit.load.made import run_of, sample

SAME: dict[str, Any] = {"version": "0.5.23", "random_seed": 7, "startup_time": {"total": 31.25}, "uptime_s": 10.0}


@pytest.mark.parametrize(
    ("after", "sign"),
    [
        ({}, None),
        ({"uptime_s": 99.0, "internal_states": [{"last_gen_throughput": 1.0}]}, None),
        ({"random_seed": 8}, "random_seed is another than before the run"),
        ({"startup_time": {"total": 31.5}}, "startup_time is another than before the run"),
        ({"uptime_s": 1.0}, "its counter uptime_s fell from 10 to 1"),
        ({"version": "0.5.24"}, "version is another than before the run"),
    ],
)
def test_a_restart_shows_in_what_a_process_keeps_for_life(after: dict[str, Any], sign: str | None) -> None:
    assert ServerInfoPair(SAME, {**SAME, **after}).restarted == sign


def test_counters_of_the_reference_runtime_only_grow() -> None:
    views = [{"reference": {"counters": {"requests": n}}} for n in (5, 3)]
    assert ServerInfoPair(*views).restarted == "its counter requests fell from 5 to 3"
    assert ServerInfoPair(*reversed(views)).restarted is None


def test_what_a_server_does_not_tell_is_no_sign() -> None:
    assert ServerInfoPair({}, SAME).restarted is None
    assert ServerInfoPair(SAME, {}).restarted is None


def test_a_restart_is_a_fault_worth_another_try() -> None:
    view = ServerInfoPair(SAME, {**SAME, "random_seed": 8})
    with pytest.raises(TrialFault, match="restarted during the run: random_seed") as caught:
        summarise(run_of([sample()], 1.0), make_workload(), view)
    assert (caught.value.kind, caught.value.transient) == ("server_restarted", True)


LIFETIME = {"internal_states": [{"avg_spec_accept_length": 2.0}, {"avg_spec_accept_length": 3.0}, {}]}


@pytest.mark.parametrize("info", [LIFETIME, {"prefill": [{}], "decode": [LIFETIME]}])
def test_the_servers_average_is_a_labelled_fallback(info: dict[str, Any]) -> None:
    view = ServerInfoPair(info, info)
    measured = summarise(run_of([sample()], 1.0), make_workload(), view)
    lifetime = measured.metrics["accept_length.lifetime"]
    assert (lifetime.value, lifetime.n) == (2.5, 2)
    assert "accept_length.mean" not in measured.metrics
    assert any(line.startswith("no request told its accept length") for line in measured.warnings)


def test_what_requests_tell_goes_before_the_servers_average() -> None:
    measured = summarise(run_of([sample(accept_length=1.5)], 1.0), make_workload(), ServerInfoPair(LIFETIME, LIFETIME))
    assert measured.metrics["accept_length.mean"].value == 1.5
    assert "accept_length.lifetime" not in measured.metrics


def test_the_hit_rate_of_this_run_alone_and_of_smaller_buffers() -> None:
    def server(scale: int) -> dict[str, Any]:
        buffer = {"hits": 90 * scale, "misses": 10 * scale, "bytes_in": 7}
        rows = {"0": 2 * scale, "64": 12 * scale, "128": 6 * scale}
        return {"reference": {"counters": {"hot_buffer": buffer, "hot_buffer_rows": rows}}}

    found = ServerInfoPair(server(1), server(3)).hot_buffer
    assert {name: (value.value, value.n) for name, value in found.items()} == {
        "hot_buffer_hit_rate": (0.9, 200),
        "hot_buffer_hit_rate.of_64": (0.6, 40),
        "hot_buffer_hit_rate.of_128": (0.9, 40),
    }
    fresh = {"reference": {"counters": {"hot_buffer": {}, "hot_buffer_rows": {}}}}
    assert ServerInfoPair(fresh, server(1)).hot_buffer["hot_buffer_hit_rate"].n == 100
    assert ServerInfoPair(server(1), server(1)).hot_buffer == {}
    assert ServerInfoPair({}, {"reference": {"counters": None}}).hot_buffer == {}


@pytest.mark.parametrize("states", [None, [], [{"avg_spec_accept_length": 0.0}], ["x"], {"a": 1}])
def test_a_server_without_drafts_has_no_accept_length(states: Any) -> None:
    assert ServerInfoPair({}, {"internal_states": states}).lifetime_accept_length is None
