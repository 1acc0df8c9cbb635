"""Checks of what both sides of Dia2 share: scripts, the state machine, and the alignment of recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.golden.cases import Case
from tts_core.dia2.machine import StateMachine
from tts_core.dia2.recordings import align
from tts_core.dia2.run import apply_delay, revert_delay
from tts_core.dia2.script import Entry, Reader, normalized
from tts_core.dia2.tokenizer import FILE, Dia2Tokenizer
from tts_core.errors import UsageError
from tts_core.files.json_object import read_json
from tts_core.prompt import Word


def cases_of(case: Case) -> dict[str, Any]:
    return read_json(case.path("cases.json"))


def tokenizer_of(case: Case) -> Dia2Tokenizer:
    return Dia2Tokenizer((case.path(case.info["tokenizer"]) / FILE).read_text("utf-8"))


def entries_of(rows: list) -> list[Entry]:
    return [Entry(tuple(tokens), text, padding) for tokens, text, padding in rows]


def written(entries: list[Entry]) -> list:
    return [[list(entry.tokens), entry.text, entry.padding] for entry in entries]


def check_script(case: Case) -> None:
    info, cases = case.info, cases_of(case)
    reader = Reader.of(tokenizer_of(case), 2, info["frame_rate"])
    assert reader.speakers == (info["spk1"], info["spk2"])
    assert len(cases["cases"]) == info["count"]
    for one in cases["cases"]:
        assert normalized(one["script"]) == one["normalized"]
        assert written(reader.entries(one["script"])) == one["entries"], one["script"]
    for one in cases["lines"]:
        assert written(reader.lines(one["lines"])) == one["entries"], one["lines"]
    for text, error in cases["errors"]:
        assert error == "ValueError"
        with pytest.raises(UsageError, match="has no length in seconds"):
            reader.entries(text)


def check_machine(case: Case) -> None:
    ids, cases = case.info["token_ids"], cases_of(case)["cases"]
    assert len(cases) == case.info["count"]
    for n, one in enumerate(cases):
        machine = StateMachine(
            entries_of(one["entries"]),
            new_word=ids["new_word"],
            pad=ids["pad"],
            ahead=one["ahead"],
            initial_padding=one["initial_padding"],
            max_padding=one["max_padding"],
        )
        for step, (action, forced, *state, end) in enumerate(row[:11] for row in one["steps"]):
            machine.entries.extend(entries_of(one["steps"][step][11]) if len(one["steps"][step]) > 11 else [])
            made = machine.step(step, action, is_forced=bool(forced))
            own = [made.main, made.second, int(made.took), machine.budget, machine.forced]
            own += [len(machine.pending), len(machine.look), len(machine.entries)]
            assert own == state, f"{case}: {n}, step {step}"
            assert machine.end == (None if end < 0 else end), f"{case}: {n}, step {step}"
        assert [list(word) for word in machine.words] == one["transcript"]
        assert machine.taken == one["consumed"]


def check_align(case: Case) -> None:
    info, vectors, tokenizer = case.info, case.vectors(), tokenizer_of(case)
    for one in cases_of(case)["cases"]:
        words = [Word(*word) for word in one["words"]]
        speaker = ("[S1]", "[S2]").index(one["speaker"])
        entries, steps = align(tokenizer, speaker, words, one["frame_rate"])
        assert written(entries) == one["entries"]
        assert steps == one["steps"]
    for n, delays in enumerate(info["delays"]):
        aligned = vectors[f"{n}.aligned"]
        delayed = apply_delay(aligned, delays, info["pad"])
        np.testing.assert_array_equal(delayed, vectors[f"{n}.delayed"])
        np.testing.assert_array_equal(revert_delay(delayed, delays), vectors[f"{n}.undelayed"])
        cut = revert_delay(delayed[:, : aligned.shape[1]], delays)
        np.testing.assert_array_equal(cut, vectors[f"{n}.cut_undelayed"])
    vectors.assert_all_read()
