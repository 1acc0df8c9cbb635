"""Voices are uploaded, recorded, used and removed."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from tests.mlx_port.commands.serve.served import Served, Talk, recording, served
from tests.mlx_port.commands.serve.web.chromium import QUIET, Page, level

pytestmark = [pytest.mark.browser, pytest.mark.rest]
SAID = "[S1] Hello there, this is a voice."


def upload(page: Page, file: Path) -> None:
    page.click("add-voice")
    page.fill("voice-name", "own")
    page.the("recording-1").send_keys(str(file))
    page.fill("recording-1-text", SAID)
    page.fill("consent", "It is a voice of our own.")
    page.click("agreed")
    page.wait("document.querySelector('#recordings audio').readyState > 0")
    page.click("voice-save")
    page.wait("document.getElementById('voice').value === 'own'")


def test_a_voice_is_uploaded_used_and_removed(tab: Page, tmp_path: Path) -> None:
    file = tmp_path / "own.wav"
    soundfile.write(file, *recording(2.0))
    source = Talk()
    with served(tmp_path / "voices", source) as server:
        tab.open(server.url)
        upload(tab, file)
        assert server.service.voices.voice("own").transcripts == (SAID,)
        assert "-F 'name=own'" in tab.text("code")
        assert tab.text("voice-help") == "Speaks like a recording of 2.0 s."
        tab.speak("[S1] Good morning.")
        assert '"voice": "own"' in tab.text("code")
        assert source.asked[-1][2].one.text == SAID
        tab.click("remove-voice")
        tab.driver.switch_to.alert.accept()
        tab.wait("document.getElementById('voice').value !== 'own'")
        assert server.service.voices.names() == []
        assert tab.errors() == []


def test_a_model_with_its_own_speakers_says_so(page: Page, embedded: Served, tmp_path: Path) -> None:
    file = tmp_path / "own.wav"
    soundfile.write(file, *recording(2.0))
    assert (
        page.text("voice-help")
        == "The model’s own speakers, [S1] slt and [S2] rms; each name has its own seed."
    )
    page.click("add-voice")
    assert "takes no recording; the voice is for other models." in page.text("new-help")
    page.click("voice-cancel")
    upload(page, file)
    assert page.text("voice-help") == (
        "This model speaks only as [S1] slt and [S2] rms; choose a name without a recording."
    )
    embedded.service.voices.remove("own")


def test_a_voice_is_recorded(page: Page, embedded: Served) -> None:
    """With the browser's fake microphone, which beeps."""
    page.click("add-voice")
    page.fill("voice-name", "beeps")
    page.driver.find_element("css selector", ".record").click()
    page.wait("/Stop recording, 0:0[2-9]/.test(document.querySelector('.record').textContent)")
    page.driver.find_element("css selector", ".record").click()
    page.wait("document.querySelector('#recordings audio').readyState > 0")
    page.fill("recording-1-text", "[S1] Beep beep beep.")
    page.fill("consent", "It is a machine.")
    page.click("agreed")
    page.click("voice-save")
    page.wait("document.getElementById('voice').value === 'beeps'")
    assert (
        embedded.service.voices.voice("beeps").seconds[0] > 0
    )  # a recorder loses some milliseconds of what its clock counts
    samples, _ = soundfile.read(embedded.service.voices.folder / "beeps" / "1.wav")
    assert level(samples) > QUIET
    embedded.service.voices.remove("beeps")


def test_a_voice_has_a_recording_of_each_speaker_where_the_model_takes_two(tab: Page, tmp_path: Path) -> None:
    file = tmp_path / "one.wav"
    soundfile.write(file, *recording(2.0))
    with served(tmp_path / "voices", Talk("dia2")) as server:
        tab.open(server.url)
        tab.click("add-voice")
        assert tab.the("add-recording").is_displayed()
        tab.click("add-recording")
        assert not tab.the("add-recording").is_displayed()
        tab.fill("voice-name", "both")
        for number, said in enumerate(("This is the first one.", "And this is the second."), start=1):
            tab.the(f"recording-{number}").send_keys(str(file))
            tab.fill(f"recording-{number}-text", said)
        tab.fill("consent", "Both agreed.")
        tab.click("agreed")
        tab.click("voice-save")
        tab.wait("document.getElementById('voice').value === 'both'")
        voice = server.service.voices.voice("both")
        assert voice.transcripts == ("This is the first one.", "And this is the second.")
        assert tab.text("voice-help") == "Speaks like a recording of 2.0 s and 2.0 s."
        assert tab.errors() == []


def test_an_upload_that_is_refused_says_why(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "no.wav"
    file.write_bytes(b"not a sound" * 99)
    page.click("add-voice")
    page.fill("voice-name", "no")
    page.fill("recording-1-text", SAID)
    page.fill("consent", "yes")
    page.click("agreed")
    page.click("voice-save")
    assert page.text("voice-error") == "Choose a file, or record one."
    page.the("recording-1").send_keys(str(file))
    page.click("voice-save")
    page.wait("document.getElementById('voice-error').textContent.startsWith('Recording: ')")
    page.click("voice-cancel")
    page.run("arguments[0].value = ''", page.the("recording-1"))
    assert [one for one in page.errors() if "no.wav" in one] == []
