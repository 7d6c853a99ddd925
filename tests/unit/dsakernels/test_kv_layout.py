from __future__ import annotations

import pytest
import torch

from dsakernels.kv_layout import E4M3_MAX, PackedLayout, pack, unpack

LAYOUTS = [PackedLayout(512, 64), PackedLayout(128, 32), PackedLayout(32, 16)]


def test_a_row_of_v32_has_656_bytes():
    assert PackedLayout(512, 64).row_bytes == 656
    assert PackedLayout(512, 64).group == 128


def test_widths_that_cannot_be_aligned_are_refused():
    with pytest.raises(ValueError, match="multiple of 16"):
        PackedLayout(100, 64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spread", [1e-3, 1.0, 300.0])
def test_round_trip_stays_within_the_stated_error(layout, spread):
    rows = torch.randn(200, layout.latent + layout.rope, generator=torch.Generator().manual_seed(1)) * spread
    back = unpack(pack(rows, layout), layout, torch.float32)
    latent = rows[:, : layout.latent].view(200, 4, layout.group)
    error = (back[:, : layout.latent].view_as(latent) - latent).abs()
    step = latent.abs().amax(-1, keepdim=True) / E4M3_MAX
    assert bool((error <= torch.maximum(latent.abs() * 2**-4, step * 2**-9)).all())
    assert torch.equal(back[:, layout.latent :], rows[:, layout.latent :].bfloat16().float())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_e4m3_code_is_decoded_exactly(layout):
    codes = torch.tensor([code for code in range(256) if code & 0x7F != 0x7F], dtype=torch.uint8)
    for scale in (1.0, 0.3125, 2.0**-20):
        packed = torch.zeros(len(codes), layout.row_bytes, dtype=torch.uint8)
        packed[:, : layout.latent] = codes.unsqueeze(1)
        packed[:, layout.latent : layout.latent + 16].view(torch.float32)[:] = scale
        expected = codes.view(torch.float8_e4m3fn).float() * scale
        assert torch.equal(unpack(packed, layout, torch.float32)[:, 0], expected)
        assert torch.equal(unpack(packed, layout, torch.bfloat16)[:, 0], expected.bfloat16())


def test_both_dtypes_unpack_to_the_same_values_up_to_one_rounding():
    layout = PackedLayout(128, 32)
    packed = pack(torch.randn(64, 160), layout)
    assert torch.equal(unpack(packed, layout, torch.bfloat16), unpack(packed, layout, torch.float32).bfloat16())


def test_a_row_of_zeros_stays_zero():
    layout = PackedLayout(32, 16)
    assert not unpack(pack(torch.zeros(3, 48), layout), layout, torch.float32).any()
