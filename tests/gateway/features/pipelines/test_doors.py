"""A pipeline is a model to the clients of every API."""

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
import tritonclient.http.aio as triton_http

from adapters.fake import FakeAdapter, Script
from adapters.types import Usage
from adapters.wire.protos.tfserving import PREDICTION, serving
from adapters.wire.tfserving.predict import decode_tensor
from tests.gateway.features.pipelines.rigs import TWO, chat_fake, chat_script, chunks, rig
from tests.gateway.fronts.oip import TensorDoor, TensorFake, tensor_door
from tests.support.gateways import Rig, listening

pytestmark = pytest.mark.realtime

SUMS = {
    "steps": [
        {"name": "first", "model": "chat", "in": {"A": "request.left", "B": "request.right"}},
        {"name": "second", "model": "chat", "in": {"A": "first.SUM", "B": "request.right"}},
    ],
    "out": {"total": "second.SUM", "part": "first.SUM"},
}
LEFT, RIGHT = np.array([[1, 2]], np.int32), np.array([[3, 4]], np.int32)


@asynccontextmanager
async def sums(pipeline: dict[str, Any] | None = None) -> AsyncIterator[TensorDoor]:
    models = [{"name": "chat", "routes": [{"to": "main"}]}, {"name": "whole", "pipeline": pipeline or SUMS}]
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": "oip-http"}]
    async with tensor_door(TensorFake(), models=models, pools=pools) as door:
        yield door
    door.rig.assert_idle()


def grpc_inputs() -> list[triton.InferInput]:
    inputs = []
    for name, array in (("left", LEFT), ("right", RIGHT)):
        inputs.append(triton.InferInput(name, list(array.shape), "INT32"))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def json_inputs(rows: int = 1) -> dict[str, Any]:
    tensors = (("left", [1, 2]), ("right", [3, 4]))
    return {
        "inputs": [{"name": n, "datatype": "INT32", "shape": [rows, 2], "data": data * rows} for n, data in tensors]
    }


async def test_the_metadata_of_a_pipeline_is_that_of_its_graph() -> None:
    async with sums() as door:
        response = await door.get("/v2/models/whole")
        described = await response.json()
        assert described["inputs"] == [
            {"name": "left", "datatype": "INT32", "shape": [-1, 2]},
            {"name": "right", "datatype": "INT32", "shape": [-1, 2]},
        ]
        assert [output["name"] for output in described["outputs"]] == ["total", "part"]
        assert (await door.get("/v2/models/whole/ready")).status == 200
        assert "whole" in (await (await door.get("/v2/models")).json())["models"]


async def test_the_configuration_and_the_statistics_of_a_pipeline() -> None:
    """perf_analyzer reads both."""
    async with sums() as door:
        client = triton.InferenceServerClient(door.grpc)
        config = await (await door.get("/v2/models/whole/config")).json()
        assert (config["name"], config["max_batch_size"]) == ("whole", 0)
        assert config["input"] == [
            {"name": "left", "data_type": "TYPE_INT32", "dims": [-1, 2]},
            {"name": "right", "data_type": "TYPE_INT32", "dims": [-1, 2]},
        ]
        reported = (await client.get_model_config("whole", headers=door.keyed)).config
        assert [(one.name, one.data_type, list(one.dims)) for one in reported.input] == [
            ("left", 8, [-1, 2]), ("right", 8, [-1, 2]),
        ]  # fmt: skip
        pair = json_inputs(rows=3)
        assert (await door.post("/v2/models/whole/infer", pair)).status == 200
        assert (await door.post("/v2/models/whole/infer", {"inputs": pair["inputs"][:1]})).status == 400
        (entry,) = (await (await door.get("/v2/models/whole/stats")).json())["model_stats"]
        counts = {name: part["count"] for name, part in entry["inference_stats"].items()}
        assert (counts["success"], counts["fail"], counts["queue"], counts["compute_infer"]) == (1, 1, 1, 1)
        assert (entry["inference_count"], entry["execution_count"]) == (3, 1)
        assert entry["inference_stats"]["success"]["ns"] > 0
        (same,) = (await client.get_inference_statistics("whole", headers=door.keyed)).model_stats
        assert (same.name, same.version, same.inference_stats.success.count) == ("whole", "1", 1)
        assert same.last_inference == entry["last_inference"]
        await client.close()


