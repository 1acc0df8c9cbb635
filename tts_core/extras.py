"""The extras of the package: what each is for, and whether it is installed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Extra:
    """An extra of pyproject.toml. purpose: of the libraries.  needs: their names as distributions."""

    purpose: str
    needs: tuple[str, ...]

    @property
    def installed(self) -> bool:
        """True if all its libraries are."""
        return all(map(_is_installed, self.needs))


EXTRAS = {
    "cpu": Extra("MLX on Linux without a GPU", ("mlx", "mlx-cpu")),
    "cuda12": Extra("MLX on NVIDIA GPUs, CUDA 12", ("mlx", "mlx-cuda-12")),
    "cuda13": Extra("MLX on NVIDIA GPUs, CUDA 13", ("mlx", "mlx-cuda-13")),
    "torch": Extra("the PyTorch side", ("torch",)),
    "play": Extra("playback", ("sounddevice",)),
    "formats": Extra("AAC", ("av",)),
    "ray": Extra("batch on clusters", ("ray",)),
    "judge": Extra("judge", ("pocketsphinx", "onnxruntime")),
    "serve": Extra(
        "the server",
        ("starlette", "uvicorn", "prometheus-client", "python-multipart", "websockets", "pydantic"),
    ),
    "wyoming": Extra("Home Assistant", ("wyoming",)),
    "mcp": Extra("agents", ("mcp", "httpx2")),
}


def install(*names: str) -> str:
    """Write the commands that install some extras: of a release, and in a clone."""
    extras = ",".join(names)
    return f"pip install 'mlx-port[{extras}]', or in a clone: pip install '.[{extras}]'"


def _is_installed(name: str) -> bool:
    from importlib import metadata  # 45 ms, which messages do not need

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
