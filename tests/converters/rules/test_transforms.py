"""Each transform against the torch operation that uses its result, and its predicted shape."""

import numpy as np
import pytest

from converters.files.blocks import blocks
from converters.rules.transforms import (
    CONCAT_ROWS,
    FOLD_WEIGHT_NORM,
    ROWS,
    SAME,
    chain,
    dense,
    even_rows_first,
    mean_of_sums,
    permute,
    split_rows,
)

torch = pytest.importorskip("torch", reason="torch is the oracle of the transforms")


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def apply(transform, *arrays: np.ndarray) -> np.ndarray:
    result = transform.apply(*arrays)
    assert transform.shape(*[array.shape for array in arrays]) == result.shape
    return result


@pytest.mark.parametrize(("into", "out"), [((5,), (3, 4)), ((3, 4), (5,)), ((5,), (2, 7)), ((6,), (5,))])
def test_dense_is_nari_tensordot(into, out):
    kernel, x = random(*into, *out), random(2, *into)
    axes = len(into)
    expected = torch.tensordot(torch.tensor(x), torch.tensor(kernel), dims=axes).reshape(2, -1)
    linear = torch.nn.functional.linear(
        torch.tensor(x).reshape(2, -1), torch.tensor(apply(dense(into, out), kernel))
    )
    torch.testing.assert_close(linear, expected)


def test_dense_slots_become_rows_gate_first():
    kernel = random(5, 2, 7)
    gate_up = apply(dense((5,), (2, 7)), kernel)
    np.testing.assert_array_equal(gate_up[:7], kernel[:, 0].T)
    np.testing.assert_array_equal(gate_up[7:], kernel[:, 1].T)


@pytest.mark.parametrize("columns", [1, ROWS - 1, ROWS, ROWS + 1, 5 * ROWS])
@pytest.mark.parametrize("same", [False, True])
def test_a_result_that_is_filled_from_pieces(columns, same):
    transform, kernel = SAME if same else dense((columns,), (2, 7)), random(columns, 2, 7)
    assert transform.gradual is not None
    expected = apply(transform, kernel)
    found = np.full_like(expected, np.nan)
    transform.gradual.fill(found, blocks(kernel, transform.gradual.size))
    np.testing.assert_array_equal(found, expected)


def test_dense_refuses_swapped_axes_of_the_same_size():
    with pytest.raises(ValueError, match=r"shape \(5, 4, 3\), expected \(5, 3, 4\)"):
        dense((5,), (3, 4)).shape((5, 4, 3))


def test_concat_rows_is_a_sum_of_embeddings_with_offsets():
    tables = [random(6, 4), random(6, 4) + 1, random(6, 4) + 2]
    tokens = torch.tensor([[1, 5, 0], [3, 3, 3]])
    one = torch.tensor(apply(CONCAT_ROWS, *tables))
    expected = sum(
        torch.nn.functional.embedding(tokens[:, c], torch.tensor(table)) for c, table in enumerate(tables)
    )
    found = torch.nn.functional.embedding(tokens + torch.tensor([0, 6, 12]), one).sum(dim=1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("shape", [(3, 4, 7), (5, 2, 16), (4, 6, 1), (1, 9, 7), (8, 32, 7)])
def test_fold_weight_norm_is_torch_weight_norm(shape):
    g, v = np.abs(random(shape[0], 1, 1)) + 0.1, random(*shape)
    expected = torch._weight_norm(
        torch.tensor(v, dtype=torch.float64), torch.tensor(g, dtype=torch.float64), 0
    )
    np.testing.assert_array_equal(apply(FOLD_WEIGHT_NORM, g, v), expected.float().numpy())


def test_fold_weight_norm_keeps_the_input_axis_of_transposed_convolutions():
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.ConvTranspose1d(6, 3, 4), dim=0)
    g, v = (
        getattr(layer.parametrizations.weight, name).detach().numpy() for name in ("original0", "original1")
    )
    assert v.shape == (6, 3, 4)
    torch.testing.assert_close(torch.tensor(apply(FOLD_WEIGHT_NORM, g, v)), layer.weight.detach())


def test_fold_weight_norm_refuses_one_gain_for_all():
    with pytest.raises(ValueError, match="one gain per row"):
        FOLD_WEIGHT_NORM.shape((1, 1, 1), (3, 4, 7))


def test_split_rows_is_torch_split():
    fused = random(9, 4)
    parts = [apply(part, fused) for part in split_rows(4, 2, 3)]
    for part, expected in zip(parts, torch.tensor(fused).split([4, 2, 3]), strict=True):
        np.testing.assert_array_equal(part, expected.numpy())


@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 2, 0)])
def test_permute_is_torch_permute(axes):
    tensor = random(2, 3, 4)
    np.testing.assert_array_equal(apply(permute(axes), tensor), torch.tensor(tensor).permute(axes).numpy())


def test_same():
    tensor = random(2, 3)
    assert apply(SAME, tensor) is tensor


def test_even_rows_first_turns_interleaved_pairs_into_halves():
    """Rotating reordered rows half against half is rotating the original ones in pairs."""
    from torch_ref.layers.rope import rotate, rotate_pairs
    from tts_core.nn.positions import rope_table

    weight, x = random(3 * 8, 5), torch.tensor(random(1, 7, 5))
    rotation = tuple(torch.from_numpy(table) for table in rope_table(7, 8, 100.0))

    def heads(matrix: np.ndarray):
        return (x @ torch.tensor(matrix).T).unflatten(-1, (3, 8)).transpose(1, 2)

    interleaved = rotate_pairs(heads(weight), rotation)
    halves = rotate(heads(apply(even_rows_first(8), weight)), rotation)
    torch.testing.assert_close(halves, torch.cat([interleaved[..., ::2], interleaved[..., 1::2]], dim=-1))


@pytest.mark.parametrize(("head_dim", "rows"), [(3, 6), (4, 6)])
def test_even_rows_first_refuses_uneven_heads(head_dim, rows):
    with pytest.raises(ValueError, match=f"expected rows in heads of {head_dim}"):
        even_rows_first(head_dim).shape((rows, 2))


def test_chain_applies_the_first_first():
    fused = random(12, 3)
    both = chain(split_rows(4, 8)[1], even_rows_first(4))
    np.testing.assert_array_equal(apply(both, fused), fused[[4, 6, 5, 7, 8, 10, 9, 11]])
    with pytest.raises(ValueError, match="expected 12 rows"):
        both.shape((13, 3))


def test_mean_of_sums_divides_as_torch_does_with_a_floor():
    sums, counts = random(5, 3), np.array([2.0, 0.5, 0.0, 1e-6, 7.0], np.float32)
    expected = torch.tensor(sums) / torch.tensor(counts).clamp(min=1e-5)[:, None]
    np.testing.assert_array_equal(apply(mean_of_sums(1e-5), sums, counts), expected.numpy())
    with pytest.raises(ValueError, match="expected one count per row"):
        mean_of_sums(1e-5).shape((5, 3), (3,))
