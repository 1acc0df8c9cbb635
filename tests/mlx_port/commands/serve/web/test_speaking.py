"""A script is typed, spoken, heard, stopped and saved."""

from __future__ import annotations

import io
import re
import threading

import numpy as np
import pytest
import soundfile

from tests.mlx_port.commands.serve.served import Served, until
from tests.mlx_port.commands.serve.web.chromium import QUIET, RATE, SCRIPT, Keys, Page, level

pytestmark = [pytest.mark.browser, pytest.mark.rest]


def decoded(data: bytes, name: str) -> tuple[np.ndarray, int]:
    """Samples in [-1, 1], and their rate."""
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 32768, 24000
    if name != "aac":
        return soundfile.read(io.BytesIO(data))
    av = pytest.importorskip("av", reason="PyAV is not installed: extra formats")
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray().ravel() for frame in container.decode(audio=0)]
        return np.concatenate(frames), container.streams.audio[0].rate


def test_a_script_is_typed_spoken_and_heard(page: Page) -> None:
    """With the keyboard; each speaker has a color, progress counts made and left, the wave is drawn."""
    assert page.text("count").endswith("of 4096 characters")
    page.fill("script", SCRIPT)
    colors = page.run(
        "return [1, 2].map(n => getComputedStyle(document.querySelector(`#shown .speaker-${n}`)).color)"
    )
    assert len({*colors, page.run("return getComputedStyle(document.body).color")}) == 3
    assert page.run("return document.getElementById('shown').textContent") == SCRIPT + "\n"
    page.the("script").send_keys(Keys.CONTROL, Keys.ENTER)
    page.finish()
    assert re.fullmatch(r"\d+\.\d s of speech\.", page.text("status"))
    said = [text for text in page.run("return said") if text]
    assert all(re.fullmatch(r"\d+\.\d s made, about \d+\.\d s left(, ready in \d+ s)?", one) for one in said)
    made = [float(one.partition(" ")[0]) for one in said]
    assert made == sorted(made)
    page.wait("document.getElementById('play').ariaLabel === 'Play'")
    squares, samples = page.run("return [heard.squares, heard.samples]")
    assert samples == len(page.sound())
    assert 10 * np.log10(squares / samples) > QUIET
    assert level(page.sound() / 32768) > QUIET
    painted = page.run(
        "const c = document.getElementById('wave');"
        "const {data} = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return data.filter((value, place) => place % 4 == 3 && value).length"
    )
    assert painted > 1000


def test_marks_are_inserted_at_the_cursor(page: Page) -> None:
    page.fill("script", "[S1] One.")
    for chip in page.driver.find_elements("css selector", "#insert button"):
        chip.click()
    assert page.the("script").get_property("value") == "[S1] One.\n[S1] [S2] [pause:0.5] "


def test_a_long_script_scrolls_with_its_colors(page: Page) -> None:
    """The field is as high as its colored copy, and the cursor stays in view."""
    page.run("arguments[0].value = arguments[1]", page.the("script"), "[S1] One line.\n[S2] Another.\n" * 40)
    page.the("script").send_keys("[S1] The end.")
    sizes = "return ['script', 'shown'].map(name => document.getElementById(name).getBoundingClientRect())"
    field, shown = page.run(sizes)
    assert {name: field[name] for name in ("x", "y", "height")} == {
        name: shown[name] for name in ("x", "y", "height")
    }
    box = page.run("return document.querySelector('.editor').getBoundingClientRect()")
    assert field["height"] > 2 * box["height"]
    assert field["bottom"] - box["bottom"] < 80


def test_every_format_and_the_captions_are_saved(page: Page) -> None:
    page.speak(SCRIPT)
    length = len(page.sound()) / RATE
    names = page.run("return [...document.querySelectorAll('#format option')].map(one => one.value)")
    assert {"wav", "flac", "mp3", "opus", "pcm"} <= {*names}
    for name in names:
        page.choose("format", name)
        samples, rate = decoded(page.save("download", f"speech.{name}"), name)
        assert level(samples) > QUIET
        assert len(samples) / rate == pytest.approx(length, abs=0.2)
    srt = page.save("srt", "speech.srt").decode()
    assert re.match(r"1\n00:00:00,000 --> 00:00:0\d,\d{3}\n\[S1\] Hello there\.\n\n2\n", srt)
    assert page.save("vtt", "speech.vtt").decode().startswith("WEBVTT\n\n00:00:00.000 --> ")


def test_stop_cancels_on_the_server(page: Page, embedded: Served) -> None:
    """What was made stays; the next speech is another one."""
    outcome = 'mlx_port_requests_total{model="embedded",outcome="cancelled"}'
    before = embedded.figure(outcome)
    for stop in (lambda: page.click("stop"), lambda: page.the("script").send_keys(Keys.ESCAPE)):
        page.fill("script", "[S1] " + "This is a very long text. " * 20)
        page.click("speak")
        page.wait("said.some(text => parseFloat(text) > 0.5)")
        stop()
        page.finish()
        assert re.fullmatch(r"Stopped after \d+\.\d s\.", page.text("status"))
        page.run("said.length = 0")
    until(lambda: embedded.figure(outcome) == before + 2)
    until(lambda: embedded.figure("mlx_port_running") == 0)
    assert 0.5 < len(page.sound()) / RATE < 60
    page.speak("[S1] Hello there.")
    assert page.text("status").endswith("s of speech.")


def test_the_wave_is_a_slider(page: Page) -> None:
    page.speak("[S1] Hello there.")
    page.wait("document.getElementById('play').ariaLabel === 'Play'")
    wave = page.the("position")
    wave.send_keys(Keys.END)
    end = float(page.attribute("position", "aria-valuenow"))
    assert end == pytest.approx(len(page.sound()) / RATE, abs=0.06)
    wave.send_keys(Keys.HOME)
    assert float(page.attribute("position", "aria-valuenow")) == 0
    assert page.attribute("position", "aria-valuetext").startswith("0:00 of 0:0")
    wave.click()
    assert float(page.attribute("position", "aria-valuenow")) == pytest.approx(end / 2, abs=0.1)
    wave.send_keys(Keys.SPACE)
    page.wait("document.getElementById('play').ariaLabel === 'Pause'")
    page.wait("document.getElementById('play').ariaLabel === 'Play'")


def test_pages_of_two_tabs_do_not_disturb_each_other(page: Page, embedded: Served) -> None:
    """A speech of another client at the same time is neither waited for nor mixed in."""
    other = threading.Thread(target=lambda: embedded.post(input="[S1] Another text.", seed=1))
    other.start()
    page.fill("option-seed", "5")
    page.speak("[S1] Hello there.")
    alone = embedded.post(input="[S1] Hello there.", seed=5, response_format="wav").content
    np.testing.assert_array_equal(page.sound(), np.frombuffer(alone[44:], "<i2"))
    other.join()
