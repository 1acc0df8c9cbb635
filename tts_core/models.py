"""The models by name, MODELS, and the types of their facts.

A model's facts and functions are in tts_core/<name>/model.py, the facts about a codec next to its
configuration in tts_core/codecs/<name>.py; both are imported on first use, so that one model never loads
another. A kind of network is named after its codec, or after its model: `mars5`, `mars5_nar`. The kind is
also the `model_type` in the config.json of its part of a converted folder; the root's is the model's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tts_core.config import Configs as Configs
from tts_core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from tts_core.memory.fits import Plan
    from tts_core.shapes import Shapes

NAMES = ("dia", "dia2", "mars5", "metavoice", "qwen3")
CODECS = ("dac", "encodec", "vocos", "mbd", "mimi", "qwen3_codec")

Documents = Mapping[str, Mapping[str, str]]  # kind → name → text
NONE: Documents = MappingProxyType({})


def always(name: str) -> bool:
    """Match every tensor."""
    return True


def never(name: str) -> bool:
    """Match no tensor."""
    return False


def _as_stated(config: object) -> Mapping[str, Any]:
    return {}


def _of_sampling(config: Any, documents: Mapping[str, str]) -> object:
    return getattr(config, "sampling", None)


class Wide(NamedTuple):
    """Matrices that quantization leaves as they are. names: pattern found in their names."""

    what: str
    names: str
    why: str


ROWS_ONLY = "a step reads single rows of them"
# a reason, no measurement; published MLX folders of Qwen3-TTS quantize its predictor, and load as stored
DEPTH = "it draws the other codes of a frame one after the other, and each error reaches the next code"


SENTENCE = "The quick brown fox jumps over the lazy dog near the river bank."
STAGES = {"prompt": "reading the voice", "speech": "speaking"}


def _any(documents: Documents) -> None:
    return None


@dataclass(frozen=True)
class Network:
    """Facts about one kind of network. Names are canonical; shapes are in PyTorch's axis order."""

    title: str  # in messages
    folder: str  # inside a converted folder; "" is the root
    network: str  # module and class, the same on both sides
    parameter_shapes: Callable[[Any], Shapes]  # from its configuration
    read_converted: Callable[[Mapping[str, Any]], Any]  # its configuration, from a converted folder's
    stays_float32: Callable[[str], bool] = always  # for any requested dtype
    is_large: Callable[[str], bool] = never  # the linear layers that are quantized
    wide: tuple[Wide, ...] = ()  # all other matrices; a codec has none, its errors are heard directly
    documents: tuple[str, ...] = ()  # texts next to config.json: tokenizers
    optional_documents: tuple[str, ...] = ()  # texts that may be there, too: text rules
    descriptions: tuple[str, ...] = ("config.json",)  # beside the published weights, besides `documents`
    pieces: str | None = None  # name prefix of piece {}, for a network loaded piece by piece
    repository: str | None = None  # that publishes the weights
    license: str | None = None  # of the published weights, in the hub's form; None: see their own card
    original_modes: tuple[str, ...] = ()  # values of --q-mode for upstream's own quantization
    # a converted folder keeps the published config.json, with this `model_type`; None: it has our schema
    published_type: str | None = None
    is_copied: bool = False  # a converted folder keeps the published tensors, too
    older_folder: str | None = None  # of a part in our schema that older versions wrote, if another

    @property
    def is_codec(self) -> bool:
        """True for kinds that --codec names; vocoders and other decoders have other folders."""
        return "codec" in (self.folder, self.older_folder)

    def folder_in(self, model: Path) -> str:
        """Name of its folder inside a converted one."""
        older = self.older_folder
        return older if older and (model / older).is_dir() else self.folder

    def optional_in(self, folder: Path) -> tuple[str, ...]:
        """Names of the optional texts that a folder has."""
        return tuple(name for name in self.optional_documents if (folder / name).exists())

    @property
    def takes_dtype(self) -> bool:
        """True if any of its tensors follows the requested dtype."""
        return self.stays_float32 is not always


