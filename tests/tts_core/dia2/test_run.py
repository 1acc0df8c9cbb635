"""One run's bookkeeping: the beginning of a speech as a voice for others, and words that come late."""

from dataclasses import replace

import numpy as np
import pytest

from tests.tiny.dia2 import dia2_config, other_config
from tts_core.dia2.model import DIA2_2B
from tts_core.dia2.prefix import Prefix
from tts_core.dia2.request import longest_frames
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.script import Entry

ENTRIES = [Entry((20 + n, 30 + n), f"w{n}", 2) for n in range(5)]
CODES = np.zeros((dia2_config().n_streams, 8), np.int32)  # of a prefix


def spoken(config, entries, **given) -> Dia2Run:
    """Always ask for a word; every code is its step."""
    run = Dia2Run(config, entries, **given)
    run.warm_up()
    while not run.is_done:
        run.tokens()
        run.act(1)
        run.accept(np.full(config.n_streams, run.step % 30))
    return run


@pytest.mark.parametrize("config", [dia2_config(), other_config()], ids=["ahead", "alone"])
def test_the_beginning_of_a_speech_is_a_prefix_that_says_the_same(config):
    """Its steps take each of its words, at the same steps, and no other."""
    run = spoken(config, ENTRIES)
    for most in (5, 9, 100):
        prefix = run.beginning(most)
        assert prefix is not None
        assert 0 < prefix.frames <= most
        assert prefix.entries == tuple(ENTRIES[: len(prefix.entries)])
        np.testing.assert_array_equal(prefix.codes, run.codes(0, prefix.frames))
        again = Dia2Run(config, [Entry((9, 9), "next", 2)], prefix=prefix)
        again.warm_up()
        crop = run.crop or 0
        assert again.machine.words == [
            (text, step - crop) for text, step in run.machine.words[: len(prefix.entries)]
        ]
        assert again.late_words() == []
    steps = [step - (run.crop or 0) for step in run.machine.taken]
    for most in range(1, steps[1]):  # the first word begins there, but does not end
        assert run.beginning(most) is None


def test_a_break_before_the_speech_is_no_part_of_its_beginning():
    """Without lookahead the result begins shortly before the first word."""
    run = spoken(other_config(), [Entry((), "", 9), *ENTRIES])
    assert run.crop is not None
    assert run.crop > 5
    prefix = run.beginning(12)
    assert prefix is not None
    assert prefix.entries[0] == ENTRIES[0]
    assert min(prefix.steps) == run.initial_padding


def test_a_break_in_the_beginning_hides_no_word_of_the_next_piece():
    config = dia2_config()
    prefix = spoken(config, [ENTRIES[0], Entry((), "", 3), *ENTRIES[1:]]).beginning(100)
    assert prefix is not None
    assert Entry((), "", 3) in prefix.entries
    run = spoken(config, [Entry((9, 9), "next", 2), Entry((8,), "last", 1)], prefix=prefix)
    assert [word.text for word in run.words(12.5)] == ["next", "last"]


def test_words_of_a_prefix_that_were_not_taken_are_named():
    late = Prefix(CODES, tuple(ENTRIES[:3]), frozenset({1, 2, 9}))
    run = Dia2Run(dia2_config(), ENTRIES[3:], prefix=late)
    run.warm_up()
    assert run.late_words() == ["w1", "w2"]


def test_forced_actions_are_ids_as_in_upstream():
    """Ids 0 and 1 are read as actions, so these two change places."""
    config = replace(dia2_config(), text_new_word_id=0, text_pad_id=1)
    run = Dia2Run(config, [], prefix=Prefix(CODES, tuple(ENTRIES), frozenset({0})))
    run.warm_up()
    assert run.machine.taken[0] == 1


def test_sound_that_ends_within_the_prefix_is_not_cut():
    """As in upstream, if the prefix's steps took all words early."""
    prefix = Prefix(np.zeros((dia2_config().n_streams, 30), np.int32), (), frozenset({1, 2}))
    run = spoken(dia2_config(), [], prefix=prefix)
    assert run.machine.end == 1
    assert run.crop == 0
    assert run.frames == 30 + 1 - dia2_config().longest_delay


def test_a_step_waits_for_the_words_that_it_may_need():
    config = dia2_config()
    run = Dia2Run(config, ENTRIES[:1], is_open=True)
    assert run.waits
    run.extend(ENTRIES[1:2])
    assert not run.waits
    run.is_open = False
    run.machine.entries.clear()
    assert not run.waits


@pytest.mark.parametrize("frames", [1, 7, 30])
def test_a_limit_in_frames(frames):
    run = spoken(dia2_config(), ENTRIES * 9, max_frames=frames)
    assert (run.frames, run.finish_reason) == (frames, "length")


@pytest.mark.parametrize("frames", [0, 40], ids=["alone", "after a recording"])
def test_two_minutes_are_the_published_models_limit(frames):
    """1500 steps, of which the first 17 complete no frame; a recording before them does not count."""
    prefix = Prefix(np.zeros((32, frames), np.int32), (), frozenset()) if frames else None
    run = spoken(DIA2_2B, ENTRIES * 200, prefix=prefix)
    assert run.step - run.start == 1500
    assert (run.frames, run.finish_reason) == (1483, "length")
    assert longest_frames(DIA2_2B) == 1483


def test_a_run_that_ends_has_seven_frames_more_than_its_end():
    run = spoken(dia2_config(), ENTRIES)
    assert run.machine.end is not None
    assert (run.frames, run.finish_reason) == (run.machine.end + 7, "stop")
