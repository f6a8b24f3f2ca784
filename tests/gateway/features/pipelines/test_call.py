"""Calls of Python code in a real tensor runtime that the gateway starts, and the permitted inputs of such a call."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.fake import Script
from adapters.tensors import Tensor, split_bytes
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from tests.gateway.features.pipelines.rigs import floats, infers, rig, sent
from tests.support.gateways import chat
from tests.support.processes import gateway

CODE = """
class Model:
    def infer(self, inputs):
        words = [word.decode() for word in inputs["text"].reshape(-1)]
        return {"words": [" ".join(reversed(words))]}
"""
SETTINGS = """\
backend: "python"
input [{ name: "text" data_type: TYPE_STRING dims: [ -1 ] }]
output [{ name: "words" data_type: TYPE_STRING dims: [ 1 ] }]
"""


def called() -> dict[str, Any]:
    return {"steps": [{"name": "post", "in": {"text": "request.words"}, "call": "code"}], "out": {"text": "post.words"}}


async def test_objects_and_mixed_lists_are_sent_as_json() -> None:
    declared = ModelMetadata("c", ["1"], "python", [TensorMetadata("text", "BYTES", (-1,))], [])
    for value in ({"a": [1, None]}, ["a", 1], [], None):
        fake = infers(floats("words", 1), first=Script(chunks=(oip_bodies.encode(declared),)))
        one = rig(called(), {"code": fake}, tensors=["code"])
        await one.core.handle(one.principal, chat("whole", words=value), {}, one.record())
        tensor: Tensor = sent(one, "code")["text"]
        assert [json.loads(each) for each in split_bytes(tensor.data, 1, "")] == [value]


@pytest.mark.processes
@pytest.mark.timeout(1800)
async def test_code_runs_in_a_process_of_the_runtime(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "code" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(CODE)
    (folder.parent / "config.pbtxt").write_text(SETTINGS)
    configuration: dict[str, Any] = {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(tmp_path / "models")}}],
        "models": [{"name": "code", "routes": [{"to": "models"}]}, {"name": "whole", "pipeline": called()}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as running:
        await running.printed("Ready.")
        headers = {"authorization": f"Bearer {await running.key()}"}
        async with aiohttp.ClientSession(running.url, headers=headers) as session:
            async with session.get("/v2/models/whole") as response:
                described = await response.json()
            words = {"name": "words", "datatype": "BYTES", "shape": [2], "data": ["b", "a"]}
            async with session.post("/v2/models/whole/infer", json={"inputs": [words]}) as response:
                answer = await response.json()
        assert response.status == 200, answer
        assert answer["outputs"][0]["data"] == ["a b"]
        assert [tensor["name"] for tensor in (*described["inputs"], *described["outputs"])] == ["words", "text"]
        await running.until_idle()
