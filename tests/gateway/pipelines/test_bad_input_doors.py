"""Bad input, of a client and of a step, on an API of texts and on one of tensors: the same clear error."""

import asyncio
import base64
from typing import Any

import aiohttp
import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelQuery, ModelRequest
from adapters.tensors import Tensor
from config.expressions.errors import CompileError
from tests.gateway.pipelines.leaves.test_decode import bomb, picture
from tests.gateway.pipelines.rigs import chat_fake, floats, infers, rig
from tests.gateway.pipelines.stories import METADATA
from tests.support.gateways import Rig, listening

HANGS = 3600.0
JSON: dict[str, Any] = {"x": {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.5]}}


def chat_body(content: Any) -> dict[str, Any]:
    return {"model": "whole", "n": 1, "messages": [{"role": "user", "content": content}]}


def infer_body(*tensors: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": list(tensors)}


async def post(one: Rig, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """The status and the message of the error; nothing is left running."""
    async with listening(one, max_body=10_000_000) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        async with http.post(url + path, json=body, headers=headers) as response:
            answer = {} if response.status == 200 else await response.json()
        await one.until_idle()
    one.assert_idle()
    error = answer.get("error", "")
    return response.status, error if isinstance(error, str) else error["message"]


CHAT, TENSORS = "/v1/chat/completions", "/v2/models/whole/infer"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("file", "expected", "message"),
    [
        (bomb(), 413, "pixels"),
        (picture(400, 400, "JPEG")[:800], 400, "truncated or damaged"),
        (b"GIF89a" + b"\0" * 100, 400, "not a JPEG, PNG or WebP"),
        (b"", 400, "not"),
    ],
    ids=["bomb", "truncated", "other-kind", "empty"],
)
async def test_a_picture_that_cannot_be_decoded(file: bytes, expected: int, message: str) -> None:
    text = base64.b64encode(file).decode()
    for path, reference, body in (
        (
            CHAT,
            "request.images",
            chat_body([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}]),
        ),
        (TENSORS, "request.image", infer_body({"name": "image", "datatype": "BYTES", "shape": [1], "data": [text]})),
    ):
        steps = [
            {"name": "pixels", "in": {"image": reference}, "decode": {"image": {"height": 2, "width": 2}}},
            {"name": "label", "model": "m", "in": {"x": "pixels.image"}},
        ]
        one = rig({"steps": steps}, {"m": infers(floats("y", 1))}, tensors="m")
        status, reported = await post(one, path, body)
        assert status == expected
        assert message in reported
        assert one.adapters["m"][0].calls == []


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
    got, reported = await post(one, path, body)
    assert (got, message in reported) == (status, True), reported
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
        got, reported = await post(one, path, body_of(path))
        assert got == status, reported
        ends = {call.end for call in hanging.calls}
        # The deadline may pass in the member before the pipeline cancels it.
        assert ends <= ({"cancelled"} if within else {"cancelled", "failed"})


def switch(expression: str) -> dict[str, Any]:
    return {"switch": [{"if": expression, "model": "b"}, {"else": True, "model": "b"}]}


async def test_a_tensor_that_the_request_does_not_have() -> None:
    one = rig(switch("request.size > 0.5"), {"b": answering(TENSORS)}, tensors="b")
    status, message = await post(one, TENSORS, body_of(TENSORS))
    expected = "The condition `request.size > 0.5` has no result: column 1: `request.size` has no value."
    assert (status, message) == (400, expected)


async def test_a_field_that_a_chat_may_not_have_needs_a_default() -> None:
    with pytest.raises(CompileError, match="may be absent: add a default"):
        rig(switch("request.top_p > 0.5"), {"b": answering(CHAT)})
    one = rig(switch("(request.top_p default 0.9) > 0.5"), {"b": answering(CHAT)})
    assert (await post(one, CHAT, body_of(CHAT)))[0] == 200


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
        async with asyncio.timeout(300):
            while not hanging.calls:
                await asyncio.sleep(0.005)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await one.until_idle()
    assert [call.end for call in hanging.calls] == ["cancelled"]
    assert len(fake.calls) == 1
    assert [record.status for record in one.log.records] == [499]
    one.assert_idle()