async def test_triton_s_clients_over_http_and_grpc() -> None:
    async with sums() as door:
        http = triton_http.InferenceServerClient(door.address)
        tensors = []
        for name, array in (("left", LEFT), ("right", RIGHT)):
            tensor = triton_http.InferInput(name, array.shape, "INT32")
            tensor.set_data_from_numpy(array, binary_data=True)
            tensors.append(tensor)
        response = await http.infer("whole", tensors, request_id="9", headers={**door.keyed})
        assert response.as_numpy("total").tolist() == [[4, 6]]
        assert response.get_response()["id"] == "9"
        only = [triton_http.InferRequestedOutput("part")]
        response = await http.infer("whole", tensors, outputs=only, headers={**door.keyed})
        assert [output["name"] for output in response.get_response()["outputs"]] == ["part"]
        await http.close()
        client = triton.InferenceServerClient(door.grpc)
        answer = await client.infer("whole", grpc_inputs(), headers=door.keyed)
        assert answer.as_numpy("part").tolist() == [[4, 6]]
        described = await client.get_model_metadata("whole", headers=door.keyed)
        assert [each.name for each in described.inputs] == ["left", "right"]
        await client.close()


async def test_streams_of_tensors_over_grpc_and_http() -> None:
    async with sums() as door:
        client = triton.InferenceServerClient(door.grpc)

        async def requests() -> AsyncIterator[dict[str, Any]]:
            for number in ("1", "2"):
                yield {"model_name": "whole", "inputs": grpc_inputs(), "request_id": number}

        answers = [answer async for answer in client.stream_infer(requests(), headers={**door.keyed})]
        assert [error for _, error in answers] == [None, None]
        assert sorted(result.get_response().id for result, _ in answers) == ["1", "2"]
        assert [result.as_numpy("total").tolist() for result, _ in answers] == [[[4, 6]], [[4, 6]]]
        await client.close()
        response = await door.post("/v2/models/whole/infer_stream", json_inputs())
        (event,) = [line for line in (await response.text()).splitlines() if line.startswith("data:")]
        assert json.loads(event[5:])["outputs"][0]["data"] == [4, 6]


async def test_the_answer_of_a_step_with_inputs_has_the_form_and_the_outputs_that_the_client_requests() -> None:
    inputs = {"inputs": json_inputs()["inputs"][:1]}
    last = {"steps": [{"name": "only", "model": "chat", "in": {"A": "request.left", "B": "request.left"}}]}
    async with sums(last) as door:
        response = await door.post("/v2/models/whole/infer", {**inputs, "id": "7"})
        assert response.content_type == "application/json"
        answer = await response.json()
        assert (answer["model_name"], answer["id"]) == ("whole", "7")
        assert [output["data"] for output in answer["outputs"]] == [[4, 6]]
        client = triton_http.InferenceServerClient(door.address)
        tensor = triton_http.InferInput("left", [1, 2], "INT32")
        tensor.set_data_from_numpy(LEFT)
        result = await client.infer("whole", [tensor], headers={**door.keyed})  # requests binary tensors
        assert result.as_numpy("SUM").tolist() == [[4, 6]]
        response = await door.post("/v2/models/whole/infer", {**inputs, "outputs": [{"name": "NONE"}]})
        assert response.status == 400
        await client.close()


async def test_kserve_v1_and_tensorflow_serving() -> None:
    async with sums() as door:
        body = {"instances": [{"left": [1, 2], "right": [3, 4]}]}
        response = await door.post("/v1/models/whole:predict", body)
        assert (response.status, await response.json()) == (200, {"predictions": [{"total": [4, 6], "part": [4, 6]}]})
        request = serving.PredictRequest()
        request.model_spec.name = "whole"
        for name, array in (("left", LEFT), ("right", RIGHT)):
            request.inputs[name].dtype = 3
            for size in array.shape:
                request.inputs[name].tensor_shape.dim.add(size=size)
            request.inputs[name].tensor_content = array.tobytes()
        async with grpc.aio.insecure_channel(door.grpc) as channel:
            method = PREDICTION["Predict"]
            call = channel.unary_unary(method.path, response_deserializer=method.response.FromString)
            answer = await call(request.SerializeToString(), metadata=list(door.keyed.items()), timeout=30)
        assert struct.unpack("<2i", decode_tensor("total", answer.outputs["total"]).data) == (4, 6)


async def test_errors_have_the_shape_of_the_door() -> None:
    async with sums() as door:
        response = await door.post("/v2/models/whole/infer", {"inputs": json_inputs()["inputs"][:1]})
        assert response.status == 400
        assert await response.json() == {"error": "The request has no input `right`, which the model needs."}
    broken = {"steps": [{"name": "first", "model": "chat"}], "out": {"x": "first.NOPE"}}
    async with sums(broken) as door:
        response = await door.post("/v2/models/whole/infer")
        assert response.status == 502
        assert (await response.json())["error"].startswith("The step `first` has no output `NOPE`")


