from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dsakernels import indexer


@given(seed=st.integers(0, 10**6), tokens=st.integers(1, 9), width=st.integers(1, 80), k=st.integers(1, 24))
def test_selects_the_largest_visible_logits_and_of_equal_ones_the_latest(seed, tokens, width, k):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-6, 6, (tokens, width), generator=generator).float()  # with ties
    lengths = torch.randint(1, width + 1, (tokens,), generator=generator)
    chosen = indexer.select(logits.clone(), lengths, k)
    assert chosen.shape == (tokens, k)
    for row, length, picked in zip(logits, lengths.tolist(), chosen, strict=True):
        real = picked[picked >= 0]
        assert len(real) == min(k, length)
        assert len(real.unique()) == len(real)
        assert int(real.max()) < length
        order = sorted(range(length), key=lambda column: (row[column].item(), column))
        assert sorted(real.tolist()) == sorted(order[-len(real) :])


def test_everything_is_chosen_where_it_fits():
    assert indexer.everything(torch.tensor([1, 3]), 4).tolist() == [[0, -1, -1, -1], [0, 1, 2, -1]]
