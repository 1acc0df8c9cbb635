"""Metal texts as MLX writes them, and kernels that run from them on a CPU."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import numpy as np

from mlx_port.kernels.source import Kernel, Template
from tests.metal_text.compiler import Compiler, run

BUFFER = re.compile(r"(?P<type>.*?[*&]) (?P<name>\w+) \[\[buffer\(\d+\)\]\]")
# for `copied` in metal.h
COPY = re.compile(r"(const (\w+) \w+ = )\*(reinterpret_cast<const \w+ \2\*>\(.*\));")
PLACE = re.compile(r"\w+ \w+ \[\[(?P<name>\w+)\]\]")
NUMPY = {
    mx.float32: np.float32,
    mx.float16: np.float16,
    mx.int32: np.int32,
    mx.uint32: np.uint32,
    mx.uint64: np.uint64,
}


def written(launch: Callable[..., list[mx.array]], inputs: Sequence[mx.array], file: Path) -> str:
    """Let MLX write a kernel's text into an exported function, and cut it out.

    launch: calls MLX's Metal form of a kernel on the inputs; it is recorded, not run.
    """
    mx.export_function(str(file), launch, *inputs)
    data = file.read_bytes()
    start = data.rindex(b"template <", 0, data.index(b"[[kernel]] void"))
    end = data.index(b">;\n", data.index(b"template [[host_name", start)) + 3
    return data[start:end].decode()


def parameters(text: str) -> list[str]:
    """List a text's parameters, as declared."""
    head = text[text.index("[[kernel]] void") :]
    return [
        line.strip().rstrip(",") for line in head[head.index("(\n") + 2 : head.index(") {\n")].splitlines()
    ]


def program_of(text: str) -> str:
    """Build a text's program: metal.h, the text, and `kernel_of`, which calls it with one thread's place."""
    arguments: list[str] = []
    buffers = 0
    for parameter in parameters(text):
        if buffer := BUFFER.match(parameter):
            arguments.append(f"reinterpret_cast<{buffer['type']}>(buffers[{buffers}])")
            buffers += 1
        elif place := PLACE.match(parameter):
            arguments.append(f"at.{place['name']}")
        else:
            raise ValueError(f"metal text: {parameter!r} is neither a buffer nor a place")
    plain = re.sub(
        r"template \[\[host_name\(.*?\)\]\] \[\[kernel\]\] ",
        "template ",
        COPY.sub(r"\1copied<\2>(\3);", text),
    )
    target = re.findall(r"decltype\((.*)\)", text)[-1]
    called = f"  {target}({', '.join(arguments)});\n"
    spaces = "#ifndef SPACES\nvoid kernel_of(const At& at, char* const* buffers) {\n"
    return f'#include "metal.h"\n{plain}\n{spaces}{called}}}\n#endif\n'


@dataclass
class Processor:
    """Takes the place of Metal: `call` is Kernel.__call__. Records the kernels that ran, by name."""

    compiler: Compiler
    ran: set[str] = field(default_factory=set)

    def call(
        self,
        kernel: Kernel,
        inputs: Sequence[mx.array],
        *,
        threads: int,
        group: int,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
        template: Template = (),
    ) -> list[mx.array]:
        """Run a kernel from the text that MLX writes for these arrays. Raises Fault."""

        def launch(*arrays: mx.array) -> list[mx.array]:
            return kernel._metal(
                inputs=list(arrays),
                template=list(template),
                grid=(threads, 1, 1),
                threadgroup=(group, 1, 1),
                output_shapes=list(shapes),
                output_dtypes=list(dtypes),
            )

        text = written(launch, inputs, self.compiler.folder / "launch.mlxfn")
        program = program_of(text)
        self.compiler.check(program)
        given = dict(zip(kernel.inputs, inputs, strict=True))
        made = dict(zip(kernel.outputs, zip(shapes, dtypes, strict=True), strict=True))
        parts = []
        for name in (found["name"] for found in map(BUFFER.match, parameters(text)) if found):
            if name in made:
                shape, dtype = made[name]
                parts.append(struct.pack("QQ", int(np.prod(shape)) * dtype.size, dtype.size))
            else:
                data = _bytes(given[name]) if name in given else _shape(given[name.removesuffix("_shape")])
                parts.append(struct.pack("QQ", len(data), 0) + data)
        request = struct.pack("III", threads, group, len(parts)) + b"".join(parts)
        outputs = run(self.compiler.build(program), request)
        self.ran.add(kernel.name)
        found = []
        for shape, dtype in zip(shapes, dtypes, strict=True):
            size = int(np.prod(shape)) * dtype.size
            found.append(_array(outputs[:size], dtype).reshape(shape))
            outputs = outputs[size:]
        return found


def _bytes(x: mx.array) -> bytes:
    return np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x).tobytes()


def _shape(x: mx.array) -> bytes:
    return np.array(x.shape, np.int32).tobytes()


def _array(data: bytes, dtype: mx.Dtype) -> mx.array:
    if dtype == mx.bfloat16:
        return mx.array(np.frombuffer(data, np.uint16)).view(mx.bfloat16)
    return mx.array(np.frombuffer(data, NUMPY[dtype]))
