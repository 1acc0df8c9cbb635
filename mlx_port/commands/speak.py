"""What `mlx-port generate` does: check every flag, then load, speak and report.

What a model makes of the flags is in its own module, commands/<model>: FLAGS names those that not every model
takes, `plan` checks them and gives the arguments of its pipeline's `stream`.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from mlx_port.commands.generate import OWN, Wish
from tts_core.audio.files import WavWriter, check_output, write_audio
from tts_core.errors import GenerationError, NotFoundError, UsageError, not_there
from tts_core.results import GenerationResult, join
from tts_core.voice.embedded import CODEC, DIA

DEFAULT_OUTPUT = "speech.wav"
INSTALL = {
    "mlx": "MLX is not installed; pip install 'mlx-port[cpu]' on Linux (or [cuda12], [cuda13])",
    "torch": "PyTorch is not installed; pip install 'mlx-port[torch]'",
}


def speak(wish: Wish) -> None:
    """Speak as wished. Every flag is checked before weights are loaded."""
    output = choose_output(wish)
    if wish.play:
        from mlx_port.commands.playback import check_playback

        check_playback()
    if wish.dtype and wish.model is None:
        raise UsageError("dtype: the embedded voice runs in float32; give --dtype with a --model")
    check_backend(wish.backend)
    text = read_text(wish.text)
    model, configs = read_configs(wish.model, wish.backend)
    front = importlib.import_module(f"mlx_port.commands.{model}")
    check_own_flags(wish, model, front.FLAGS)
    sample_rate, arguments = front.plan(wish, text, configs)
    pieces = load_pipeline(wish.model, wish.backend, wish.dtype).stream(text, **arguments)
    result = collect(pieces, wish, output, sample_rate)
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


def check_own_flags(wish: Wish, model: str, taken: frozenset[str]) -> None:
    """Refuse a flag that was given and that this model does not take."""
    given = [name for name in OWN if getattr(wish, name) is not None and name not in taken]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{given[0].replace('_', '-')}: {model} takes no {flag}; leave it out")


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


def read_configs(model: str | None, backend: Literal["mlx", "torch"]) -> tuple[str, Mapping[str, Any]]:
    """Which model it is, and the configuration of each of its parts; no weights are read."""
    if model is not None:
        folder, on_hub = Path(model).expanduser(), _looks_like_a_repository(model)
        if not folder.exists() and not on_hub:
            raise not_there("model", folder)
        if backend == "mlx":
            if on_hub:
                raise NotFoundError(
                    f"model: no folder {model}; if it is a hub repository, run first: "
                    f"convert-weights --hf-path {model} --mlx-path NEW_FOLDER"
                )
            from mlx_port.loading import read_configs as read_converted

            return read_converted(folder)
    from converters.published import open_published

    published = open_published([model]) if model else open_published([DIA], codec=CODEC, offline=True)
    return str(published.model), {kind: part.config for kind, part in published.parts.items()}


def _looks_like_a_repository(model: str) -> bool:
    """Whether it may be an owner/name on the hub: nothing local has that name, nor its first part."""
    owner, _, name = model.partition("/")
    return bool(name) and "/" not in name and owner not in ("", ".", "..", "~") and not Path(owner).exists()


def load_pipeline(model: str | None, backend: Literal["mlx", "torch"], dtype: str | None) -> Any:
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
            from mlx_port.commands.playback import Player

            player = stack.enter_context(Player(sample_rate))
            sinks += [player] if wish.stream else []
        done: list[GenerationResult] = []
        try:
            for piece in pieces:
                check_numbers(piece)
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


def check_numbers(piece: GenerationResult) -> None:
    """Raise GenerationError for NaN or infinity, before any of the piece is written or played."""
    if not np.isfinite(piece.audio).all():
        raise GenerationError(
            "generation: the samples contain NaN or infinity; check the model with: mlx-port verify"
        )


def check_sound(result: GenerationResult) -> None:
    """Raise GenerationError where nothing was said."""
    if result.samples == 0:
        raise GenerationError(
            f"generation: the model ended before any sound, with seed {result.seed}; try another --seed"
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
        endless = sum(piece.finish_reason == "length" for piece in result.pieces)
        if endless and wish.max_seconds is None:
            cut = f", {endless} of {len(result.pieces)} pieces cut at their limits"
        click.echo(f"{output or 'played'}: {result.audio_seconds:.2f} s of speech{cut}, seed {result.seed}")
        click.echo(speed(result.real_time_factor))
        if result.stage_seconds:
            click.echo(", ".join(f"{name} {took:.2f} s" for name, took in result.stage_seconds.items()))
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
        "stage_seconds": dict(result.stage_seconds),
        "peak_memory_usage": result.peak_memory_usage,
    }
