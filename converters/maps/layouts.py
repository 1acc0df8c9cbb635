"""Every published layout: how its files are recognised, where its configuration stands, and its map."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from converters.files.readers import Checkpoint, read_json
from converters.maps import (
    dac_descript,
    dac_transformers,
    dia_nari,
    dia_transformers,
    encodec_facebook,
    encodec_transformers,
    mars5_ar,
    mars5_nar,
    mbd,
    metavoice_speaker,
    metavoice_stages,
    vocos_charactr,
)
from converters.rules.plan import Drop, Rule
from tts_core.codecs import dac, encodec, vocos
from tts_core.codecs import mbd as mbd_config
from tts_core.converted import FORMAT_VERSION
from tts_core.dia import config as dia
from tts_core.dia.sampling import DEFAULTS_0626, DEFAULTS_V01
from tts_core.errors import CheckpointError
from tts_core.mars5 import config as mars5
from tts_core.metavoice import config as metavoice
from tts_core.metavoice import text as metavoice_text
from tts_core.models import MARS5_TOKENIZERS


@dataclass(frozen=True)
class Hints:
    """What the user says of a model beside its files. None: nothing."""

    cross_rope: bool | None = None
    config: Path | None = None  # sizes that no tensor shows


@dataclass(frozen=True)
class Found:
    """A checkpoint and what lies beside it."""

    checkpoint: Checkpoint
    hints: Hints = field(default_factory=Hints)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.checkpoint.files[0].parent

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file beside it; empty where there is none."""
        path = self.folder / name
        return read_json(path) if path.is_file() else {}


def _never_missing(found: Found) -> str | None:
    return None


def _no_documents(found: Found) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Layout:
    """One form in which a kind of network is published."""

    kind: str
    names: str  # pattern that the names of its tensors start with
    rules: Callable[[Any], list[Rule | Drop]]  # of the configuration
    read: Callable[[Found], Any]  # the configuration
    missing: Callable[[Found], str | None] = (
        _never_missing  # the file that `read` needs and that is not there
    )
    documents: Callable[[Found], dict[str, str]] = _no_documents  # name → text, as in KINDS
    entries: tuple[str, ...] = ()  # what `read` and `documents` look at in a pickle beside its tensors
    unread: Mapping[str, str] = field(default_factory=dict)  # what else it may hold → why that is left


def _dia_config_missing(found: Found) -> str | None:
    return None if found.json("config.json") else "config.json"


def _read_dia(found: Found) -> dia.DiaConfig:
    generation = found.json("generation_config.json")
    return dia.read_published(found.json("config.json"), generation, cross_rope=found.hints.cross_rope)


def _dac_config_missing(found: Found) -> str | None:
    return None if "kwargs" in found.checkpoint.metadata else _dia_config_missing(found)


def _read_dac(found: Found) -> dac.DacConfig:
    """The checkpoint's own metadata rules over any config.json."""
    if isinstance(found.checkpoint.metadata.get("kwargs"), Mapping):
        return dac.read_descript(found.checkpoint.metadata["kwargs"])
    config = found.json("config.json")
    return dac.read_descript(config) if "encoder_rates" in config else dac.read_transformers(config)


def _mars5_json(found: Found, network: str) -> dict[str, Any] | None:
    """What is told of a network's sizes: in --config, in the file's own json, or in config.json."""
    given = found.hints.config
    told = {} if given is None else read_json(given)
    if told.get("model", "nar") == network and told:
        return told
    own, shared = found.json(f"{found.checkpoint.files[0].stem}.json"), found.json("config.json")
    return own or (shared if shared.get("model") == network else None)


def _read_codec_lm(found: Found) -> mars5.CodecLMConfig:
    return mars5.codec_lm_from_shapes(found.checkpoint.shapes, _mars5_json(found, "ar"))


def _read_residual_transformer(found: Found) -> mars5.ResidualTransformerConfig:
    return mars5.residual_transformer_from_shapes(found.checkpoint.shapes, _mars5_json(found, "nar"))


def _mars5_tokenizers(found: Found) -> dict[str, str]:
    """In the header of safetensors, or in an entry of a pickle."""
    held = found.checkpoint.metadata.get("vocab", found.checkpoint.metadata)
    held = held if isinstance(held, Mapping) else {}
    texts = {name: held[name] for name in MARS5_TOKENIZERS if isinstance(held.get(name), str)}
    if len(texts) < len(MARS5_TOKENIZERS):
        lost = ", ".join(name for name in MARS5_TOKENIZERS if name not in texts)
        raise CheckpointError(
            f"{found.checkpoint.files[0]}: no tokenizers ({lost}) in its metadata; fetch the published file"
        )
    return texts


def _read_encodec(found: Found) -> encodec.EncodecConfig:
    config = found.json("config.json")
    if config.get("model_type") == "encodec":
        return encodec.read_transformers(config)
    return encodec.from_shapes(found.checkpoint.shapes)


