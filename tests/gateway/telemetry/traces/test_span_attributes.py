"""The attributes of requests and responses, from any body."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.spans import Attribute
from adapters.types import Usage
from adapters.wire.openai import chat as wire
from adapters.wire.openai.model_field import RANKING, Kind, ranking_request
from config.schema.config import ClientModelConfig
from gateway.telemetry.traces.span_attributes import (
    decision_event,
    request_attributes,
    response_attributes,
    server_attributes,
    usage_attributes,
)
from policies.routing.rules import Rules
from tests.support.route_conditions import facts

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
)
names = st.sampled_from(["id", "model", "choices", "finish_reason", "stop_reason", "delta", "message", "response"])
parts = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=30
)
MESSAGES = [{"role": "user", "content": "hi"}]


def of(**fields: Any) -> dict[str, Attribute]:
    body = msgspec.json.encode({"model": "m", "messages": MESSAGES, **fields})
    return request_attributes(wire.decode_chat(body))


def test_the_parameters_of_a_request() -> None:
    attributes = of(
        stream=True, temperature=0, top_p=0.5, top_k=40, seed=-7, frequency_penalty=1, presence_penalty=-1.5,
        max_tokens=9, n=2, stop=["a", "b"], response_format={"type": "json_schema", "json_schema": {}},
    )  # fmt: skip
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.seed": -7,
        "gen_ai.request.frequency_penalty": 1.0,
        "gen_ai.request.presence_penalty": -1.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.stop_sequences": ("a", "b"),
        "gen_ai.output.type": "json",
    }
    assert type(attributes["gen_ai.request.temperature"]) is float


@pytest.mark.parametrize("kind", RANKING)
def test_a_ranking_has_its_operation_and_model(kind: Kind) -> None:
    request = ranking_request(kind, b'{"model": "m", "query": "a", "documents": ["b"]}')
    assert request_attributes(request) == {"gen_ai.operation.name": kind, "gen_ai.request.model": "m"}


@given(values, values, values, values, values)
def test_no_value_of_a_parameter_fails(temperature: Any, top_k: Any, seed: Any, stop: Any, form: Any) -> None:
    """The server rejects them, not the trace."""
    fields = {"temperature": temperature, "top_k": top_k, "seed": seed, "stop": stop, "response_format": form}
    try:
        request = wire.decode_chat(msgspec.json.encode({"model": "m", "messages": MESSAGES, **fields}))
    except Exception:  # a body that no front forwards
        return
    for name, value in request_attributes(request).items():
        if name == "gen_ai.request.temperature":
            assert type(value) is float
        elif name.endswith(("top_k", "seed")):
            assert type(value) is int
            assert abs(value) < 2**63
        elif isinstance(value, tuple):
            assert all(type(each) is str for each in value)


WHOLE = b'{"id":"c-1","model":"m-2024","choices":[{"finish_reason":"stop"},{"finish_reason":"length"}]}'
STREAM = (
    b'data: {"id":"c-1","model":"m-2024","choices":[{"delta":{"role":"assistant"}}]}',
    b'data: {"id":"c-1","model":"m-2024","choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
    b"data: [DONE]",
)
ANTHROPIC = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","model":"claude"}}',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
    b'event: message_stop\ndata: {"type":"message_stop"}',
)
RESPONSES = (b'data: {"type":"response.created","response":{"id":"resp_1","model":"m","status":"in_progress"}}',)


@pytest.mark.parametrize(
    ("excerpts", "id_", "model", "reasons"),
    [
        ((WHOLE,), "c-1", "m-2024", ("stop", "length")),
        (STREAM, "c-1", "m-2024", ("tool_calls",)),
        (ANTHROPIC, "msg_1", "claude", ("end_turn",)),
        ((b'{"id":"msg_1","model":"claude","stop_reason":"max_tokens"}',), "msg_1", "claude", ("max_tokens",)),
        (RESPONSES, "resp_1", "m", None),
    ],
)
def test_the_response_of_each_wire(
    excerpts: tuple[bytes, ...], id_: str, model: str, reasons: tuple[str, ...] | None
) -> None:
    attributes = response_attributes(excerpts)
    assert attributes["gen_ai.response.id"] == id_
    assert attributes["gen_ai.response.model"] == model
    assert attributes.get("gen_ai.response.finish_reasons") == reasons


@given(
    st.lists(
        st.binary(max_size=60)
        | parts.map(msgspec.json.encode)
        | parts.map(lambda p: b"data: " + msgspec.json.encode(p))
    )
)
def test_no_response_fails_and_texts_are_bounded(excerpts: list[bytes]) -> None:
    for value in response_attributes(excerpts).values():
        texts = value if isinstance(value, tuple) else (value,)
        assert len(texts) <= 16
        assert all(type(text) is str and len(text) <= 128 for text in texts)


def test_usage_has_the_parts_of_its_tokens() -> None:
    assert usage_attributes(Usage(10, 5, cached_tokens=4, reasoning_tokens=3, cache_write_tokens=2)) == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
    }
    assert usage_attributes(None) == usage_attributes(Usage()) == {}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", {"server.address": "h", "server.port": 1}),
        ("https://h/v1", {"server.address": "h", "server.port": 443}),
        ("unix:/run/x", {"server.address": "/run/x"}),
        ("pool/1", {}),
    ],
)
def test_the_address_of_a_server(url: str, expected: dict[str, Attribute]) -> None:
    assert server_attributes(url, "pool/1") == expected


@pytest.mark.parametrize(("named", "expected"), [({"name": "first"}, "first"), ({}, "0")])
def test_a_route_goes_by_its_name_or_by_its_place(named: dict[str, str], expected: str) -> None:
    model = ClientModelConfig.model_validate({"name": "m", "routes": [{"to": "main", **named}]})
    decision = Rules(model).decide(facts(), Random(1))
    assert decision is not None
    assert decision_event(decision, 5.0) == (
        5.0, "decision", {"headrace.route": expected, "headrace.pools": ("main",)},
    )  # fmt: skip
