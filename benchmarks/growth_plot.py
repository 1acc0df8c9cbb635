"""Plot Dia's throughput by streams, as `benchmarks/serving.py --json` measured it, with two floors.

    python benchmarks/growth_plot.py float32=growth.json tf32=other.json --out FILE.svg
        [--bytes-a-second 4.2e12] [--flops float32=67e12,tf32=495e12]

The decoder's floor reads its weights once a step, and the keys and values of every text (guided, half of
--frames positions, 90 of text), at the rate of a device-to-device copy. The codec's computes DAC's
multiplications and additions at the GPU's rate for the number format, by its data sheet.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tts_core import models
from tts_core.codecs.dac import DAC_44KHZ, DILATIONS
from tts_core.speed import step_bytes

CONFIGS = models.model("dia").sizes["nari-labs/Dia-1.6B-0626"]
LEFT, TOP, WIDTH, HEIGHT = 60, 40, 460, 300
COLORS = ("#2563eb", "#d97706", "#15803d", "#b91c1c")
TEXT = 90  # positions of a text's source
Line = Sequence[tuple[float, float]]


def measured(path: Path) -> Line:
    """Streams and seconds of speech a second."""
    [row] = json.loads(path.read_text("utf-8"))
    return [(int(name.split()[0]), each["throughput"]) for name, each in row.items() if " streams, " in name]


def decoder_floor(streams: float, frames: int, rate: float) -> float:
    """Seconds of speech a second of as many texts, if a step only reads."""
    decoder = CONFIGS["dia"].decoder_config  # type: ignore[attr-defined]
    own = 2 * frames / 2 * decoder.num_key_value_heads * decoder.head_dim
    source = TEXT * decoder.cross_num_key_value_heads * decoder.cross_head_dim
    kept = 2 * 2 * decoder.num_hidden_layers * (own + source)  # keys and values, two bytes each
    return (
        streams
        / (DAC_44KHZ.sample_rate / DAC_44KHZ.hop_length)
        / ((step_bytes("dia", CONFIGS, "bfloat16") + streams * kept) / rate)
    )


def codec_flops() -> float:
    """Count the operations of a second of speech in DAC's decoder."""
    width, length = DAC_44KHZ.decoder_hidden_size, 1
    total = 7 * DAC_44KHZ.hidden_size * width
    for stride in DAC_44KHZ.upsampling_ratios:
        total += 2 * stride * width * width // 2 * length
        width, length = width // 2, length * stride
        total += len(DILATIONS) * (7 + 1) * width**2 * length
    return 2 * (total + 7 * width * length) * DAC_44KHZ.sample_rate / DAC_44KHZ.hop_length


def svg(lines: Mapping[str, Line]) -> str:
    """Draw lines on two logarithmic axes; floors are dashed."""
    points = [point for line in lines.values() for point in line]
    right, low, high = (math.log2(f([p[i] for p in points])) for i, f in ((0, max), (1, min), (1, max)))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + WIDTH * math.log2(x) / right,
            TOP + HEIGHT * (high - math.log2(y)) / (high - low),
        )

    shapes = []
    for power in range(round(right) + 1):
        x, _ = place(2**power, 2**low)
        shapes.append(f'<path d="M{x:.1f} {TOP}v{HEIGHT}" stroke="#eee"/>')
        shapes.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{2**power}</text>')
    for power in range(math.ceil(low), math.floor(high) + 1):
        _, y = place(1, 2**power)
        shapes.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#eee"/>')
        shapes.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{2**power}</text>')
    for color, (name, line) in zip(COLORS * 2, lines.items(), strict=False):
        dash = ' stroke-dasharray="5 4"' if "floor" in name else ""
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in line)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        x, y = place(*line[-1])
        shapes.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" fill="{color}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 190} {TOP + HEIGHT + 44}" '
        f'font-family="system-ui, sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{LEFT}" y="20">Dia-1.6B, seconds of speech a second, by streams</text>'
        f"{''.join(shapes)}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", help="NAME=FILE, the name of a codec precision")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=344)
    parser.add_argument("--bytes-a-second", type=float, default=4.2e12)
    parser.add_argument("--flops", default="float32=67e12,tf32=495e12")
    args = parser.parse_args()
    lines: dict[str, Line] = {}
    rates = dict(one.split("=") for one in args.flops.split(","))
    for run in args.runs:
        name, path = run.split("=", 1)
        lines[f"codec in {name}"] = measured(Path(path))
        codec = float(rates[name]) / codec_flops()
        lines[f"floor of the codec, {name}: {codec:.0f}"] = [(1, codec), (128, codec)]
    streams = [2**power for power in range(8)]
    floor = [(one, decoder_floor(one, args.frames, args.bytes_a_second)) for one in streams]
    lines[f"floor of the decoder: {floor[-1][1]:.0f}"] = floor
    args.out.write_text(svg(lines), "utf-8")
    print(f"{codec_flops() / 1e12:.3f} TFLOP a second of speech; {args.out}")


if __name__ == "__main__":
    main()
