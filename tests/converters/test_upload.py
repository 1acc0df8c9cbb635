"""Publishing: the card and the files, shown by a dry run; the upload, against a stand-in of the hub."""

import json
import os

import huggingface_hub
import pytest

from converters import cli
from converters.card import MEASURED, add_measurements
from tests.converters.folders import DAC_HF, V_0626_HF, left_in
from tts_core import models
from tts_core.command import runner
from tts_core.files.record import Record

BASE = (V_0626_HF, "--codec", DAC_HF, "--mlx-path")
NAME = "someone/voice-4bit"


def run(*arguments: object) -> int:
    return runner.run(cli.convert_weights, list(map(str, arguments)), debug=False)


class Hub:
    """What HfApi is asked for. fault: raised by the upload."""

    endpoint = "https://hub.test"
    asked: list[tuple]
    fault: Exception | None = None

    def create_repo(self, repository, exist_ok):
        self.asked.append(("create", repository, exist_ok))

    def upload_folder(self, *, repo_id, folder_path, allow_patterns, commit_message):
        if self.fault is not None:
            raise self.fault
        self.asked.append(("upload", repo_id, str(folder_path), allow_patterns))


@pytest.fixture
def hub(monkeypatch):
    made = type("Made", (Hub,), {"asked": []})
    monkeypatch.setattr(huggingface_hub, "HfApi", made)
    return made


def test_a_dry_run_shows_card_and_files_as_they_will_be(tmp_path, capsys, hub):
    pytest.importorskip("mlx.core", reason="MLX quantises")
    how = ("-q", "--q-group-size", "32", "--upload-repo", NAME)
    assert run(*BASE, tmp_path / "out", *how, "--dry-run", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert (hub.asked, left_in(tmp_path)) == ([], [])
    assert run(*BASE, tmp_path / "out", *how, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert f"would upload to {NAME}: README.md, codec/config.json, " in shown
    assert (
        f"\nhf download {NAME} --local-dir voice-4bit\nmlx-port generate --model voice-4bit --text " in shown
    )
    assert run(*BASE, tmp_path / "out", *how) == 0
    assert (tmp_path / "out/README.md").read_text() == planned["card"]
    assert hub.asked == [("create", NAME, True), ("upload", NAME, str(tmp_path / "out"), planned["uploaded"])]
    assert capsys.readouterr().out.endswith(f"uploaded to https://hub.test/{NAME}\n")


def test_hidden_files_stay_here(tmp_path, hub):
    assert run(*BASE, tmp_path / "out") == 0
    (tmp_path / "out/.DS_Store").touch()
    from converters.files.upload import files_of

    assert set(files_of(tmp_path / "out")) == {*Record.read(tmp_path / "out").files, "conversion.json"}


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (
            ["--upload-repo", "no owner"],
            2,
            "--upload-repo: no owner is no hub id; give one of the form owner/name",
        ),
        (["--upload-repo", NAME, "--offline"], 2, "--upload-repo: --offline forbids the upload"),
    ],
)
def test_mistakes_come_before_the_conversion(tmp_path, capsys, hub, flags, code, message):
    assert run(*BASE, tmp_path / "out", *flags) == code
    assert message in capsys.readouterr().err
    assert (hub.asked, left_in(tmp_path)) == ([], [])


def test_a_failed_upload_keeps_the_folder(tmp_path, capsys, hub):
    hub.fault = OSError("401 Client Error\nand more")
    assert run(*BASE, tmp_path / "out", "--upload-repo", NAME) == 3
    err = capsys.readouterr().err
    assert f"{NAME} was not uploaded (OSError: 401 Client Error); log in with hf auth login" in err
    assert err.count("\n") == 1
    assert (tmp_path / "out/conversion.json").is_file()


def test_the_card_of_the_embedded_voice_has_its_license(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("embedded", "voice") == 0
    card = (tmp_path / "voice/README.md").read_text()
    assert "\nlicense: apache-2.0\n" in card
    assert f"\n{models.network('dia').title}, {models.network('dac').title}: converted by mlx-port " in card
    assert "mit" not in card.split("Licenses")[1].split("```")[0]
    assert 'model = mlx_port.load("path/of/this/folder")' in card


def test_measurements_are_added_once_and_leave_the_model_as_it_was(tmp_path):
    assert run(*BASE, tmp_path / "out") == 0
    card, mode = tmp_path / "out/README.md", 0o640
    card.chmod(mode)
    before = card.read_text()
    add_measurements(tmp_path / "out", ["first"])
    add_measurements(tmp_path / "out", ["second", "third"])
    before, nothing = before.split(f"{MEASURED}\n")
    assert "Nothing was measured for this checkpoint" in nothing
    assert card.read_text() == f"{before.rstrip()}\n\n{MEASURED}\n\n- second\n- third\n"
    assert card.stat().st_mode & 0o777 == mode
    assert sorted(os.listdir(tmp_path / "out"))[0] == "README.md", "no part is left"
    record = Record.read(tmp_path / "out")
    record.check(record.parts())
    record.check_sizes()
    card.unlink()
    add_measurements(tmp_path / "out", ["fourth"])
    assert not card.exists()
