"""Which matrices stay wide is a fact of each model, with its reason; nothing is left unsaid."""

import re

import pytest

from tts_core import models


@pytest.mark.parametrize("name", models.NAMES)
def test_every_matrix_is_quantized_or_has_a_reason(name: str) -> None:
    spec, used = models.MODELS[name], set()
    for configs in spec.sizes.values():
        for kind, network in spec.networks.items():
            for tensor, shape in network.parameter_shapes(configs[kind]).items():
                if len(shape) == 1:
                    assert not network.is_large(tensor)
                    continue
                found = [wide for wide in network.wide if re.search(wide.names, tensor)]
                assert len(found) == (0 if network.is_large(tensor) else 1), (tensor, found)
                used |= {(kind, *wide) for wide in found}
    assert used == {(kind, *wide) for kind, network in spec.networks.items() for wide in network.wide}
    assert all(why for *_, why in used)


@pytest.mark.parametrize("kind", models.CODECS)
def test_a_codec_is_never_quantized(kind: str) -> None:
    network = models.network(kind)
    assert not network.wide
    assert network.is_large is models.never