@dataclass(frozen=True)
class Speed:
    """Facts about one model's steps, for `mlx-port bench`.

    unit: what a step makes.
    frame_rate: Hz, of the codes.
    layers: of the network that steps.
    reads: the tensors of the model's first network that every step reads, by name.
    documents: texts that fit a model of random weights, kind → name → text.
    stages: of progress reports, in which steps run.
    steps_per_frame: of codes.
    options: of the model, that its text needs.
    """

    unit: str
    frame_rate: Callable[[Configs], float]
    layers: Callable[[Configs], int]
    reads: Callable[[str], bool]
    documents: Callable[[Configs], Documents]
    stages: tuple[str, ...] = tuple(STAGES)
    text: str = SENTENCE
    steps_per_frame: int = 1
    options: Callable[[Configs], Mapping[str, Any]] = _as_stated

    def real_time(self, configs: Configs) -> float:
        """Milliseconds that a step may take to keep up with the speech."""
        return 1000 / (self.steps_per_frame * self.frame_rate(configs))


class Code(NamedTuple):
    """Functions of a model, of its request.py, speech.py, footprint.py and probes.py.

    facts: configurations, documents → its RequestFacts.
    speak: a request, networks, windows of the codec → its speech.
    plan: of its memory.
    probes: sources of inputs → the runs that `mlx-port verify` compares.
    """

    facts: Callable[[Configs, Documents], Any]
    speak: Callable[..., Any]
    plan: Plan
    probes: Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """Facts about one model, or with `of` about one checkpoint of it. Its own kinds identify it: no other
    model has them.
    """

    name: str
    title: str
    options: type[Any]  # its options dataclass
    speed: Speed
    networks: Mapping[str, Network]  # its own, by kind; the root's kind is the name
    parts: tuple[str, ...]  # every kind that it needs, in the order of writing
    check: Callable[[Configs, Documents], None]  # raises CheckpointError for parts that do not match
    sizes: Mapping[str, Configs]  # published repository → configurations of its weights
    on_mps: tuple[str, str]  # the default dtype there, and why
    references: int | None  # most recordings of a voice; None: any number
    transcript: Literal["needed", "optional", "unused"]  # of a recording
    example: str  # flags of `mlx-port generate`, after --model
    stages: Mapping[str, str] = field(default_factory=lambda: STAGES)  # of progress reports → in words
    published_dtype: str = "float32"  # of the large networks in the published files
    extras: tuple[str, ...] = ()  # optional parts, left out by default
    only_for: Mapping[str, str] = field(default_factory=dict)  # parts that serve an extra → that
    speakers: int = 1  # that a text may tag, as [S1]
    voices: tuple[str, ...] = ()  # built in, by name, in small letters
    own_speakers: tuple[str, ...] = ()  # of its tags in order, if it speaks in no other voice
    languages: tuple[str, ...] = ("en",)  # that it speaks, by ISO 639-1
    fed: bool = False  # takes text while it speaks
    needs_voice: bool = False  # speaks only with a recording
    needs_instruction: bool = False  # speaks only with a description of the voice
    # facts that a user may state about its files, each a flag of convert-weights → function that applies the
    # fact to the configuration of a folder converted without it; None: no function
    hints: Mapping[str, Callable[[Any, Any], Any] | None] = field(default_factory=dict)

    # documents → True for a character that it has learned; None in place of it: any
    learned: Callable[[Documents], Callable[[str], bool] | None] = _any
    varies: Callable[[Any], Mapping[str, Any]] = _as_stated  # its configuration → facts that depend on it
    # configuration, documents → an object that has, by the names of options, the values that stand for None
    defaults: Callable[[Any, Mapping[str, str]], object] = _of_sampling

    def code(self) -> Code:
        """Import its functions, which are imported later than its facts."""
        homes = {"request": "facts", "speech": "speak", "footprint": "PLAN", "probes": "probes"}
        parts = (importlib.import_module(f"tts_core.{self.name}.{home}") for home in homes)
        return Code(*map(getattr, parts, homes.values()))

    def of(self, configs: Configs) -> Model:
        """Return the facts about a checkpoint. configs: of its parts, by kind; without any, as they are."""
        config = configs.get(self.name)
        return self if config is None else replace(self, **self.varies(config))

    def check_takes_recording(self, given: str) -> None:
        """Raise UsageError for a model that takes none. given: opens the message."""
        if self.references == 0:
            instead = f"give --voice, one of {', '.join(self.voices)}" if self.voices else "leave it out"
            why = (
                only_speakers(self.own_speakers) if self.own_speakers else f"{self.title} takes no recording"
            )
            raise UsageError(f"{given}{why}; {instead}")

    def wanted(self, extras: Sequence[str]) -> tuple[str, ...]:
        """Return its parts and the requested extras."""
        return (*self.parts, *(kind for kind in self.extras if kind in extras))

    def loaded(self, kinds: Collection[str]) -> list[str]:
        """Return those of its parts that run; some serve only an extra."""
        return [kind for kind in kinds if self.only_for.get(kind, kind) in kinds]


