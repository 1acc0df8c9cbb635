"""The golden checks of MARS5 and MetaVoice can fail: the named check finds each mistake.

Whether a mistake changes an id or a draw depends on the numbers of a set: all are of the committed one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.golden import mars5_nar_checks
from tests.golden.cases import DEFAULT, Vectors
from tests.golden.mars5_e2e_checks import check_whole_runs, whole
from tests.golden.metavoice_lm_bench import LanguageBench, checkpoints
from tests.golden.metavoice_lm_checks import check_greedy, check_sampler, check_slow, check_teacher
from tests.golden.metavoice_second_checks import check_second
from tts_core.mars5 import net, speech
from tts_core.mars5.schedule import schedule

torch = pytest.importorskip("torch", reason="torch is not installed")
encoder = pytest.importorskip("torch_ref.mars5.encoder")
residual = pytest.importorskip("torch_ref.mars5.residual_transformer")
reverse = pytest.importorskip("torch_ref.mars5.reverse")
first = pytest.importorskip("torch_ref.metavoice.first_stage")
second = pytest.importorskip("torch_ref.metavoice.second_stage")
sampling = pytest.importorskip("torch_ref.sampling")
guidance = pytest.importorskip("torch_ref.metavoice.guidance")

pytestmark = pytest.mark.golden

# name → owner of a function, its name, what stands in its place and is called with it first, and the check
Mistakes = dict[str, tuple[Any, str, Callable[..., Any], Any]]


def with_settings(draw: Any, **columns: Any) -> Any:
    return draw._replace(table=draw.table._replace(**columns))


def without_leak(f: Any, timesteps: int, n_classes: int, pinned: int) -> np.ndarray:
    made = f(timesteps, n_classes, pinned)
    made[:, 3] = schedule(timesteps).log_1_min_alpha - np.log(n_classes)
    return made


DIFFUSION: Mistakes = {
    "sine first": (
        residual,
        "timestep_table",
        lambda f, timesteps, width: np.roll(f(timesteps, width), width // 2, axis=1),
        "nar_forward",
    ),
    "positions from 1": (
        encoder,
        "position_table",
        lambda f, length, width: f(length + 1, width)[1:],
        "nar_forward",
    ),
    "no leak": (reverse, "constants", without_leak, "nar_step"),
    "one off": (reverse, "constants", lambda f, *sizes: np.roll(f(*sizes), -1, axis=0), "nar_step"),
    "pinned longer": (reverse, "constants", lambda f, t, n, pinned: f(t, n, pinned - 1), "nar_runs"),
    "pinned shorter": (reverse, "constants", lambda f, t, n, pinned: f(t, n, pinned + 1), "nar_runs"),
    "known first": (
        reverse,
        "numbers_for",
        lambda f, *given, last: f(*given, last=last)[::-1],
        "nar_runs",
    ),
    "guided more": (reverse, "guided", lambda f, logits, w, temp: f(logits, w + 1, temp), "nar_runs"),
}


def unmasked(f: Any, self: Any, tokens: Any, speakers: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second, "scaled_dot_product_attention", partial(padded, tokens=tokens))
        return f(self, tokens, speakers)


def padded(queries: Any, keys: Any, values: Any, tokens: Any) -> Any:
    mask = (tokens != 1024).any(dim=1)[:, None, None]
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, mask)


LANGUAGE: Mistakes = {
    "positions from 1": (
        first.Transformer,
        "embed",
        lambda f, self, t, s, at: f(self, t, s, at + 1),
        check_teacher,
    ),
    "no speaker under the text": (
        first.Transformer,
        "embed",
        lambda f, self, t, s, at: f(self, t, s * (t < 2049)[..., None], at),
        check_teacher,
    ),
    "heads interleaved": (
        first,
        "split_heads",
        lambda f, x, heads: x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2),
        check_teacher,
    ),
    "gates swapped": (
        first.SwiGLU,
        "forward",
        lambda f, self, x: torch.nn.functional.silu(self.w3(x)) * self.w1(x),
        check_teacher,
    ),
    "scores not divided": (
        first,
        "scaled_dot_product_attention",
        lambda f, q, *rest, **named: f(2 * q, *rest, **named),
        check_teacher,
    ),
    "guidance from the unconditional row": (
        sampling.Draw,
        "three_way_guidance",
        lambda f, self: f(with_settings(self, full=self.table.full + 1, speaker=self.table.speaker - 1)),
        check_greedy,
    ),
    "top p from the top": (
        sampling.Draw,
        "rising_top_p",
        lambda f, self: with_settings(self, first_top_p=1 - self.table.rising_top_p).first_top_p(),
        check_sampler,
    ),
    "silence of the text kept": (
        guidance,
        "stacked",
        lambda f, tokens, s, end: tokens.repeat(s.rows, 1),
        check_slow,
    ),
    "tanh for erf": (second.F, "gelu", lambda f, x: f(x, approximate="tanh"), check_second),
    "padding masked": (second.Transformer, "forward", unmasked, check_second),
    "no speaker in the second stage": (
        second.Transformer,
        "forward",
        lambda f, self, tokens, s: f(self, tokens, None),
        check_second,
    ),
}


def patched(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: change(original, *given, **named))


@pytest.mark.parametrize("name", DIFFUSION)
def test_mistakes_of_the_diffusion_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """mars5: the checks can fail."""
    owner, attribute, change, stem = DIFFUSION[name]
    patched(monkeypatch, owner, attribute, change)
    with pytest.raises(AssertionError):
        mars5_nar_checks.check(DEFAULT / "mars5" / f"{stem}.safetensors", "torch")


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        pytest.param(net, "BANDWIDTH_ID", 0, id="bandwidth"),
        pytest.param(speech, "loud_span", lambda audio, trim_db: (0, len(audio) - 1), id="trim"),
    ],
)
def test_mistakes_of_whole_runs_are_seen(
    owner: Any, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mars5: the checks can fail."""
    monkeypatch.setattr(owner, name, value)
    whole.cache_clear()
    with pytest.raises(AssertionError, match="trimmed"):
        check_whole_runs(DEFAULT / "mars5", "torch")
    whole.cache_clear()


@pytest.fixture(scope="module")
def bench() -> LanguageBench:
    folder = DEFAULT / "metavoice"
    return checkpoints(folder).bench("torch", Vectors(folder / "lm.safetensors"))


@pytest.mark.parametrize("name", LANGUAGE)
def test_mistakes_of_language_models_are_seen(
    name: str, bench: LanguageBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """metavoice: the check passes without the mistake."""
    owner, attribute, change, check = LANGUAGE[name]
    check(bench)
    patched(monkeypatch, owner, attribute, change)
    with pytest.raises(AssertionError):
        check(bench)
