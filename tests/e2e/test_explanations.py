"""Explanations through the gateway: the values of the library, and refusals in the form of the door."""

from pathlib import Path
from typing import Any

import aiohttp
import lightgbm
import numpy as np
import pytest

from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(900)
RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 3))
MODEL = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, X[:, 0] * X[:, 1]), 4)
ALONE = MODEL.predict(X[:2], pred_contrib=True)


def repository(root: Path) -> Path:
    for name, yaml in (("wine", "explain: true\n"), ("odd", "explain: true\n"), ("plain", "backend: lightgbm\n")):
        (root / name / "1").mkdir(parents=True)
        MODEL.save_model(root / name / "1" / "model.txt")
        (root / name / "model.yaml").write_text(yaml)
    return root


def configuration(models: Path) -> dict[str, Any]:
    return {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(models)}}],
        "models": [
            {"name": "wine", "routes": [{"to": "models"}]},
            {"name": "plain", "routes": [{"to": "models"}]},
            {
                "name": "odd",
                "routes": [{"when": {"front": ["explain"]}, "to": "models"}],
            },
            {
                "name": "reasoned",
                "pipeline": {
                    "steps": [
                        {"name": "answer", "model": "plain", "in": {"input": "request.input"}},
                        {"name": "why", "model": "wine", "explain": True, "in": {"input": "request.input"}},
                    ],
                    "out": {"predict": "answer.predict", "values": "why.values", "base": "why.base"},
                },
            },
            {"name": "only", "pipeline": {"steps": [{"name": "why", "model": "wine", "explain": True}]}},
            {
                "name": "unexplained",
                "pipeline": {"steps": [{"name": "why", "model": "plain", "explain": True}]},
            },
            {"name": "steps", "pipeline": {"steps": [{"name": "one", "model": "plain"}]}},
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"rows": "100/h"}}],
    }


def tensors(rows: Any) -> dict[str, Any]:
    array = np.asarray(rows)
    data = array.ravel().tolist()
    return {"inputs": [{"name": "input", "datatype": "FP64", "shape": list(array.shape), "data": data}]}


async def test_explanations_pass_the_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(repository(tmp_path / "models"))) as g:
        await g.printed("Ready.")
        key = await g.key()
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:

            async def post(path: str, body: Any) -> tuple[int, Any]:
                async with http.post(f"{g.url}{path}", json=body) as response:
                    return response.status, await response.json()

            status, answer = await post("/v2/models/wine/explain", tensors(X[:2]))
            assert status == 200, answer
            values = next(one for one in answer["outputs"] if one["name"] == "values")
            np.testing.assert_allclose(np.reshape(values["data"], (2, 3)), ALONE[:, :3])
            assert answer["parameters"]["method"] == "tree"
            status, answer = await post("/v1/models/wine:explain", {"instances": X[:2].tolist()})
            assert status == 200, answer
            for explanation, alone in zip(answer["explanations"], ALONE, strict=True):
                np.testing.assert_allclose([*explanation["values"], explanation["base"]], alone)
            status, answer = await post("/v2/models/plain/explain", tensors(X[:1]))
            assert (status, "has no explanations" in answer["error"]) == (400, True), answer
            status, answer = await post("/v1/models/plain:explain", {"instances": X[:1].tolist()})
            assert (status, "has no explanations" in answer["error"]) == (400, True), answer
            status, answer = await post("/v2/models/none/explain", tensors(X[:1]))
            assert status == 404, answer
            status, answer = await post("/v2/models/steps/explain", tensors(X[:1]))
            assert (status, "is a pipeline" in answer["error"]) == (400, True), answer
            assert (await post("/v2/models/odd/explain", tensors(X[:1])))[0] == 200
            assert (await post("/v2/models/odd/infer", tensors(X[:1])))[0] == 404
            status, answer = await post("/v2/models/wine/explain", tensors(np.concatenate([X, X])))
            assert status in (400, 429), answer


async def test_a_step_of_a_pipeline_explains_an_answer(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(repository(tmp_path / "models"))) as g:
        await g.printed("Ready.")
        headers = {"authorization": f"Bearer {await g.key()}"}
        async with aiohttp.ClientSession(headers=headers) as http:

            async def infer(model: str, **fields: Any) -> tuple[int, Any]:
                body = {**tensors(X[:2]), **fields}
                async with http.post(f"{g.url}/v2/models/{model}/infer", json=body) as response:
                    return response.status, await response.json()

            status, answer = await infer("reasoned")
            assert status == 200, answer
            got = {one["name"]: np.reshape(one["data"], one["shape"]) for one in answer["outputs"]}
            np.testing.assert_allclose(got["predict"].ravel(), MODEL.predict(X[:2]))
            np.testing.assert_allclose(got["values"], ALONE[:, :3])
            np.testing.assert_allclose(got["base"], ALONE[:, 3])
            status, answer = await infer("only", outputs=[{"name": "values"}])
            assert status == 200, answer
            got = {one["name"]: np.reshape(one["data"], one["shape"]) for one in answer["outputs"]}
            np.testing.assert_allclose(got["values"], ALONE[:, :3])
            status, answer = await infer("only", parameters={"target": 7})
            assert (status, "from 0 to 0" in answer["error"]) == (400, True), answer
            status, answer = await infer("unexplained")
            assert (status, "has no explanations" in answer["error"]) == (400, True), answer
