"""Measure a step of torch_ref's Dia with other constants of its kernels, each set in a captured step.

    python benchmarks/dia_tiles.py [--texts 1] [rows.WARPS=2] [rows.PART=8192,rows.TILE_BYTES=32768] ...

Each argument is one measurement: constants of torch_ref/cuda/rows.py or attention.py with whole numbers. The
first line has all of them as they are. Dia-1.6B's shape with random weights, bfloat16, guidance on, 176 bytes
of text, rows near 600. Needs CUDA and Triton.
"""

from __future__ import annotations

import argparse
from types import ModuleType

import torch
from dia_growth import DEFAULTS, milliseconds
from dia_step import full_network, linear_layers

from torch_ref.cuda import attention, rows

MODULES: dict[str, ModuleType] = {"rows": rows, "attention": attention}

Change = tuple[ModuleType, str, int]


def changes(given: str) -> list[Change]:
    """Read "rows.WARPS=2,rows.PART=1024"."""
    found = []
    for one in given.split(","):
        name, _, number = one.partition("=")
        module, _, constant = name.partition(".")
        if module not in MODULES or not isinstance(getattr(MODULES[module], constant, None), int):
            raise SystemExit(f"dia_tiles: {name} is no constant of {' or '.join(MODULES)}")
        if not number.isdecimal():
            raise SystemExit(f"dia_tiles: {one}: give a whole number")
        found.append((MODULES[module], constant, int(number)))
    return found


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("changes", nargs="*")
    args = parser.parse_args()
    attempts = [("as they are", []), *((given, changes(given)) for given in args.changes)]
    if not torch.cuda.is_available() or rows.triton is None:
        print("dia_tiles: nothing measured; these kernels need an NVIDIA GPU and Triton")
        return
    network = full_network("bfloat16")
    print(f"{torch.cuda.get_device_name()}, linear layers, 2 rows: {linear_layers(2, 'bfloat16'):.3f} ms")
    for name, made in attempts:
        before = [(module, constant, getattr(module, constant)) for module, constant, _ in made]
        for module, constant, number in made:
            setattr(module, constant, number)
        step = milliseconds(network, *(DEFAULTS | {"texts": args.texts}).values())
        print(f"{name}: {step:.3f} ms", flush=True)
        for module, constant, number in before:
            setattr(module, constant, number)


if __name__ == "__main__":
    main()
