"""Damaged folders through the command: done, or one line and the right exit code, never a traceback."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from converters import cli
from converters.convert import convert
from converters.published import open_published
from tests.converters.folders import DAC_HF, V_0626, V_0626_HF, left_in
from tests.tiny.published_models import AR, ENCODEC, NAR, VOCOS
from tts_core.command import runner

pytestmark = pytest.mark.rest

VALUES = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**63,
        10**30,
        0.5,
        -0.0,
        1e308,
        "",
        "x",
        "\x1b[2J",
        "\u202e",
        "\ud800",
    ),
    *([], [1], [[]], {}, {"a": 1}, [0] * 100, [-1, 2], "9" * 400),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a JSON document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(content: Any, rng: random.Random) -> Any:
    """The document with a value replaced, removed, moved, or a key renamed."""
    content = json.loads(json.dumps(content))
    *above, last = rng.choice([path for path in places(content) if path])
    holder = content
    for key in above:
        holder = holder[key]
    match rng.randrange(4 if isinstance(holder, dict) else 2):
        case 0 | 1:
            holder[last] = rng.choice(VALUES)
        case 2:
            del holder[last]
        case _:
            holder[rng.choice(["", "x", "model_type", "__class__", last + " "])] = holder.pop(last)
    return content


def damaged(text: str, rng: random.Random) -> bytes:
    """The text with bytes changed, removed or repeated."""
    octets = bytearray(text.encode())
    for _ in range(rng.choice((1, 1, 4))):
        at = rng.randrange(len(octets))
        if rng.random() < 0.5:
            octets[at] = rng.randrange(256)
        else:
            octets[at : at + rng.randrange(9)] = rng.choice((b"", b"[" * 9, b"{", b"&a *a", b": ", b"\xff"))
    return bytes(octets)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str, list[object]]]:
    """Name → folder, the description to damage in it, and the flags that convert it."""
    root = tmp_path_factory.mktemp("sources")

    def copy(name: str, *files: Path) -> Path:
        folder = root / name
        folder.mkdir()
        for file in files:
            shutil.copy(file, folder)
        return folder

    hf = copy("hf", *V_0626_HF.iterdir())
    nari = copy("nari", *V_0626.iterdir())
    dac = copy("dac", *DAC_HF.iterdir())
    ar = copy("ar", AR)
    (ar / "sizes.json").write_text(
        (AR.with_suffix(".json")).read_text() if AR.with_suffix(".json").is_file() else "{}"
    )
    vocos = copy("vocos", *VOCOS.iterdir())
    converted = root / "converted"
    convert(open_published(V_0626_HF, codec=DAC_HF), converted)
    mars5 = ["--hf-path", NAR, "--hf-path", ENCODEC]
    return {
        "transformers": (hf, "config.json", ["--hf-path", hf, "--codec", DAC_HF]),
        "nari": (nari, "config.json", ["--hf-path", nari, "--codec", DAC_HF]),
        "codec": (dac, "config.json", ["--hf-path", V_0626_HF, "--codec", dac]),
        "sizes": (
            ar,
            "sizes.json",
            ["--hf-path", AR, *mars5, "--hf-path", VOCOS, "--config", ar / "sizes.json"],
        ),
        "vocos": (vocos, "config.yaml", ["--hf-path", AR, *mars5, "--hf-path", vocos]),
        "converted": (converted, "config.json", ["--hf-path", converted]),
        "converted codec": (converted / "codec", "config.json", ["--hf-path", converted]),
        "index": (converted, "model.safetensors.index.json", ["--hf-path", converted]),
    }


def run(capsys: pytest.CaptureFixture[str], flags: list[object], destination: Path) -> int:
    """Convert; check that the answer is one line. Returns the exit code."""
    flags = [*flags, "--mlx-path", destination, "--dry-run", "--offline"]
    code = runner.run(cli.convert_weights, [str(flag) for flag in flags], debug=False)
    out, err = capsys.readouterr()
    if code:
        assert code in (2, 3, 4), err
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("error: ")
        assert "internal" not in err
        assert not err.strip().endswith(":")  # an empty reason
        assert err.strip().isprintable()
    return code


def fuzz(sources, capsys, tmp_path: Path, seed: int, count: int) -> int:
    """Try `count` damaged descriptions of each source; the number of those that were refused."""
    rng, refused = random.Random(seed), 0
    for folder, name, flags in sources.values():
        whole = (folder / name).read_text()
        try:
            for _ in range(count):
                if name.endswith(".json") and rng.random() < 0.7 and len(whole) > 2:
                    new = json.dumps(changed(json.loads(whole), rng)).encode()
                else:
                    new = damaged(whole, rng)
                (folder / name).write_bytes(new)
                refused += run(capsys, flags, tmp_path / "out") != 0
        finally:
            (folder / name).write_text(whole)
    assert left_in(tmp_path) == []
    return refused


def test_damaged_descriptions(sources, capsys, tmp_path):
    assert fuzz(sources, capsys, tmp_path, 0, 12) > 30


@pytest.mark.slow
def test_many_damaged_descriptions(sources, capsys, tmp_path):
    for seed in range(1, 21):
        fuzz(sources, capsys, tmp_path, seed, 300)
