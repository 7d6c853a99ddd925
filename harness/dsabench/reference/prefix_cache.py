"""Pages of the KV pool, and the tree of prefixes that lets later requests reuse them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Node:
    """One full page whose content is known: these tokens, after those of all its ancestors."""

    tokens: tuple[int, ...]
    page: int
    parent: Node | None
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    users: int = 0
    """Running requests that read this page; an ancestor has at least as many as its descendants."""
    used_at: int = 0

    def __lt__(self, other: Node) -> bool:
        return self.used_at < other.used_at


class PagePool:
    """Free pages, and a prefix tree whose unused pages are given back, least recently used first.

    Page 0 is never given out: padding points at it.
    """

    def __init__(self, pages: int, page_size: int, *, reuse: bool) -> None:
        self.page_size, self.reuse = page_size, reuse
        self.total = pages
        self.evicted = 0
        self._free = list(range(pages, 0, -1))
        self._roots: dict[tuple[int, ...], Node] = {}
        self._unused = 0
        self._clock = itertools.count(1)

    @property
    def available(self) -> int:
        """Pages that `take` can give, evictable ones included."""
        return len(self._free) + self._unused

    @property
    def used(self) -> int:
        """Pages that running requests hold."""
        return self.total - self.available

    def match(self, tokens: Sequence[int]) -> list[Node]:
        """The longest known path of full pages, short of the last token, which must be computed to get logits."""
        path: list[Node] = []
        children = self._roots
        for chunk in self._chunks(tokens[:-1]):
            node = children.get(chunk)
            if node is None:
                break
            path.append(node)
            children = node.children
        return path

    def hold(self, nodes: Sequence[Node]) -> None:
        """Protect pages from eviction."""
        now = next(self._clock)
        for node in nodes:
            self._unused -= node.users == 0
            node.users += 1
            node.used_at = now

    def release(self, nodes: Sequence[Node]) -> None:
        """Undo one `hold`."""
        for node in nodes:
            node.users -= 1
            self._unused += node.users == 0

    def take(self, count: int) -> list[int]:
        """Give `count` pages; `available` must be at least that."""
        if count > len(self._free):
            self._evict(count - len(self._free))
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Return pages that no node owns."""
        self._free.extend(pages)

    def insert(self, tokens: Sequence[int], pages: Sequence[int], known: list[Node]) -> list[int]:
        """Make the full pages of a sequence findable; they become the tree's and are held for the caller.

        `pages[i]` holds the i-th page of `tokens`; `known` is the path held so far and grows to the whole path.
        Returns the pages that the tree took; where somebody was faster, the caller keeps its own copy.
        """
        if not self.reuse:
            return []
        taken: list[int] = []
        for index, chunk in enumerate(self._chunks(tokens)):
            if index < len(known):
                continue
            parent = known[-1] if known else None
            siblings = self._roots if parent is None else parent.children
            node = siblings.get(chunk)
            if node is None:
                node = siblings[chunk] = Node(chunk, pages[index], parent)
                taken.append(node.page)
                self._unused += 1  # until it is held, one line below
            self.hold([node])
            known.append(node)
        return taken

    def clear(self) -> None:
        """Forget all prefixes. No request may be running."""
        self._roots.clear()
        self._unused = 0
        self._free = list(range(self.total, 0, -1))

    def _chunks(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        size = self.page_size
        for start in range(0, len(tokens) - size + 1, size):
            yield tuple(tokens[start : start + size])

    def _evict(self, count: int) -> None:
        leaves = [node for node in self._walk() if not node.children and node.users == 0]
        heapq.heapify(leaves)
        for _ in range(count):
            node = heapq.heappop(leaves)
            siblings = self._roots if node.parent is None else node.parent.children
            del siblings[node.tokens]
            self._free.append(node.page)
            parent = node.parent
            if parent is not None and not parent.children and parent.users == 0:
                heapq.heappush(leaves, parent)
        self._unused -= count
        self.evicted += count

    def _walk(self) -> Iterator[Node]:
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
