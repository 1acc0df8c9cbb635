"""The run of `mlx-port generate`: parts of the speech go to a file, to stdout or to a loudspeaker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlx_port.commands.display import Display
from mlx_port.commands.generate_flags import GenerateFlags
from mlx_port.commands.output import STDOUT, Output, check_numbers
from tts_core.errors import CancelledError, GenerationError, SpeechError
from tts_core.results import GenerationResult, merge

if TYPE_CHECKING:
    from tts_core.speaking.pipeline import Pipeline


@dataclass(frozen=True)
class Collected:
    """The result of a run. target: the file, "-" for stdout, None if the speech was only played.

    as_it_came: it was written or played part by part.
    """

    result: GenerationResult
    target: Path | str | None
    as_it_came: bool


def collect(
    pipeline: Pipeline, request: Any, flags: GenerateFlags, output: Output | None, display: Display
) -> Collected:
    """Run the generation to its end. With --stream, parts are written and played as they come."""
    rate, target, player = pipeline.sample_rate, None, None
    sinks: list[Callable[[np.ndarray], object]] = []  # each takes the next samples, (L,) float32
    done: list[GenerationResult] = []
    with ExitStack() as stack:
        grows = as_it_comes(flags, output)
        if output is not None and grows:
            target, sound = stack.enter_context(output.growing(rate))
            stack.enter_context(_growing(target, done))
            sinks.append(sound.write)
        if flags.play:
            from mlx_port.commands.playback import Player

            player = stack.enter_context(Player(rate))
            sinks += [player.write] if flags.stream else []
        for part in pipeline.speak(request, progress=display.tell):
            check_numbers(part)
            for sink in sinks:
                sink(part.audio)
            done.append(part)
            display.add(part)
        result = merge(done)
        check_sound(result)
        display.end()
        if player is not None and not flags.stream:
            player.write(result.audio)
        if output is not None and not grows:
            target = output.write(result.audio, rate)
    return Collected(result, target, as_it_came=bool(sinks))


def as_it_comes(flags: GenerateFlags, output: Output | None) -> bool:
    """True if parts of the speech are written before its end."""
    return flags.stream or (output is not None and output.path is None)


@contextmanager
def _growing(target: Path | str, done: list[GenerationResult]) -> Iterator[None]:
    """Name the file, and what it keeps, in the message of an error or of an interruption."""
    try:
        yield
    except (SpeechError, KeyboardInterrupt) as error:
        if not done or target == STDOUT:
            raise
        written = f"{target} keeps {sum(part.audio_seconds for part in done):.2f} s of speech"
        if isinstance(error, KeyboardInterrupt):
            raise CancelledError(f"interrupted; {written}") from None
        error.args = (f"{error}; {written}",)
        raise


def check_sound(result: GenerationResult) -> None:
    """Raise GenerationError if there is no sound."""
    if not result.audio.any():
        raise GenerationError(
            f"generation: the model ended before any sound, with seed {result.seed}; try another --seed"
        )
