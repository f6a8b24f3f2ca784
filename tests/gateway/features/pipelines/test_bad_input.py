"""Bad input, of a client and of a step, through real sockets: an error of each API, and nothing is held."""

import asyncio
from typing import Any, NamedTuple

import aiohttp
import pytest
from msgspec.structs import replace

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, Unsupported
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelQuery, ModelRequest
from adapters.tensors import Tensor
from config.expressions.types import CompileError
from tests.gateway.features.pipelines.rigs import TWO, chat_fake, floats, infer, infers, rig
from tests.gateway.features.pipelines.stories import METADATA
from tests.support.gateways import Rig, listening
from tests.support.guards import BODIES
from tests.support.waiting import until

HANGS = 3600.0
JSON: dict[str, Any] = {"x": {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.5]}}


def chat_body(content: Any) -> dict[str, Any]:
    return {"model": "whole", "n": 1, "messages": [{"role": "user", "content": content}]}


def infer_body(*tensors: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": list(tensors)}


class Reply(NamedTuple):
    """The status of a response, and its error."""

    status: int
    message: str
    code: str


async def post(one: Rig, path: str, body: dict[str, Any]) -> Reply:
    """Send a request. Nothing is left running."""
    async with listening(one, max_body=10_000_000) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        async with http.post(url + path, json=body, headers=headers) as response:
            answer = {} if response.status == 200 else await response.json()
        await one.until_idle()
    error = answer.get("error", "")
    if isinstance(error, str):
        return Reply(response.status, error, "")
    return Reply(response.status, error["message"], error.get("code", ""))


CHAT, TENSORS = "/v1/chat/completions", "/v2/models/whole/infer"


async def test_an_explanation_is_refused_whatever_class_its_request_has() -> None:
    one = rig({"steps": [{"name": "draft", "model": "a"}]}, {"a": infers(floats("y", 1))}, tensors=["a"])
    request = replace(infer(floats("x", 1)), kind="explain")
    with pytest.raises(Unsupported, match="is a pipeline, which does not explain answers"):
        await one.core.handle(one.principal, request, {}, one.record())
    assert one.adapters["a"][0].calls == []


class Scorer(FakeAdapter):
    """A server of tensors that describes its model."""

    def __init__(self, *outputs: Tensor, **script: Any) -> None:
        super().__init__(Script(**script))
        self._server = infers(*outputs) if outputs else None

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, ModelQuery):
            return Answer(content_type="application/json", body=METADATA)
        return await (super().call if self._server is None else self._server.call)(request, call)


def answering(path: str) -> FakeAdapter:
    """The server of a model that answers the API."""
    return chat_fake("fine") if path == CHAT else infers(floats("z", 1))


def body_of(path: str) -> dict[str, Any]:
    return chat_body("hi") if path == CHAT else infer_body(JSON["x"])


@pytest.mark.parametrize("path", [CHAT, TENSORS])
@pytest.mark.parametrize(
    ("server", "status", "message"),
    [
        (Scorer(floats("y", float("nan"))), 502, "NaN"),
        (Scorer(Tensor("y", "FP32", (0, 1), b"")), 502, "no result"),
        (Scorer(Tensor("y", "FP32", (1, 2), b"\0" * 8)), 502, "no result"),
        (Scorer(floats("other", 1)), 502, "`first.y` has no value"),
        (Scorer(chunks=(b"<html>",)), 502, "first"),
        (Scorer(latency=HANGS), 504, "`first`"),
    ],
    ids=["nan", "empty", "other-shape", "other-output", "html", "hangs"],
)
async def test_an_answer_of_a_step_that_a_condition_cannot_read(
    path: str, server: FakeAdapter, status: int, message: str
) -> None:
    """A score of one number decides which model answers."""
    step, fake = {"model": "b"}, answering(path)
    steps = [
        {"name": "first", "model": "a", "in": {"x": "request.n" if path == CHAT else "request.x"}},
        {"name": "second", "switch": [{"if": "first.y > 0.5", **step}, {"else": True, **step}]},
    ]
    one = rig({"steps": steps, "deadline": "300ms"}, {"a": server, "b": fake}, tensors=["a"] if path == CHAT else "ab")
    body = body_of(path) | ({"n": 1} if path == CHAT else {})
    got = await post(one, path, body)
    assert (got.status, message in got.message) == (status, True), got
    assert one.adapters["b"][0].calls == []


