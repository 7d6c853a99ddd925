"""Pages of the KV pool, and what is known of their content, so that later requests reuse them.

A full page is known by its tokens and the page in front of it, which is known likewise: the known pages are a tree of
prefixes (SGLang, 2023, section 3, with a page for an edge).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

Place = tuple[int, tuple[int, ...]]
"""The page in front, 0 at the beginning, and the tokens of this one."""


class PagePool:
    """Free pages, and known ones, of which those that nobody uses are given back, least recently used first.

    Page 0 is never given out: padding points at it.
    """

    def __init__(self, pages: int, page_size: int, *, reuse: bool) -> None:
        self.page_size, self.reuse = page_size, reuse
        self.total = pages
        self.evicted = 0
        self.clear()

    def clear(self) -> None:
        """Forget all prefixes. No request may be running."""
        self._free = list(range(self.total, 0, -1))
        self._known: dict[Place, int] = {}
        self._places: dict[int, Place] = {}
        self._users: Counter[int] = Counter()
        """Running requests that read a known page; one in front has at least as many as those behind it."""
        self._unused: dict[int, None] = {}
        """Known pages without users in the order of their last use, each behind all that continue it."""

    @property
    def available(self) -> int:
        """Pages that `take` can give, evictable ones included."""
        return len(self._free) + len(self._unused)

    @property
    def used(self) -> int:
        """Pages that running requests hold."""
        return self.total - self.available

    def match(self, tokens: Sequence[int]) -> list[int]:
        """The longest known path of full pages, short of the last token, which must be computed to get logits."""
        path: list[int] = []
        for chunk in self._chunks(tokens[:-1]):
            page = self._known.get((path[-1] if path else 0, chunk))
            if page is None:
                break
            path.append(page)
        return path

    def hold(self, path: Sequence[int]) -> None:
        """Protect known pages from eviction."""
        for page in path:
            self._users[page] += 1
            self._unused.pop(page, None)

    def release(self, path: Sequence[int]) -> None:
        """Undo one `hold` of a path."""
        for page in reversed(path):  # the last page is the first to be evicted: nothing continues it
            self._users[page] -= 1
            if not self._users[page]:
                self._unused[page] = None

    def take(self, count: int) -> list[int]:
        """Give `count` pages; `available` must be at least that."""
        while count > len(self._free):
            page = next(iter(self._unused))
            del self._unused[page], self._known[self._places.pop(page)]
            self._free.append(page)
            self.evicted += 1
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Return pages whose content is not known."""
        self._free.extend(pages)

    def insert(self, tokens: Sequence[int], pages: Sequence[int], path: list[int]) -> set[int]:
        """Make the full pages of a sequence known, and hold them for the caller.

        `pages[i]` holds the i-th page of `tokens`; `path` is what is held so far and grows to all full pages.
        Returns those of `pages` that are known now; where somebody was faster, the caller keeps its own copy.
        """
        new: set[int] = set()
        chunks = list(self._chunks(tokens)) if self.reuse else []
        for index in range(len(path), len(chunks)):
            place = (path[-1] if path else 0, chunks[index])
            page = self._known.setdefault(place, pages[index])
            if page not in self._places:
                self._places[page] = place
                new.add(page)
            self.hold([page])
            path.append(page)
        return new

    def _chunks(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        size = self.page_size
        for start in range(0, len(tokens) - size + 1, size):
            yield tuple(tokens[start : start + size])
