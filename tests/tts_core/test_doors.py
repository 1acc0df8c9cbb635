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


@dataclass
class Mars5Files:
    """Opened files."""

    model: str | None = "mars5"


DOORS = Doors(lambda path: Mars5Files(), _unused, _unused)

every_call = pytest.mark.parametrize("call", ["generate", "stream"])


@every_call
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
        (PATH, Dia2Options, "is not a model's options"),
        (PATH, Dia2Options(), "options: Dia2Options are another model's; this model takes Mars5Options"),
    ],
)
def test_wrong_models_and_options_are_named_and_nothing_is_loaded(
    call: str, model: Any, options: Any, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(DOORS, call)("Hi.", model, options=options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@every_call
@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (None, {"timesteps": 3}, "timesteps: "),
        (None, {"temperature": "hot"}, "temperature: 'hot' is not a number"),
        (PATH, {"action_temperature": 0.5}, "action_temperature: "),
        (PATH, {"sed": 1}, "did you mean seed"),
        (PATH, {"speed": 9.0}, "speed: 9.0 "),
    ],
)
def test_wrong_options_by_name_are_refused_and_nothing_is_loaded(
    call: str, model: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        getattr(DOORS, call)("Hi.", model, **changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
