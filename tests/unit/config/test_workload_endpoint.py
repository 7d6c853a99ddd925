"""`endpoint` of a workload: what may be sent where, and ids that stay as they were."""

from __future__ import annotations

import pytest

from dsabench.config.load import find_mistakes
from dsabench.model.record import Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import canonical_json
from factories import make_workload

from .conftest import MINIMAL


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("generate", None),
        ("completions", None),
        ("complete", "did you mean completions?"),
        ("chat", "draws token ids, and chat takes text"),
    ],
)
def test_an_endpoint_is_checked_where_it_stands(write, endpoint: str, said: str | None) -> None:
    found = find_mistakes(write(MINIMAL.replace("num_prompts: 2", f"num_prompts: 2, endpoint: {endpoint}")))
    assert [said in str(error) for error in found] == ([] if said is None else [True])
    assert all(error.key == "workloads[0].endpoint" for error in found)


def test_no_endpoint_leaves_no_trace_in_the_id() -> None:
    runtime = RuntimeSpec(kind="external", model="m", base_url="http://127.0.0.1:1")
    plain = Trial(runtime=runtime, workload=make_workload())
    assert "endpoint" not in canonical_json(plain)
    assert plain.id != Trial(runtime=runtime, workload=make_workload(endpoint="generate")).id