@asynccontextmanager
async def texts(**fakes: FakeAdapter) -> AsyncIterator[tuple[Rig, str, aiohttp.ClientSession]]:
    one = rig(TWO, {"a": chat_fake("a draft"), **fakes})
    async with listening(one) as url, aiohttp.ClientSession() as http:
        http.headers["authorization"] = f"Bearer {one.key.plaintext}"
        yield one, url, http


def usage(prompt: int, completion: int) -> Usage:
    return Usage(prompt, completion, exact=True)


async def test_openai_s_chats_have_the_usage_of_all_steps() -> None:
    async with texts(b=FakeAdapter(chat_script("the end", usage=usage(5, 7)))) as (_, url, http):
        body = {"model": "whole", "messages": [{"role": "user", "content": "hi"}]}
        async with http.post(f"{url}/v1/chat/completions", json=body) as response:
            answer = await response.json()
        assert answer["choices"][0]["message"]["content"] == "the end"
        assert answer["usage"] == {"prompt_tokens": 8, "completion_tokens": 9, "total_tokens": 17}


async def test_a_stream_ends_with_the_usage_of_all_steps() -> None:
    last = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12}}\n\n'
    *events, done = chunks("the ", "end")
    async with texts(b=FakeAdapter(Script(chunks=(*events, last, done), usage=usage(5, 7)))) as (_, url, http):
        body = {"model": "whole", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        options = {"stream_options": {"include_usage": True}}
        async with http.post(f"{url}/v1/chat/completions", json=body | options) as response:
            text = await response.text()
        lines_of_events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        assert lines_of_events[-1]["usage"] == {"prompt_tokens": 8, "completion_tokens": 9, "total_tokens": 17}
        assert text.endswith("data: [DONE]\n\n")


async def test_anthropic_s_messages_whole_and_streamed() -> None:
    async with texts(b=FakeAdapter(chat_script("the end"), Script(chunks=chunks("the ", "end")))) as (_, url, http):
        body = {"model": "whole", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"anthropic-version": "2023-06-01"}
        async with http.post(f"{url}/v1/messages", json=body, headers=headers) as response:
            answer = await response.json()
        assert answer["content"] == [{"type": "text", "text": "the end"}]
        async with http.post(f"{url}/v1/messages", json={**body, "stream": True}, headers=headers) as response:
            text = await response.text()
        assert "message_stop" in text
        assert '"text":"the "' in text


async def test_openai_s_responses_whole_and_streamed() -> None:
    async with texts(b=FakeAdapter(chat_script("the end"), Script(chunks=chunks("the ", "end")))) as (_, url, http):
        body = {"model": "whole", "input": "hi", "store": False}
        async with http.post(f"{url}/v1/responses", json=body) as response:
            answer = await response.json()
        assert answer["output"][0]["content"][0]["text"] == "the end"
        async with http.post(f"{url}/v1/responses", json={**body, "stream": True}) as response:
            text = await response.text()
        assert "response.completed" in text


async def test_openai_s_completions_and_embeddings() -> None:
    choice = {"index": 0, "text": "done", "finish_reason": "stop"}
    completion = Script(chunks=(json.dumps({"choices": [choice], "usage": {}}).encode(),))
    async with texts(a=FakeAdapter(completion), b=FakeAdapter(completion)) as (one, url, http):
        async with http.post(f"{url}/v1/completions", json={"model": "whole", "prompt": "go"}) as response:
            assert (await response.json())["choices"][0]["text"] == "done"
        sent = one.adapters["b"][0].calls[0].request
        assert json.loads(bytes(sent.codec.fields(sent)["prompt"])) == "done"
    vector = Script(chunks=(b'{"data":[{"index":0,"embedding":[0.5,1.0]}],"usage":{"prompt_tokens":2}}',))
    embedder = rig({"steps": [{"name": "vector", "model": "a"}]}, {"a": FakeAdapter(vector)})
    async with listening(embedder) as url, aiohttp.ClientSession() as http:
        http.headers["authorization"] = f"Bearer {embedder.key.plaintext}"
        async with http.post(f"{url}/v1/embeddings", json={"model": "whole", "input": "x"}) as response:
            assert (await response.json())["data"][0]["embedding"] == [0.5, 1.0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_blocked_answer_is_an_error_of_the_door(path: str) -> None:
    steps = [
        {"name": "draft", "model": "a"},
        {"name": "guard", "guard": {"model": "b", "block_if": 'text == "unsafe"', "on": "answer"}},
    ]
    one = rig({"steps": steps}, {"a": chat_fake("bad"), "b": chat_fake("unsafe")})
    async with listening(one) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        body: dict[str, Any] = {"model": "whole", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        if path == "/v1/responses":
            body = {"model": "whole", "input": "hi", "store": False}
        async with http.post(url + path, json=body, headers=headers) as response:
            assert response.status == 400
            assert "content_filter" in await response.text() or "blocked" in await response.text()