def only_speakers(speakers: Sequence[str]) -> str:
    """Say that a model has the voices of these speakers only, in the order of their tags."""
    tagged = " and ".join(f"[S{index}] {name}" for index, name in enumerate(speakers, start=1))
    return f"this model speaks only as {tagged}, whatever the recording"


class _Models(Mapping[str, Model]):
    """Models by name. One is imported when it is looked up."""

    def __getitem__(self, name: str) -> Model:
        match name:
            case "dia":
                from tts_core.dia.model import MODEL
            case "dia2":
                from tts_core.dia2.model import MODEL
            case "mars5":
                from tts_core.mars5.model import MODEL
            case "metavoice":
                from tts_core.metavoice.model import MODEL
            case "qwen3":
                from tts_core.qwen3.model import MODEL
            case _:
                raise KeyError(name)
        return MODEL

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES


MODELS = _Models()


def check_name(name: str | None) -> None:
    """Raise UsageError for what is no model's name; None is none."""
    if name is not None and name not in NAMES:
        hint = did_you_mean(str(name), NAMES)
        raise UsageError(f"model: {name!r:.80} is none of {', '.join(NAMES)}{f'; {hint}' if hint else ''}")


def owner(kind: str) -> str | None:
    """Return the name of the only model with such networks; None for a codec's and for an unknown kind."""
    name = kind.partition("_")[0]
    return name if name in NAMES and kind in MODELS[name].networks else None


def is_kind(name: object) -> bool:
    """Return True if any model or codec has such networks."""
    return isinstance(name, str) and (name in CODECS or owner(name) is not None)


def kinds() -> tuple[str, ...]:
    """List the kinds of networks of all models and codecs. Imports every model."""
    return (*(kind for name in NAMES for kind in MODELS[name].networks), *CODECS)


def kind_of(config: Mapping[str, Any]) -> str | None:
    """Return the kind of network that a converted folder's config.json is of; None for an unknown one."""
    given = config.get("model_type")
    if is_kind(given):
        return given
    family = str(given).partition("_")[0]  # no other is imported
    kinds = [kind for kind in CODECS if kind.partition("_")[0] == family]
    kinds += MODELS[family].networks if family in NAMES else ()
    return next((kind for kind in kinds if network(kind).published_type == given), None)


def published() -> dict[str, tuple[str, Configs]]:
    """List the published models by repository: name, and configurations of the parts. Imports every model."""
    return {
        repository: (name, configs) for name in NAMES for repository, configs in MODELS[name].sizes.items()
    }


def network(kind: str) -> Network:
    """Return the facts about a kind of network. Raises KeyError for an unknown one."""
    if kind in CODECS:
        return importlib.import_module(f"tts_core.codecs.{kind}").NETWORK
    name = owner(kind)
    if name is None:
        raise KeyError(kind)
    return MODELS[name].networks[kind]


def network_class(side: str, kind: str) -> Any:
    """Import the class of a kind's network. side: "torch_ref" or "mlx_port"."""
    return class_of(side, network(kind).network)


def class_of(side: str, network: str) -> Any:
    """Import a network's class from a side. network: module and class, as in `Network`."""
    module, _, name = network.partition(":")
    return getattr(importlib.import_module(f"{side}.{module}"), name)


def check_fits(name: str, configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError unless the parts of a model match; if a part is missing, nothing is checked."""
    model = MODELS[name]
    if all(kind in configs for kind in model.parts):
        model.check(configs, documents)
