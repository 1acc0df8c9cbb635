"""MARS5's requests on both sides: refused before any work, their memory, texts read once."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mlx_port.loading import open_parts
from tests.tiny.mars5 import CODES, LONG, SAID, TEXT, converted, limit, pipeline, reference, voice
from tts_core.errors import ResourceError, UsageError
from tts_core.mars5 import reference as mars5_reference
from tts_core.mars5 import request as mars5_request
from tts_core.mars5.footprint import Mars5Job
from tts_core.mars5.options import Mars5Options
from tts_core.prompt import Prompt
from tts_core.results import merge
from tts_core.text.pace import CHARACTERS_PER_SECOND

PIECES = {"piece_seconds": 1.4, "timesteps": 2}  # 21 characters per piece


def test_what_would_not_fit_is_refused(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the call, and before the diffusion if the text became longer than expected."""
    free = [1]
    engine = pipeline(side).engine
    monkeypatch.setattr(type(engine.host), "free_bytes", lambda _: free.pop(0))
    monkeypatch.setattr(engine.diffusion, "begin", lambda *_, **__: pytest.fail("the diffusion ran"))
    given = {"prompt": voice(), "seed": 1, "timesteps": 1, "generate_max_len_override": 24}
    with pytest.raises(ResourceError, match=r"memory: .* of speech takes? .* are free"):
        pipeline(side).stream(TEXT, **given)
    free += [10**9, 10**9, 1]
    with pytest.raises(ResourceError, match=r"memory: .* of speech takes? .* are free"):
        list(pipeline(side).stream(TEXT, **given))


@pytest.mark.parametrize("said", [None, SAID], ids=["shallow", "deep"])
def test_memory_is_for_the_longest_piece_and_a_prompt_counts_once(
    said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most ids and the most characters may be those of different pieces."""
    voiced, jobs = pipeline("torch"), list[Mars5Job]()
    for name in ("check", "check_beside"):
        monkeypatch.setattr(voiced.engine, name, jobs.append)
    texts = ["Yes, yes.", "ÄÖÜ ÄÖÜ ÄÖÜ ÄÖÜ.", "The inn is in there."]
    prompt = Prompt.of(codes=CODES, text=said)
    ids = [limit(text, 0, said) for text in texts]
    assert ids[0] < ids[2] < ids[1]
    frames = [1 + 75 * len(text) // CHARACTERS_PER_SECOND for text in texts]
    assert frames[1] < frames[2]
    given: Any = {"generate_max_len_override": max(ids) + 9, "timesteps": 1, "seed": 1}
    voiced.stream(" ".join(texts), prompt=prompt, piece_seconds=1.4, as_written=True, **given)
    planned = Mars5Job(
        ids[1],
        frames[2],
        prompt_frames=9,
        deep=said is not None,
        max_len=given["generate_max_len_override"],
        timesteps=1,
        text_ids=ids[1] - (9 if said is not None else 0),
    )
    assert jobs == [planned]
    [codes] = voiced.generate_codes(texts[1:2], prompt, **given)
    assert jobs[1:] == [replace(planned, frames=frames[1]), replace(planned, frames=codes.shape[1])]


def test_a_text_without_room_is_refused_at_the_call(side: str) -> None:
    advice = r"raise generate_max_len_override \(--generate-max-len-override\)"
    with pytest.raises(UsageError, match=f"text: reference and text take .* {advice}"):
        pipeline(side).stream(TEXT, prompt=voice(said=SAID), generate_max_len_override=20)


def test_a_text_is_read_once(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is spelled out once, each piece and the reference tokenized once; speaking repeats nothing."""
    vocabulary, calls = pipeline(side).engine.facts.vocabulary, Counter[str]()

    def count(owner: Any, name: str, label: str) -> None:
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **b: (calls.update([label]), inner(*a, **b))[1])

    count(vocabulary.text, "encode", "text")
    count(vocabulary.speech, "encode", "speech")
    count(mars5_request, "as_spoken", "spoken")
    count(mars5_reference, "as_spoken", "spoken")
    asked = pipeline(side).request(LONG, Mars5Options(seed=1, max_frames=2, **PIECES), voice(said=SAID))
    pieces = len(asked.pieces)
    assert pieces == 4
    assert calls == {"text": pieces, "spoken": 2}, "the text and the transcript"
    list(pipeline(side).speak(asked))
    assert calls == {"text": pieces, "spoken": 2, "speech": 1}


def test_a_request_may_be_spoken_later(side: str) -> None:
    """A request that `ask` builds without a pipeline gives the speech of `generate`."""
    speak, options = pipeline(side), Mars5Options(seed=3, timesteps=2, max_frames=9, piece_seconds=1.4)
    prompt = Prompt.of(np.tile(reference(), 8), SAID)  # a second, the least that `ask` takes
    asked = mars5_request.Mars5Facts.of(speak.engine.configs, open_parts(converted()).documents).request(
        LONG, options, prompt
    )
    assert len(asked.pieces) == 4
    assert asked.seconds == 9 / 75
    later = merge(list(speak.speak(asked)))
    now = speak.generate(LONG, options=options, prompt=prompt)
    np.testing.assert_array_equal(later.codes, now.codes)
    np.testing.assert_array_equal(later.audio, now.audio)
