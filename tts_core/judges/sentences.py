"""A hundred plain English sentences of 4 to 14 words, in no training data of the embedded voice."""

from __future__ import annotations

from pathlib import Path


def sentences() -> list[str]:
    """Read them, without tags."""
    return Path(__file__).with_name("sentences.txt").read_text("utf-8").splitlines()
