"""Screens, contrast, names for screen readers, and what the policy keeps out."""

from __future__ import annotations

from itertools import product

import pytest

from tests.mlx_port.commands.serve.served import Served
from tests.mlx_port.commands.serve.web.chromium import SCRIPT, Page

pytestmark = [pytest.mark.browser, pytest.mark.rest]


CONTRAST = """
const light = ([r, g, b]) => {
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const color = text => text.match(/[\\d.]+/g).map(Number);
const ground = one => {
  for (; one; one = one.parentElement) {
    const [r, g, b, a = 1] = color(getComputedStyle(one).backgroundColor);
    if (a === 1) return [r, g, b];
  }
};
const low = [];
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const style = getComputedStyle(one);
  if (!own || !one.checkVisibility() || color(style.color)[3] === 0 || one.tagName === "OPTION") continue;
  const [a, b] = [light(color(style.color)), light(ground(one))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) low.push(`${one.tagName} ${one.className} ${one.textContent}: ${ratio}`);
}
return low;
"""


WIDE = """
const wide = [];
for (const box of document.querySelectorAll(".card, dialog[open], fieldset, .code, .wave")) {
  const {left, right} = box.getBoundingClientRect();
  for (const one of box.querySelectorAll("*")) {
    const own = one.getBoundingClientRect();
    if (!one.checkVisibility() || own.width <= 1 || one.closest(".hidden, svg, audio")) continue;
    if (own.left < left - 1 || own.right > right + 1) wide.push(`${one.tagName} ${one.id} in ${box.id}`);
  }
}
return wide;
"""


def test_screens_and_schemes(page: Page) -> None:
    """Nothing is wider than its box or the screen, text has a contrast of 4.5 (WCAG AA), dark is dark."""
    page.speak(SCRIPT)
    page.click("again-0")
    page.finish()
    try:
        for scheme, width in product(("light", "dark"), (1280, 390, 320)):
            page.prefer(scheme)
            page.resize(width)
            for button in (None, "add-voice"):
                if button is not None:
                    page.click(button)
                assert page.run("return document.documentElement.scrollWidth") <= width
                assert page.run(WIDE) == []
                assert page.run(CONTRAST) == []
            page.click("voice-cancel")
            ground = page.run("return getComputedStyle(document.body).backgroundColor").removeprefix("rgb(")
            assert (int(ground.partition(",")[0]) < 60) == (scheme == "dark")
    finally:
        page.prefer("light")
        page.resize(1280)


def test_every_control_has_a_name(page: Page) -> None:
    """In the tree that screen readers get."""
    page.speak(SCRIPT)
    page.click("again-0")
    page.finish()
    roles = {
        "button",
        "textbox",
        "combobox",
        "checkbox",
        "radio",
        "slider",
        "spinbutton",
        "radiogroup",
        "link",
    }
    for dialog in (None, "add-voice"):
        if dialog is not None:
            page.click(dialog)
        nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        named = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"] and node["role"]["value"] in roles
        ]
        assert len(named) > (20 if dialog is None else 5)
        assert [role for role, name in named if not name.strip()] == []
    page.click("voice-cancel")


def test_nothing_comes_from_elsewhere_and_nothing_inline_runs(tab: Page, embedded: Served) -> None:
    tab.open(embedded.url)
    loaded = tab.run("return performance.getEntriesByType('resource').map(one => one.name)")
    assert loaded
    assert [url for url in loaded if not url.startswith(embedded.url + "/")] == []
    assert tab.errors() == []
    for line in ("innerHTML = '<b>x</b>'", "setAttribute('onclick', 'run()')"):
        refused = tab.run(f"try {{ document.body.{line} }} catch (error) {{ return error.name }}")
        assert refused == "TypeError"
    tab.run("document.body.setAttribute('style', 'color: rgb(1, 2, 3)')")
    assert tab.run("return getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    assert any("Content Security Policy" in message for message in tab.errors())
