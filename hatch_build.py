"""The project's URLs, of the repository that builds it: CI names it in its environment, nothing else does."""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface  # pyright: ignore[reportMissingImports]


class RepositoryUrls(MetadataHookInterface):
    """Set URLs from GITHUB_SERVER_URL and GITHUB_REPOSITORY; none outside of CI."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill `urls`."""
        repository = os.environ.get("GITHUB_REPOSITORY")
        home = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
        pages = {
            "Repository": home,
            "Issues": f"{home}/issues",
            "Changelog": f"{home}/blob/main/CHANGELOG.md",
        }
        metadata["urls"] = pages if repository else {}
