"""docs/measured/limits.md is the output of its command; our layers break no rule, torch's own layers some."""

from pathlib import Path

import pytest

from benchmarks.limits.report import report
from benchmarks.limits.workloads import WORKLOADS, pairs

pytestmark = pytest.mark.rest

PAGE = Path(__file__).parents[3] / "docs" / "measured" / "limits.md"
MET = {
    "Attention: decoding with grouped heads": {
        "sdpa-mask-broadcast",
        "sdpa-scale-cached",
        "sdpa-strided",
    },
    "Attention: causal prompts": {"sdpa-half-causal"},
    "Attention: masks": {"sdpa-mask-dtype-cached", "sdpa-mask-broadcast"},
    "Attention: other shapes": {"sdpa-value-width", "sdpa-leading-broadcast"},
    "Attention: long sequences": {"sdpa-scores-4gib", "sdpa-scores-31-bit", "sdpa-half-long-rows"},
    "Convolutions of a codec": {
        "conv-65536",
        "conv-transpose-65536",
        "conv-chunk-batched",
        "conv-channels-last-slice",
        "conv-weight-strided",
    },
    "LSTM of a codec": {"lstm-leak"},
    "Tables and draws": {"float64", "argmax-macos-27", "multinomial-domain"},
}
OURS = "**with torch_ref**"


@pytest.fixture(scope="module")
def page() -> str:
    return report()


def tables(page: str) -> dict[str, dict[str, list[str]]]:
    """Cells by workload and row."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in page.split("\n### ")[1:]:
        about, _, rest = section.partition("\n")
        lines = rest.partition("\n## ")[0].strip().split("\n")[2:]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        found[about] = {row[0].strip("`"): row[1:] for row in rows}
    return found


def test_the_page_is_current(page):
    assert PAGE.read_text() == page, "run: python -m benchmarks.limits > docs/measured/limits.md"


def test_every_workload_is_shown_for_every_pair(page):
    shown = tables(page)
    assert set(shown) == {workload.about for workload in WORKLOADS} == set(MET)
    assert {len(cells) for rows in shown.values() for cells in rows.values()} == {len(pairs())} == {24}


@pytest.mark.parametrize("about", MET)
def test_rules_are_met_without_our_layers(page, about):
    assert {rule for rule in tables(page)[about] if rule != OURS} == MET[about]


@pytest.mark.parametrize("about", MET)
def test_none_is_met_with_them(page, about):
    assert set(tables(page)[about][OURS]) == {"none"}
