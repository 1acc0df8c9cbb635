"""Requests of other programs: each is answered with sound, and what is ignored is named."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from mlx_port.commands.serve.names import VOICES, speaker_for
from mlx_port.commands.serve.settings import Settings
from tests.mlx_port.commands.serve.clients.rows import BASE, CLONED, CUSTOM, DESIGN, DIA, ROWS, Row
from tests.mlx_port.commands.serve.served import Served, Talk, error_of, expected, served
from tests.tiny.networks import qwen3_config
from tts_core import models

ROOT = Path(__file__).parents[5]
SAID = "one two three"
MODES = {CUSTOM: "custom_voice", DESIGN: "voice_design", BASE: "base"}


class Qwen3(Talk):
    """A talk with the facts of a checkpoint of Qwen3-TTS."""

    def __init__(self, mode: str):
        super().__init__("qwen3")
        self.configs = {"qwen3": qwen3_config(mode)}

    @property
    def spec(self) -> models.Model:
        return models.MODELS["qwen3"].of(self.configs)


@pytest.fixture(scope="module")
def sources() -> dict[str, Talk]:
    return {DIA: Talk(), **{name: Qwen3(mode) for name, mode in MODES.items()}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, sources: dict[str, Talk]) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("voices"), sources) as found:
        yield found


def samples(answer: httpx.Response) -> np.ndarray:
    """Read the sound of an answer: a file, raw samples or events."""
    kind, data = answer.headers["content-type"], answer.content
    if kind.startswith("text/event-stream"):
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        assert events[-1]["type"] == "speech.audio.done"
        data = b"".join(base64.b64decode(each.get("audio", "")) for each in events)
    elif not kind.startswith("audio/pcm"):
        return soundfile.read(io.BytesIO(data))[0]
    return np.frombuffer(data, "<i2") / 32768


def warned(answer: httpx.Response) -> list[str]:
    """Return the fields that an answer's Warning headers name."""
    lines = answer.headers.get_list("warning", split_commas=False)
    return [re.fullmatch(r'299 mlx-port "(\w+): .*"', line)[1] for line in lines]  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize("row", ROWS, ids=[f"{place}-{row.client}" for place, row in enumerate(ROWS)])
def test_a_request_of_another_program(server: Served, sources: dict[str, Talk], row: Row) -> None:
    """Its text is spoken by the model it names, with the options it sets."""
    answer = server.post(**{"input": SAID, "model": row.model, **row.body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == row.kind.partition(";")[0]
    assert np.abs(samples(answer)).max() > 0.1
    assert sorted(warned(answer)) == sorted(row.ignored)
    text, options, prompt = sources[row.model].asked[-1]
    assert text == SAID
    assert {name: getattr(options, name) for name in row.options} == row.options
    assert (prompt is not None) == ("ref_audio" in row.body)
    if row.kind.startswith("audio/pcm"):  # what tts_bench asks of an answer
        assert answer.headers["x-sample-rate"] == "24000"
        assert "rate=24000" in answer.headers["content-type"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.ignored], ids=lambda row: row.client)
def test_a_strict_server_refuses_what_it_would_ignore(tmp_path: Path, row: Row) -> None:
    sources = {DIA: Talk(), **{name: Qwen3(mode) for name, mode in MODES.items()}}
    with served(tmp_path, sources, settings=Settings(strict=True)) as server:
        error = error_of(server.post(**{"input": SAID, "model": row.model, **row.body}))
        assert error["param"] in row.ignored
        assert not sources[row.model].asked


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"model": "mlx-community/Kokoro-82M-bf16"}, 404, "model"),
    ({"voice": "af_heart"}, 400, "voice"),
    ({"voice": "default"}, 400, "voice"),
    ({"response_format": "ogg"}, 400, "response_format"),
    ({"model": BASE, **CLONED, "ref_audio": "/home/anna/voice.wav"}, 400, "ref_audio"),
    ({"model": BASE, **CLONED, "ref_audio": "file:///home/anna/voice.wav"}, 400, "ref_audio"),
    ({"model": BASE, **CLONED, "ref_audio": "https://example.org/voice.wav"}, 400, "ref_audio"),
    ({"model": BASE, "references": [{"audio_path": "a.wav", "text": "Her words."}]}, 400, "voice"),
]


@pytest.mark.parametrize(("body", "status", "field"), REFUSED, ids=[str(body)[:60] for body, _, _ in REFUSED])
def test_what_a_program_must_change(server: Served, body: dict[str, Any], status: int, field: str) -> None:
    """The table says so: names of other models and voices, paths and addresses of recordings."""
    answer = server.post(input=SAID, **body)
    assert (answer.status_code, error_of(answer)["param"]) == (status, field), answer.text


def rows(page: str) -> list[list[str]]:
    """Cells of the rows of a page's tables."""
    lines = (ROOT / "docs/use" / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_the_table_has_every_client() -> None:
    named = {cells[0] for cells in rows("clients.md")}
    assert {row.client for row in ROWS} <= named
    assert {"OpenAI, Python", "OpenAI, JavaScript", "LiveKit Agents", "Pipecat"} <= named


def test_the_page_says_which_voice_stands_for_which() -> None:
    """Of nine built-in voices, as Qwen3-TTS CustomVoice has."""
    nine = [str(place) for place in range(1, 10)]
    listed = {cells[0].strip("`"): cells[1] for cells in rows("from_openai.md")}
    assert {name: listed.get(name) for name in VOICES} == {name: speaker_for(name, nine) for name in VOICES}


def test_the_two_lines_of_the_page(shared: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's program speaks, with only this server's address put in place of the usual one."""
    pytest.importorskip("openai", reason="openai is not installed")
    page = (ROOT / "docs/use/from_openai.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert program.count("http://127.0.0.1:8000") == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(program.replace("http://127.0.0.1:8000", shared.url), "program", "exec"), {})
    assert (tmp_path / "hello.mp3").read_bytes() == expected("Hello.", "mp3")
