from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.model.space import base_assignment, canonical, count, is_legal, key_of, legal, require_some
from dsabench.model.study import Axis, SearchSpace


def make_space(axes: Mapping[str, tuple[int, ...]], **rest: object) -> SearchSpace:
    return SearchSpace.model_validate(
        {"axes": [{"name": name, "values": values} for name, values in axes.items()], **rest}
    )


def test_the_shipped_space_leaves_out_what_cannot_run() -> None:
    config = load_study("local")
    found = [dict(assignment) for assignment in legal(config.space, config.runtime.base)]
    kernels = {(one["kv_cache_dtype"], one.get("prefill_backend")) for one in found}
    assert kernels == {
        ("bfloat16", None),
        ("fp8_e4m3", "flashmla_sparse"),
        ("fp8_e4m3", "flashmla_kv"),
        ("fp8_e4m3", "flashmla_auto"),
    }
    assert len(found) == count(config.space, config.runtime.base) == 4 * 4 * 3 * 2 * 2 * 3


def test_conditions_chain_in_whatever_order_the_axes_stand() -> None:
    space = make_space({"c": (0, 1), "b": (0, 1), "a": (0, 1)}, when={"c": {"b": 1}, "b": {"a": 1}})
    assert [axis.name for axis in space.ordered] == ["a", "b", "c"]
    assert [dict(one) for one in legal(space, {})] == [
        {"a": 0},
        {"a": 1, "b": 0},
        {"a": 1, "b": 1, "c": 0},
        {"a": 1, "b": 1, "c": 1},
    ]


def test_a_condition_may_rest_on_the_base() -> None:
    space = make_space({"a": (1, 2)}, when={"a": {"b": 1}})
    assert [dict(one) for one in legal(space, {"b": 1})] == [{"a": 1}, {"a": 2}]
    assert [dict(one) for one in legal(space, {"b": 2})] == [{}]
    assert [dict(one) for one in legal(space, {})] == [{}]


def test_an_inactive_axis_leaves_the_base_in_place_for_other_conditions_and_for_forbid() -> None:
    space = make_space(
        {"a": (0, 1), "b": (5, 6), "c": (8, 9)}, when={"b": {"a": 1}, "c": {"b": 5}}, forbid=[{"b": 5, "c": 9}]
    )
    assert [dict(one) for one in legal(space, {"b": 5})] == [
        {"a": 0, "c": 8},
        {"a": 1, "b": 5, "c": 8},
        {"a": 1, "b": 6},
    ]


def test_forbid_matches_parts_and_counts_the_base() -> None:
    space = make_space({"a": (0, 1), "b": (0, 1)}, forbid=[{"a": 0, "z": 7}])
    assert count(space, {"z": 7}) == 2
    assert count(space, {"z": 8}) == count(space, {}) == 4


def test_no_axes_leave_the_base_alone() -> None:
    assert [dict(one) for one in legal(SearchSpace(axes=()), {"a": 1})] == [{}]
    assert base_assignment(SearchSpace(axes=()), {"a": 1}) == {}


def test_an_empty_space_is_refused() -> None:
    space = make_space({"a": (0, 1), "b": (0,)}, forbid=[{"a": 0}, {"b": 0}])
    with pytest.raises(InputError, match="the search space is empty: 2 forbid rules exclude every combination of a, b"):
        require_some(space, {})
    require_some(SearchSpace(axes=()), {})


def test_conditions_in_a_circle_are_refused() -> None:
    space = make_space({"a": (0,), "b": (0,)}, when={"a": {"b": 0}, "b": {"a": 0}})
    with pytest.raises(InputError, match="form a cycle"):
        next(legal(space, {}))


def test_a_huge_space_is_walked_lazily_and_counted_up_to_a_cap() -> None:
    space = make_space({f"k{i}": tuple(range(10)) for i in range(30)})
    assert next(legal(space, {}))["k29"] == 0
    assert count(space, {}, cap=1000) == 1000
    require_some(space, {})


def test_a_forbidden_subtree_is_not_walked() -> None:
    space = make_space(
        {f"k{i}": tuple(range(10)) for i in range(30)}, forbid=[{"k0": v} for v in range(9)] + [{"k1": 0}]
    )
    assert next(legal(space, {})) | {} == {f"k{i}": (9 if i == 0 else 1 if i == 1 else 0) for i in range(30)}


def test_base_assignment_is_the_base_where_the_space_holds_it() -> None:
    space = make_space({"a": (0, 1), "b": (5, 6)}, when={"b": {"a": 1}})
    assert base_assignment(space, {"a": 1, "b": 6, "z": 3}) == {"a": 1, "b": 6}
    assert base_assignment(space, {"a": 0, "b": 7}) == {"a": 0}
    assert base_assignment(space, {"a": 1, "b": 7}) is None
    assert base_assignment(space, {"b": 5}) is None


def test_canonical_drops_inactive_axes_and_other_knobs() -> None:
    space = make_space({"b": (5, 6), "a": (0, 1)}, when={"b": {"a": 1}})
    assert canonical(space, {"a": 1}, {"a": 0, "b": 6, "z": 1}) == {"a": 0}
    assert canonical(space, {"a": 0}, {"a": 1, "b": 6, "z": 1}) == {"a": 1, "b": 6}


NAMES = ("a", "b", "c", "d")
SETTINGS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), max_size=3)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    names = draw(st.permutations(NAMES))[: draw(st.integers(0, 4))]
    axes = {name: tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))) for name in names}
    # Conditions name only knobs that come earlier in the alphabet, so they never go form a cycle.
    when = {name: {k: v for k, v in draw(SETTINGS).items() if k < name} for name in names}
    space = make_space(axes, when=when, forbid=[rule for rule in draw(st.lists(SETTINGS, max_size=2)) if rule])
    return space.model_copy(update={"axes": tuple(Axis(name=n, values=axes[n]) for n in names)})


@given(spaces(), SETTINGS)
def test_agrees_with_filtering_the_full_product(space: SearchSpace, base: dict[str, int]) -> None:
    product = [
        dict(zip([a.name for a in space.axes], row, strict=True))
        for row in itertools.product(*(a.values for a in space.axes))
    ]
    expected = set()
    for row in product:
        settled, chosen = dict(base), {}
        for name in sorted(row):  # alphabetical: the order in which conditions can depend
            if all(settled.get(k) == v for k, v in space.when[name].items()):
                settled[name] = chosen[name] = row[name]
        if not any(all(settled.get(k) == v for k, v in rule.items()) for rule in space.forbid):
            expected.add(key_of(chosen))
    found = [key_of(one) for one in legal(space, base)]
    assert len(found) == len(set(found)) == count(space, base)
    assert set(found) == expected
    for row in product:
        partial = canonical(space, base, row)
        assert is_legal(space, base, partial) == (key_of(partial) in expected)
        assert is_legal(space, base, row) == (key_of(row) in expected)
    assert not is_legal(space, base, {"unknown": 1})
