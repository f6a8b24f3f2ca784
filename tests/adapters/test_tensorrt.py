"""TensorRT models, served by Triton: their configuration is reported unchanged, and a batch is sent in binary form."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from adapters import registry
from adapters.call import Call
from adapters.registry import Address
from adapters.requests import ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.types import Deadline
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.request_view import request_of
from tests.servers.stand_ins.serving import serving
from tests.support.gateways import config

PATIENCE = 300.0
PLAN: dict[str, Any] = {
    "name": "resnet",
    "platform": "tensorrt_plan",
    "backend": "tensorrt",
    "max_batch_size": 8,
    "input": [{"name": "images", "data_type": "TYPE_FP16", "dims": ["3", "2", "2"], "is_shape_tensor": False}],
    "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": ["2"]}],
    "instance_group": [{"name": "resnet_0", "kind": "KIND_GPU", "count": 1, "gpus": [0], "profile": ["1"]}],
    "dynamic_batching": {"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 100},
    "optimization": {"cuda": {"graphs": True}},
}
PIXELS = bytes(range(2 * 3 * 2 * 2 * 2))
SCORES = bytes(16)


def within() -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + PATIENCE, PATIENCE, PATIENCE))


@pytest.mark.parametrize("binary", [True, False])
async def test_a_plan_behind_a_triton(binary: bool) -> None:
    """FP16 is sent as raw bytes; numbers in JSON are forwarded as the client wrote them."""
    seen: list[tuple[dict[str, str], bytes]] = []

    async def config_of_model(_: web.Request) -> web.Response:
        return web.json_response(PLAN)

    async def infer(http: web.Request) -> web.Response:
        seen.append(({name.lower(): value for name, value in http.headers.items()}, await http.read()))
        inferred = {"name": "scores", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16}}
        head = json.dumps({"model_name": "resnet", "model_version": "1", "outputs": [inferred]}).encode()
        fields = {"content-type": "application/octet-stream", oip.HEADER: str(len(head))}
        return web.Response(body=head + SCORES, headers=fields)

    app = web.Application()
    app.router.add_get("/v2/models/resnet/config", config_of_model)
    app.router.add_post("/v2/models/resnet/infer", infer)
    async with serving(app) as url:
        pool = config(pools=[{"name": "main", "protocol": "oip-http", "endpoints": [url]}]).pools[0]
        adapter = registry.make(pool, Address(url))
        config_answer = await adapter.call(ModelQuery(model="resnet", about="config"), within())
        assert json.loads(config_answer.body or b"") == PLAN
        inference = Inference("resnet", inputs=[Tensor("images", "FP16", (2, 3, 2, 2), PIXELS)])
        body, length = oip.encode_request(inference, binary=binary) if binary else (_as_numbers(), None)
        answer = await adapter.call(request_of(body, model="resnet", version="", header_length=length), within())
        await adapter.aclose()
    [scores] = oip_responses.decode_response(answer.body or b"", answer.form.header_length).outputs
    assert (scores.datatype, scores.shape, bytes(scores.data)) == ("FP32", (2, 2), SCORES)
    [(headers, sent)] = seen
    if binary:
        head = json.loads(sent[: int(headers[oip.HEADER.lower()])])
        expected = {"name": "images", "datatype": "FP16", "shape": [2, 3, 2, 2]}
        assert [{key: one[key] for key in expected} for one in head["inputs"]] == [expected]
        assert sent.endswith(PIXELS)
        assert head["inputs"][0]["parameters"]["binary_data_size"] == len(PIXELS)
    else:
        assert sent == _as_numbers()


def _as_numbers() -> bytes:
    """A request of a client without binary tensors; its FP32 is valid for a plan too."""
    data = {"name": "images", "datatype": "FP32", "shape": [2, 3, 2, 2], "data": [0.5] * 24}
    return json.dumps({"inputs": [data]}).encode()
