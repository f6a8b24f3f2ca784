"""Versions of a model in the bundled tensor runtime that are compared by copies, over real processes."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.e2e.test_rollouts import shown as rollout_shown
from tests.e2e.test_shadows import AT_MOST, shown
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(300)
MODEL = """\
import numpy as np


class Model:
    def infer(self, inputs):
        x = inputs["x"]
        return {{"scores": {scores}}}
"""
SETTINGS = """\
backend: python
versions: all
inputs: [{name: x, datatype: FP32, dims: [-1]}]
outputs: [{name: scores, datatype: FP32, dims: [-1]}]
"""
NOISY = "x * np.float32(2) + np.float32(1e-6) * np.random.rand(*x.shape).astype(np.float32)"


def repository(folder: Path, *versions: str) -> Path:
    """A model whose versions compute these scores."""
    for number, scores in enumerate(versions, 1):
        version = folder / "scorer" / str(number)
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL.format(scores=scores))
    (folder / "scorer" / "model.yaml").write_text(SETTINGS)
    return folder


def configuration(models: Path, **shadow: Any) -> dict[str, Any]:
    fields = {"name": "s", "to": {"pool": "models", "version": "2"}, "share": "100%", "at_most": AT_MOST, **shadow}
    return {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(models)}}],
        "models": [{"name": "scorer", "versions": ["1"], "routes": [{"to": "models", "shadow": fields}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def judged(g: GatewayProcess, verdict: str) -> dict[str, Any]:
    """Infer with version 1, as JSON and as binary tensors, until there is a verdict."""
    key = await g.key()
    body = np.arange(1, 9, dtype="<f4").tobytes()
    head = (
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "parameters": {"binary_data_size": 32}}],'
        b' "parameters": {"binary_data_output": true}}'
    )
    json = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": list(range(1, 9))}]}
    url = f"{g.url}/v2/models/scorer/versions/1/infer"
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http, asyncio.timeout(300):
        while (view := await shown(g))["verdict"] != verdict:
            for number in range(20):
                headers = {"Inference-Header-Content-Length": str(len(head))}
                binary: dict[str, Any] = {"data": head + body, "headers": headers}
                async with http.post(url, **({"json": json} if number % 2 else binary)) as response:
                    assert response.status == 200, await response.text()
                    await response.read()
    return view


async def test_scores_that_differ_by_a_hundredth_are_detected(tmp_path: Path) -> None:
    models = repository(tmp_path / "models", "x * 2", "x * 2 + np.float32(0.01)")
    async with gateway(tmp_path, configuration(models, agree="90%")) as g:
        await g.printed("Ready.")
        view = await judged(g, "differs")
        assert view["fields"].keys() == {"scores"}
        assert view["differing"] == view["compared"]


async def test_noise_within_the_tolerance_agrees(tmp_path: Path) -> None:
    models = repository(tmp_path / "models", "x * 2", NOISY)
    async with gateway(tmp_path, configuration(models, agree="90%")) as g:
        await g.printed("Ready.")
        assert (await judged(g, "agrees"))["differing"] == 0


async def test_noise_of_the_primary_excuses_that_of_the_shadow(tmp_path: Path) -> None:
    """Without tolerance every answer differs, also the primary's second one."""
    exact = {"compare": {"tensors": {"rtol": 0, "atol": 0}}, "noise": "100%", "agree": "90%"}
    models = repository(tmp_path / "models", NOISY, NOISY)
    async with gateway(tmp_path, configuration(models, **exact)) as g:
        await g.printed("Ready.")
        view = await judged(g, "agrees")
        # Rarely two answers are equal by chance.
        assert view["repeated"] >= 100
        assert view["both_differ"] >= 0.9 * view["repeated"]


async def test_a_rollout_to_scores_that_differ_by_a_hundredth_goes_back_by_itself(tmp_path: Path) -> None:
    """Its first step is shadow traffic, so that no client gets a score of the new version."""
    models = repository(tmp_path / "models", "x * 2", "x * 2 + np.float32(0.01)")
    file = configuration(models)
    copies = {"share": "100%", "answers": 30, "agree": "90%", "at_most": AT_MOST}
    arms = {"from": {"pool": "models", "version": "1"}, "to": {"pool": "models", "version": "2"}}
    rollout = {"name": "r", **arms, "steps": [{"weight": "50%", "for": "1h"}], "shadow_first": copies}
    file["models"][0] = {"name": "scorer", "routes": [{"rollout": rollout}]}
    json = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": list(range(1, 9))}]}
    async with gateway(tmp_path, file) as g:
        await g.printed("Ready.")
        headers = {"authorization": f"Bearer {await g.key()}"}
        async with aiohttp.ClientSession() as http, asyncio.timeout(300):
            while (view := await rollout_shown(g))["status"] != "back":
                async with http.post(f"{g.url}/v2/models/scorer/infer", json=json, headers=headers) as response:
                    assert (response.status, response.headers["x-headrace-arm"]) == (200, "models:1")
                    assert (await response.json())["outputs"][0]["data"] == [2.0 * x for x in range(1, 9)]
    assert (view["reason"], view["weight"], view["assigned"]["to"]) == ("shadow", 0.0, 0)
