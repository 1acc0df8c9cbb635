"""Signs of life: a bar at a terminal, a line now and then elsewhere, plans of long texts."""

import io
import sys
from types import SimpleNamespace

import pytest

from mlx_port.commands import display
from mlx_port.commands.display import duration, elapsed, speech, stage
from tests.mlx_port.commands.running import SECRET
from tests.mlx_port.commands.running import run as run_command
from tts_core.models import MODELS
from tts_core.pipeline import Progress

LONG = f"[S1] {SECRET} and more. " * 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stderr(monkeypatch, made):
    monkeypatch.setattr(sys, "stderr", made)
    return made


def run(capsys, *arguments):
    return run_command(capsys, "generate", *arguments)


def test_a_bar_at_a_terminal_names_stages_and_speed(pipeline, capsys, monkeypatch):
    terminal = stderr(monkeypatch, Terminal())
    assert run(capsys, "-t", "Hum.")[0] == 0
    shown = terminal.getvalue()
    assert "loading the model   0%|" in shown
    assert "speaking" in shown
    assert "1.0 of about 0 s of speech, 2.4 times faster than real time (RTF 0.42)" in shown
    assert shown.endswith("\r"), "the bar is removed"


def test_the_bar_is_that_of_the_stage_where_its_steps_are_known(pipeline, capsys, monkeypatch):
    terminal = stderr(monkeypatch, Terminal())

    def pieces(make=pipeline._pieces):
        pipeline.tell(Progress("speech", 0, 8.0, 30, 200))
        yield from make()

    monkeypatch.setattr(pipeline, "_pieces", pieces)
    assert run(capsys, "-t", "Hum.")[0] == 0
    assert "speaking 30 of 200  15%|" in terminal.getvalue()
    assert "0.0 of about 8 s of speech" in terminal.getvalue()


@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_silence_is_kept(pipeline, capsys, monkeypatch, flag):
    terminal = stderr(monkeypatch, Terminal())
    assert run(capsys, "-t", LONG, flag)[0] == 0
    assert terminal.getvalue() == ""


def test_a_line_now_and_then_without_a_terminal(pipeline, capsys, monkeypatch):
    assert run(capsys, "-t", "Hum.")[2] == ""  # a short run says nothing
    monkeypatch.setattr(display, "LINE_SECONDS", 0.0)
    err = run(capsys, "-t", "Hum.")[2]
    assert err.splitlines() == [
        "0 s: loading the model, 0.0 of about 0 s of speech",
        "0 s: speaking, 0.0 of about 0 s of speech",
        "0 s: speaking, 0.5 of about 0 s of speech",
        "0 s: speaking, 1.0 of about 0 s of speech",
    ]


def test_the_plan_of_a_long_text(pipeline, capsys, monkeypatch):
    """Pieces and speech at once; the time to compute by a short measurement before the first speech."""
    made = stderr(monkeypatch, Terminal())
    assert run(capsys, "-t", LONG)[0] == 0
    shown = made.getvalue()
    seconds = pipeline.asked.seconds
    assert f"{len(pipeline.asked.pieces)} pieces, about {seconds:.0f} s of speech\n" in shown
    assert f"about {0.42 * seconds:.0f} s to compute, by a short measurement\n" in shown
    assert shown.count("to compute") == 1


def test_nothing_is_measured_where_nobody_reads_it_or_somebody_listens(pipeline, capsys, tmp_path):
    short = "[S1] One. [pause:1] Two and more."
    for flags in (["-t", LONG, "--quiet"], ["-t", LONG, "--json"], ["-t", LONG, "--stream"], ["-t", short]):
        pipeline.all_asked.clear()
        code, _, err = run(capsys, *flags)
        assert code == 0
        assert len(pipeline.all_asked) == 1
        assert "measurement" not in err
        if "--stream" in flags:
            seconds = 0.42 * pipeline.asked.seconds
            assert err.count(f"about {seconds:.0f} s to compute, by the first 1.0 s of it\n") == 1


def test_pieces_are_listed_where_that_is_asked_for(pipeline, capsys):
    from mlx_port.commands import main as cli

    assert cli.run(["generate", "-t", "[S1] One. [pause:1] Two and more.", "--show-pieces"]) == 0
    listed = [line.split(maxsplit=3) for line in capsys.readouterr().err.splitlines()[1:3]]
    assert [(number, unit, text) for number, _, unit, text in listed] == [
        ("1", "s", "[S1] One."),
        ("2", "s", "[S1] Two and more."),
    ]
    assert float(listed[0][1]) < float(listed[1][1])


def test_words_of_the_display():
    assert [duration(seconds) for seconds in (0, 119, 150, 7199, 9000)] == [
        "0 s",
        "119 s",
        "2 min",
        "120 min",
        "2.5 h",
    ]
    words = MODELS["mars5"].stages
    assert stage(Progress("AR", 0), words) == "coarse sound"
    assert stage(Progress("AR", 0, None, 7), words) == "coarse sound 7"
    assert stage(Progress("AR", 0, None, 9, 8), words) == "coarse sound 8 of 8", "the number is an estimate"
    assert speech(Progress("AR", 1.25, None)) == "1.2 s of speech"
    assert speech(Progress("AR", 1.25, 20)) == "1.2 of about 20 s of speech"


def test_no_two_lines_have_the_same_time():
    assert [elapsed(seconds) for seconds in (0, 119.4, 120, 130.2, 3725)] == [
        "0 s", "119 s", "2 min 0 s", "2 min 10 s", "62 min 5 s",
    ]  # fmt: skip
    assert len({elapsed(10 * count) for count in range(800)}) == 800


def test_a_long_run_says_its_time_to_the_second(capsys, monkeypatch):
    ticks = iter(range(0, 1000, 10))
    monkeypatch.setattr(display.time, "perf_counter", lambda: next(ticks) + 120.0)
    made = display.Lines(SimpleNamespace(pieces=["x"], seconds=8.0), {}, lists=False)
    made.started = 0.0
    for _ in range(3):
        made.tell(Progress("speech", 1.0, 8.0))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["2 min 10 s", "2 min 20 s", "2 min 30 s"]
