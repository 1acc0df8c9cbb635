"""`mlx-port judge`, with judges that need no weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.card import JUDGED, MEASURED, add_measurements
from converters.convert import convert
from converters.published import open_published
from mlx_port.commands import judge_bits
from mlx_port.commands.judge import MEASURES
from mlx_port.commands.main import run
from tts_core.audio.files import write_audio
from tts_core.judges import judging, wheels
from tts_core.judges.judging import Measure, measures
from tts_core.judges.sentences import sentences
from tts_core.voice.embedded import CODEC, DIA


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loud = Measure("ear <1>", ("mos",), lambda: lambda row, samples: {"mos": float(samples.max())})
    monkeypatch.setattr(judging, "measures", lambda whisper: {"naturalness": loud})
    folder = tmp_path / "sounds"
    folder.mkdir()
    for place, name in enumerate(("a", "b<i>")):
        write_audio(folder / f"{name}.wav", np.full(1600, 0.25 * (place + 1), np.float32), 16000)
    (folder / "c.wav").write_bytes(b"no sound")
    return folder


def test_a_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "out.json", tmp_path / "out.html"]
    flags = ["--measures", "naturalness", "--language", "EN"]
    assert run(["judge", str(folder), *flags, "--json", str(files[0]), "--html", str(files[1])]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("3 recordings\nmos ")
    assert "c.wav: audio: " in printed
    found = json.loads(files[0].read_text())
    assert found["sum"][0]["value"] == pytest.approx(0.375, abs=1e-4)
    assert [row["name"] for row in found["rows"]] == ["a.wav", "b<i>.wav", "c.wav"]
    assert "error" in found["rows"][2]
    page = files[1].read_text()
    assert "b&lt;i&gt;.wav" in page
    assert "<i>" not in page
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_one_recording_has_no_interval(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "out.json", tmp_path / "out.html"]
    flags = ["--measures", "naturalness", "--json", str(files[0]), "--html", str(files[1])]
    assert run(["judge", str(folder / "a.wav"), *flags]) == 0
    assert capsys.readouterr().out.split() == ["1", "recording", "mos", "0.250", "1", "ear", "<1>"]
    [line] = json.loads(files[0].read_text())["sum"]
    assert (line["rows"], line["low"], line["high"]) == (1, None, None)
    assert "0.250 to 0.250" not in files[1].read_text()


def test_a_joined_recording_is_judged_whole(folder: Path, tmp_path: Path) -> None:
    (folder / "a.wav").write_bytes((folder / "a.wav").read_bytes() * 3)
    flags = ["--measures", "naturalness", "--json", str(tmp_path / "out.json")]
    assert run(["judge", str(folder / "a.wav"), *flags]) == 0
    [row] = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["seconds"] == pytest.approx(0.3)


def test_a_long_recording_is_not_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is decoded no further than the limit."""
    write_audio(folder / "long.wav", np.full(16000 * 300 + 1, 0.5, np.float32), 16000)
    flags = ["judge", str(folder), "--measures", "naturalness"]
    assert run(flags) == 0
    assert "long.wav is longer than 300 s; give a part of it" in capsys.readouterr().out
    assert run([*flags, "--most-seconds", "301"]) == 0
    assert "longer" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "SOURCE is missing"),
        (["SOUNDS", "--measures", "taste"], "'taste' is none of naturalness"),
        (
            ["SOUNDS", "--measures", "naturalness", "--language", "german"],
            "--language german: naturalness cannot be measured, the judges hear English only; give",
        ),
        (["SOUNDS", "--measures", "naturalness", "--json", "x.txt"], "--json: x.txt ends in '.txt'"),
        (["SOUNDS", "--text", "Hi."], "only for a single recording"),
    ],
)
def test_bad_flags(folder: Path, flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(folder) if flag == "SOUNDS" else flag for flag in flags]
    if "--text" in given:
        given += ["--measures", "naturalness"]
    assert run(["judge", *given]) == 2
    assert reason in capsys.readouterr().err


def test_no_recording_could_be_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.wav", "b<i>.wav"):
        (folder / name).unlink()
    assert run(["judge", str(folder), "--measures", "naturalness"]) != 0
    assert "no recording could be judged" in capsys.readouterr().err


