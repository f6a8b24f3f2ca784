"""Any chat for any hosted API: the provider receives it whole, or the client reads the name of the field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError, CapacityError
from adapters.ignored_fields import IgnoredFields
from adapters.wire.openai import chat as wire
from adapters.wire.openai.dialects import OpenAIDialect
from adapters.wire.openai.providers import HOSTED
from tests.support.providers.openai_like import ROWS, THOUGHT, Row, faults, received

Object = dict[str, Any]
BY_NAME = {row.name: row for row in ROWS}
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.just(5),
    "max_completion_tokens": st.just(6),
    "seed": st.just(1),
    "user": st.just("u"),
    "n": st.sampled_from([1, 2]),
    "stop": st.sampled_from([None, ["x"]]),
    "temperature": st.just(0.5),
    "logit_bias": st.sampled_from([{}, {"1": 2}]),
    "logprobs": st.booleans(),
    "top_logprobs": st.just(2),
    "frequency_penalty": st.sampled_from([0, 0.0, 0.5]),
    "parallel_tool_calls": st.booleans(),
    "reasoning_effort": st.sampled_from(["low", "medium", "high", "none"]),
    "metadata": st.just({"a": "b"}),
    "store": st.booleans(),
    "service_tier": st.just("auto"),
    "stream": st.booleans(),
    "stream_options": st.just({"include_usage": True}),
    "response_format": st.sampled_from([{"type": "json_object"}, {"type": "json_schema", "json_schema": {
        "name": "a", "schema": {"type": "object"}}}]),
    "tools": st.just([{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("look", "add")]),
    "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "add"}}]),
}  # fmt: skip
ARGUMENTS = st.sampled_from(['{"a": 1.0}', "{}", '{"x":"ä\\u00e4"}', '{"reasoning":"\\"assistant\\""}'])
SLOW = {"code": 429, "message": "slow down"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
OF_OTHERS = st.dictionaries(
    st.sampled_from(["reasoning", "reasoning_content", "extra_content", "thinking_blocks"]),
    st.sampled_from(["", "a thought"]),
    max_size=2,
)


@st.composite
def histories(draw: st.DrawFn) -> list[Object]:
    turns: list[Object] = [{"role": "system", "content": "s"}]
    for nth in range(draw(st.integers(1, 3))):
        user: Any = draw(st.sampled_from(["hi", [{"type": "text", "text": "hi"}], [IMAGE]]))
        turns.append({"role": "user", "content": user} | draw(st.sampled_from([{}, {"name": "ada"}])))
        count = draw(st.integers(0, 2))
        calls = [
            {"id": f"call_{nth}_{at}", "type": "function", "function": {"name": "look", "arguments": draw(ARGUMENTS)}}
            for at in range(count)
        ]
        answer: Object = {"role": "assistant", "content": draw(st.sampled_from(["so", None])) if calls else "so"}
        turns.append(answer | draw(OF_OTHERS) | ({"tool_calls": calls} if calls else {}))
        turns += [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in calls]
    return [*turns, {"role": "user", "content": "and?"}] if turns[-1]["role"] != "tool" else turns


@pytest.mark.parametrize("name", HOSTED)
def test_a_chat_arrives_whole_or_is_refused_by_a_field_s_name(name: str) -> None:
    row, dialect = BY_NAME[name], HOSTED[name]
    models = [row.model, "deepseek-v4-flash"] if name == "deepseek" else [row.model]

    @given(histories(), st.fixed_dictionaries({}, optional=OPTIONS), st.sampled_from(models))
    def check(history: list[Object], options: Object, model: str) -> None:
        if "tools" not in options:
            options.pop("tool_choice", None)
            options.pop("parallel_tool_calls", None)
        given_ = {"model": "client-s", "messages": history, **options}
        ignored = IgnoredFields()
        body = sent(given_, model, dialect, ignored)
        if isinstance(body, CallerError):
            assert body.param in given_
            return
        assert list(faults(row, body)) == []
        assert body["model"] == model
        assert set(ignored.ignored) <= options.keys()
        _arrived(row, given_, body)

    check()


def sent(chat: Object, model: str, dialect: OpenAIDialect, ignored: IgnoredFields) -> Object | CallerError:
    """The body for the provider, or the refusal."""
    request = wire.decode_chat(json.dumps(chat).encode())
    try:
        body: Object = json.loads(wire.upstream_body(request, model, dialect, ignored=ignored))
    except CallerError as error:
        return error
    return body


def _arrived(row: Row, client_s: Object, body: Object) -> None:
    """Roles, order, texts, pictures, ids and arguments are the client's, and so is what an option means."""
    given_, arrived = received(row, client_s), received(row, body)
    for turn, other in zip(given_.turns, arrived.turns, strict=True):
        assert turn._replace(thoughts=None) == other._replace(thoughts=None)
        assert other.thoughts in (None, "", "a thought", THOUGHT)
    assert arrived.schema == given_.schema
    assert arrived.stream == given_.stream
    assert arrived.demand == given_.demand
    lengths = [client_s[key] for key in ("max_completion_tokens", "max_tokens") if key in client_s]
    assert arrived.length == (None if not lengths else body[next(key for key in sorted(row.length) if key in body)])
    assert arrived.length in (None, *lengths)


@pytest.mark.parametrize(
    "event",
    [
        {
            "choices": [
                {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "slow down"}}
            ]
        },
        {"choices": [], "x_groq": {"id": "r", "error": {"code": 429, "message": "slow down"}}},
        {"choices": [], "error": {"code": 429, "message": "slow down"}},
    ],
)
def test_an_error_within_a_chunk_is_that_error(event: Object) -> None:
    for read in (wire.read_event, wire.usage_of_body):
        with pytest.raises(CapacityError):
            read(json.dumps(event).encode())
    harmless = {"choices": [{"index": 0, "delta": {"content": "x"}, "error": None, "finish_reason": "stop"}]}
    assert wire.read_event(json.dumps(harmless).encode()).reported is None
