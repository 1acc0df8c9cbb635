"""The voice included in the package, in the published transformers layouts: Dia in `dia/`, its codec in
`codec/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

NAME, LICENSE = "embedded", "apache-2.0"  # as a source of the commands; of its weights
FOLDER = Path(__file__).parent
DIA, CODEC = FOLDER / "dia", FOLDER / "codec"


def sources_of(source: str | Path, *, with_codec: bool) -> list[str | Path]:
    """Return the voice's folders for its name, unless something local has it; else the source itself."""
    if source != NAME or os.path.lexists(NAME):
        return [source]
    return [DIA, CODEC] if with_codec else [DIA]


def fingerprint() -> str:
    """Hash the voice's files: 16 hex digits."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted(path for part in (DIA, CODEC) for path in part.iterdir()):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder for converted copies: $XDG_CACHE_HOME/mlx-port (or ~/.cache/mlx-port).

    A relative $XDG_CACHE_HOME is ignored, as its specification asks.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "mlx-port"


def cache_folders() -> Iterator[Path]:
    """Yield `cache_folder()`, then a temporary folder of the user's own; a shared one is not safe."""
    yield cache_folder()
    import getpass  # rarely needed, and a tenth of the time of --help
    import tempfile

    yield Path(tempfile.gettempdir()) / f"mlx-port-{getpass.getuser()}" / "mlx-port"
