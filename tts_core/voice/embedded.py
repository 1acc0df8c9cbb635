"""The voice included in the package, in the published transformers layouts: Dia in `dia/`, its codec in
`codec/`.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
DIA, CODEC = FOLDER / "dia", FOLDER / "codec"


def fingerprint() -> str:
    """Hash the voice's files: 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(path for part in (DIA, CODEC) for path in part.iterdir()):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def cache_folders() -> list[Path]:
    """List folders for converted copies: $XDG_CACHE_HOME/mlx-port (or ~/.cache/mlx-port), then a temporary
    folder of the user's own, as anybody can write to a shared one.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    spare = Path(tempfile.gettempdir()) / f"mlx-port-{getpass.getuser()}"
    return [(Path(home) if home else Path.home() / ".cache") / "mlx-port", spare / "mlx-port"]
