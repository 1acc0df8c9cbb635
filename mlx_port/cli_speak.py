"""What `mlx-port generate` does: check every flag, then load, speak and report."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import click
import numpy as np

from mlx_port.cli_generate import Wish
from tts_core.audio import WavWriter, check_output, read_audio, write_audio
from tts_core.dac import DacConfig, read_transformers
from tts_core.dac import read_converted as read_converted_dac
from tts_core.dia import DiaConfig, read_converted, read_published
from tts_core.embedded_voice import CODEC, DIA
from tts_core.errors import GenerationError, NotFoundError, UsageError
from tts_core.nearest import not_there
from tts_core.results import GenerationResult, Prompt, join
from tts_core.script import prepare

DEFAULT_OUTPUT = "speech.wav"
INSTALL = {
    "mlx": "MLX is not installed; pip install 'mlx-port[cpu]' on Linux (or [cuda12], [cuda13])",
    "torch": "PyTorch is not installed; pip install 'mlx-port[torch]'",
}


class Pipeline(Protocol):
    """The part of either side's DiaPipeline that the command uses."""

    def stream(
        self,
        text: str,
        *,
        prompt: Prompt | None,
        temperature: float | None,
        cfg_scale: float | None,
        top_k: int | None,
        top_p: float | None,
        max_frames: int | None,
        seed: int | None,
    ) -> Iterator[GenerationResult]:
        """Pieces of the speech."""
        ...


def speak(wish: Wish) -> None:
    """Speak as wished. Every flag is checked before weights are loaded."""
    output = choose_output(wish)
    if wish.play:
        from mlx_port.playback import check_playback

        check_playback()
    check_reference_flags(wish)
    if wish.dtype and wish.model is None:
        raise UsageError("dtype: the embedded voice runs in float32; give --dtype with a --model")
    text = read_text(wish.text)
    prepare(text, None, transcript=wish.ref_text)
    check_backend(wish.backend)
    config, codec = read_configs(wish.model, wish.backend)
    check_sampling(wish, config)
    prepare(text, config.max_text_bytes, transcript=wish.ref_text)
    prompt = read_prompt(wish, config, codec)
    max_frames = count_frames(wish.max_seconds, config, codec)
    pieces = load_pipeline(wish.model, wish.backend, wish.dtype).stream(
        text,
        prompt=prompt,
        temperature=wish.temperature,
        cfg_scale=wish.cfg_scale,
        top_k=wish.top_k,
        top_p=wish.top_p,
        max_frames=max_frames,
        seed=wish.seed,
    )
    result = collect(pieces, wish, output, codec.sample_rate)
    report(result, wish, output)


def choose_output(wish: Wish) -> Path | None:
    """Where to write: the flag, `speech.wav`, or nowhere when the speech is played."""
    if wish.output is None and wish.play:
        return None
    output = Path(wish.output or DEFAULT_OUTPUT)
    check_output(output)
    if wish.stream and output.suffix.lower() != ".wav":
        raise UsageError(f"output: --stream writes WAV only, not {output}; use .wav or leave --stream out")
    return output


def check_reference_flags(wish: Wish) -> None:
    """Both flags of a reference, or neither."""
    if wish.ref_audio is not None and wish.ref_text is None:
        raise UsageError(
            "ref-audio: --ref-text is missing; the model reads what the reference says before it goes on, "
            "and nothing here transcribes it for you"
        )
    if wish.ref_text is not None and wish.ref_audio is None:
        raise UsageError("ref-text: --ref-audio is missing; give the speech that it transcribes")


def read_text(given: str | None) -> str:
    """The text of the flag, or all of stdin."""
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise UsageError("text: nothing to say; give --text, or pipe a text in")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"text: byte {error.start + 1} of stdin is not UTF-8; save the text as UTF-8"
        ) from None


def check_backend(backend: Literal["mlx", "torch"]) -> None:
    """Import the framework, or say what to install."""
    try:
        importlib.import_module("mlx.core" if backend == "mlx" else "torch")
    except ImportError as error:
        raise NotFoundError(f"backend {backend}: {INSTALL[backend]} ({error})") from None


def read_configs(model: str | None, backend: Literal["mlx", "torch"]) -> tuple[DiaConfig, DacConfig]:
    """What the model can do, without its weights."""
    if model is None:
        return read_published(_json(DIA / "config.json")), read_transformers(_json(CODEC / "config.json"))
    folder, on_hub = Path(model).expanduser(), _looks_like_a_repository(model)
    if not folder.exists() and not on_hub:
        raise not_there("model", folder)
    if backend == "torch":
        from converters.published import open_published

        published = open_published([model])
        return published.dia.config, published.codec.config
    if on_hub:
        raise NotFoundError(
            f"model: no folder {model}; if it is a hub repository, run first: "
            f"convert-weights --hf-path {model} --mlx-path NEW_FOLDER"
        )
    from mlx_port.loading import read_config, understood

    place = folder / "codec"
    dia = understood(read_converted, read_config(folder, "dia"), folder)
    return dia, understood(read_converted_dac, read_config(place, "dac"), place)


def _looks_like_a_repository(model: str) -> bool:
    """Whether it may be an owner/name on the hub: nothing local has that name, nor its first part."""
    owner, _, name = model.partition("/")
    return bool(name) and "/" not in name and owner not in ("", ".", "..", "~") and not Path(owner).exists()


