"""torch_ref's attention: every case under every policy, its contract, memory and gradients."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import torch_ref.layers.attention
from benchmarks.limits.workloads import pairs
from tests.torch_ref.layers.attention_cases import CASES, TWO_ROWS, causal_fault, fault, inputs, native
from torch_ref.layers.attention import AttentionPolicy, scaled_dot_product_attention
from torch_ref.limits import Backend, enforce, observe
from tts_core.errors import ResourceError
from tts_core.nn.attention import AttentionSizes, block_sizes, lane_spans

pytestmark = pytest.mark.rest

attend: Callable[..., Tensor] = scaled_dot_product_attention
POLICIES = {
    "13 rows, 17 keys": AttentionPolicy(13, 17, native=False),
    "64 KiB": AttentionPolicy(budget_bytes=64 * 1024, native=False),
    "one block": AttentionPolicy(native=False),
    "native": AttentionPolicy(),
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda), pytest.param("mps", marks=pytest.mark.mps)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", CASES)
def test_cases(name, policy, device):
    def candidate(*tensors: Tensor, **options: Any) -> Tensor:
        moved = {key: x.to(device) if isinstance(x, Tensor) else x for key, x in options.items()}
        out = attend(*(x.to(device) for x in tensors), **moved, policy=POLICIES[policy])
        return out.cpu()

    assert fault(candidate, name) is None


@pytest.mark.parametrize("k_chunk", [1, 3, None])
@pytest.mark.parametrize("name", TWO_ROWS)
def test_a_block_of_two_rows_sees_no_future_key(name, k_chunk):
    rows, keys, q_chunk = TWO_ROWS[name]
    policy = AttentionPolicy(q_chunk, k_chunk, native=False)
    assert causal_fault(lambda *x, **options: attend(*x, **options, policy=policy), rows, keys) is None


def test_causal_blocks_of_every_small_size():
    faults = {}
    for rows, keys, q_chunk, k_chunk in itertools.product(
        (1, 2, 3, 5), (1, 2, 4, 5, 7), (1, 2, 3), (1, 2, 3)
    ):
        policy = AttentionPolicy(q_chunk, k_chunk, native=False)
        found = causal_fault(lambda *x, p=policy, **options: attend(*x, **options, policy=p), rows, keys)
        if found:
            faults[rows, keys, q_chunk, k_chunk] = found
    assert not faults


# As on MPS

ALWAYS = {"mask-dtype-cached"}
TO_2_12 = ALWAYS | {"half-causal", "scale-cached", "mask-broadcast"}
RULES_MET = {  # by the cases through torch's own function
    "2.11.0": TO_2_12 | {"value-width"},
    "2.12.1": TO_2_12,
    "2.13.0": ALWAYS,
    "2.14.1": ALWAYS,
    "2.15.0": ALWAYS,
}


@pytest.mark.parametrize("backend", [*pairs(), Backend("cuda", "2.11.0", chip="9.0")], ids=str)
def test_cases_break_no_rule(backend):
    def candidate(*tensors: Tensor, **options: Any) -> Tensor:
        with enforce(backend):
            return attend(*tensors, **options)

    faults = {name: fault(candidate, name) for name in CASES}
    assert not any(faults.values()), faults


@pytest.mark.parametrize("backend", pairs(), ids=str)
def test_the_same_cases_break_rules_without_us(backend):
    calls = [inputs(name) for name in CASES]
    with observe(backend) as watch:
        for tensors, options in calls:
            native(*tensors, **options)
    assert {rule.removeprefix("sdpa-") for rule in watch.broken} == RULES_MET[backend.torch]


# The contract


def draw(*shape: int, **options: Any) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), **options)


BLOCKS = AttentionPolicy(native=False)


@pytest.mark.parametrize("policy", [BLOCKS, AttentionPolicy()])
def test_mask_and_causal_together_are_refused(policy):
    x = draw(1, 2, 4, 8)
    with pytest.raises(ValueError, match="both attn_mask and is_causal are given"):
        attend(x, x, x, torch.ones(4, 4, dtype=torch.bool), is_causal=True, policy=policy)


@pytest.mark.parametrize(
    ("shapes", "mask", "message"),
    [
        (((1, 2, 4, 8), (1, 2, 5, 9), (1, 2, 5, 8)), None, "query and key share E"),
        (((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 6, 8)), None, "key and value share S"),
        (((1, 3, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)), None, "give a multiple"),
        (((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)), (5,), "does not broadcast"),
        (((1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)), (3, 5), "does not broadcast"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, mask, message):
    bias = None if mask is None else torch.zeros(mask)
    with pytest.raises(ValueError, match=message):
        attend(*(draw(*shape) for shape in shapes), bias, enable_gqa=True, policy=BLOCKS)


def test_dtypes_that_differ_are_named():
    x = draw(1, 2, 4, 8)
    with pytest.raises(ValueError, match=r"dtypes torch\.float32, torch\.float16"):
        attend(x, x.half(), x.half(), policy=BLOCKS)


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["q_chunk", "k_chunk", "budget_bytes"])
def test_policies_of_nothing_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        AttentionPolicy(**{name: value})


def test_a_budget_below_one_row_is_refused_with_what_it_takes():
    x = draw(1, 1, 4, 64)
    with pytest.raises(ResourceError, match="allow at least") as error:
        attend(x, x, x, policy=AttentionPolicy(budget_bytes=100, native=False))
    least = int(str(error.value).split()[-1])
    attend(x, x, x, policy=AttentionPolicy(budget_bytes=least, native=False))


def test_batches_and_heads_broadcast():
    query, key, value = draw(2, 3, 5, 8), draw(1, 3, 7, 8), draw(2, 1, 7, 8)
    expected = native(query, key.expand(2, 3, 7, 8), value.expand(2, 3, 7, 8))
    got = attend(query, key, value, policy=AttentionPolicy(2, 3, native=False))
    assert torch.allclose(got, expected, atol=1e-6)


def test_float64_is_summed_in_float64():
    x = [draw(1, 2, 9, 8, dtype=torch.float64) for _ in range(3)]
    got = attend(*x, policy=AttentionPolicy(4, 4, native=False))
    assert torch.allclose(got, native(*x), atol=1e-14, rtol=0)


def test_autocast_does_not_reach_the_sums():
    x = [draw(1, 2, 9, 64) for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        got = attend(*x, policy=AttentionPolicy(4, 4, native=False))
    assert torch.allclose(got, native(*x), atol=1e-6)


def test_dropout_keeps_the_mean_and_drops_weights():
    x = draw(1, 1, 64, 8), draw(1, 1, 64, 8), torch.ones(1, 1, 64, 8)
    torch.manual_seed(0)
    out = attend(*x, dropout_p=0.5, policy=AttentionPolicy(8, 8, native=False))
    assert 0.9 < out.mean() < 1.1
    assert out.std() > 0.05


# Memory


class Recorder(TorchDispatchMode):
    """The largest tensor, and the most bytes alive at once, except the output of `of_shape`."""

    def __init__(self, of_shape: tuple[int, ...]):
        super().__init__()
        self.output, self.largest, self.peak = of_shape, 0, 0
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in tree_leaves(out):
            if (
                isinstance(x, Tensor)
                and x.untyped_storage()._cdata not in given
                and x.numel() != self.output_size
            ):
                storage = x.untyped_storage()
                self.largest = max(self.largest, storage.nbytes())
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {at: (ref, size) for at, (ref, size) in self.alive.items() if not ref.expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return out

    @property
    def output_size(self) -> int:
        return torch.Size(self.output).numel()


@pytest.mark.parametrize("budget", [1 << 16, 1 << 18, 1 << 20])
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"mask": (1, 1, 150, 200)}, {"mask": (8, 150, 200)}]
)
def test_blocks_stay_within_the_budget(budget, options):
    query, key, value = draw(2, 8, 150, 64), draw(2, 2, 200, 64), draw(2, 2, 200, 64)
    call = {"attn_mask": draw(*options["mask"]) > -1} if "mask" in options else options
    with Recorder((2, 8, 150, 64)) as memory:
        policy = AttentionPolicy(budget_bytes=budget, native=False)
        attend(query, key, value, **call, enable_gqa=True, policy=policy)
    assert memory.largest <= memory.peak <= budget
    assert memory.peak >= budget / 8  # and the budget is used


@pytest.mark.parametrize("rows", [1024, 2000])
def test_causal_blocks_leave_out_what_lies_above_the_diagonal(rows):
    """All but an eighth of it and the rest of the last key block."""

    def operations(**options: Any) -> int:
        x = draw(1, 2, rows, 64)
        with FlopCounterMode(display=False) as counter:
            attend(x, x, x, **options, policy=AttentionPolicy(native=False))
        return counter.get_total_flops()

    assert operations(is_causal=True) <= (1 / 2 + 1 / 16 + 0.01) * operations()


def test_half_precision_is_not_cast_as_a_whole():
    x = [draw(1, 4, 512, 64).bfloat16() for _ in range(3)]
    with Recorder((1, 4, 512, 64)) as memory:
        attend(*x, policy=AttentionPolicy(budget_bytes=1 << 18, native=False))
    assert memory.peak <= 1 << 18


def test_a_large_call_leaves_the_native_path_unless_its_kernel_keeps_no_scores():
    query, key = draw(1, 2, 512, 16), draw(1, 2, 512, 16)
    small = AttentionPolicy(budget_bytes=1 << 18)
    with Recorder((1, 2, 512, 16)) as memory:  # values of another width: the CPU has no fused kernel for them
        attend(query, key, draw(1, 2, 512, 8), policy=small)
    assert memory.peak <= 1 << 18
    expected = native(query, key, key)
    assert torch.equal(attend(query, key, key, policy=small), expected)


@pytest.fixture
def in_blocks(monkeypatch):
    """Record for each call if it was cut into blocks, without computing them."""
    calls = []

    def blocks(query: Tensor, *others: Any) -> Tensor:
        calls[-1] = True
        return query

    monkeypatch.setattr(torch_ref.layers.attention, "_blocks", blocks)

    def attempt(*tensors: Tensor, **options: Any) -> bool:
        calls.append(False)
        attend(*tensors, **options)
        return calls[-1]

    return attempt


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_native_path_counts_every_score_of_every_batch_and_head(in_blocks, dtype):
    """At 4 bytes per score, for any dtype. Values of another width: every kernel stores the scores then."""
    query, key, value = (draw(2, 3, *shape).to(dtype) for shape in ((5, 16), (7, 16), (7, 8)))
    scores = 2 * 3 * 5 * 7 * 4
    assert not in_blocks(query, key, value, policy=AttentionPolicy(budget_bytes=scores))
    assert in_blocks(query, key, value, policy=AttentionPolicy(budget_bytes=scores - 1))


def test_the_native_path_without_a_budget_takes_256_mib_of_scores(in_blocks):
    rows = 8192
    for keys, cut in ((rows, False), (rows + 1, True)):
        shapes = (1, 1, rows, 16), (1, 1, keys, 16), (1, 1, keys, 8)
        call = [torch.empty(shape, device="meta") for shape in shapes]
        assert in_blocks(*call, policy=AttentionPolicy(budget_bytes=None)) == cut
        assert in_blocks(*call) == cut


def test_a_mask_of_more_than_32_bits_is_cut_on_cuda(in_blocks):
    """Although its scores would fit in the budget."""
    rows, policy = 1 << 16, AttentionPolicy(budget_bytes=1 << 40)
    for keys, cut in ((rows, False), (rows + 1, True)):
        query, key = (torch.empty(1, 1, length, 64, device="meta") for length in (rows, keys))
        mask = torch.empty(rows, keys, device="meta")
        with enforce(Backend("cuda", "2.11.0", chip="9.0")):
            assert in_blocks(query, key, key, mask, policy=policy) == cut


class ScoreCopies(Recorder):
    """The most copies of a block's scores alive at once; float32 counts 1, boolean 1/4."""

    def __init__(self, scores: int):
        super().__init__((0,))
        self.scores, self.copies = scores, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        large = sum(size for _, size in self.alive.values() if size >= self.scores)
        self.copies = max(self.copies, large / (4 * self.scores))
        return out


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("mask", [None, torch.float16, torch.bool])
def test_copies_for_mask_dropout_and_gradient_count(mask, dropout, graph, monkeypatch):
    """No block keeps more copies of its scores than its size allows for."""
    rows, keys, counted = 32, 256, []
    query, key, value = (draw(1, 1, size, 4).half().requires_grad_(graph) for size in (rows, keys, keys))
    bias = None if mask is None else torch.ones(rows, keys, dtype=mask)

    def sized(scores: AttentionSizes, *others: Any, **options: Any) -> tuple[int, int, int]:
        counted.append(scores.copies)
        return block_sizes(scores, *others, **options)

    monkeypatch.setattr(torch_ref.layers.attention, "block_sizes", sized)
    with ScoreCopies(rows * keys) as memory:
        out = attend(query, key, value, bias, dropout, policy=BLOCKS)
        if graph:
            out.sum().backward()
    assert 1 <= memory.copies <= counted[0]


