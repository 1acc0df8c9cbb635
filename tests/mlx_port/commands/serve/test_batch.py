"""POST /v1/audio/speech/batch."""

from __future__ import annotations

import base64
import threading

import httpx
import pytest

from mlx_port.commands.serve.settings import Limits, Settings
from tests.mlx_port.commands.serve.served import SOON, Served, Talk, error_of, expected, filled, served, until

PATH = "/v1/audio/speech/batch"


def test_items_keep_their_order_and_have_their_own_errors(server: Served) -> None:
    items = [
        {"input": "a long text of many words for the first item", "response_format": "wav"},
        {"input": "choke"},
        {"input": "two", "seed": 5, "voice": "nova"},
        {"input": "late choke"},
    ]
    content = server.post(PATH, items=items).json()
    assert content["object"] == "audio.speech.batch"
    found = content["items"]
    assert [item["index"] for item in found] == [0, 1, 2, 3]
    assert base64.b64decode(found[0]["audio"]) == expected(items[0]["input"], "wav")
    assert base64.b64decode(found[2]["audio"]) == expected("two")
    assert (found[2]["seed"], found[2]["content_type"], found[2]["sample_rate"]) == (5, "audio/mpeg", 8000)
    assert found[2]["usage"]["output_tokens"] == 1
    for place in (1, 3):
        assert set(found[place]) == {"index", "error"}
        assert found[place]["error"]["message"] == "talker: choked"


@pytest.mark.parametrize(
    ("item", "field", "words"),
    [
        ({"input": ""}, "items[1].input", "items[1].input: empty"),
        ({"input": "a", "voice": "vivian"}, "items[1].voice", "is not there"),
        ({"input": "a", "temperature": -1}, "items[1].temperature", "is outside [0, 100]"),
        ({"input": "a", "stream_format": "sse"}, "items[1].stream_format", "a batch is not streamed"),
        ("text", "items[1]", "not a JSON object"),
    ],
)
def test_a_bad_item_refuses_the_batch(shared: Served, item, field, words) -> None:
    """With its place, before anything is spoken; vllm-omni#3649 asks for 4xx here, too."""
    response = shared.post(PATH, items=[{"input": "one " * 50}, item])
    assert response.status_code == 400
    error = error_of(response)
    assert error["param"] == field
    assert words in error["message"]
    until(lambda: shared.service.engine.statistics().running == 0)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "items", "missing"),
        ({"items": []}, "items", "an empty list"),
        ({"items": {}}, "items", "not a list"),
        ({"items": [{"input": "a"}] * 4}, "items", "a list of more than 3; send fewer"),
        ({"items": [{"input": "a"}], "item": 1}, "item", "no such field; did you mean items?"),
    ],
)
def test_bad_batches(tmp_path, body, field, words) -> None:
    with served(tmp_path, settings=Settings(limits=Limits(batch=3))) as server:
        response = server.post(PATH, **body)
        error = error_of(response)
        assert (response.status_code, error["param"]) == (400, field)
        assert error["message"].startswith(f"{field}: {words}")


def test_an_unknown_model_in_an_item(shared: Served) -> None:
    response = shared.post(PATH, items=[{"input": "a", "model": "none"}])
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


def test_a_client_that_leaves_drops_its_batch(tmp_path) -> None:
    gate, items = threading.Semaphore(0), [{"input": "leaver " * 300}] * 2
    with served(tmp_path, Talk(gate=gate), settings=Settings(places=1)) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + PATH, json={"items": items}, timeout=httpx.Timeout(SOON, read=0.5))
        until(
            lambda: (
                gate.release()
                or server.figure('mlx_port_requests_total{model="talk",outcome="cancelled"}') == 2
            )
        )


def test_a_batch_that_finds_no_room(tmp_path) -> None:
    """As a whole: 429, and nothing of it stays in the queue."""
    gate = threading.Semaphore(0)
    source = Talk(gate=gate)
    with served(tmp_path, source, settings=Settings(max_queue=2, places=1)) as server:
        filled(server, source)
        response = server.post(PATH, items=[{"input": "a"}, {"input": "b"}])
        assert (response.status_code, error_of(response)["code"]) == (429, "queue_full")
        assert "retry-after" in response.headers
        gate.release(1000)
        until(lambda: server.figure('mlx_port_requests_total{model="talk",outcome="cancelled"}') == 1)