def check_sampling(wish: Wish, config: DiaConfig) -> None:
    """Ranges of the sampling flags; Sampling itself knows them."""
    given = {name: getattr(wish, name) for name in ("cfg_scale", "temperature", "top_p", "top_k")}
    replace(config.sampling, **{name: value for name, value in given.items() if value is not None})


def read_prompt(wish: Wish, config: DiaConfig, codec: DacConfig) -> Prompt | None:
    """The reference, decoded at the codec's rate."""
    if wish.ref_audio is None or wish.ref_text is None:
        return None
    samples = read_audio(wish.ref_audio, codec.sample_rate)
    if len(samples) > (config.max_frames - 1) * codec.hop_length:
        raise UsageError(
            f"ref-audio: {len(samples) / codec.sample_rate:.1f} s leave no room for speech; this model holds "
            f"{config.max_frames / codec.frame_rate:.1f} s, reference included; give 5 to 10 s"
        )
    return Prompt(transcript=wish.ref_text, audio=samples)


def count_frames(max_seconds: float | None, config: DiaConfig, codec: DacConfig) -> int | None:
    """Frames that make up the wished seconds, rounded up."""
    if max_seconds is None:
        return None
    if not (math.isfinite(max_seconds) and max_seconds > 0):
        raise UsageError(f"max-seconds: {max_seconds} is not a number above 0")
    frames = math.ceil(max_seconds * codec.frame_rate)
    if frames > config.max_frames:
        raise UsageError(
            f"max-seconds: {max_seconds:g} is more than this model can make, "
            f"{config.max_frames / codec.frame_rate:.1f}"
        )
    return frames


def load_pipeline(model: str | None, backend: Literal["mlx", "torch"], dtype: str | None) -> Pipeline:
    """The model, ready to speak."""
    side = importlib.import_module("mlx_port" if backend == "mlx" else "torch_ref")
    if model is not None:
        return side.load(model, dtype=dtype)
    return importlib.import_module(f"{side.__name__}.api").embedded_voice()


def collect(
    pieces: Iterator[GenerationResult], wish: Wish, output: Path | None, sample_rate: int
) -> GenerationResult:
    """Run the generation to its end; what is streamed goes out piece by piece, the rest at the end."""
    shown = sys.stderr.isatty() and not (wish.quiet or wish.as_json)
    sinks: list[Any] = []
    with ExitStack() as stack:
        if wish.stream and output is not None:
            sinks.append(stack.enter_context(WavWriter(output, sample_rate)))
        if wish.play:
            from mlx_port.playback import Player

            player = stack.enter_context(Player(sample_rate))
            sinks += [player] if wish.stream else []
        done: list[GenerationResult] = []
        try:
            for piece in pieces:
                for sink in sinks:
                    sink.write(piece.audio)
                done.append(piece)
                if shown:
                    show_progress(done)
        finally:
            if shown:
                click.echo("\r\x1b[K", err=True, nl=False)
        result = join(done)
        check_sound(result)
        if wish.play and not wish.stream:
            player.write(result.audio)
        if output is not None and not wish.stream:
            write_audio(output, result.audio, result.sample_rate)
    return result


def show_progress(done: list[GenerationResult]) -> None:
    """One line, rewritten: seconds of speech made, and how fast."""
    seconds = sum(piece.audio_seconds for piece in done)
    click.echo(f"\r\x1b[K{seconds:.1f} s of speech, {speed(done[-1].real_time_factor)}", err=True, nl=False)


def check_sound(result: GenerationResult) -> None:
    """Refuse what is no speech."""
    if result.samples == 0:
        raise GenerationError(
            f"generation: the model ended before any sound, with seed {result.seed}; try another --seed"
        )
    if not np.isfinite(result.audio).all():
        raise GenerationError(
            "generation: the samples are not numbers; check the model with: mlx-port verify"
        )


def speed(real_time_factor: float) -> str:
    """A real-time factor in words."""
    if not 0 < real_time_factor < math.inf:
        return f"RTF {real_time_factor:.2f}"
    faster = real_time_factor < 1
    times = 1 / real_time_factor if faster else real_time_factor
    return f"RTF {real_time_factor:.2f} ({times:.1f}x {'faster' if faster else 'slower'} than real time)"


def report(result: GenerationResult, wish: Wish, output: Path | None) -> None:
    """Say on stdout what was made and what it took."""
    if wish.as_json:
        click.echo(json.dumps(_facts(result, wish, output)))
    elif not wish.quiet:
        cut = ", cut at the limit" if result.finish_reason == "length" else ""
        click.echo(f"{output or 'played'}: {result.audio_seconds:.2f} s of speech{cut}, seed {result.seed}")
        click.echo(speed(result.real_time_factor))
        memory = f"{result.peak_memory_usage / 1e9:.2f} GB"
        click.echo(f"first audio after {result.time_to_first_audio:.2f} s, peak memory {memory}")


def _facts(result: GenerationResult, wish: Wish, output: Path | None) -> dict[str, Any]:
    return {
        "output": None if output is None else str(output),
        "model": wish.model,
        "backend": wish.backend,
        "seed": result.seed,
        "audio_seconds": result.audio_seconds,
        "sample_rate": result.sample_rate,
        "samples": result.samples,
        "frames": result.codes.shape[1],
        "token_count": result.token_count,
        "finish_reason": result.finish_reason,
        "real_time_factor": result.real_time_factor,
        "time_to_first_audio": result.time_to_first_audio,
        "processing_time_seconds": result.processing_time_seconds,
        "peak_memory_usage": result.peak_memory_usage,
    }


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())
