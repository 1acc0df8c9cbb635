"""Numbers at the doors of server and batch, and requests that carry them beside four that run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlx_port.commands.serve.body import parse, read_speech
from mlx_port.commands.serve.choose import model_options
from mlx_port.commands.serve.errors import ApiError
from mlx_port.commands.serve.settings import Limits
from tests.contract.speakers import SMALL, TEXTS, assert_same_speech
from tests.json_numbers import json_literals, numeric_options
from tests.parity.recorded_runs import DEEP, FIRST, VOICE, speech
from tests.tiny.recordings import snippet
from tts_core import models
from tts_core.bulk.rows import read_rows
from tts_core.errors import ResourceError, SpeechError, UsageError
from tts_core.options import info, options_class, single_values
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Failed
from tts_core.serving.source import ModelSource
from tts_core.speaking.session import SpeechSession

LIMITS = Limits()
MOST_STEPS = 12  # of a request whose number may make it long
PLAIN: Mapping[str, dict[str, Any]] = {  # options of the four
    "dia": {"max_frames": 60},
    "dia2": {"max_frames": 60},
    "mars5": {"timesteps": 3, "generate_max_len_override": 120, "max_frames": 40},
    "metavoice": {"max_frames": 40},
    "qwen3": {"max_frames": 40},
}
PROMPTS: Mapping[str, tuple[Any, ...]] = {
    "dia": (None,),
    "dia2": (None,),
    "mars5": (VOICE, DEEP, snippet(speech(0.2, 24_000))),
    "metavoice": (FIRST,),
    "qwen3": SMALL["qwen3"].voices,
}
# Options whose numbers make a request long, or refused, where it is otherwise not: each is given by itself.
APART = (
    *["max_frames", "max_seconds", "timesteps", "generate_max_len_override", "initial_padding"],
    *["ref_audio_pad", "max_prompt_dur"],
)
OF_SAMPLES = 2  # of MARS5's prompts, the one that the last two change


def request(source: ModelSource, place: int, given: Mapping[str, Any]) -> Any:
    """A checked request, as the doors of server and batch make it of the options that they took."""
    prompts = PROMPTS[source.model]
    return source.request(TEXTS[place % len(TEXTS)], given, prompts[place % len(prompts)])


def four(source: ModelSource) -> list[Any]:
    """The requests that must not be harmed."""
    return [request(source, place, {"seed": place, **PLAIN[source.model]}) for place in range(4)]


def short(model: str) -> dict[str, Any]:
    return {**PLAIN[model], "max_frames": 4}


def taken_by_server(model: str, name: str, literal: str) -> Any:
    """The option's value from a body of `/v1/audio/speech`, or the ApiError that refuses it."""
    body = f'{{"input": "The inn is near.", "{name}": {literal}}}'.encode()
    try:
        return model_options(read_speech(parse(body, "body"), LIMITS), models.MODELS[model], LIMITS)[name]
    except ApiError as error:
        return error


def taken_by_batch(model: str, name: str, literals: Iterable[str], folder: Path) -> list[Any]:
    """For each number the option's value from a row of `batch`, or the UsageError that refuses it."""
    fields = '"seed": {}' if name == "seed" else f'"options": {{{{"{name}": {{}}}}}}'
    lines = [f'{{"text": "The inn is near.", {fields.format(literal)}}}\n' for literal in literals]
    path = folder / "rows.jsonl"
    path.write_text("".join(lines))
    found = read_rows(path)
    values: dict[int, Any] = {fault.number: UsageError(fault.error or "") for fault in found.faults}
    for row in found.rows:
        try:
            options = {"seed": row.seed} if name == "seed" else row.options
            values[row.number] = single_values(options_class(model), options)[name]
        except UsageError as error:
            values[row.number] = error
    return [values[number] for number in range(len(lines))]


def at_the_doors(model: str, name: str, count: int, folder: Path) -> list[Any]:
    """Put `count` numbers to both doors; return the values of those that are taken.

    Both take the same ones, besides speech that is longer than the server's, options without a flag, of which
    the server has none, and a row's seed, which takes no point. What is refused is an error in one line that
    a caller understands.
    """
    known, values = info(numeric_options(model)[name]), []
    literals = json_literals(known, count, f"{model} {name}")
    for literal, taken in zip(literals, taken_by_batch(model, name, literals, folder), strict=True):
        is_refused, given = isinstance(taken, UsageError), taken_by_server(model, name, literal)
        if is_refused:
            assert str(taken).startswith((f"{name}: ", f"{name} ", "not JSON")), (literal, taken)
            assert len(str(taken)) < 120, (literal, taken)
        if isinstance(given, ApiError):
            too_long = name == "max_seconds" and not is_refused and taken > LIMITS.audio_seconds
            assert is_refused or too_long or not known.flags, (literal, given.message)
            assert given.status == 400, (literal, given.message)
            assert given.param == (None if given.code == "invalid_json" else name), (literal, given.message)
        else:
            assert not is_refused or name == "seed", (literal, given, taken)
            assert is_refused or repr(given) == repr(taken), literal
        if not (is_refused and isinstance(given, ApiError)):
            values.append(given if is_refused else taken)
    return values


