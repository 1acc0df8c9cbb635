"""Attention of single rows against the plain one: each row with a position, or a length, of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda import attention
from torch_ref.cuda.attention import Pairing, attend, attend_source, workspace
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.rope import RotaryPositions, rotate, rotate_pairs

pytestmark = kernel_marks()

WIDTH, POSITIONS = 16, 300
ROTATE = {"halves": rotate, "neighbors": rotate_pairs}


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def on(device: str, dtype: torch.dtype, *tensors: Tensor) -> list[Tensor]:
    return [one.to(device, dtype) for one in tensors]


def plain(
    projected: Tensor,
    at: list[int],
    keys: Tensor,
    values: Tensor,
    pairing: Pairing | None,
    dtype: torch.dtype,
    scale: float = 0.3,
) -> tuple[Tensor, Tensor, Tensor]:
    """Row by row, each with its own ring: the result, and the rings after it."""
    projected, keys, values = on("cpu", dtype, projected, keys.clone(), values.clone())
    kv_heads, capacity = keys.shape[1:3]
    heads, found = projected.shape[1] // WIDTH - 2 * kv_heads, []
    for row, place in enumerate(at):
        query, key, value = (
            projected[row].unflatten(0, (1, -1, 1, WIDTH)).split([heads, kv_heads, kv_heads], 1)
        )
        if pairing is not None:
            rotation = RotaryPositions(POSITIONS, WIDTH, 10000.0)(place, 1)
            query, key = ROTATE[pairing](query, rotation), ROTATE[pairing](key, rotation)
        keys[row, :, place % capacity], values[row, :, place % capacity] = key[0, :, 0], value[0, :, 0]
        seen = min(place + 1, capacity)
        rings = keys[row : row + 1, :, :seen], values[row : row + 1, :, :seen]
        found.append(scaled_dot_product_attention(query, *rings, scale=scale, enable_gqa=True).flatten())
    return torch.stack(found), keys, values


@torch.inference_mode()
@pytest.mark.parametrize("programs", [0, 400])
@pytest.mark.parametrize("pairing", ["halves", "neighbors", None])
@pytest.mark.parametrize(("kv_heads", "group"), [(2, 4), (3, 1), (1, 3)])
@pytest.mark.parametrize("at", [[0, 5], [23, 24], [25, 200], [47, 1]], ids=str)
@pytest.mark.parametrize("capacity", [24, 300])
def test_attend(
    capacity: int,
    at: list[int],
    kv_heads: int,
    group: int,
    pairing: Pairing | None,
    programs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ring not full, just full and wrapped; one program a head, or as many as there may be."""
    monkeypatch.setattr(attention, "PROGRAMS", programs)
    monkeypatch.setattr(attention, "BLOCK", 256)
    keys, values = normal(1, 2, 2, kv_heads, capacity, WIDTH)
    projected = normal(2, 2, (group + 2) * kv_heads * WIDTH)
    work = workspace(2, group * kv_heads, kv_heads, WIDTH, torch.device(DEVICE))
    tables = RotaryPositions(POSITIONS, WIDTH, 10000.0).to(DEVICE)(0, POSITIONS)
    ring = on(DEVICE, torch.float32, keys.clone(), values.clone())
    own = attend(
        projected.to(DEVICE),
        torch.tensor(at, device=DEVICE),
        ring[0],
        ring[1],
        work,
        scale=0.3,
        rotation=None if pairing is None else tables,
        pairing=pairing or "halves",
    )
    known, *rings = plain(projected, at, keys, values, pairing, torch.float32)
    exact, *_ = plain(projected, at, keys, values, pairing, torch.float64)
    assert_within(own.cpu().numpy(), known.numpy(), exact.numpy(), f"at {at} of {capacity}")
    for mine, other in zip(ring, rings, strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=0, atol=1e-6)
    assert not work.arrivals.any()


