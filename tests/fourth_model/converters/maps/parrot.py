"""Parrot's published layout: the axes of its linear layer are swapped."""

from __future__ import annotations

from converters.maps.layouts import Found, Layout
from converters.rules.assignment import Drop, Rule
from converters.rules.transforms import permute
from tts_core.parrot.model import ParrotConfig

NAMES = r"bird\."


def rules(config: ParrotConfig) -> list[Rule | Drop]:
    """Published name → canonical name."""
    return [Rule("bird.beak", "beak.weight", permute((1, 0))), Rule("bird.norm", "norm.weight")]


def read(found: Found) -> ParrotConfig:
    """From config.json."""
    return ParrotConfig(found.json("config.json")["feathers"])


def documents(found: Found) -> dict[str, str]:
    """From the header of its file."""
    return {"words.txt": found.checkpoint.metadata["words"]}


LAYOUTS = {"parrot_wild": Layout("parrot", NAMES, rules, read, documents=documents)}