@dataclass(frozen=True)
class Attack:
    """A request with numbers under test. drawn: them. others: what keeps it short."""

    place: int
    drawn: Mapping[str, Any]
    others: Mapping[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        given = {**self.others, **self.drawn}
        if "max_seconds" in self.drawn:
            del given["max_frames"]  # give one of the two
        return given

    def alone(self) -> Iterator[Attack]:
        """Each of the numbers in a request of its own."""
        for name, value in self.drawn.items():
            yield replace(self, drawn={name: value})


def attacks(model: str, values: Mapping[str, list[Any]]) -> Iterator[Attack]:
    """Requests with every value of every option: one of each in a request, but for APART."""
    together = {name: numbers for name, numbers in values.items() if name not in APART}
    for place in range(max(len(numbers) for numbers in together.values())):
        drawn = {name: numbers[place] for name, numbers in together.items() if place < len(numbers)}
        yield Attack(place, drawn, short(model))
    for name in APART:
        for place, number in enumerate(values.get(name, ())):
            yield Attack(OF_SAMPLES if name in APART[-2:] else place, {name: number}, short(model))


@dataclass
class Crowd:
    """What became of attacks beside the four.

    ran: how many numbers of each option took part in steps of the batch.
    refused: how many an option's requests refused, each by itself: a limit that is not the option's own.
    ends: of requests, by finish reason, or the error's class.
    spoken: how often one of the four was.
    """

    ran: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    spoken: int = 0


class Beside:
    """Runs attacks in a session in which the four are spoken again and again.

    asked, expected: the four, and their speeches.
    """

    def __init__(
        self, source: ModelSource, session: SpeechSession, asked: list[Any], expected: list[GenerationResult]
    ):
        self.source, self.session, self.asked, self.expected = source, session, asked, expected
        self.crowd = Crowd()
        self._fours: dict[int, tuple[int, list[GenerationResult]]] = {}  # key → place, parts
        self._silent = deque(range(len(asked)))  # places of the four that are to join
        self._guests: dict[int, int] = {}  # key → steps until it leaves

    def run(self, others: Iterable[Attack]) -> Crowd:
        """Let all attacks join as places become free; return what became of them."""
        waiting, queue = iter(others), deque[Attack]()
        while True:
            self._speak_again()
            while not self._silent and self.session.running < self.session.places:
                one = queue.popleft() if queue else next(waiting, None)
                if one is None:
                    break
                queue.extendleft(self._join(one))
                if queue and queue[0] is one:
                    break  # it does not fit now
            if not (self._guests or queue):
                break
            self._step()
        while self._fours:
            self._step()
        return self.crowd

    def _speak_again(self) -> None:
        """Let those of the four join that are not spoken now, before any other."""
        while self._silent and self.session.fits(self.asked[self._silent[0]]):
            place = self._silent.popleft()
            self._fours[self.session.join(self.asked[place])] = (place, [])

    def _join(self, one: Attack) -> list[Attack]:
        """Let a request join. Returns those to try next: itself, or its numbers one by one when refused."""
        try:
            made = request(self.source, one.place, one.options)
            if not self.session.fits(made):
                return [one]
            key = self.session.join(made)
        except (UsageError, ResourceError) as error:
            if len(one.drawn) > 1:
                return [*one.alone()]
            self.crowd.refused.update([*one.drawn])
            self.crowd.reasons[f"{[*one.drawn]}: {str(error).partition(': ')[0]}"] += 1
            return []
        self._guests[key] = MOST_STEPS if one.drawn.keys() & {*APART} else 100 * MOST_STEPS
        self.crowd.ran.update([*one.drawn])
        return []

    def _step(self) -> None:
        for event in self.session.step():
            if event.key not in self._fours:
                self._hear(event)
                continue
            assert not isinstance(event, Failed), event
            place, parts = self._fours[event.key]
            parts.append(event.result)
            if event.result.is_final_chunk:
                del self._fours[event.key]
                assert_same_speech(merge(parts), self.expected[place])
                self.crowd.spoken += 1
                self._silent.append(place)
        for key in [*self._guests]:
            self._guests[key] -= 1
            if not self._guests[key]:
                self.session.leave(key)
                self.crowd.ends["left"] += 1
                del self._guests[key]

    def _hear(self, event: Any) -> None:
        if isinstance(event, Failed):
            assert isinstance(event.error, SpeechError), event
            self.crowd.ends[type(event.error).__name__] += 1
            self.crowd.reasons[f"{type(event.error).__name__}: {event.error}"] += 1
        elif event.result.is_final_chunk:
            self.crowd.ends[str(event.result.finish_reason)] += 1
        else:
            return
        del self._guests[event.key]