@pytest.fixture
def ears(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Judges that give a figure where there is something to compare with; the path of one recording."""

    def ear(figure: str, needed: str) -> Measure:
        return Measure(
            "ear", (figure,), lambda: lambda row, samples: {figure: 1.0} if getattr(row, needed) else {}
        )

    every = {
        "words": ear("mos", "text"),
        "likeness": ear("likeness", "reference"),
        "silence": ear("speech", "name"),
    }
    monkeypatch.setattr(judging, "measures", lambda whisper: every)
    return folder / "a.wav"


@pytest.mark.parametrize(
    ("names", "reasons"),
    [
        ("words", ["words cannot be measured: no recording has a text; give --text"]),
        ("likeness", ["likeness cannot be measured: no recording has a reference; give --ref-audio"]),
        ("words,likeness", ["words cannot", "likeness cannot"]),
    ],
)
def test_nothing_to_compare_with(ears: Path, names: str, reasons: list[str], capsys: Any) -> None:
    for source in (ears, ears.parent):
        assert run(["judge", str(source), "--measures", names]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert all(reason in err for reason in reasons)
    given = ["--text", "Hi."] if names == "words" else ["--ref-audio", str(ears)]
    assert run(["judge", str(ears), "--measures", names, *given]) == 0


def test_a_measure_that_has_nothing_to_compare_with_is_named(ears: Path, capsys: Any) -> None:
    assert run(["judge", str(ears), "--measures", "words,silence"]) == 0
    out, err = capsys.readouterr()
    assert "speech" in out
    assert err.startswith("words cannot be measured: no recording has a text")


def test_rows_with_a_text_that_cannot_be_read_leave_nothing_measured(ears: Path, capsys: Any) -> None:
    (ears.parent / "c.txt").write_text("Words of the broken one.")
    assert run(["judge", str(ears.parent), "--measures", "words"]) == 6
    assert "no recording could be judged" in capsys.readouterr().err


def test_missing_weights_name_the_flag(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judging, "measures", measures)
    assert run(["judge", str(folder), "--measures", "likeness", "--ref-audio", "a.wav"]) == 3
    assert "judge --install" in capsys.readouterr().err


def test_install(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(wheels, "EVERY", ())
    assert run(["judge", "--install"]) == 0


def test_names_in_the_help_are_all() -> None:
    assert tuple(measures()) == MEASURES


def speak_two(monkeypatch: pytest.MonkeyPatch, said: list[str], listen: Any) -> None:
    """Two sentences and another ear."""
    ear = Measure("ear", ("wer",), lambda: listen)
    monkeypatch.setattr(judging, "measures", lambda whisper: {"words": ear})
    monkeypatch.setattr(judge_bits, "sentences", lambda: said)


def test_figures_are_kept_in_the_card_and_shown_by_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With those of other bits and of verify, none twice; a copy is said to have those of its own bits."""
    folder = tmp_path / "voice"
    convert(open_published([DIA], codec=CODEC, offline=True), folder)
    wrong = iter([1, 0, 2, 2])
    speak_two(monkeypatch, ["A."], lambda *_: {"words": 4, "word_errors": next(wrong), "wer": 0})
    for bits in ("32,8", "8"):
        assert run(["judge", "--bits", bits, "--model", str(folder)]) == 0
    add_measurements(folder, ["all within the bound"])
    card = (folder / "README.md").read_text()
    assert "Nothing was measured" not in card
    wide = "32 bits, float32: 25.0% wrong words, 1 sentences, ear"
    eight = "8 bits, float16: 50.0% wrong words, 1 sentences, ear"
    judged, verified = f"{JUDGED}\n\n- {wide}\n- {eight}\n", f"{MEASURED}\n\n- all within the bound\n"
    assert card.endswith(f"\n\n{judged}\n{verified}")
    capsys.readouterr()
    for flags, shown in (
        ([], [f"{JUDGED}: {wide}", f"{JUDGED}: {eight}", f"{MEASURED}: all within the bound"]),
        (["-q"], [f"{JUDGED}: {eight}"]),
        (["-q", "--q-bits", "4"], []),
    ):
        assert run(["estimate", str(folder), *flags]) == 0
        out = capsys.readouterr().out
        assert [f"## {line}" for line in out.splitlines() if line.startswith("Measured")] == shown
        assert ("Nothing was measured" in out) is (shown == [])


def test_the_same_sentences_at_each_number_of_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[tuple[str | None, bytes]] = []

    def listen(row: Any, samples: np.ndarray) -> dict[str, float]:
        heard.append((row.text, samples.tobytes()))
        return {"words": 4, "word_errors": len(heard) > 2, "wer": 0}

    said = ["A dog.", "A cat sat."]
    speak_two(monkeypatch, said, listen)
    assert run(["judge", "--bits", "32,4", "--json", str(tmp_path / "found.json")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "32 bits, float32: 0.0% wrong words (0.0% to 0.0%), 2 sentences, ear",
        "4 bits, float32: 25.0% wrong words (25.0% to 25.0%), 2 sentences, ear",
    ]
    assert [text for text, _ in heard] == said * 2
    assert len({sound for _, sound in heard}) == 4  # quantized weights are other weights
    found = json.loads((tmp_path / "found.json").read_text())
    assert [(one["bits"], one["value"], one["rows"]) for one in found] == [(32, 0, 2), (4, 0.25, 2)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "x"], "--model: only with --bits"),
        (["--bits", "8", "sounds"], "leave SOURCE"),
        (["--bits", "7"], "'7' is none of 32, 16"),
    ],
)
def test_flags_that_do_not_go_with_bits(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["judge", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_hundred_sentences() -> None:
    assert len(set(sentences())) == 100