def _vocos_config_missing(found: Found) -> str | None:
    return None if (found.folder / "config.yaml").is_file() else "config.yaml"


def _read_vocos(found: Found) -> vocos.VocosConfig:
    text = (found.folder / "config.yaml").read_text("utf-8", errors="replace")
    return vocos.read_published(vocos.read_yaml(text), found.checkpoint.shapes)


def _read_first_stage(found: Found) -> metavoice.FirstStageConfig:
    return metavoice.read_first_stage(found.checkpoint.metadata, found.checkpoint.shapes)


def _read_second_stage(found: Found) -> metavoice.SecondStageConfig:
    return metavoice.read_second_stage(found.checkpoint.metadata, found.checkpoint.shapes)


def _metavoice_tokenizer(found: Found) -> dict[str, str]:
    told = found.checkpoint.metadata.get("meta")
    table = metavoice_text.read_published(told.get("tokenizer") if isinstance(told, Mapping) else None)
    return {"tokenizer.json": json.dumps(table.to_dict(), indent=1, sort_keys=True) + "\n"}


def _read_speaker_encoder(found: Found) -> metavoice.SpeakerEncoderConfig:
    return metavoice.read_speaker_encoder(found.checkpoint.shapes)


def _read_mbd(found: Found) -> mbd_config.MbdConfig:
    return mbd_config.read_published(found.checkpoint.metadata)


_STAGE = ("model_args", "config", "meta")
LAYOUTS = {
    "dia_nari": Layout("dia", dia_nari.NAMES, dia_nari.rules, _read_dia, _dia_config_missing),
    "dia_transformers": Layout(
        "dia", dia_transformers.NAMES, dia_transformers.rules, _read_dia, _dia_config_missing
    ),
    "dac_descript": Layout(
        "dac", dac_descript.NAMES, dac_descript.rules, _read_dac, _dac_config_missing, entries=("metadata",)
    ),
    "dac_transformers": Layout(
        "dac", dac_transformers.NAMES, dac_transformers.rules, _read_dac, _dac_config_missing
    ),
    "mars5_ar": Layout(
        "mars5",
        mars5_ar.NAMES,
        mars5_ar.rules,
        _read_codec_lm,
        documents=_mars5_tokenizers,
        entries=("vocab",),
    ),
    "mars5_nar": Layout(
        "mars5_nar",
        mars5_nar.NAMES,
        mars5_nar.rules,
        _read_residual_transformer,
        unread={"vocab": "the tokenizers, which are those of the AR's file"},
    ),
    "encodec_facebook": Layout("encodec", encodec_facebook.NAMES, encodec_facebook.rules, _read_encodec),
    "encodec_transformers": Layout(
        "encodec", encodec_transformers.NAMES, encodec_transformers.rules, _read_encodec
    ),
    "vocos_charactr": Layout(
        "vocos", vocos_charactr.NAMES, vocos_charactr.rules, _read_vocos, _vocos_config_missing
    ),
    "metavoice_first_stage": Layout(
        "metavoice",
        metavoice_stages.FIRST_NAMES,
        metavoice_stages.first_stage,
        _read_first_stage,
        documents=_metavoice_tokenizer,
        entries=_STAGE,
        unread=metavoice_stages.UNREAD,
    ),
    "metavoice_second_stage": Layout(
        "metavoice_second_stage",
        metavoice_stages.SECOND_NAMES,
        metavoice_stages.second_stage,
        _read_second_stage,
        documents=_metavoice_tokenizer,
        entries=_STAGE,
        unread=metavoice_stages.UNREAD,
    ),
    "metavoice_speaker_encoder": Layout(
        "metavoice_speaker_encoder",
        metavoice_speaker.NAMES,
        metavoice_speaker.rules,
        _read_speaker_encoder,
        unread=metavoice_speaker.UNREAD,
    ),
    "mbd": Layout("mbd", mbd.NAMES, mbd.rules, _read_mbd),
}


def recognise(names: Sequence[str], config: Mapping[str, Any]) -> str | None:
    """The layout that most of the tensors' names belong to, and at least half; "mlx" by config.json."""
    written = config.get("weights_layout")
    if written is not None:
        if written != "mlx" or config.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"config.json: weights_layout {written!r}, format_version {config.get('format_version')!r}: "
                "this folder was made by another version; convert the published model again"
            )
        return "mlx"
    counts = {
        name: sum(bool(re.match(layout.names, each)) for each in names) for name, layout in LAYOUTS.items()
    }
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] and 2 * counts[best] >= len(names) else None


def converted_config(kind: str, read: Any, hints: Hints) -> Any:
    """A converted folder's configuration, with what the user says in place of what stands there."""
    if kind != "dia" or hints.cross_rope in (None, read.cross_rope):
        return read
    sampling = DEFAULTS_V01 if hints.cross_rope else DEFAULTS_0626
    return replace(read, cross_rope=hints.cross_rope, sampling=sampling)
