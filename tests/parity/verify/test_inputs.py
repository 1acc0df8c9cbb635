"""The runs of `mlx-port verify`: texts that belong to the model, random numbers of the seed, every tensor."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from converters.published import ModelPart
from mlx_port.commands.verify.watch import side_of, trace
from tests.parity.verify.origins import inputs
from tests.tiny.published_models import AR, FIRST
from torch_ref.watch import unloaded
from tts_core.errors import UsageError
from tts_core.nn.probe import probes
from tts_core.qwen3.config import MODES

MODELS = [
    *("dia, v_0626_hf", "mars5", "metavoice", "dia2, v_main", "dia2, v_text"),
    *(f"qwen3, {mode}" for mode in MODES),
]
UNUSED = {  # tensors that no run of a published model reads
    "qwen3_codec": r"encoder\.quantizer\.\w+\.output_proj\..*|decoder\.quantizer\.\w+\.input_proj\..*",
}
pytestmark = pytest.mark.skipif(not (AR.is_file() and FIRST.is_file()), reason=f"{AR} or {FIRST} is missing")


def arrays(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value for name, value in given.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_drawn_follows_the_seed(name, origin):
    files = origin(name)
    published = files.open()
    first, again, other = (
        probes(files.model, inputs(published, 20, files.seconds, seed)) for seed in (3, 3, 4)
    )
    for one, same, changed in zip(first, again, other, strict=True):
        for at, array in arrays(one.inputs).items():
            np.testing.assert_array_equal(same.inputs[at], array, err_msg=f"{one.name} {at}")
        values = arrays(one.inputs).items()
        assert any((changed.inputs[at] != array).any() for at, array in values), one.name


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mars5"])
def test_more_rows_than_a_model_holds_are_refused(name, origin):
    files = origin(name)
    with pytest.raises(UsageError, match="--rows"):
        probes(files.model, inputs(files.open(), 70_000, files.seconds, 0))


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_read_and_has_a_line(name, origin, monkeypatch):
    files, read = origin(name), set()
    original = ModelPart.read

    def note(part: ModelPart, tensor: str) -> np.ndarray:
        read.add((part.kind, tensor))
        return original(part, tensor)

    published = files.open()
    monkeypatch.setattr(ModelPart, "read", note)
    for probe in probes(files.model, inputs(published, 11, files.seconds, 0)):
        part = published.parts[probe.kind]
        side = side_of(probe, *unloaded(probe, part, "float32"))
        assert trace(side).outputs.keys() == side.modules.keys(), probe.name
        assert not probe.groups or all(any(at in name for at in probe.groups) for name in part.names())
    names = {(kind, tensor) for kind, part in published.parts.items() for tensor in part.names()}
    missing = {(kind, tensor) for kind, tensor in names - read if not _unused(kind, tensor)}
    assert missing == set()


def _unused(kind: str, tensor: str) -> bool:
    return re.fullmatch(UNUSED.get(kind, ""), tensor) is not None