@pytest.mark.parametrize("path", [CHAT, TENSORS])
async def test_a_member_that_never_answers(path: str) -> None:
    """The others answer within the time of the ensemble, or the client receives a timeout."""
    step, fake = {"model": "b"}, answering(path)
    model = {**step, "name": "quick"}
    never = {**step, "model": "never", "name": "never"}
    hanging = FakeAdapter(Script(latency=HANGS))
    for within, status in (({"need": 1, "within": "50ms"}, 200), ({}, 504)):
        pipeline = {
            "deadline": "300ms",
            "ensemble": {"members": [model, never], "combine": "first", "need": 2, **within},
        }
        fakes = {"b": fake, "never": hanging}
        one = rig(pipeline, fakes, tensors=[] if path == CHAT else ["b", "never"])
        got = await post(one, path, body_of(path))
        assert got.status == status, got
        ends = {call.end for call in hanging.calls}
        # The deadline may pass in the member before the pipeline cancels it.
        assert ends <= ({"cancelled"} if within else {"cancelled", "failed"})


def switch(expression: str) -> dict[str, Any]:
    return {"switch": [{"if": expression, "model": "b"}, {"else": True, "model": "b"}]}


async def test_a_tensor_that_the_request_does_not_have() -> None:
    one = rig(switch("request.size > 0.5"), {"b": answering(TENSORS)}, tensors="b")
    expected = "The condition `request.size > 0.5` has no result: column 1: `request.size` has no value."
    assert (await post(one, TENSORS, body_of(TENSORS)))[:2] == (400, expected)


async def test_a_field_that_a_chat_may_not_have_needs_a_default() -> None:
    with pytest.raises(CompileError, match="may be absent: add a default"):
        rig(switch("request.top_p > 0.5"), {"b": answering(CHAT)})
    one = rig(switch("(request.top_p default 0.9) > 0.5"), {"b": answering(CHAT)})
    assert (await post(one, CHAT, body_of(CHAT))).status == 200


@pytest.mark.parametrize("path", [CHAT, TENSORS])
async def test_a_client_that_leaves_between_steps(path: str) -> None:
    fake = answering(path)
    hanging = FakeAdapter(Script(latency=HANGS))
    steps = [
        {"name": "one", "model": "b"},
        {"name": "two", "model": "never", "in": {"prompt": "one.text"} if path == CHAT else {"x": "one.z"}},
    ]
    one = rig({"steps": steps}, {"b": fake, "never": hanging}, tensors=[] if path == CHAT else ["b", "never"])
    async with listening(one) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        request = asyncio.create_task(http.post(url + path, json=body_of(path), headers=headers).__aenter__())
        await until(lambda: hanging.calls)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await one.until_idle()
    assert [call.end for call in hanging.calls] == ["cancelled"]
    assert len(fake.calls) == 1
    assert [record.status for record in one.log.records] == [499]


@pytest.mark.parametrize(
    ("path", "body"), [*BODIES.items(), ("/v1/completions", {"prompt": "hi"})], ids=[*BODIES, "/v1/completions"]
)
@pytest.mark.parametrize(
    ("failing", "deadline", "status", "code"),
    [
        (Script(fault=CallerError("bad")), "30s", 502, "pipeline_step_failed"),
        (Script(latency=HANGS), "300ms", 504, "deadline_exceeded"),
    ],
)
async def test_a_failing_step_is_an_error_of_each_api(
    path: str, body: dict[str, Any], failing: Script, deadline: str, status: int, code: str
) -> None:
    one = rig({**TWO, "deadline": deadline}, {"a": chat_fake("x"), "b": FakeAdapter(failing)})
    for stream in (False, True):
        got = await post(one, path, {"model": "whole", "stream": stream, **body})
        assert got.status == status, got
        assert "final" in got.message
        assert path == "/v1/messages" or got.code == code


DECLARED = {"inputs": [], "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]}


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (floats("y", 1, 2, 3), "FP32 [1, 3]"),
        (Tensor("y", "FP32", (2,), floats("", 1, 2).data), "FP32 [2]"),
        (Tensor("y", "INT32", (1, 2), floats("", 1, 2).data), "INT32 [1, 2]"),
        (floats("y", 1, 2), ""),
        (Tensor("y", "FP32", (3, 2), floats("", 1, 2, 3, 4, 5, 6).data), ""),
    ],
)
async def test_an_output_that_does_not_fit_its_signature_fails_its_step(answer: Tensor, shown: str) -> None:
    first = {"name": "first", "model": "typed", "in": {"x": "request.x"}}
    second = {"name": "second", "model": "b", "in": {"x": "first.y"}}
    typed = {"name": "typed", "routes": [{"to": "a"}], "signature": DECLARED}
    servers = {"a": infers(answer), "b": infers(floats("z", 1))}
    one = rig({"steps": [first, second]}, servers, tensors="ab", models=[typed])
    reason = f"the output `y` of `typed` is {shown}, and its signature has FP32 [-1, 2]."
    expected = (502, f"The step `first` failed: {reason}") if shown else (200, "")
    assert (await post(one, TENSORS, body_of(TENSORS)))[:2] == expected
    assert len(one.adapters["b"][0].calls) == (not shown)
