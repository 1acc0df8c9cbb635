"""The golden checks of MetaVoice's language models can fail: the named check finds each mistake."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from tests.golden.cases import DEFAULT, Vectors
from tests.golden.metavoice_lm_bench import Checkpoints
from tests.golden.metavoice_lm_checks import check_greedy, check_sampler, check_slow, check_teacher
from tests.golden.metavoice_second_checks import check_second

torch = pytest.importorskip("torch", reason="torch is not installed")
first = pytest.importorskip("torch_ref.metavoice.first_stage")
second = pytest.importorskip("torch_ref.metavoice.second_stage")
sampling = pytest.importorskip("torch_ref.metavoice.sampling")
guidance = pytest.importorskip("torch_ref.metavoice.guidance")

pytestmark = pytest.mark.golden

FOLDER = DEFAULT / "metavoice"  # whether a mistake changes an id depends on the numbers of a set
Patch = Callable[[], Any]


def patched(owner: Any, name: str, change: Callable[..., Any]) -> Patch:
    """A context in which owner.name is `change`, called with the original first."""
    return lambda: mock.patch.object(owner, name, _behind(change, getattr(owner, name)))


def _behind(change: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        return change(original, *given, **named)

    return call


def interleaved(original: Any, x: Any, heads: int) -> Any:
    return x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)


def unmasked(original: Any, self: Any, tokens: Any, speakers: Any) -> Any:
    with mock.patch.object(second, "scaled_dot_product_attention", partial(padded, tokens=tokens)):
        return original(self, tokens, speakers)


def padded(queries: Any, keys: Any, values: Any, tokens: Any) -> Any:
    mask = (tokens != 1024).any(dim=1)[:, None, None]
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)


MISTAKES: dict[str, tuple[Patch, Callable[..., None]]] = {
    "positions from 1": (
        patched(first.Transformer, "embed", lambda f, self, t, s, at: f(self, t, s, at + 1)),
        check_teacher,
    ),
    "no speaker under the text": (
        patched(
            first.Transformer, "embed", lambda f, self, t, s, at: f(self, t, s * (t < 2049)[..., None], at)
        ),
        check_teacher,
    ),
    "heads interleaved": (patched(first, "split_heads", interleaved), check_teacher),
    "gates swapped": (
        patched(
            first.SwiGLU, "forward", lambda f, self, x: torch.nn.functional.silu(self.w3(x)) * self.w1(x)
        ),
        check_teacher,
    ),
    "scores not divided": (
        patched(first, "scaled_dot_product_attention", lambda f, q, *rest, **named: f(2 * q, *rest, **named)),
        check_teacher,
    ),
    "guidance from the unconditional row": (
        patched(sampling, "guide", lambda f, rows, scale, text=1.0: f(rows, scale + 1, text)),
        check_greedy,
    ),
    "top p from the top": (
        patched(
            sampling,
            "probabilities_fast",
            lambda f, x, t, p, k: sampling.probabilities_slow(x, max(t, 1e-5), p, k if p is None else None),
        ),
        check_sampler,
    ),
    "silence of the text kept": (
        patched(guidance, "stacked", lambda f, tokens, s, end: tokens.repeat(s.rows, 1)),
        check_slow,
    ),
    "tanh for erf": (
        patched(second.F, "gelu", lambda f, x: f(x, approximate="tanh")),
        check_second,
    ),
    "padding masked": (patched(second.Transformer, "forward", unmasked), check_second),
    "no speaker in the second stage": (
        patched(second.Transformer, "forward", lambda f, self, tokens, s: f(self, tokens, None)),
        check_second,
    ),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(FOLDER, tmp_path_factory.mktemp("metavoice"))


@pytest.mark.parametrize("name", MISTAKES)
def test_metavoice_mistake_is_seen(name: str, checkpoints: Checkpoints) -> None:
    patch, check = MISTAKES[name]
    bench = checkpoints.bench("torch", Vectors(FOLDER / "lm.safetensors"))
    check(bench)
    with patch(), pytest.raises(AssertionError):
        check(bench)
