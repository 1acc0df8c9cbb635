"""Signs of life of `mlx-port generate`: a bar at a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from mlx_port.commands.generate_flags import GenerateFlags
from mlx_port.commands.pace import LEAST_SECONDS, speed
from tts_core.pipeline import Progress
from tts_core.printable import one_line
from tts_core.results import GenerationResult
from tts_core.text.duration import expected_seconds

FIRST_SECONDS = 1.0  # of speech: less of it is no measure of the rest
LINE_SECONDS = 10.0  # between two lines where there is no terminal
BAR = "{desc} {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}] {postfix}"


class Display:
    """A silent display; base of the two that show something.

    request: of the text that is spoken.
    stages: of the model, in words.
    """

    def __init__(self, request: Any, stages: Mapping[str, str]):
        self.request, self.stages = request, stages

    def begin(self, stage: str) -> None:
        """Name a stage that reports nothing by itself."""
        self.tell(Progress(stage, 0, self.request.seconds))

    def foresee(self, measure: Callable[[], float | None]) -> None:
        """Say how long a long text takes. measure: returns the seconds, if they can be measured."""

    def tell(self, now: Progress) -> None:
        """Show where the generation is; the `progress` of a pipeline."""

    def add(self, part: GenerationResult) -> None:
        """Take note of the next part of the speech."""

    def end(self) -> None:
        """Remove what is not to stay."""


class _Shown(Display):
    """A display that prints lines, and with a long text how long all of it will take."""

    def __init__(self, request: Any, stages: Mapping[str, str], *, lists: bool):
        super().__init__(request, stages)
        self.started = time.perf_counter()
        self.is_foreseen, self.made = False, 0.0  # seconds of speech
        if len(request.pieces) > 1:
            self.say(f"{len(request.pieces)} pieces, about {request.seconds:.0f} s of speech")
        if lists:
            for number, text in enumerate(request.pacing.texts, start=1):
                self.say(f"{number:>4}  {expected_seconds(text):5.1f} s  {text}")

    def foresee(self, measure: Callable[[], float | None]) -> None:
        """Measure if the text is long."""
        if len(self.request.pieces) > 1 and self.request.seconds >= LEAST_SECONDS:
            self.begin("measuring the speed")
            seconds = measure()
            if seconds is not None:
                self.is_foreseen = True
                self.say(f"about {duration(seconds)} to compute, by a short measurement")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        click.echo(one_line(line), err=True)

    def add(self, part: GenerationResult) -> None:
        """Say by the first speech of a long text how long all of it takes, if nothing was measured."""
        self.made += part.audio_seconds
        if (
            self.is_foreseen
            or part.is_final_chunk
            or len(self.request.pieces) < 2
            or self.made < FIRST_SECONDS
        ):
            return
        self.is_foreseen = True
        seconds = part.real_time_factor * self.request.seconds
        self.say(f"about {duration(seconds)} to compute, by the first {self.made:.1f} s of it")


class Lines(_Shown):
    """A line every ten seconds."""

    def __init__(self, request: Any, stages: Mapping[str, str], *, lists: bool):
        super().__init__(request, stages, lists=lists)
        self.printed = self.started

    def tell(self, now: Progress) -> None:
        """Print the stage, its steps, and the speech so far."""
        time_now = time.perf_counter()
        if time_now - self.printed < LINE_SECONDS:
            return
        self.printed = time_now
        self.say(f"{elapsed(time_now - self.started)}: {stage(now, self.stages)}, {speech(now)}")


class Bar(_Shown):
    """A bar: of the stage where its steps are known, else of the speech."""

    def __init__(self, request: Any, stages: Mapping[str, str], *, lists: bool):
        from tqdm import tqdm

        self._bar = tqdm(
            total=1, leave=False, bar_format=BAR, dynamic_ncols=True, file=sys.stderr, mininterval=0, delay=0
        )
        self._shown: tuple[str, float | None] | None = None
        self._speed = ""
        super().__init__(request, stages, lists=lists)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(one_line(line), file=sys.stderr)

    def tell(self, now: Progress) -> None:
        """Draw the bar; a new stage begins a new one."""
        done, total = (now.step, now.steps) if now.steps else (now.seconds, now.expected)
        if self._shown != (now.stage, total):
            self._shown = now.stage, total
            self._bar.reset(total=total or 1)
        self._bar.set_description_str(one_line(stage(now, self.stages)), refresh=False)
        self._bar.set_postfix_str(one_line(speech(now) + self._speed), refresh=False)
        self._bar.n = min(done, self._bar.total)
        self._bar.refresh()

    def add(self, part: GenerationResult) -> None:
        """Show the speed from now on."""
        self._speed = f", {speed(part.real_time_factor)}"
        super().add(part)

    def end(self) -> None:
        """Remove the bar."""
        self._bar.close()


@contextmanager
def open_display(request: Any, stages: Mapping[str, str], flags: GenerateFlags) -> Iterator[Display]:
    """Choose a display: none with --quiet or --json, a bar at a terminal."""
    if flags.quiet or flags.as_json:
        yield Display(request, stages)
        return
    kind = Bar if sys.stderr.isatty() else Lines
    display = kind(request, stages, lists=flags.show_pieces)
    try:
        yield display
    finally:
        display.end()


def stage(now: Progress, words: Mapping[str, str]) -> str:
    """Name the stage and its step. words: of a model's stages."""
    name = words.get(now.stage, now.stage)
    if not now.step:
        return name
    return f"{name} {min(now.step, now.steps or now.step)}" + (f" of {now.steps}" if now.steps else "")


def speech(now: Progress) -> str:
    """Tell how much of the speech there is."""
    of = "" if now.expected is None else f" of about {now.expected:.0f}"
    return f"{now.seconds:.1f}{of} s of speech"


def elapsed(seconds: float) -> str:
    """Write the time since a start, to the second, so that no two lines have the same."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes > 1 else f"{seconds:.0f} s"


def duration(seconds: float) -> str:
    """Write a time in seconds, from two minutes on in minutes, from two hours on in hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
