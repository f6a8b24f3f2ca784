"""Pipelines over models of a tensor runtime that the gateway starts itself."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http.aio as client
from tritonclient.utils import InferenceServerException

from tests.servers.repositories import for_headrace
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)

RAMP, ONES = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
AGAIN = {"name": "again", "model": "add_sub"}
TWICE = {
    "steps": [
        {"name": "first", "model": "add_sub", "in": {"INPUT0": "request.a", "INPUT1": "request.b"}},
        {"name": "second", "model": "add_sub", "in": {"INPUT0": "first.OUTPUT0", "INPUT1": "first.OUTPUT1"}},
    ],
    "out": {"double": "second.OUTPUT0", "sum": "first.OUTPUT0"},
}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    repository = for_headrace(tmp_path / "models", ["add_sub"])
    configuration: dict[str, Any] = {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(repository)}}],
        "models": [
            {"name": "add_sub", "routes": [{"to": "models"}]},
            {"name": "twice", "pipeline": TWICE},
            {"name": "both", "pipeline": {"ensemble": {"members": ["add_sub", AGAIN], "combine": "concat"}}},
        ],
        "tenants": [{"name": "acme", "models": ["*"]}],
        "access_log": {"to": str(tmp_path / "access.log")},
    }
    async with gateway(tmp_path, configuration) as made:
        await made.printed("Ready.")
        yield made


def tensors(**arrays: np.ndarray[Any, Any]) -> list[client.InferInput]:
    made = []
    for name, array in arrays.items():
        one = client.InferInput(name, list(array.shape), "INT32")
        one.set_data_from_numpy(array)
        made.append(one)
    return made


async def test_steps_of_a_real_runtime_answer_as_one_model(running: GatewayProcess, tmp_path: Path) -> None:
    key = {"authorization": f"Bearer {await running.key()}"}
    async with client.InferenceServerClient(running.url.removeprefix("http://"), conn_timeout=60) as triton:
        described = await triton.get_model_metadata("twice", headers={**key})
        assert [tensor["name"] for tensor in described["inputs"]] == ["a", "b"]
        assert [tensor["name"] for tensor in described["outputs"]] == ["double", "sum"]
        result = await triton.infer("twice", tensors(a=RAMP, b=ONES), headers={**key})
        assert (result.as_numpy("double") == RAMP * 2).all()
        assert (result.as_numpy("sum") == RAMP + 1).all()
        joined = await triton.infer("both", tensors(INPUT0=RAMP, INPUT1=ONES), headers={**key})
        assert (joined.as_numpy("OUTPUT0") == np.concatenate([RAMP + 1, RAMP + 1], axis=1)).all()
        with pytest.raises(InferenceServerException, match="no input `b`"):
            await triton.infer("twice", tensors(a=RAMP), headers={**key})
        wrong = tensors(a=np.ones((1, 3), np.int32), b=np.ones((1, 3), np.int32))
        with pytest.raises(InferenceServerException) as refused:
            await triton.infer("twice", wrong, headers={**key})
        assert refused.value.status() == "400"  # the client's own mistake, in the words of the model
    await running.stop()
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    (line,) = [each for each in lines if each["model"] == "twice" and each["status"] == 200 and "rows" in each]
    assert [step["step"] for step in line["steps"]] == ["first", "second"]
    assert line["rows"] == 2
