"""`stream` of the packages with text that arrives in pieces, in the embedded voice."""

from collections.abc import Iterator

import numpy as np
import pytest

import mlx_port
import torch_ref
from tts_core.errors import UsageError
from tts_core.results import join

pytestmark = pytest.mark.rest


def test_both_sides_speak_pieces_of_text_before_they_end() -> None:
    """With the same codes; the second piece follows the first one's voice."""
    codes = []
    for side in (mlx_port, torch_ref):
        read = []

        def text(read: list[str] = read) -> Iterator[str]:
            for piece in ("[S1] Hello there, ", "my dear friends. ", "[S2] How are", " you?"):
                read.append(piece)
                yield piece

        parts = side.stream(text(), seed=1)
        first = next(parts)
        assert first.samples
        assert len(read) == 3
        whole = join([first, *parts])
        assert [cue.text for cue in whole.cues] == ["[S1] Hello there, my dear friends.", "[S2] How are you?"]
        assert np.abs(whole.audio).max() > 0.05
        codes.append(whole.codes)
        plain = join(list(side.stream("[S1] Hello.", seed=1, max_seconds=0.3)))
        assert plain.samples
    np.testing.assert_array_equal(*codes)


def test_a_wrong_option_is_named_at_the_call() -> None:
    for side in (mlx_port, torch_ref):
        with pytest.raises(UsageError, match="did you mean speed"):
            side.stream(["a"], sped=1)
