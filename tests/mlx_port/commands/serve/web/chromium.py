"""Headless Chromium with a fake microphone, driven by selenium, on the page of a server."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.mlx_port.commands.serve.served import until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

RATE = 16000  # Hz, of the embedded voice
SCRIPT = "[S1] Hello there. [pause:0.3] [S2] This is good."
QUIET = -50  # dBFS
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=user-gesture-required",
)
# before any script of the page: keep the squares of all samples that are played, and every progress text
SPY = """
window.heard = {squares: 0, samples: 0}; window.said = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (...given) {
  for (const sample of this.buffer.getChannelData(0)) window.heard.squares += sample * sample;
  window.heard.samples += this.buffer.length;
  return start.apply(this, given);
};
addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
  window.said.push(document.getElementById("made").textContent);
}).observe(document.getElementById("made"), {childList: true}));
"""


class Keys:
    """Keys, as the WebDriver standard encodes them."""

    CONTROL, ENTER, ESCAPE, END, HOME, SPACE = "\ue009", "\ue007", "\ue00c", "\ue010", "\ue011", "\ue00d"


class Page:
    """The page in a tab. folder: of its downloads."""

    def __init__(self, driver: Chrome, folder: Path):
        self.driver, self.folder = driver, folder

    def open(self, url: str, *, ready: bool = True) -> None:
        """Load the page anew, without what it kept."""
        self.driver.get(url)
        self.run("sessionStorage.clear()")
        self.driver.get(url)
        if ready:
            self.wait("'ready' in document.documentElement.dataset")

    def run(self, script: str, *given: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *given)

    def wait(self, condition: str) -> None:
        """Wait until an expression of the page is true."""
        until(lambda: self.run(f"return {condition}"))

    def the(self, name: str) -> WebElement:
        """The element of an id."""
        return self.driver.find_element("id", name)

    def text(self, name: str) -> str:
        """The text of the element of an id, as it is shown."""
        return self.the(name).text

    def attribute(self, name: str, attribute: str) -> str:
        """An attribute of the element of an id."""
        return str(self.the(name).get_attribute(attribute))

    def click(self, name: str) -> None:
        """Click the element of an id."""
        self.run("arguments[0].scrollIntoView({block: 'center'})", self.the(name))
        self.the(name).click()

    def fill(self, name: str, text: str) -> None:
        """Replace the text of a field by typing; what it is folded in is opened."""
        self.run("arguments[0].closest('details')?.setAttribute('open', '')", self.the(name))
        self.the(name).clear()
        self.the(name).send_keys(text)

    def choose(self, name: str, value: str) -> None:
        """Choose an option of a list."""
        self.run("arguments[0].value = arguments[1]", self.the(name), value)
        self.run("arguments[0].dispatchEvent(new Event('change', {bubbles: true}))", self.the(name))

    def speak(self, text: str) -> None:
        """Type a script, speak it, and wait for its end."""
        self.fill("script", text)
        self.click("speak")
        self.finish()

    def finish(self) -> None:
        """Wait until nothing is spoken."""
        self.wait("document.getElementById('stop').disabled")

    def save(self, button: str, name: str) -> bytes:
        """Click a button and return the file that it saves."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        self.click(button)
        until(path.exists)
        until(lambda: not [*self.folder.glob("*.crdownload")])
        return path.read_bytes()

    def sound(self) -> np.ndarray:
        """(L,) int16 of the speech, downloaded as WAV."""
        self.choose("format", "wav")
        return soundfile.read(io.BytesIO(self.save("download", "speech.wav")), dtype="int16")[0]

    def errors(self) -> list[str]:
        """What the console complains of, besides answers of the server that are errors."""
        found = self.driver.get_log("browser")
        return [each["message"] for each in found if each["source"] != "network"]

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the screen."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        """Prefer "dark" or "light", and colors that change at once."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Start a browser. folder: of downloads. Skips the test where selenium or a program is missing."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    service = Service(str(shutil.which("chromedriver")), env={**environment, "SE_AVOID_STATS": "true"})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        page = Page(driver, folder)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SPY})
        page.prefer("light")
        page.resize(1280)
        yield page
    finally:
        driver.quit()


def level(samples: np.ndarray) -> float:
    """RMS of samples in [-1, 1], dBFS."""
    return 10 * float(np.log10(np.mean(np.square(samples, dtype=np.float64)) + 1e-20))