@pytest.mark.parametrize("lead", [(1,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 100])
def test_lanes_cover_everything_once(lead, lanes):
    seen = torch.zeros(*lead)
    for lane in lane_spans(lead, lanes):
        seen[lane] += 1
        assert seen[lane].numel() <= max(lanes, 1)
    assert bool((seen == 1).all())


def test_a_block_never_has_more_elements_or_a_longer_sum_than_a_device_takes():
    scores = AttentionSizes(
        lanes=64, group=4, rows=1 << 20, keys=1 << 20, width=128, value_width=128, itemsize=4
    )
    lanes, rows, keys = block_sizes(scores, 1 << 40, policy=AttentionPolicy())
    assert lanes * 4 * rows * keys < 2**31
    assert keys < 32767


# Gradients


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"enable_gqa": True},
        {"attn_mask": torch.ones(4, 5, dtype=torch.bool).tril(-1)},
    ],
)
def test_gradients(options):
    heads = 4 if options.get("enable_gqa") else 2
    shapes = (1, heads, 4, 3), (1, 2, 5, 3), (1, 2, 5, 2)
    x = [draw(*shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    policy = AttentionPolicy(3, 2, native=False)
    assert torch.autograd.gradcheck(lambda *x: attend(*x, **options, policy=policy), x)


def test_a_float_mask_gets_its_gradient():
    x, bias = draw(1, 2, 5, 4, dtype=torch.float64), draw(1, 1, 5, 5, dtype=torch.float64).requires_grad_()
    policy = AttentionPolicy(2, 2, native=False)
    assert torch.autograd.gradcheck(lambda mask: attend(x, x, x, mask, policy=policy), (bias,))
