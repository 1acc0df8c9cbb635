"""The plot of `mlx-port bench --server`."""

import xml.etree.ElementTree as ET

from mlx_port.commands.bench.load.plot import COLORS, PANELS, plot


def test_a_rate_that_is_too_much_has_rings():
    shares = {share: place + 1.0 for place, share in enumerate(COLORS)}
    loads = [
        {"rate": rate, "overload": overload, **{name: shares for name, _, _ in PANELS}}
        for rate, overload in ((None, None), (1, None), (2, "requests pile up"))
    ]
    drawn = plot({"asked": {"model": "m", "format": "pcm", "characters": 5}, "loads": loads})
    fills = {"at 1 a second": set(), "at 2 a second": set()}
    for circle in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}circle"):
        title = circle[0].text or ""
        fills[title[4:].partition(":")[0]].add(circle.get("fill"))
    assert fills == {"at 1 a second": set(COLORS.values()), "at 2 a second": {"#fff"}}
