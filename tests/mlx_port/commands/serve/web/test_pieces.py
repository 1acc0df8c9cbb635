"""Pieces are spoken again and spliced; the lines of curl and Python do the same."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.mlx_port.commands.serve.web.chromium import QUIET, RATE, SCRIPT, Page, level

pytestmark = [pytest.mark.browser, pytest.mark.rest]


def times(srt: str) -> list[float]:
    return [60 * int(m) + int(s) + int(f) / 1000 for m, s, f in re.findall(r"00:(\d\d):(\d\d),(\d{3})", srt)]


def test_a_piece_is_spoken_again_and_spliced(page: Page) -> None:
    """The other piece stays as it is, captions follow, and the first take can be had back."""
    page.speak(SCRIPT)
    before, cues = page.sound(), times(page.save("srt", "speech.srt").decode())
    assert len(page.driver.find_elements("css selector", "#pieces li")) == 2
    page.click("again-1")
    page.finish()
    assert page.text("status") == "Piece 2 has a new take. Keep the one that you like."
    np.testing.assert_array_equal(page.sound(), before)
    page.click("take-1-1")
    after, new = page.sound(), times(page.save("srt", "speech.srt").decode())
    start = round(cues[2] * RATE)
    np.testing.assert_array_equal(after[:start], before[:start])
    assert not np.array_equal(after[start:], before[start:])
    assert level(after[start:] / 32768) > QUIET
    assert new[:3] == cues[:3]
    assert new[3] == pytest.approx(len(after) / RATE, abs=0.001)
    page.click("play-1-0")
    page.click("take-1-0")
    np.testing.assert_array_equal(page.sound(), before)


def test_the_lines_shown_do_the_same(page: Page) -> None:
    """curl's for the speech, and Python's for a piece that was spoken again."""
    pytest.importorskip("openai", reason="openai is not installed")
    page.speak(SCRIPT)
    folder = page.folder / "lines"
    folder.mkdir(exist_ok=True)
    sound = page.sound()

    def run(words: list[str], name: str) -> np.ndarray:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return np.frombuffer((folder / name).read_bytes()[44:], "<i2")

    if shutil.which("curl") is not None:
        page.click("curl")
        np.testing.assert_array_equal(run(["bash", "-c", page.text("code")], "speech.wav"), sound)
    page.click("again-1")
    page.finish()
    page.click("take-1-1")
    page.click("python")
    spliced = page.sound()
    piece = run([sys.executable, "-c", page.text("code")], "piece-2.wav")
    fade = round(0.02 * RATE)
    np.testing.assert_array_equal(spliced[fade - len(piece) :], piece[fade:])
    page.click("curl")
    assert "jq -c 'select(.index == 1) | .again + " in page.text("code")
    page.click("copy")
    page.wait("document.getElementById('status').textContent === 'Copied.'")
    assert page.run("return getSelection().toString()") == page.text("code")
