"""MARS5's penalty of an early end, and the growing sequence."""

import numpy as np
import pytest

from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core.mars5.inputs import CodecSequence, end_penalties
from tts_core.mars5.options import Mars5Options


def test_end_penalties():
    options = Mars5Options(eos_penalty_factor=2, eos_penalty_decay=0.5)
    expected = np.array([4, 2 * 3**0.5, 2 * 2**0.5, 2, 2, 0, 0], np.float32)
    np.testing.assert_array_equal(end_penalties(options, 4, 7), expected)
    assert end_penalties(options, 0, 2).tolist() == [2, 0]
    assert end_penalties(Mars5Options(eos_penalty_factor=0), 4, 3).tolist() == [0, 0, 0]
    assert end_penalties(options, 4, 0).shape == (0,)


def test_sequence():
    prompt = VOCABULARY.shallow("thin")
    first = VOCABULARY.first_speech
    sequence = CodecSequence(prompt, VOCABULARY, len(prompt.tokens) + 3)
    assert (sequence.room, sequence.done, sequence.finish_reason) == (3, False, None)
    assert sequence.codes().tolist() == []
    for drawn in (first + 5, first + 6):
        sequence.accept(drawn)
    assert not sequence.done
    assert sequence.codes().tolist() == [6]  # the first generated one is dropped, as upstream does
    sequence.accept(first + 7)
    assert sequence.finish_reason == "length"
    assert sequence.ids.tolist() == [*prompt.tokens, first + 5, first + 6, first + 7]
    assert sequence.ids.dtype == np.int32


def test_sequence_that_ends():
    sequence = CodecSequence(VOCABULARY.shallow("thin"), VOCABULARY, 100)
    sequence.accept(VOCABULARY.first_speech)
    sequence.accept(VOCABULARY.end)
    assert (sequence.done, sequence.finish_reason) == (True, "stop")
    assert sequence.generated == [VOCABULARY.first_speech]


@pytest.mark.parametrize("max_len", [2, 4])
def test_no_room(max_len):
    sequence = CodecSequence(VOCABULARY.shallow("thin"), VOCABULARY, max_len)
    assert (sequence.room, sequence.done, sequence.finish_reason) == (0, True, "length")
    assert sequence.ids.tolist() == sequence.prompt.tokens.tolist()


@pytest.mark.parametrize(("most", "counts"), [(1, 2), (2, 3), (3, 3), (4, 3), (5, 4)])
def test_a_sequence_ends_with_its_codes(most, counts):
    """The second id codes one code, the third three; the first is dropped."""
    long = next(i for i in range(1024, 1084) if len(VOCABULARY.speech.decode([i])) == 3)
    ids = [VOCABULARY.first_speech + place for place in (5, 6, long, 7, 8)]
    sequence = CodecSequence(VOCABULARY.shallow("thin"), VOCABULARY, 100, most)
    while not sequence.done:
        sequence.accept(ids[len(sequence.generated)])
    assert (len(sequence.generated), sequence.finish_reason) == (counts, "length")
    assert sequence.codes().tolist() == [6, *VOCABULARY.speech.decode([long]), 7, 8][:most]


def test_codes_of_the_reference_count():
    reference = np.array([3, 1000, 1001, 1002])
    prompt = VOCABULARY.deep("thin", "Then.", reference)
    assert len(prompt.tokens) - prompt.text_tokens == 4, "nothing merges"
    sequence = CodecSequence(prompt, VOCABULARY, 100, 5)
    assert not sequence.done
    sequence.accept(VOCABULARY.first_speech + 9)
    assert not sequence.done
    sequence.accept(VOCABULARY.first_speech + 10)
    assert sequence.finish_reason == "length"
    assert sequence.codes().tolist() == [1000, 1001, 1002, 9, 10]


def test_an_end_in_time_is_an_end():
    sequence = CodecSequence(VOCABULARY.shallow("thin"), VOCABULARY, 100, 2)
    for drawn in (VOCABULARY.first_speech + 5, VOCABULARY.first_speech + 6, VOCABULARY.end):
        sequence.accept(drawn)
    assert sequence.finish_reason == "stop"
