"""The folder of voices: whole voices or none, whoever is killed."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tts_core.audio.recordings import SHORTEST
from tts_core.dia.model import DIA_0626
from tts_core.errors import CheckpointError, NotFoundError, ResourceError, UsageError
from tts_core.models import model
from tts_core.prompt import Prompt, Reference
from tts_core.serving.voices import AGREED, RECORD, VoiceStore, built_in, check_consent, fitted, voices_folder

ROOT, RATE = Path(__file__).parents[3], 16000
SAID = "The words of the recording."
DAMAGED = (10**400, -1, 0, "nan", "inf", None, [])  # seconds of a recording


def recording(seconds: float = 2.0, seed: int = 0) -> tuple[np.ndarray, int]:
    noise = np.random.default_rng(seed).normal(0, 0.1, round(seconds * RATE))
    return noise.clip(-1, 1).astype(np.float32), RATE


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path / "deep/voices")


def test_a_voice_is_kept_as_it_was_given(store: VoiceStore) -> None:
    assert (store.names(), [*store]) == ([], [])
    before = int(time.time())
    added = store.add("Anna.2", [recording(), recording(3.0, 1)], [SAID, None], "Anna agreed on 1 May.")
    assert store.names() == ["Anna.2"]
    assert [*store] == [store.voice("Anna.2")] == [added]
    assert (added.seconds, added.transcripts, added.consent) == (
        (2.0, 3.0),
        (SAID, None),
        "Anna agreed on 1 May.",
    )
    assert before <= added.created <= time.time()
    prompt = VoiceStore(store.folder).prompt("Anna.2")
    assert [one.text for one in prompt.references] == [SAID, None]
    for seed, one in enumerate(prompt.references):
        assert one.audio is not None
        assert one.sample_rate == RATE
        np.testing.assert_allclose(one.audio, recording(2.0 + seed, seed)[0], atol=1e-4)


def test_a_voice_is_removed(store: VoiceStore) -> None:
    store.add("anna", [recording()], [None], "yes")
    store.add("bob", [recording()], [None], "yes")
    store.remove("anna")
    assert os.listdir(store.folder) == ["bob"]
    with pytest.raises(NotFoundError, match="voice: anna is not there; there is bob"):
        store.remove("anna")
    with pytest.raises(NotFoundError, match=r"voice: bobb is not there; did you mean bob\?"):
        store.prompt("bobb")
    store.remove("bob")
    with pytest.raises(NotFoundError, match="there is none yet"):
        store.voice("bob")


def test_a_name_is_taken_once(store: VoiceStore) -> None:
    first = store.add("anna", [recording()], [SAID], "yes")
    with pytest.raises(UsageError, match="name: the voice anna exists; remove it first"):
        store.add("anna", [recording(5, 3)], [None], "yes")
    assert store.voice("anna") == first
    assert os.listdir(store.folder) == ["anna"]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../up", "a/b", "/etc", ".hidden", "-x", "a b", "ä", "a\0", "a\n", "x" * 65, "a\\b"],
)
def test_names_that_are_no_folder_of_ours(store: VoiceStore, name: str) -> None:
    with pytest.raises(UsageError, match="name: use 1 to 64 letters"):
        store.add(name, [recording()], [None], "yes")
    with pytest.raises(NotFoundError):
        store.prompt(name)
    with pytest.raises(NotFoundError):
        store.remove(name)
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("sound", "said", "consent", "message"),
    [
        (recording(SHORTEST / 2), None, "yes", "sample: 0.5 s are too short for a voice"),
        ((np.zeros(32000, np.float32), RATE), None, "yes", "sample: the reference is silent"),
        (recording(), "太阳" * 40, "yes", "sample: 2.0 s do not fit a transcript of 80 characters in any"),
        (recording(), "", "yes", "transcript: there are no words in it"),
        (recording(60), "word " * 1000, "yes", "transcript: 5000 characters, at most 4096"),
        (recording(), None, "", "consent: there are no words in it"),
        (recording(), None, "ye\0s", "consent: character 3 is U.0000"),
    ],
)
def test_voices_that_cannot_be_used(store: VoiceStore, sound, said, consent, message) -> None:
    with pytest.raises(UsageError, match=message):
        store.add("anna", [sound], [said], consent)
    with pytest.raises(UsageError, match="give one recording or more, and a transcript for each"):
        store.add("anna", [recording()], [], "yes")
    assert not store.folder.exists()


def test_records_that_somebody_else_wrote(store: VoiceStore) -> None:
    store.add("anna", [recording()], [None], "yes")
    good = json.loads((store.folder / "anna" / RECORD).read_text())
    changes = [{"version": 2}, {"recordings": []}, {"recordings": [{"seconds": 1}]}, {"created": "x"}]
    changes += [{"recordings": [{"seconds": one, "transcript": None}]} for one in DAMAGED]
    for change in (*changes, {"created": 10**400}, {"recordings": 5}, {"recordings": {"seconds": 1}}):
        (store.folder / "anna" / RECORD).write_text(json.dumps(good | change))
        with pytest.raises(CheckpointError, match=r"voice\.json: not a voice's record; add it again"):
            store.voice("anna")
    (store.folder / "anna" / RECORD).write_text("{")
    with pytest.raises(CheckpointError, match="not readable as JSON"):
        store.prompt("anna")
    (store.folder / "notes").mkdir()
    (store.folder / ".new-abcdefgh").mkdir()
    assert store.names() == ["anna"]


def test_recordings_that_are_lost_or_damaged(store: VoiceStore) -> None:
    store.add("anna", [recording()], [None], "yes")
    path = store.recording("anna")
    path.write_bytes(b"RIFF")
    with pytest.raises(CheckpointError, match=r"voice: anna is damaged, add it again: audio: .* decoded"):
        store.prompt("anna")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"voice: anna is damaged, add it again: audio: .* not there"):
        store.prompt("anna")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"voices: .*file cannot be written"):
        VoiceStore(tmp_path / "file").add("anna", [recording()], [None], "yes")
    assert VoiceStore(tmp_path / "file").names() == []


def test_what_a_killed_process_left_is_removed_later(store: VoiceStore) -> None:
    store.add("anna", [recording()], [None], "yes")
    old, young = store.folder / ".new-abcdefgh", store.folder / ".old-12345678"
    for folder in (old, young):
        folder.mkdir()
        (folder / "1.wav").write_bytes(b"")
    os.utime(old, (0, 0))
    store.add("bob", [recording()], [None], "yes")
    assert sorted(os.listdir(store.folder)) == [".old-12345678", "anna", "bob"]


CRASH = """
import os, sys
import numpy as np
from tts_core.serving.voices import VoiceStore
store, seen = VoiceStore(sys.argv[1]), 0
noise = np.random.default_rng(0).normal(0, 0.1, 32000).astype(np.float32)

