"""Statuses × words × dialects of servers, against a table of its own: what is blamed, rested, sent again and paid."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import AccountRefused, CapacityError, InferenceError
from adapters.fake import FakeAdapter, Script
from adapters.wire import error_table
from adapters.wire.error_table import decode_error, judged
from adapters.wire.failure_text import Scrubber
from gateway.traffic.endpoint import Endpoint, RefusalKey
from policies.breaker import Breaker
from tests.support.gateways import Rig, chat, config

KEY = "sk-upstream-0123456789abcdef"
WORDS = {
    "input": ["Your input was flagged by moderation.", "The request violates our content policy."],
    "model": ["Project `p` does not have access to model `m`.", "The model `m` does not exist."],
    "place": ["Country, region, or territory not supported"],
    "account": ["Insufficient Balance", "Your credit balance is too low to access the API."],
    "long": ["This model's maximum context length is 8 tokens."],
    "again": ["Rate limit reached. Please try again in 7.5s."],
    "other": ["Something odd."],
}
DIALECTS: dict[str, Callable[[int, str], Any]] = {
    "nested": lambda code, text: {"error": {"message": text, "type": "t", "param": None, "code": code}},
    "flat": lambda code, text: {"object": "error", "message": text, "type": "t", "code": code},
    "list": lambda code, text: [{"error": {"code": code, "message": text, "status": "S"}}],
    "text": lambda _, text: {"error": text},
    "detail": lambda _, text: {"detail": text},
    "anthropic": lambda _, text: {"type": "error", "error": {"type": "t", "message": text}},
    "aws": lambda _, text: {"__type": "com.x#E", "Message": text},
    "openrouter": lambda c, text: {"error": {"message": "Provider", "code": c, "metadata": {"raw": text}}},
    "nested JSON": lambda c, text: {"error": {"message": json.dumps({"error": {"message": text}}), "code": c}},
}
STATUSES = [400, 401, 402, 403, 404, 408, 409, 413, 422, 424, 425, 429, 451, 498, 500, 502, 503, 504, 520, 524, 529]


class Fate(NamedTuple):
    """What a refusal leads to."""

    kind: str
    code: str
    blamed: bool = False
    """Whether the breaker counts it."""
    rests: bool = False
    """Whether the whole endpoint rests."""
    again: bool = False
    """Whether a retry and a fallback are allowed."""


CALLERS = Fate("caller", "invalid_request")
KEYS = Fate("backend", "upstream_credential", blamed=True, again=True)
MODEL = Fate("backend", "upstream_model_not_found", blamed=True, again=True)
ACCOUNT = Fate("capacity", "upstream_quota_exhausted", rests=True, again=True)
FULL = Fate("capacity", "overloaded", again=True)


def fate(status: int, words: str, text: str) -> Fate:
    """The oracle, by status and then by the meaning of the words."""
    of_the_request = status in (400, 409, 413, 422, 451)
    if of_the_request and words == "long":
        return Fate("caller", "context_length_exceeded")
    if status == 402 or (words == "account" and status in (400, 403, 429)):
        return ACCOUNT._replace(rests=status in (402, 429))  # a 400 and a 403 may repeat words of the request
    if of_the_request and "does not exist" in text:
        return MODEL
    if status == 404:
        by_words = {"input": CALLERS, "model": MODEL, "long": MODEL}
        return by_words.get(words, Fate("backend", "upstream_path_not_found", blamed=True, again=True))
    if status == 403:
        return {"input": CALLERS, "place": CALLERS, "model": MODEL, "long": MODEL}.get(words, KEYS)
    if status == 401:
        return KEYS
    if status == 425 or (status == 409 and words == "again"):
        return FULL
    if of_the_request:
        return CALLERS._replace(code="request_too_large") if status == 413 else CALLERS
    if status in (429, 498, 503, 529):
        return FULL
    return {
        408: Fate("transport", "upstream_timeout", blamed=True, again=True),
        504: Fate("transport", "upstream_timeout", blamed=True, again=True),
        524: Fate("transport", "upstream_timeout", blamed=True, again=True),
        520: Fate("transport", "upstream_unreachable", blamed=True, again=True),
    }.get(status, Fate("backend", "upstream_error", blamed=True, again=True))


def observed(error: InferenceError) -> Fate:
    """What an endpoint of several models does with the error."""
    endpoint = Endpoint("e", FakeAdapter(), Breaker(1, 10.0))
    endpoint.several, endpoint.scrubber = True, Scrubber([KEY])
    endpoint.begin(0.0, subject := RefusalKey("m", "t"))
    endpoint.end(error, 0.0, subject)
    assert endpoint.in_flight == 0
    assert endpoint.allows(RefusalKey("other", "t"), 0.0) is not (
        endpoint.breaker.is_open or endpoint.breaker.rests(0.0) > 0
    )
    is_account = isinstance(error, AccountRefused)
    # A request may hold the words of a refused account: then nothing rests.
    assert bool(endpoint.refusals.held) is (isinstance(error, CapacityError) and error.scope != "tenant")
    if is_account:  # one model rests; a second one is the evidence that the whole account does
        endpoint.begin(0.0, second := RefusalKey("second", "t"))
        endpoint.end(error, 0.0, second)
    rests = endpoint.breaker.rests(0.0) > 0
    return Fate(error.kind, error.code, endpoint.breaker.is_open, rests, error.retryable)


@pytest.mark.parametrize("words", WORDS)
async def test_an_error_decides_the_way_and_the_price_of_a_request(words: str) -> None:
    """Of two endpoints and a fallback: an error of the caller reaches one, any other ends at the fallback."""
    route = {"to": "main", "retry": {"attempts": 2, "backoff": "1ms"}, "fallback": ["spare"]}
    price = {"prompt": "1 usd/1k", "completion": "2 usd/1k"}
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]
    made = config(pools=pools, models=[{"name": "chat", "price": price, "routes": [route]}])
    for status, text in product(STATUSES, WORDS[words]):
        reported = decode_error(json.dumps(DIALECTS["nested"](status, text)).encode())
        refusing = [FakeAdapter(Script(fault=judged(status, reported))) for _ in range(2)]
        one = Rig(made, {"main": refusing, "spare": [FakeAdapter()]})
        record, sent = one.record(), fate(status, words, text)
        if sent.again:
            await one.core.handle(one.principal, chat(), {}, record)
        else:
            with pytest.raises(InferenceError) as caught:
                await one.core.handle(one.principal, chat(), {}, record)
            assert (caught.value.kind, caught.value.code) == (sent.kind, sent.code)
        calls = sum(len(fake.calls) for fake in refusing)
        assert calls == 1 or (sent.again and calls == 2), (status, text)
        assert len(one.adapters["spare"][0].calls) == sent.again, (status, text)
        assert str(record.cost) == ("0.007 usd" if sent.again else "None"), "only the answer is paid"
        one.assert_idle()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("words", WORDS)
def test_the_class_of_an_error_is_that_of_its_status_and_words(words: str, dialect: str) -> None:
    for status, text in product(STATUSES, WORDS[words]):
        reported = decode_error(json.dumps(DIALECTS[dialect](status, f"{text} {KEY}")).encode())
        error, expected = judged(status, reported), fate(status, words, text)
        if status == 403 and expected is MODEL:
            named = error_table.by_client(error, status, "m")  # of a client that chose the name
            assert (named.kind, named.retryable, named.blames_endpoint) == ("caller", False, False)
        assert observed(error) == expected, (status, text)
        assert (text in error.detail) is (error.kind != "caller"), "the log has the words, but of no prompt"
        assert error.detail.startswith(f"{status}")
        is_ours = expected.code in ("upstream_credential", "upstream_model_not_found", "upstream_path_not_found")
        assert (text in error.message) is not is_ours, "the client has them, unless they are about the gateway's own"
        assert KEY not in error.message + error.detail
        if status == 429 and words == "again":
            assert error.retry_after == 7.5
        if dialect in ("nested", "flat", "list", "openrouter", "nested JSON") and words != "long":
            in_a_200 = judged(None, reported)  # the body names the status
            assert (type(in_a_200), in_a_200.code) == (type(error), error.code)


@given(st.sampled_from(STATUSES), st.binary(max_size=40) | st.sampled_from([b"<html>x</html>", b"[", b"{", b"[[]]"]))
def test_a_body_without_an_error_leaves_the_status(status: int, body: bytes) -> None:
    observed(judged(status, decode_error(body)))
    observed(judged(None, decode_error(body)))
