"""A long text takes the memory of its longest piece after the longest anchors."""

import numpy as np
import pytest

from tests.tiny.networks import dac_config, dia_config
from tests.tiny.recordings import snippet
from tts_core.dia.footprint import DiaJob
from tts_core.dia.long_text import DiaPieces
from tts_core.dia.options import DiaOptions
from tts_core.dia.request import DiaFacts, DiaRequest
from tts_core.prompt import Prompt
from tts_core.results import SpokenPiece
from tts_core.speaking.net import SIDE_BY_SIDE
from tts_core.text.rules import TextRules

CONFIG = dia_config(positions=400, text_positions=300)  # 11.9 s; a piece has up to 44 characters
CODEC = dac_config()
TEXT = (
    "[S1] Lorem. [S2] Sit! [S1] Consectetur adipiscing elit, sed do. [S2] Eiusmod tempor incididunt ut. "
    "[S1] Ut labore et dolore magna. [S2] Aliqua? [S2]"
)
LATE = "[S1] " + "Lorem ipsum dolor sit amet elit. " * 3 + "[S2] Consectetur? [S1] Adipiscing elit, sed do."
CODES = np.zeros((4, 20), np.int32)


def ask(text: str, prompt: Prompt | None) -> DiaRequest:
    return DiaFacts(CONFIG, CODEC).request(text, DiaOptions(cfg_scale=1.5, seed=1), prompt)


def jobs(asked: DiaRequest) -> list[DiaJob]:
    """Memory jobs of the single pieces, with every piece before at its limit."""
    script, found = DiaPieces(asked.encoded(lambda samples: CODES)), []
    for place in range(len(asked.pieces)):
        one, prompt = script.request(place), script.prompt(place)
        found.append(one.job())
        codes, silence = np.zeros((4, one.limits[0]), np.int32), np.zeros(0, np.float32)
        text = script.text(place, prompt)
        script.spoken[place] = SpokenPiece(text, prompt, 1, codes.shape[1], codes, silence, "length")
    return found


def test_a_piece_that_is_too_short_is_not_continued() -> None:
    """By the folder's rule: words follow an anchor that is long enough; before it they keep their tag."""
    text = " [pause:1] ".join(("[S1] Hi.", "There.", "This one has thirty letters.", "You.", "Both of you."))
    read = {}
    for shortest in (0, 20):
        rules = TextRules(shortest_anchor=shortest)
        asked = DiaFacts(CONFIG, CODEC, rules).request(text, DiaOptions(seed=1))
        script, read[shortest] = DiaPieces(asked), []
        for place in range(len(asked.pieces)):
            prompt = script.prompt(place)
            said = script.text(place, prompt)
            read[shortest].append((said, None if prompt is None else prompt.one.text))
            script.spoken[place] = SpokenPiece(said, prompt, 1, 20, CODES, np.zeros(0, np.float32), "stop")
    third = "[S1] This one has thirty letters."
    assert read[20] == [
        ("[S1] Hi.", None),
        ("[S1] There.", None),
        (third, None),
        ("You.", third),
        ("Both of you.", third),
    ]
    assert read[0][1] == ("There.", "[S1] Hi.")


@pytest.mark.parametrize("text", [TEXT, LATE], ids=["bare", "late"])
@pytest.mark.parametrize(
    "prompt",
    [
        None,
        Prompt.of(codes=CODES, text="[S1] Before. [S2] That."),
        snippet(np.zeros(600, np.float32) + 0.1, "[S2] Before."),
    ],
    ids=["no prompt", "prompt", "half a prompt"],
)
def test_memory_is_for_the_longest_piece_and_a_prompt_counts_once(text: str, prompt: Prompt | None) -> None:
    asked = ask(text, prompt)
    whole, single = asked.job(), jobs(asked)
    assert len(single) >= 3
    assert whole.prompt_frames == max(job.prompt_frames for job in single)
    longest = max(job.prompt_frames + job.frames for job in single)
    assert whole.prompt_frames + whole.frames == longest
    # spaces between the texts: of a reference, two anchors and a piece
    assert 0 <= whole.text_bytes - max(job.text_bytes for job in single) <= 4
    assert (whole.batch, whole.guided) == (1, True)
    assert asked.job(SIDE_BY_SIDE).batch == min(SIDE_BY_SIDE, len(single))
