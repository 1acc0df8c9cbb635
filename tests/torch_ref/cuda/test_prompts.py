"""Attention of prompts that one pass reads, against each by itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks

pytestmark = kernel_marks()  # before imports of modules that it skips

from tests.tolerance import assert_within  # noqa: E402
from tests.torch_ref.cuda.test_attention import POSITIONS, ROTATE, WIDTH, normal  # noqa: E402
from torch_ref.cuda.attention import Pairing  # noqa: E402
from torch_ref.cuda.prompt_attention import attend_prompts  # noqa: E402
from torch_ref.layers.attention import scaled_dot_product_attention  # noqa: E402
from torch_ref.layers.rope import RotaryPositions  # noqa: E402

EPS, TABLE = 1e-2, RotaryPositions(POSITIONS, WIDTH, 10000.0)


def alone(
    projected: Tensor, heads: int, kv_heads: int, pairing: Pairing | None, gains: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """A prompt by itself: the result, its keys and its values. projected: (T, ...)."""
    count, own = len(projected), projected.unflatten(1, (-1, WIDTH)).transpose(0, 1)[None]
    parts = [*own.split([heads, kv_heads, kv_heads], dim=1)]
    for part in range(2):
        if gains is not None:
            parts[part] = F.rms_norm(parts[part], (WIDTH,), gains[part].to(own.dtype), EPS)
        if pairing is not None:
            parts[part] = ROTATE[pairing](parts[part], TABLE(0, count))
    query, key, value = parts
    made = scaled_dot_product_attention(query, key, value, scale=0.3, is_causal=True, enable_gqa=True)
    return made[0].transpose(0, 1).flatten(1), key[0], value[0]


@torch.inference_mode()
@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("pairing", ["halves", "neighbors", None])
@pytest.mark.parametrize(("kv_heads", "group"), [(2, 3), (3, 1)])
def test_prompts_attend_by_themselves(
    kv_heads: int, group: int, pairing: Pairing | None, *, is_normed: bool
) -> None:
    """Of 4, 6 and no positions of 6: keys of their positions are kept, all others stay. Tables end with 6."""
    places, counts, heads = [4, 1, 2], [4, 6, 0], kv_heads * group
    projected = normal(1, 3 * 6, (heads + 2 * kv_heads) * WIDTH)
    gains = normal(4, 2, WIDTH) if is_normed else None
    before = normal(2, 2, 5, kv_heads, 7, WIDTH)
    held = before.clone().to(DEVICE)
    spots = torch.tensor([places, counts], device=DEVICE).T.contiguous()
    made = attend_prompts(
        projected.to(DEVICE), spots, *held, scale=0.3,
        rotation=tuple(one.to(DEVICE) for one in TABLE(0, 6)) if pairing else None,
        pairing=pairing or "halves", gains=None if gains is None else gains.to(DEVICE), eps=EPS,
    )  # fmt: skip
    for text, (place, count) in enumerate(zip(places, counts, strict=True)):
        rows = slice(6 * text, 6 * text + count)
        known, exact = (
            alone(projected[rows].to(dtype), heads, kv_heads, pairing, gains)
            for dtype in (torch.float32, torch.float64)
        )
        found = made[rows], held[0, place, :, :count], held[1, place, :, :count]
        for own, plain, true in zip(found, known, exact, strict=True):
            assert_within(own.cpu().numpy(), plain.numpy(), true.numpy(), f"text {text}")
        held[:, place, :, :count] = before[:, place, :, :count].to(DEVICE)
    torch.testing.assert_close(held.cpu(), before, rtol=0, atol=0)