@torch.inference_mode()
@pytest.mark.parametrize("turned", [True, False])
def test_normed_queries_and_keys_at_angles_of_their_own(turned: bool) -> None:
    """Norms come before the rotation, whose positions need not be those of the ring."""
    keys, values = normal(1, 2, 2, 2, 24, WIDTH)
    projected, gains, at, angles = normal(2, 2, 8 * WIDTH), normal(3, 2, WIDTH), [7, 20], [6, 150]
    tables = RotaryPositions(POSITIONS, WIDTH, 10000.0)
    work = workspace(2, 4, 2, WIDTH, torch.device(DEVICE), most=1)
    ring = on(DEVICE, torch.float32, keys.clone(), values.clone())
    own = attend(
        projected.to(DEVICE),
        torch.tensor(at, device=DEVICE),
        ring[0],
        ring[1],
        work,
        scale=1.0,
        rotation=tables.to(DEVICE)(0, POSITIONS) if turned else None,
        angles=torch.tensor(angles, device=DEVICE),
        gains=gains.to(DEVICE),
        eps=1e-2,
    )
    assert work.splits == 1

    def ready(dtype: torch.dtype) -> Tensor:
        """Normed and rotated numbers, for plain attention."""
        parts = projected.to(dtype).unflatten(1, (8, 1, WIDTH)).split([4, 2, 2], 1)
        made = []
        for part, gain in zip(parts, gains, strict=False):
            normed = torch.nn.functional.rms_norm(part, (WIDTH,), gain.to(dtype), 1e-2)
            rows = [
                rotate(row[None], tables.cpu()(place, 1)) for row, place in zip(normed, angles, strict=True)
            ]
            made.append(torch.cat(rows) if turned else normed)
        return torch.cat((*made, parts[2]), 1).flatten(1)

    known, *_ = plain(ready(torch.float32), at, keys, values, None, torch.float32, scale=1.0)
    exact, *_ = plain(ready(torch.float64), at, keys, values, None, torch.float64, scale=1.0)
    assert_within(own.cpu().numpy(), known.numpy(), exact.numpy(), "normed")


@torch.inference_mode()
def test_one_position_for_all_rows() -> None:
    keys, values = normal(1, 2, 2, 2, 24, WIDTH)
    projected = normal(2, 2, 8 * WIDTH).to(DEVICE)
    work = workspace(2, 4, 2, WIDTH, torch.device(DEVICE))
    rows = []
    for at in ([7], [7, 7]):
        ring = on(DEVICE, torch.float32, keys.clone(), values.clone())
        places = torch.tensor(at, device=DEVICE)
        rows.append(attend(projected, places, ring[0], ring[1], work, scale=1.0))
    torch.testing.assert_close(*rows, rtol=0, atol=0)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("pairing", ["halves", None])
@pytest.mark.parametrize(("kv_heads", "group"), [(2, 2), (3, 1)])
def test_attend_source(
    kv_heads: int, group: int, pairing: Pairing | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of different lengths; rows after a text's end are not read."""
    monkeypatch.setattr(attention, "BLOCK", 256)
    lengths, at = [1, 33, 64], [4, 90, 0]
    keys, values = normal(1, 2, 3, kv_heads, 64, WIDTH).to(dtype)
    queries = normal(2, 3, group * kv_heads * WIDTH).to(dtype)
    work = workspace(3, group * kv_heads, kv_heads, WIDTH, torch.device(DEVICE))
    tables = RotaryPositions(POSITIONS, WIDTH, 10000.0)
    beyond = torch.arange(64)[None, :] >= torch.tensor(lengths)[:, None]
    poisoned = [one.masked_fill(beyond[:, None, :, None], torch.nan).to(DEVICE) for one in (keys, values)]
    own = attend_source(
        queries.to(DEVICE),
        torch.tensor(lengths, device=DEVICE),
        torch.tensor(at, device=DEVICE),
        poisoned[0],
        poisoned[1],
        work,
        scale=0.3,
        rotation=None if pairing is None else tables.to(DEVICE)(0, POSITIONS),
    )

    def exactly(kind: torch.dtype) -> Tensor:
        found = []
        for row, (length, place) in enumerate(zip(lengths, at, strict=True)):
            query = queries[row].unflatten(0, (1, -1, 1, WIDTH))
            if pairing is not None:
                query = rotate(query, RotaryPositions(POSITIONS, WIDTH, 10000.0)(place, 1))
            seen = keys[row : row + 1, :, :length], values[row : row + 1, :, :length]
            query, key, value = on("cpu", kind, query, *seen)
            found.append(
                scaled_dot_product_attention(query, key, value, scale=0.3, enable_gqa=True).flatten()
            )
        return torch.stack(found)

    if dtype == torch.float32:
        exact = exactly(torch.float64)
        assert_within(own.cpu().numpy(), exactly(dtype).numpy(), exact.numpy(), f"lengths {lengths}")
    else:  # weights are rounded to the dtype before their product, as torch's fused kernels do
        torch.testing.assert_close(own.cpu().double(), exactly(torch.float64), rtol=0, atol=4e-3)
