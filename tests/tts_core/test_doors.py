"""Arguments that `generate` and `stream` refuse before they load anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tts_core.dia2.options import Dia2Options
from tts_core.doors import Doors
from tts_core.errors import UsageError
from tts_core.mars5.options import Mars5Options

PATH = Path("a-model")


def _unused(*given: Any) -> Any:
    raise AssertionError(f"loads {given}")


@pytest.mark.parametrize("call", ["generate", "stream"])
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (5, None, "model: 5 is neither a path nor a loaded model"),
        (Mars5Options, None, "is neither a path nor a loaded model"),
        (None, Mars5Options(), "options: Mars5Options are another model's; this model takes DiaOptions"),
        (None, Dia2Options(), "options: Dia2Options are another model's"),
        (None, {"seed": 1}, "options: {'seed': 1} is not a model's options; give them by name, as seed=1"),
        (None, {}, "options: {} is not a model's options"),
        (PATH, {"seed": 1}, "options: {'seed': 1} is not a model's options"),
        (PATH, Mars5Options, "is not a model's options"),
    ],
)
def test_wrong_models_and_options_are_named_and_nothing_is_loaded(
    call: str, model: Any, options: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(Doors(_unused, _unused, _unused), call)("Hi.", model, options=options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Opened:
    """Files whose model is known."""

    model: str = "dia"


@pytest.mark.parametrize("call", ["generate", "stream"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": Mars5Options()}, "Mars5Options are another model's; this model takes DiaOptions"),
        ({"timesteps": 5}, "timesteps: the model's generate takes no such argument"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
@pytest.mark.parametrize("model", [None, PATH])
def test_options_of_another_model_are_named_before_weights_are_read(
    call: str, given: dict[str, Any], message: str, model: Any
) -> None:
    """The files' configuration is enough to know the model."""
    with pytest.raises(UsageError) as caught:
        getattr(Doors(lambda _: Opened(), _unused, _unused), call)("Hi.", model, **given)
    assert message in str(caught.value)
