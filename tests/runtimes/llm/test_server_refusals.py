"""Invalid requests: each error names the parameter and its fault, and leaves nothing behind."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.runtimes.llm.server_fixtures import CONTEXT, MODEL, Running, post, serving
from tests.support.cases import cases

USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [USER]}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "a"}
FULL = "a" * CONTEXT


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving() as running:
        yield running


async def assert_refused(
    running: Running, path: str, body: Any, *, status: int = 400, param: str | None, code: str
) -> None:
    got, headers, answer = await post(running, path, body)
    error = answer["error"]
    assert (got, error["param"], error["code"]) == (status, param, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b'{"model": "\xff"}', b'{"model": "\\ud800"}', b"[" * 100_000, b"NaN"]
)
async def test_a_body_that_is_no_json_object_is_refused(running: Running, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        await assert_refused(running, path, body, param=None, code="invalid_json")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("change", "param"),
    [
        *cases(__file__, "values"),
        ({"stop": ["a"] * 1025}, "stop"),
        ({"stop": [f"{i:0256}" for i in range(65)]}, "stop"),
        ({"bad_words": ["a"] * 1025}, "bad_words"),
        ({"bad_words": ["a" * 257]}, "bad_words"),
        ({"stop": "x" * 257}, "stop"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"stop_token_ids": list(range(65))}, "stop_token_ids"),
    ],
)
async def test_values_that_make_no_sense(running: Running, change: Any, param: str, stream: bool) -> None:
    body = CHAT | {"stream": stream} | change
    await assert_refused(running, "/v1/chat/completions", body, param=param, code="invalid_request")


@pytest.mark.parametrize("missing", ["messages"])
async def test_required_fields(running: Running, missing: str) -> None:
    body = {name: value for name, value in CHAT.items() if name != missing}
    await assert_refused(running, "/v1/chat/completions", body, param=missing, code="invalid_request")


@pytest.mark.parametrize(
    ("change", "param"),
    cases(__file__, "streams"),
)
async def test_wrong_options_of_streams_are_refused(running: Running, change: Any, param: str) -> None:
    await assert_refused(running, "/v1/completions", COMPLETION | change, param=param, code="invalid_request")


@pytest.mark.parametrize(
    "prompt", [[], "", ["a", 1], [[1], "a"], [[]], [258], [-1], [2**70], [[1], [258]], None, {}, [["a"]]]
)
async def test_prompts_that_are_none(running: Running, prompt: Any) -> None:
    status, _, answer = await post(running, "/v1/completions", COMPLETION | {"prompt": prompt})
    assert (status, answer["error"]["code"]) == (400, "invalid_request")
    assert answer["error"]["param"].startswith("prompt")


@pytest.mark.parametrize(
    "change",
    [
        {"functions": [{}]},
        {"suffix": "s"},
        {"modalities": ["audio"]},
        {"store": True},
    ],
)
async def test_unsupported_fields_are_named(running: Running, change: Any) -> None:
    [param] = change
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)):
        await assert_refused(running, path, body | change, param=param, code="unsupported_parameter")


STRICT_HEADER = {"x-headrace-strict": "true"}


PREDICTION = {"prediction": {"type": "content", "content": "so"}}


@pytest.mark.parametrize("change", [{"verbosity": "low"}, PREDICTION, {"metadata": {"a": "b"}}, {"stop": ""}])
async def test_a_field_without_use_is_left_out_and_listed_or_refused(running: Running, change: Any) -> None:
    [param] = change
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)):
        status, headers, answer = await post(running, path, body | change)
        assert (status, headers.get("x-headrace-ignored")) == (200, param), answer
        status, _, answer = await post(running, path, body | change, **STRICT_HEADER)
        assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, param, "unsupported_parameter")


async def test_fields_of_another_operation_and_in_another_case_are_named(running: Running) -> None:
    for path, body, param, code in (
        ("/v1/chat/completions", CHAT, "Temperature", "unknown_parameter"),
        ("/v1/chat/completions", CHAT, "prompt", "unsupported_parameter"),
        ("/v1/completions", COMPLETION, "messages", "unsupported_parameter"),
        ("/v1/completions", COMPLETION, "tools", "unsupported_parameter"),
        ("/v1/completions", COMPLETION, "previous_response_id", "unsupported_parameter"),
    ):
        await assert_refused(running, path, body | {param: "x"}, param=param, code=code)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", COMPLETION | {"prompt": FULL}, "prompt"),
        ("/v1/completions", COMPLETION | {"prompt": FULL * 2000}, "prompt"),
        ("/v1/completions", COMPLETION | {"prompt": ["ok", FULL]}, "prompt"),
        ("/v1/completions", COMPLETION | {"prompt": [65] * CONTEXT}, "prompt"),
        ("/v1/completions", COMPLETION | {"max_tokens": CONTEXT}, "prompt"),
        ("/v1/chat/completions", CHAT | {"max_tokens": CONTEXT}, "messages"),
        ("/v1/chat/completions", CHAT | {"messages": [USER | {"content": FULL}]}, "messages"),
    ],
)
async def test_prompts_beyond_the_context_are_refused(running: Running, path: str, body: Any, param: str) -> None:
    await assert_refused(running, path, body, param=param, code="context_length_exceeded")


async def test_too_many_choices(running: Running) -> None:
    body = COMPLETION | {"prompt": ["a"] * 65, "n": 2}
    await assert_refused(running, "/v1/completions", body, param="n", code="invalid_request")


@pytest.mark.parametrize(
    ("change", "param"),
    cases(__file__, "completions"),
    ids=str,
)
async def test_values_that_make_no_sense_of_a_completion(running: Running, change: Any, param: str) -> None:
    await assert_refused(running, "/v1/completions", COMPLETION | change, param=param, code="invalid_request")


async def test_a_token_that_is_not_there_is_named(running: Running) -> None:
    _, _, answer = await post(running, "/v1/completions", COMPLETION | {"logit_bias": {"65": 1, "258": 1}})
    assert "258" in answer["error"]["message"]
    assert "257" in answer["error"]["message"]


async def test_another_model(running: Running) -> None:
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)):
        changed = body | {"model": "other"}
        await assert_refused(running, path, changed, status=404, param="model", code="model_not_found")


async def test_another_path_method_type_or_size(running: Running) -> None:
    await assert_refused(running, "/v1/nothing", {}, status=404, param=None, code="unknown_path")
    await assert_refused(running, "/v1/models", {}, status=405, param=None, code="method_not_allowed")
    await assert_refused(running, "/v1/completions", b" " * 700_000, status=413, param=None, code="request_too_large")
    status, _, answer = await post(running, "/v1/completions", COMPLETION, **{"content-type": "text/plain"})
    assert (status, answer["error"]["code"]) == (415, "unsupported_media_type")


async def test_a_model_without_a_template_has_no_chat(running: Running) -> None:
    assert running.app.model is not None
    running.app.model = dataclasses.replace(running.app.model, chat_template=None)
    await assert_refused(running, "/v1/chat/completions", CHAT, param="model", code="invalid_request")
