"""The server's description, its errors and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlx_port.commands.serve.settings import Access, Settings
from tests.mlx_port.commands.serve.served import Talk, served
from tests.mlx_port.commands.serve.web.chromium import RATE, Keys, Page
from tests.tts_core.serving import talkers

pytestmark = [pytest.mark.browser, pytest.mark.rest]


def test_a_model_gives_its_form(tab: Page, tmp_path: Path) -> None:
    """Another model has other options and no tags, and asks for a recording; values that differ are sent."""
    dia, mars5 = Talk("dia"), Talk("mars5")
    with served(tmp_path, {"dia": dia, "clone": mars5}) as server:
        tab.open(server.url)
        assert len(tab.driver.find_elements("css selector", "#insert .chip")) == 3
        fields = "#options [id^=option-]:not(p)"
        ids = f"return [...document.querySelectorAll('{fields}')].map(one => one.id.slice(7))"
        described = {one["id"]: one for one in server.get("/v1/audio/models").json()["models"]}
        assert tab.run(ids) == [*described["dia"]["options"]]
        tab.fill("option-seed", str(2**64 - 1))
        tab.fill("option-cfg_scale", "2.5")
        tab.click("option-as_written")
        assert tab.text("changed") == "3 changed"
        tab.speak("one")
        [(_, options, _)] = dia.asked
        assert (options.seed, options.cfg_scale, options.as_written) == (2**64 - 1, 2.5, True)
        tab.choose("model", "clone")
        assert tab.run(ids) == [*described["clone"]["options"]]
        assert len(tab.driver.find_elements("css selector", "#insert .chip")) == 1
        assert tab.text("voice-help") == "MARS5 speaks only with a recording. Add a voice first."
        tab.click("speak")
        tab.finish()
        assert tab.text("error").startswith("Voice: this model speaks with a recording and there is none")
        assert mars5.asked == []


def test_errors_of_the_server_are_shown(page: Page) -> None:
    page.fill("script", " ")
    page.click("speak")
    page.finish()
    assert page.text("error") == "Script: empty; give the text to speak"
    assert page.run("return document.activeElement.id") == "script"
    page.fill("script", "[S1] Hello.")
    page.fill("option-max_seconds", "5000")
    page.click("speak")
    page.finish()
    assert page.text("error").startswith("Max seconds: ")
    assert page.the("option-max_seconds").get_attribute("aria-invalid") == "true"
    page.fill("option-max_seconds", "")
    page.fill("script", "[S1] 東京.")
    page.click("speak")
    page.finish()
    learned = (
        "The model has not learned 東 京; write them in its alphabet, or leave them out with “Skip unknown”."
    )
    assert page.text("error") == learned
    page.fill("script", "[S1] Hello.")
    page.fill("option-speed", "9")
    page.click("speak")
    assert page.text("error").startswith("Speed: ")
    page.click("reset")
    page.speak("[S1] Hello.")
    assert not page.the("error").is_displayed()


def test_a_speech_that_breaks_off_and_a_server_that_is_gone(
    tab: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talkers, "RATE", RATE)
    with served(tmp_path) as server:
        tab.open(server.url)
        tab.speak("one two choke")
        assert tab.text("error") == "The server broke the speech off; its log has the reason."
        tab.speak("choke")
        assert tab.text("error") == "Talker: choked"
    tab.speak("one two")
    assert tab.text("error") == "The server does not answer. Is it still running?"
    assert tab.errors() == []


def test_the_key_is_asked_for_and_kept_in_the_tab(tab: Page, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(talkers, "RATE", RATE)
    with served(tmp_path, settings=Settings(access=Access(api_key="open sesame"))) as server:
        tab.open(server.url, ready=False)
        for given, answer in (("wrong", ""), ("open sesame", "That key is wrong.")):
            tab.wait("document.getElementById('key-dialog').open")
            assert tab.text("key-error") == answer
            tab.the("key").send_keys(given, Keys.ENTER)
        tab.wait("'ready' in document.documentElement.dataset")
        tab.speak("one two")
        assert tab.text("status") == "0.0 s of speech."
        assert "$MLX_PORT_API_KEY" in tab.text("code")
        assert "sesame" not in tab.driver.page_source + tab.driver.current_url
        assert tab.run("return localStorage.length + document.cookie.length") == 0
        tab.driver.get(server.url)
        tab.wait("'ready' in document.documentElement.dataset")
        assert tab.errors() == []
