from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dsabench.reference.engine.kv_cache import PagePool

PAGE, PAGES = 2, 8


def take_and_insert(pool: PagePool, tokens: list[int]) -> None:
    known = pool.match([*tokens, -1])
    pool.hold(known)
    pages = known + pool.take(len(tokens) // PAGE - len(known))
    pool.insert(tokens, pages, known)
    pool.release(known)


def test_a_prefix_is_found_page_by_page_but_never_the_last_token():
    pool = PagePool(PAGES, PAGE, reuse=True)
    take_and_insert(pool, [1, 2, 3, 4, 5, 6])
    assert len(pool.match([1, 2, 3, 4, 9, 9])) == 2
    assert len(pool.match([1, 2, 3, 9])) == 1
    assert len(pool.match([1, 2, 3, 4, 5, 6])) == 2
    assert len(pool.match([1, 2, 3, 4, 5, 6, 7])) == 3
    assert not pool.match([9, 2, 3, 4])


def test_the_least_recently_used_leaf_goes_first():
    pool = PagePool(4, PAGE, reuse=True)
    take_and_insert(pool, [1, 1, 2, 2])
    take_and_insert(pool, [3, 3])
    take_and_insert(pool, [1, 1])  # used again, and so is not the oldest
    pool.give_back(pool.take(2))
    assert [len(pool.match([*tokens, 0])) for tokens in ([1, 1, 2, 2], [3, 3])] == [1, 1]
    pool.give_back(pool.take(3))
    assert [len(pool.match([*tokens, 0])) for tokens in ([1, 1, 2, 2], [3, 3])] == [1, 0]
    assert pool.evicted == 2


def test_without_reuse_nothing_is_kept():
    pool = PagePool(PAGES, PAGE, reuse=False)
    assert pool.insert([1, 2, 3, 4], pool.take(2), []) == set()
    assert not pool.match([1, 2, 3, 4])


class Requests(RuleBasedStateMachine):
    """Requests come, share, finish and are aborted in any order; no page is ever lost or in two places."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(PAGES, PAGE, reuse=True)
        self.running: list[tuple[list[int], list[int], list[int], set[int]]] = []

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=10))
    def admit(self, tokens):
        known = self.pool.match(tokens)
        assert len(known) <= (len(tokens) - 1) // PAGE
        self.pool.hold(known)
        missing = -(-len(tokens) // PAGE) - len(known)
        if missing > self.pool.available:
            self.pool.release(known)
            return
        fresh = self.pool.take(missing)
        self.running.append((tokens, known, known + fresh, set(fresh)))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), publish=st.booleans())
    def publish_or_finish(self, data, publish):
        index = data.draw(st.integers(0, len(self.running) - 1))
        tokens, known, pages, own = self.running[index]
        own -= self.pool.insert(tokens, pages, known)
        if not publish:
            self.pool.release(known)
            self.pool.give_back(sorted(own))
            del self.running[index]

    @precondition(lambda self: not self.running)
    @rule()
    def clear(self):
        self.pool.clear()
        assert self.pool.available == PAGES

    @invariant()
    def every_page_is_in_one_place(self):
        pool = self.pool
        places = Counter(pool._free) + Counter(pool._places.keys())
        for *_, own in self.running:
            places += Counter(own)
        assert places == Counter(range(1, PAGES + 1))
        assert pool._known == {place: page for page, place in pool._places.items()}
        users = Counter(page for _, known, *_ in self.running for page in known)
        assert set(pool._unused) == pool._places.keys() - users.keys()
        assert all(pool._users[page] == users[page] for page in pool._places)
        assert pool.used == PAGES - len(pool._free) - len(pool._unused)
        evicted_before = set()
        for page in pool._unused:
            assert pool._places[page][0] not in evicted_before, "a page goes before what it continues"
            evicted_before.add(page)


TestRequests = Requests.TestCase
TestRequests.settings = settings(stateful_step_count=30)
