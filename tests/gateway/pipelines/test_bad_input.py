"""Bad input of a pipeline's steps, through real sockets: each is an error of the door, and holds nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from adapters.errors import CallerError
from adapters.fake import FakeAdapter, Script
from adapters.tensors import Tensor
from tests.gateway.pipelines.rigs import chat_fake, floats, infers, rig
from tests.support.gateways import Rig, listening

HANGS = 3600.0


@asynccontextmanager
async def opened(one: Rig) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    async with listening(one, max_body=1_000_000) as url, aiohttp.ClientSession() as http:
        http.headers["authorization"] = f"Bearer {one.key.plaintext}"
        yield url, http


def tensors(rows: int) -> dict[str, Any]:
    data = [0.5] * rows
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 1], "data": data}]}


def batch(rows: int, *, data: bytes | None = None) -> FakeAdapter:
    return infers(Tensor("y", "FP32", (rows, 1), floats("", *[0.5] * rows).data if data is None else data))


SWITCH = [{"if": "max(first.y) > 0.5", "model": "b"}, {"else": True, "model": "b"}]
ROWS = {"model": "b", "in": {"x": "first.y"}, "each": True}
PLAIN = {"model": "b", "in": {"x": "first.y"}}


@pytest.mark.parametrize(
    ("second", "first", "status", "message"),
    [
        ({"switch": SWITCH, "in": {"x": "request.x"}}, "nan", 502, "NaN"),
        ({"switch": SWITCH, "in": {"x": "request.x"}}, "empty", 502, "has no result"),
        (ROWS, "huge", 502, "2000 rows"),
        (ROWS, "scalar", 502, "no dimension of rows"),
        (PLAIN, "other", 502, "has no output `y`"),
        (PLAIN, "html", 502, "first"),
    ],
)
async def test_an_answer_that_no_later_step_can_use_is_a_502(
    second: dict[str, Any], first: str, status: int, message: str
) -> None:
    servers = {
        "nan": lambda: infers(floats("y", float("nan"))),
        "empty": lambda: batch(0),
        "huge": lambda: batch(2000),
        "scalar": lambda: infers(Tensor("y", "FP32", (), floats("", 1).data)),
        "other": lambda: infers(floats("z", 1)),
        "html": lambda: FakeAdapter(Script(chunks=(b"<html>",))),
    }
    steps = [{"name": "first", "model": "a", "in": {"x": "request.x"}}, {"name": "second", **second}]
    one = rig({"steps": steps}, {"a": servers[first](), "b": infers(floats("z", 1))}, tensors="ab")
    async with opened(one) as (url, http), http.post(f"{url}/v2/models/whole/infer", json=tensors(1)) as response:
        body = await response.json()
        assert (response.status, list(body)) == (status, ["error"])
        assert message in body["error"]


async def test_a_batch_with_too_many_rows_to_compute_one_by_one_is_refused() -> None:
    steps = [{"name": "read", "model": "a", "in": {"x": "request.x"}, "each": True}]
    one = rig({"steps": steps}, {"a": infers(floats("y", 1))}, tensors="a")
    async with opened(one) as (url, http), http.post(f"{url}/v2/models/whole/infer", json=tensors(2000)) as response:
        body = await response.json()
        assert response.status == 400
        assert "`x` has 2000 rows, and 1024 at most" in body["error"]
    assert one.adapters["a"][0].calls == []


@pytest.mark.parametrize(
    ("path", "request_body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/completions", {"prompt": "hi"}),
    ],
)
@pytest.mark.parametrize(
    ("failing", "deadline", "status", "code"),
    [
        (Script(fault=CallerError("bad")), "30s", 502, "pipeline_step_failed"),
        (Script(latency=HANGS), "300ms", 504, "deadline_exceeded"),
    ],
)
async def test_a_failing_step_is_an_error_of_each_api(
    path: str, request_body: dict[str, Any], failing: Script, deadline: str, status: int, code: str
) -> None:
    steps = [{"name": "draft", "model": "a"}, {"name": "final", "model": "b", "in": {"prompt": "draft.text"}}]
    one = rig({"steps": steps, "deadline": deadline}, {"a": chat_fake("x"), "b": FakeAdapter(failing)})
    for stream in (False, True):
        body = {"model": "whole", "stream": stream, **request_body}
        async with opened(one) as (url, http), http.post(url + path, json=body) as response:
            text = await response.text()
            assert response.status == status, text
            assert "final" in json.loads(text)["error"]["message"]
            assert path == "/v1/messages" or json.loads(text)["error"]["code"] == code


async def test_a_client_that_leaves_between_steps_ends_the_pipeline() -> None:
    steps = [{"name": "draft", "model": "a"}, {"name": "final", "model": "b", "in": {"prompt": "draft.text"}}]
    one = rig({"steps": steps}, {"a": chat_fake("x"), "b": FakeAdapter(Script(latency=HANGS))})
    body = {"model": "whole", "messages": [{"role": "user", "content": "hi"}]}
    async with opened(one) as (url, http):
        request = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body).__aenter__())
        async with asyncio.timeout(300):
            while not one.adapters["b"][0].calls:
                await asyncio.sleep(0.005)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await one.until_idle()
        assert one.adapters["b"][0].calls[0].end == "cancelled"
        assert [record.status for record in one.log.records] == [499]


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
    async with opened(one) as (url, http), http.post(f"{url}/v2/models/whole/infer", json=tensors(1)) as response:
        body = await response.json()
        if not shown:
            assert response.status == 200
        else:
            assert (response.status, list(body)) == (502, ["error"])
            message = f"the output `y` of `typed` is {shown}, and its signature has FP32 [-1, 2]."
            assert body["error"] == f"The step `first` failed: {message}"
    assert len(one.adapters["b"][0].calls) == (not shown)
    one.assert_idle()
