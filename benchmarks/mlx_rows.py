"""Time a Dia step's products of a few rows in MLX by themselves, in each form.

    python benchmarks/mlx_rows.py [--rows 2] [--layers 18] [--dtypes bfloat16,float32] [--bits 8,4]

`mlx`: one product; `single`: one product a row; `kernel`: mlx_port/kernels/rows.py, on a GPU. Milliseconds of
all products of random weights at the published shapes from Python, the output excluded where quantized
(affine, groups of 64), medians of 12.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import mlx.core as mx

from mlx_port.kernels import rows, source

SHAPES = [(3072, 2048), (2048, 2048), (2048, 2048), (2048, 2048), (16384, 2048), (2048, 8192)]  # of a layer
OUTPUT = 9252, 2048
Product = Callable[[mx.array, Any], mx.array]


def plain(dtype: mx.Dtype, layers: int) -> tuple[list[mx.array], dict[str, Product]]:
    weights = [mx.random.normal(shape).astype(dtype) * 0.02 for shape in [*SHAPES * layers, OUTPUT]]
    return weights, forms(lambda x, weight: x @ weight.T, rows.product, rows.trial, dtype)


def quantized(bits: int, layers: int) -> tuple[list[Any], dict[str, Product]]:
    kind = mx.bfloat16
    weights = [
        mx.quantize(mx.random.normal(shape).astype(kind) * 0.02, 64, bits) for shape in SHAPES * layers
    ]

    def whole(x: mx.array, parts: Any) -> mx.array:
        return mx.quantized_matmul(x, *parts, group_size=64, bits=bits)

    def own(x: mx.array, parts: Any) -> mx.array:
        return rows.quantized_product(x, *parts, bits=bits, group_size=64)

    return weights, forms(whole, own, rows.quantized_trial, kind, bits, 64, rows.WIDE)


def forms(whole: Product, own: Product, trial: Callable[..., bool], *variant: Any) -> dict[str, Product]:
    def single(x: mx.array, weight: Any) -> mx.array:
        return mx.concatenate([whole(row, weight) for row in mx.split(x, len(x))])

    found = {"mlx": whole, "single": single}
    return found | {"kernel": own} if source.passes(trial, *variant) else found


def measure(product: Product, weights: Sequence[Any], x: dict[int, mx.array], bits: int) -> float:
    def width(weight: Any) -> int:
        return weight.shape[1] if bits == 16 else weight[0].shape[1] * 32 // bits

    times = []
    for _ in range(15):
        started = time.perf_counter()
        mx.eval([product(x[width(weight)], weight) for weight in weights])
        mx.synchronize()
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--bits", default="8,4")
    args = parser.parse_args()
    print(f"{platform.platform()}, MLX {metadata.version('mlx')} on {mx.default_device()}, {args.rows} rows")
    cases = [(name, 16, plain(getattr(mx, name), args.layers)) for name in args.dtypes.split(",") if name]
    cases += [
        (f"{bits} bits", int(bits), quantized(int(bits), args.layers))
        for bits in args.bits.split(",")
        if bits
    ]
    for name, bits, (weights, products) in cases:
        kind = getattr(mx, name, mx.bfloat16)
        x = {width: mx.random.normal((args.rows, width)).astype(kind) for width in (2048, 8192)}
        mx.eval(weights, x)
        found = [f"{form} {measure(product, weights, x, bits):.2f}" for form, product in products.items()]
        print(f"{name:<10} {', '.join(found)} ms", flush=True)


if __name__ == "__main__":
    main()
