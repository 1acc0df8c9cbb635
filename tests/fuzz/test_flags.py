"""Any flags, with any values, end in work done or in one line and an exit code; nothing is our fault."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path
from unicodedata import category

import click
import numpy as np
import pytest
import soundfile

from converters.convert import convert
from converters.published import open_published
from mlx_port.commands import main as cli
from tests.fuzz import made
from tests.mlx_port.commands.fake import FakePipeline, install
from tests.tiny.dia import dac_weights, dia_config, dia_weights, published_dac_config, write_published
from tests.tiny.dia2 import published_dia2
from tests.tiny.published_models import sources
from tests.tiny.qwen3 import write_published as published_qwen3
from tts_core.models import NAMES

pytestmark = pytest.mark.rest

COMMANDS = ("generate", "estimate", "convert")
VALUES = [
    *[
        "",
        "0",
        "-1",
        "1",
        "2",
        "0.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "9" * 40,
        "x",
        "true",
        "None",
        "-",
        "--text",
    ],
    *[
        "voice.wav",
        ".",
        "/dev/null",
        "a.wav",
        "a.flac",
        "a.srt",
        "nowhere",
        "nari-labs/Dia-1.6B-0626",
        "a" * 300,
    ],
    *["Hello.", "[S1] Hi.", "\x1b[2J", "\udcff", "é", "mlx", "torch", "float32", "affine", "4", "64", "0:1"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published model, converted ones and a recording."""
    folder = tmp_path_factory.mktemp("flags")
    dia, dac = dia_weights(dia_config(), seed=3, eos=1.3), dac_weights(published_dac_config())
    write_published(folder / "published", dia, dac)
    convert(open_published(folder / "published", offline=True), folder / "dia", dtype="float32")
    for model in ("mars5", "metavoice"):
        convert(open_published(sources(model)), folder / model, dtype="float32")
    for model, write in (("dia2", published_dia2), ("qwen3", published_qwen3)):
        convert(open_published(write(folder / f"published-{model}")), folder / model, dtype="float32")
    soundfile.write(folder / "voice.wav", 0.2 * np.sin(np.arange(8 * 16000) / 20), 16000)
    return folder


def arguments(chance: random.Random, models: list[str]) -> list[str]:
    command = chance.choice(COMMANDS)
    context = click.Context(cli.mlx_port)
    known = cli.mlx_port.get_command(context, command)
    assert known is not None
    flags = [flag for each in known.params for flag in (*each.opts, *each.secondary_opts) if flag[0] == "-"]
    flags = [flag for flag in flags if flag not in ("--play", "--debug")]
    made_up = [command]
    if command == "generate" and chance.random() < 0.7:
        made_up += ["--text", chance.choice(["Hello there.", "[S1] Hi."])]
    if chance.random() < 0.6:
        made_up += ["--hf-path" if command == "convert" else "--model", chance.choice(models)]
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        made_up.append(chance.choice(flags))
        if chance.random() < 0.75:
            made_up.append(chance.choice([*VALUES, *models]))
    return [*made_up, "--dry-run", "--offline"] if command == "convert" else made_up


@made.cases(250, 20_000)
def test_flags(
    seeds: range, place: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    install(monkeypatch, FakePipeline())
    monkeypatch.chdir(place)
    codes = set()
    models = [str(place / name) for name in ("published", "published-qwen3", *NAMES, "dia/codec")]
    for seed in seeds:
        words = arguments(random.Random(seed), models)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[S1] Hello.")))
        code = cli.run(words)
        sound, said = capsysbinary.readouterr()
        out, err = "" if "-" in words else sound.decode(), said.decode()  # `--output -` writes sound
        where = f"seed {seed}: {words}: {code}, {err}"
        assert code in (0, 2, 3, 4, 5), where
        assert [line.startswith("error: ") for line in err.splitlines()].count(True) == (code != 0), where
        assert not [c for c in out + err if category(c) in made.HIDDEN and c != "\n"], where
        codes.add(code)
    assert {0, 2, 3} <= codes
