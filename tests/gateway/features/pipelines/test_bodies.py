"""Large answers and requests of steps: no turn of the event loop decodes them, and too many values are refused."""

import contextlib
import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError, InferenceError, StepFailed
from adapters.fake import FakeAdapter, Script
from adapters.tensors import Tensor
from adapters.types import Usage
from gateway.features.pipelines.bodies import decode_fields, decode_request, encode_fields, encode_predictions
from tests.gateway.features.pipelines.rigs import chat_fake, rig, sent
from tests.support.gateways import chat
from tests.support.turns import Turns, most_seconds

MiB = 1024 * 1024
SIZES = (16 * 1024, 256 * 1024, 2 * MiB, 24 * MiB)


def with_logprobs(size: int) -> bytes:
    """A chat with a log-probability for each token."""
    tokens = [{"token": "word", "logprob": -0.25, "bytes": [119, 111], "top_logprobs": []}] * (size // 74)
    choice = {"index": 0, "message": {"role": "assistant", "content": "word"}, "logprobs": {"content": tokens}}
    return json.dumps({"object": "chat.completion", "choices": [{**choice, "finish_reason": "stop"}]}).encode()


def with_fields(size: int) -> bytes:
    """A chat with many unknown values."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "word"}, "finish_reason": "stop"}
    return json.dumps({"object": "chat.completion", "choices": [choice], "more": [7] * (size // 3)}).encode()


def script(body: bytes) -> FakeAdapter:
    return FakeAdapter(Script(chunks=(body,), usage=Usage(1, 1, exact=True)))


STEPS = [{"name": "draft", "model": "a"}, {"name": "final", "model": "b", "in": {"prompt": "draft.finish"}}]


@pytest.mark.processes
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", [with_logprobs, with_fields])
@pytest.mark.parametrize("pipeline", ["read", "answer", "stream", "guarded", "accepted"])
async def test_no_turn_decodes_a_large_answer(size: int, body: Any, pipeline: str) -> None:
    large, small = script(body(size)), chat_fake("safe")
    guard = {"model": "b", "block_if": 'text == "unsafe"', "on": "answer"}
    made: dict[str, Any] = {
        "read": ({"steps": STEPS}, large, small),
        "answer": ({"steps": STEPS}, small, large),
        "stream": ({"judge": {"of": ["a", "c"], "model": "b"}}, large, small),
        "guarded": ({"steps": [STEPS[0], {"name": "out", "guard": guard}]}, large, small),
        "accepted": ({"cascade": [{"model": "a", "accept_if": "logprob.mean > -1"}, {"model": "b"}]}, large, small),
    }
    graph, a, b = made[pipeline]
    one = rig(graph, {"a": a, "b": b, "c": chat_fake("other")})
    await one.core.handle(one.principal, chat("b"), {}, one.record())  # what is imported once
    request = chat("whole", stream=pipeline == "stream")
    with Turns() as turns:
        answer = await one.core.handle(one.principal, request, {}, one.record())
        async for _ in answer:
            pass
    assert turns.longest < most_seconds()
    if pipeline == "read":
        assert sent(one, "b")["messages"][-1]["content"] == "stop"


@pytest.mark.processes
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("field", ["documents", "messages"])
async def test_a_field_with_too_many_values_is_refused(size: int, field: str) -> None:
    values: dict[str, Any] = {
        "documents": {"documents": [1] * (size // 2)},
        "messages": {"messages": [{"role": "user", "content": "x"}] * (size // 32)},
    }
    steps = [
        {
            "name": "t",
            "in": {"v": f"request.{'text' if field == 'messages' else field}"},
            "template": "{{ v | length }}",
        },
        {"name": "final", "model": "a", "in": {"prompt": "t.text"}},
    ]
    one = rig({"steps": steps}, {"a": chat_fake("x")})
    request = chat("whole", **values[field])
    with Turns() as turns:
        try:
            await one.core.handle(one.principal, request, {}, one.record())
            refused = None
        except InferenceError as error:
            refused = error
    assert turns.longest < most_seconds()
    if size > 256 * 1024:
        assert type(refused) is CallerError
        assert "65536 at most are read by the steps of the model" in refused.message
        assert refused.param == field
    else:
        assert size > 16 * 1024 or refused is None


@pytest.mark.processes
@pytest.mark.parametrize(("width", "refused"), [(1000, False), (70_000, True), (4_000_000, True)])
async def test_vectors_with_too_many_numbers_are_not_read_by_a_step(width: int, refused: bool) -> None:
    body = b'{"object":"list","data":[{"embedding":[' + b",".join([b"0.5"] * width) + b"]}]}"
    steps = [
        {"name": "v", "model": "a"},
        {"name": "t", "in": {"v": "v.embedding"}, "template": "{{ v | length }}"},
        {"name": "final", "model": "b", "in": {"prompt": "t.text"}},
    ]
    one = rig({"steps": steps}, {"a": script(body), "b": chat_fake("x")})
    with Turns() as turns:
        expected = pytest.raises(StepFailed, match=f"{width} numbers") if refused else nullcontext()
        with expected:
            await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert turns.longest < most_seconds()


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = NUMBERS | st.booleans() | st.none() | st.text(st.characters(codec="utf-8"))
MATRICES = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width)))
VALUES = MATRICES | st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=12,
)
FIELDS = st.dictionaries(st.sampled_from(["predictions", "label", "x_bytes", "a", "ü"]), VALUES)


@given(FIELDS)
def test_fields_become_the_same_fields(fields: dict[str, Any]) -> None:
    assert json.loads(encode_fields(decode_fields(json.dumps(fields).encode()))) == approximately(fields)


def approximately(value: Any) -> Any:
    """Integers beside floats of one list are doubles, as in every tensor."""
    if isinstance(value, dict):
        return {name: approximately(each) for name, each in value.items()}
    if isinstance(value, list):
        return [approximately(each) for each in value]
    return pytest.approx(value, rel=1e-15) if isinstance(value, int | float) and not isinstance(value, bool) else value


@given(st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_other_bodies_are_refused(body: bytes) -> None:
    for decode, error in ((decode_fields, BackendError), (decode_request, CallerError)):
        with contextlib.suppress(error):  # any other error fails the test
            assert isinstance(decode(body), dict)


def test_rectangular_lists_are_tensors_and_parameters_are_fields() -> None:
    body = {"instances": [[1, 2], [3, 4]], "mixed": [1, "a"], "rows": [{"a": 1}], "parameters": {"premium": True}}
    values = decode_request(json.dumps(body).encode())
    assert isinstance(values["instances"], Tensor)
    assert (values["instances"].datatype, values["instances"].shape) == ("INT64", (2, 2))
    assert (values["mixed"], values["rows"], values["premium"]) == ([1, "a"], [{"a": 1}], True)


def test_a_field_precedes_a_parameter() -> None:
    assert decode_request(b'{"a": 1, "parameters": {"a": 2, "b": 3}}') == {
        "a": 1,
        "b": 3,
        "parameters": {"a": 2, "b": 3},
    }


@given(st.lists(st.tuples(NUMBERS, st.text(st.characters(codec="utf-8"))), min_size=1), st.booleans())
def test_outputs_are_answered_by_row(rows: list[tuple[float, str]], by_row: bool) -> None:
    columns = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    answer = json.loads(encode_predictions(columns, by_row=by_row))
    expected = [{"a": a, "b": b} for a, b in rows] if by_row else columns
    assert answer == {"predictions" if by_row else "outputs": expected}


def test_outputs_that_differ_in_their_rows_are_refused() -> None:
    with pytest.raises(StepFailed, match="`a`, `b` of the pipeline have no row for each instance"):
        encode_predictions({"a": [1, 2], "b": [1]}, by_row=True)
    assert json.loads(encode_predictions({"a": [1, 2]}, by_row=True)) == {"predictions": [1, 2]}
    assert json.loads(encode_predictions({"a": [1]}, by_row=True, has_names=True)) == {"predictions": [{"a": 1}]}
