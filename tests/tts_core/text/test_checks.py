import pytest

from tts_core.errors import UsageError
from tts_core.nn.noise import check_seed
from tts_core.text.checks import check_one_speaker, check_words


@pytest.mark.parametrize("text", ["Hi.", "7", "\tnaïve\r\nwords\n", "a\fb\vc", "你好", "a" * 5000])
def test_words(text: str) -> None:
    check_words("text", text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text 3: there are no words in it"),
        ("... \n!?", "text 3: there are no words in it"),
        ("ab\x07c", r"text 3: character 3 is U\+0007, a control character"),
        ("secret\ud800", r"text 3: character 7 is U\+D800, a control character"),
    ],
)
def test_no_words(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as error:
        check_words("text 3", text)
    assert "secret" not in str(error.value), "the text is quoted"


@pytest.mark.parametrize("tag", ["[S1]", "[s2]", "[S12]"])
def test_one_speaker(tag: str) -> None:
    check_one_speaker("[S] and S1", "MARS5")
    with pytest.raises(UsageError) as error:
        check_one_speaker(f"Hi. {tag} Yes.", "MARS5")
    assert str(error.value) == (
        f"text: {tag} at character 5 is a speaker tag of Dia; MARS5 speaks with one voice only, the "
        "reference's; remove it"
    )


def test_seeds() -> None:
    assert [check_seed(seed) for seed in (0, 2**64 - 1)] == [0, 2**64 - 1]
    for wrong in (-1, 2**64, 1.5, "1", None):
        with pytest.raises(UsageError, match=r"^seed: .* is not a whole number in 0"):
            check_seed(wrong)  # type: ignore[arg-type]
