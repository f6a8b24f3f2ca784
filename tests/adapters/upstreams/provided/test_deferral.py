"""Deferred requests, and results of providers as responses."""

import json
from string import printable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.upstreams.deferral import (
    URLS,
    Deferred,
    DeferredRequest,
    LinePass,
    ProvidedResponse,
    ProvidedResult,
    url_of,
)
from adapters.upstreams.provided import anthropic, openai

BODIES = st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4).map(lambda d: json.dumps(d).encode())
REQUESTS = st.builds(DeferredRequest.of, st.sampled_from(["a", "b"]), st.sampled_from(URLS), BODIES)


@given(REQUESTS, REQUESTS)
def test_a_pass_recognises_its_request_and_no_other(first: DeferredRequest, second: DeferredRequest) -> None:
    result = ProvidedResult(200, b"{}")
    passing = LinePass({first.key: result})
    if second != first:
        with pytest.raises(Deferred):
            passing.answer(second)
        assert passing.deferred == second
    assert passing.answer(first) == result
    with pytest.raises(Deferred):  # each result serves one call
        passing.answer(first)
    repeated = LinePass({first.key: result}, repeats=True)
    assert [repeated.answer(first), repeated.answer(first)] == [result, result]


@given(REQUESTS, st.integers(1, 10**6))
def test_lines_have_ids_that_providers_accept(request: DeferredRequest, number: int) -> None:
    custom_id = f"hr{'0' * 16}-{number}-{request.key}"
    line = json.loads(openai.OpenAIBatches.line(object.__new__(openai.OpenAIBatches), custom_id, request))
    assert (line["custom_id"], line["url"], line["method"]) == (custom_id, request.url, "POST")
    assert line["body"] == json.loads(request.body)
    other = json.loads(anthropic.AnthropicBatches.line(object.__new__(anthropic.AnthropicBatches), custom_id, request))
    assert other == {"custom_id": custom_id, "params": json.loads(request.body)}
    assert len(custom_id) <= 64


@pytest.mark.parametrize("base", ["", "/v1", "/api/v1"])
@pytest.mark.parametrize("url", URLS)
def test_paths_of_servers_are_paths_of_batches(base: str, url: str) -> None:
    assert url_of(f"{base}{url.removeprefix('/v1')}".encode()) == url
    assert url_of(f"{base}{url.removeprefix('/v1')}?api-version=1".encode()) is None
    assert url_of(f"{base}/models".encode()) is None


NAMES = st.sampled_from(["custom_id", "response", "error", "status_code", "body", "code", "type", "result", "message"])
LEAVES = st.none() | st.booleans() | st.integers(-5, 600) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@given(JSON.map(msgspec.json.encode) | st.text(printable, max_size=200).map(str.encode) | st.binary(max_size=200))
def test_any_line_of_results_is_a_result_or_unreadable(raw: bytes) -> None:
    for decode in (openai.result_of, anthropic.result_of):
        custom_id, result = decode(raw)
        assert custom_id or result is None
        assert result is None or 100 <= result.status < 600


async def test_a_result_is_read_as_a_response() -> None:
    response = ProvidedResponse(ProvidedResult(429, b'{"a": 1}'))
    assert (response.status, response.headers.get("content-type")) == (429, "application/json")
    assert await response.read() == b'{"a": 1}'
    assert response.take() == b""
    with pytest.raises(BackendError):
        await ProvidedResponse(ProvidedResult(200, b"12345")).read(4)
