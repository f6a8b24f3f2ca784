"""A route's `drop` on the tensor doors: the parameter is removed before the request is validated."""

import json
from typing import Any

import grpc
import pytest

from adapters.wire.oip.parameters import OF_A_REQUEST
from tests.gateway.fronts.oip import INFER_BODY, TensorFake, tensor_door
from tests.support.grpc_doors import failing, grpc_door, message

pytestmark = pytest.mark.realtime  # gRPC has threads

DROPPED = sorted({*OF_A_REQUEST, "custom"} - {"binary_data_output"})
VALUES = [None, True, 0, -1, 1.5, 2**70, "", "soon", [], [1], {}, {"a": 1}]
PLAIN = [True, 7, -1, "soon"]
"""Values that a parameter of a message can have."""


def models(*dropped: str) -> list[dict[str, Any]]:
    """One model: requests with the header `x-drop` take a route that drops the parameters."""
    dropping = {"when": {"header": {"x-drop": "yes"}}, "to": "main", "rewrite": {"drop": list(dropped)}}
    return [{"name": "chat", "routes": [dropping, {"to": "main"}]}]


@pytest.mark.parametrize("name", DROPPED)
async def test_a_dropped_parameter_may_have_any_value_over_http(name: str) -> None:
    fake = TensorFake()
    async with tensor_door(fake, models=models(name, "other")) as door:
        for value in VALUES:
            body = {**INFER_BODY, "parameters": {name: value, "mine": 1}}
            response = await door.post("/v2/models/chat/infer", body, x_drop="yes")
            assert response.status == 200, (value, await response.text())
            assert json.loads(fake.received[-1].payload.body)["parameters"] == {"mine": 1}


@pytest.mark.parametrize("path", ["infer", "generate"])
async def test_a_route_that_does_not_drop_a_parameter_refuses_it(path: str) -> None:
    fake = TensorFake()
    async with tensor_door(fake, models=models("timeout", "priority")) as door:
        body = {"text_input": "hi", **(INFER_BODY if path == "infer" else {}), "parameters": {"timeout": "soon"}}
        refused = await door.post(f"/v2/models/chat/{path}", body)
        assert (refused.status, fake.calls) == (400, [])
        assert "timeout" in (await refused.json())["error"]
        other = {**body, "parameters": {"timeout": "soon", "priority": "high", "sequence_start": "no"}}
        both = await door.post(f"/v2/models/chat/{path}", other, x_drop="yes")
        assert (both.status, fake.calls) == (400, [])


@pytest.mark.parametrize("name", DROPPED)
async def test_a_dropped_parameter_may_have_any_value_over_grpc(name: str) -> None:
    fake = TensorFake()
    async with grpc_door(fake, models=models(name)) as g:
        for value in PLAIN:
            request = message(parameters={name: value})
            await g.stub.ModelInfer(request, metadata=[*g.metadata, ("x-drop", "yes")])
            assert name not in fake.received[-1].inference.parameters
        before = len(fake.calls)
        if name == "timeout":
            error = await failing(g.stub.ModelInfer(message(parameters={name: "soon"}), metadata=g.metadata))
            assert (error.code(), len(fake.calls)) == (grpc.StatusCode.INVALID_ARGUMENT, before)
