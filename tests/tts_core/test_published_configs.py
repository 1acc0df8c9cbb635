"""Published configurations of every form: wrong types and missing names are one error."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny.mbd import CONFIG as MBD
from tests.tiny.mbd import published_content
from tests.tts_core.codecs.test_dac import DESCRIPT, TRANSFORMERS
from tests.tts_core.codecs.test_encodec import PUBLISHED as ENCODEC
from tests.tts_core.codecs.test_mimi import NEW
from tests.tts_core.codecs.test_mimi import PUBLISHED as MIMI
from tests.tts_core.codecs.test_vocos import PUBLISHED as VOCOS
from tests.tts_core.codecs.test_vocos import SHAPES as VOCOS_SHAPES
from tests.tts_core.dia.test_config import SCHEMAS
from tests.tts_core.mars5.test_config import AR_SHAPES, NAR_HEADS_8, NAR_SHAPES
from tests.tts_core.metavoice.test_config import FIRST_ARGS, SECOND, SECOND_ARGS, checkpoint, first_shapes
from tts_core.codecs import dac, encodec, mbd, mimi, qwen3_codec, vocos
from tts_core.dia import config as dia
from tts_core.dia2 import config as dia2
from tts_core.errors import CheckpointError
from tts_core.mars5 import config as mars5
from tts_core.metavoice import config as metavoice
from tts_core.qwen3 import config as qwen3

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
WRONG = (None, True, "x", 1.5, -1, 0, [], {}, float("nan"), 10**400)


def golden(place: str) -> Any:
    return json.loads((GOLDEN / place / "config.json").read_text())


AR_BESIDE = {"model": "ar", "n_heads": 24, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "sliding_window": 3000}
FORMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "qwen3 base": (qwen3.read_published, golden("qwen3/base")),
    "qwen3 custom": (qwen3.read_published, golden("qwen3/custom")),
    "qwen3 codec": (qwen3_codec.read_published, golden("qwen3/codec_short")),
    **{f"dia {name}": (dia.read_published, document) for name, document in SCHEMAS.items()},
    "dia2": (dia2.read_published, golden("dia2/v_main")),
    "dia2 with text": (dia2.read_published, golden("dia2/v_text")),
    "first stage": (lambda given: metavoice.read_first_stage(given, first_shapes()), checkpoint(FIRST_ARGS)),
    "second stage": (
        lambda given: metavoice.read_second_stage(given, metavoice.second_stage_parameter_shapes(SECOND)),
        checkpoint(SECOND_ARGS, causal=False),
    ),
    "codec lm": (lambda given: mars5.codec_lm_from_shapes(AR_SHAPES, given), AR_BESIDE),
    "residual transformer": (
        lambda given: mars5.residual_transformer_from_shapes(NAR_SHAPES, given),
        NAR_HEADS_8,
    ),
    "dac descript": (dac.read_descript, DESCRIPT),
    "dac transformers": (dac.read_transformers, TRANSFORMERS),
    "encodec": (encodec.read_transformers, ENCODEC),
    "mimi": (mimi.read_transformers, MIMI),
    "mimi transformers 5": (mimi.read_transformers, NEW),
    "mbd": (mbd.read_published, published_content(MBD, {})),
    "vocos": (lambda given: vocos.read_published(given, VOCOS_SHAPES), vocos.read_yaml(VOCOS)),
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place inside a document: its container and its key."""
    for key in [*value] if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0):
        yield value, key
        yield from places(value[key])


def fault(read: Callable[[Any], Any], document: Any) -> str:
    """The message of a CheckpointError, empty without one; any other error fails."""
    try:
        read(document)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", FORMS)
def test_a_document_of_any_types_is_read_or_refused_in_one_line(form: str) -> None:
    read, document = FORMS[form][0], copy.deepcopy(FORMS[form][1])
    assert not fault(read, document)
    refused = 0
    for holder, key in places(document):
        old = holder[key]
        for new in WRONG:
            holder[key] = new
            message = fault(read, document)
            assert "\n" not in message
            refused += bool(message)
        if isinstance(holder, dict):
            del holder[key]
            assert "\n" not in fault(read, document)
        holder[key] = old
    assert refused
    for document in WRONG:
        if isinstance(document, list) or document is None or form in ("codec lm", "residual transformer"):
            continue
        assert fault(read, document) or document == {}