def change(left):
    def count(event, arguments):
        nonlocal left
        left -= event == "open" or event.startswith("os.")
        if not left:
            os._exit(9)
    sys.addaudithook(count)
    store.add("anna", [(noise, 16000), (noise, 16000)], [None, None], "yes")
    store.remove("anna")
    os._exit(0)

store.add("anna", [(noise, 16000)], [None], "yes")  # all modules are loaded
store.remove("anna")
for moment in range(1, 999):
    child = os.fork()
    if not child:
        change(moment)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for voice in store:
        assert [len(one.audio) for one in store.prompt("anna").references] == [32000] * 2, moment
        store.remove("anna")
        seen += 1
    if code == 0:
        print(moment, seen)
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process of its own for each call is made by fork")
def test_a_kill_before_any_call_of_the_system_leaves_whole_voices(tmp_path: Path) -> None:
    """A voice is added and removed again; the process ends before its first call, its second one, ..."""
    command = [sys.executable, "-c", CRASH, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    moments, seen = map(int, done.stdout.split())
    assert moments > 10
    assert 0 < seen < moments


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert voices_folder() == Path("/data/mlx-port/voices")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert voices_folder() == Path.home() / ".local/share/mlx-port/voices"


@pytest.mark.parametrize(
    ("name", "stored", "references", "own", "warning"),
    [
        ("vivian", [], 0, "vivian", ""),
        ("Vivian", ["anna"], 1, "vivian", ""),
        ("anna", ["anna"], 0, None, ""),
        ("vivien", [], 0, "vivien", ""),
        ("vivian", ["vivian"], 0, "vivian", "vivian is also stored; Qwen3-TTS, which takes no recordings"),
        (
            "vivian",
            ["vivian"],
            1,
            None,
            "vivian is stored, and also one of Qwen3-TTS's own; the stored one is",
        ),
        ("vivian", ["vivian"], None, None, "the stored one is used"),
    ],
)
def test_a_stored_voice_of_a_built_in_name_wins_where_the_model_takes_recordings(
    caplog: pytest.LogCaptureFixture,
    name: str,
    stored: list[str],
    references: int | None,
    own: str | None,
    warning: str,
) -> None:
    spec = replace(model("qwen3"), voices=("vivian", "eric"), references=references)
    with caplog.at_level(logging.WARNING, "tts_core"):
        assert built_in(name, spec, stored) == own
    assert warning in caplog.text
    assert bool(warning) == bool(caplog.text)


@pytest.mark.parametrize(("count", "is_taken"), [(1, True), (2, True), (3, False)])
def test_a_model_takes_as_many_recordings_as_it_says(count: int, is_taken: bool) -> None:
    spec = replace(model("dia"), references=2, transcript="optional")
    prompt = Prompt((Reference(np.ones(8000, np.float32), "words", sample_rate=8000),) * count)
    if is_taken:
        assert len(fitted(prompt, "anna", spec).references) == count
    else:
        with pytest.raises(UsageError, match="voice: anna has 3 recordings, Dia takes 2"):
            fitted(prompt, "anna", spec)


def test_a_model_with_its_own_speakers_takes_no_recording() -> None:
    prompt = Prompt((Reference(np.ones(8000, np.float32), "words", sample_rate=8000),))
    spec = model("dia").of({"dia": replace(DIA_0626, own_speakers=("slt", "rms"))})
    with pytest.raises(UsageError, match=r"^voice: anna has 1 recording, .* as \[S1\] slt and \[S2\] rms"):
        fitted(prompt, "anna", spec)


def test_words_of_consent() -> None:
    for word in AGREED:
        check_consent(f" {word.upper()} ")
    for word in ("", "n", "I do not agree", "agreed?"):
        with pytest.raises(UsageError, match=r"consent: .* is not one of true, yes, agreed, i agree"):
            check_consent(word)


def test_a_model_without_voices_has_none_built_in() -> None:
    assert built_in("vivian", model("dia"), []) is None
