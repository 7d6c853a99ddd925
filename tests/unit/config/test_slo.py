from __future__ import annotations

import pytest

from dsabench.config.load import find_mistakes

from .conftest import MINIMAL


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ("{ttft_ms: 200}", None),
        ("{}", "needs at least one limit"),
        ("{ttft: 3}", "did you mean ttft_ms?"),
        ("{ttft_ms: -1}", "must be greater than 0, not -1"),
    ],
)
def test_an_slo_is_checked_where_it_stands(write, slo: str, said: str | None) -> None:
    found = find_mistakes(write(MINIMAL.replace("num_prompts: 2", f"num_prompts: 2, slo: {slo}")))
    assert [said in str(error) for error in found] == ([] if said is None else [True])
    assert all(error.key is not None and error.key.startswith("workloads[0].slo") for error in found)
