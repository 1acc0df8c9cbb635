"""Qwen3-TTS's tokenizer against vectors of the original one."""

import pytest

from tests.golden.cases import Case, discover
from tests.golden.qwen3_bench import tokenizer
from tts_core.errors import UsageError
from tts_core.files.json_object import read_json
from tts_core.text.byte_bpe import MOST_IDS

pytestmark = pytest.mark.golden

CASES = [case for case in discover("qwen3") if case.kind == "qwen3_tokenizer"]

if CASES:

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_tokenizer(case: Case) -> None:
        read = tokenizer(case.folder, MOST_IDS)
        texts = read_json(case.path("cases.json"))["cases"]
        assert (len(texts), len(read.added)) == (case.info["cases"], case.info["added"])
        for each in texts:
            assert read.encode(each["text"]) == each["ids"], each["text"]
        for token in read.added:
            with pytest.raises(UsageError, match="controls the model"):
                read.check_plain(f"a{token}b", "text")
