"""The settings of a draw."""

from __future__ import annotations

from typing import Any

import pytest

from tts_core.errors import UsageError
from tts_core.metavoice.inputs import FirstStageSampling


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cfg_scale": -1.0}, "cfg_scale: -1.0 is not a number >= 0"),
        ({"cfg_scale": float("nan")}, "cfg_scale"),
        ({"cfg_scale": 0.5, "top_p": None, "rule": "slow"}, "cfg_scale: 0.5 is not a number >= 1"),
        ({"text_cfg_scale": 2.0}, "needs the slow rule"),
        ({"text_cfg_scale": 0.5, "rule": "slow"}, "text_cfg_scale: 0.5"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 0.0, "rule": "slow"}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 5, "rule": "slow"}, "takes only one of them"),
        ({"rule": "other"}, "neither fast nor slow"),
    ],
)
def test_settings_are_checked(given: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        FirstStageSampling(**given)


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 2),
        ({"cfg_scale": 1.0}, 1),
        ({"cfg_scale": 1.0, "rule": "slow"}, 1),
        ({"text_cfg_scale": 1.5, "rule": "slow"}, 3),
        ({"cfg_scale": 1.0, "text_cfg_scale": 1.5, "rule": "slow"}, 3),
    ],
)
def test_rows_that_a_text_needs(given: dict[str, Any], count: int):
    assert FirstStageSampling(**given).rows == count
