"""Explanations over HTTP: in the forms of the Open Inference Protocol and of KServe's v1."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.request import urlopen

import lightgbm
import numpy as np
import pytest

from tests.support.tensor_runtime import TensorRuntime, tensor_runtime

pytestmark = [pytest.mark.processes]
PATIENCE = 300.0
RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 3))
MODEL = lightgbm.train({"objective": "multiclass", "num_class": 3, "verbose": -1}, lightgbm.Dataset(X, X[:, 0] > 0), 4)
ALONE = MODEL.predict(X[:2], pred_contrib=True).reshape(2, 3, 4)
YAML = {
    "trees": "explain: true\n",
    "mixed": "explain: {method: permutation, background: behind.csv, seed: 4, budget: 1000}\n",
    "plain": "backend: lightgbm\n",
    "wrong": "explain: {method: permutation, background: wrong.csv}\n",
}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    root = tmp_path_factory.mktemp("models")
    for name, yaml in YAML.items():
        (root / name / "1").mkdir(parents=True)
        MODEL.save_model(root / name / "1" / "model.txt")
        (root / name / "model.yaml").write_text(yaml)
        (root / name / "behind.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in X[:5]))
        (root / name / "wrong.csv").write_text("1,2\n")
    with tensor_runtime("--repository", str(root)) as runtime:
        yield runtime


def send(runtime: TensorRuntime, path: str, body: Any) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    connection = HTTPConnection(runtime.http, timeout=PATIENCE)
    connection.request("POST", path, json.dumps(body).encode())
    response = connection.getresponse()
    status, text = response.status, response.read()
    connection.close()
    return status, json.loads(text)


def tensors(rows: Any, **parameters: Any) -> dict[str, Any]:
    array = np.asarray(rows)
    data = array.ravel().tolist()
    tensor = {"name": "input", "datatype": "FP64", "shape": list(array.shape), "data": data}
    return {"id": "7", "inputs": [tensor], "parameters": parameters}


def outputs(answer: Any) -> dict[str, Any]:
    return {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in answer["outputs"]}


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_the_protocol_has_the_values_of_the_library(runtime: TensorRuntime, version: str) -> None:
    status, answer = send(runtime, f"/v2/models/trees{version}/explain", tensors(X[:2]))
    assert (status, answer["id"], answer["model_name"], answer["model_version"]) == (200, "7", "trees", "1")
    got = outputs(answer)
    np.testing.assert_allclose(got["values"], ALONE[:, :, :3])
    np.testing.assert_allclose(got["base"], ALONE[:, :, 3])
    np.testing.assert_allclose(got["output"], MODEL.predict(X[:2], raw_score=True))
    assert got["error"].shape == (2,)
    assert answer["parameters"]["method"] == "tree"
    assert answer["parameters"]["max_error"] == got["error"].max() < 1e-9


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_clients_of_kserve_get_an_explanation_for_each_instance(runtime: TensorRuntime, version: str) -> None:
    status, answer = send(runtime, f"/v1/models/trees{version}:explain", {"instances": X[:2].tolist()})
    assert status == 200
    for explanation, alone in zip(answer["explanations"], ALONE, strict=True):
        np.testing.assert_allclose(explanation["values"], alone[:, :3])
        np.testing.assert_allclose(explanation["base"], alone[:, 3])
    status, answer = send(runtime, f"/v1/models/trees{version}:predict", {"instances": X[:2].tolist()})
    assert status == 200
    np.testing.assert_allclose(answer["predictions"], MODEL.predict(X[:2]))


def test_a_target_and_a_seed_are_those_of_the_request(runtime: TensorRuntime) -> None:
    whole = outputs(send(runtime, "/v2/models/mixed/explain", tensors(X[:2]))[1])
    status, answer = send(runtime, "/v2/models/mixed/explain", tensors(X[:2], target=1, seed=9))
    got = outputs(answer)
    assert (status, answer["parameters"]["seed"], answer["parameters"]["explained"]) == (200, 9, "predict")
    assert got["target"].tolist() == [1, 1]
    np.testing.assert_allclose(got["values"], whole["values"][:, 1])
    np.testing.assert_allclose(got["output"], MODEL.predict(X[:2])[:, 1])
    np.testing.assert_allclose(got["base"], MODEL.predict(X[:5]).mean(axis=0)[1])


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v2/models/plain/explain", tensors(X[:1]), 501, "`plain` has no explanations: add `explain`"),
        ("/v1/models/plain:explain", {"instances": [[1, 2, 3]]}, 501, "has no explanations"),
        ("/v2/models/none/explain", tensors(X[:1]), 404, "none"),
        ("/v1/models/none:explain", {"instances": [[1, 2, 3]]}, 404, "none"),
        ("/v2/models/wrong/explain", tensors(X[:1]), 503, ""),
        ("/v2/models/mixed/explain", tensors(X), 400, "60 rows needs at least 1260 rows of the model"),
        ("/v2/models/trees/explain", tensors(X[:1, :2]), 400, "unexpected shape"),
        ("/v2/models/trees/explain", {}, 400, ""),
        ("/v2/models/trees/explain", [], 400, ""),
        ("/v2/models/trees/explain", tensors(X[:1], target=3), 400, "from 0 to 2"),
        ("/v2/models/trees/explain", tensors(X[:1], target="first"), 400, "`target` is a number"),
        ("/v2/models/mixed/explain", tensors(X[:1], seed=-1), 400, "`seed` is a whole number"),
        ("/v1/models/trees:explain", {"instances": [[1, 2]]}, 400, ""),
        ("/v1/models/trees:explain", {"instances": [["a", "b", "c"]]}, 400, ""),
        ("/v1/models/trees:explain", {"rows": []}, 400, ""),
        ("/v2/models/trees/explain", {**tensors(X[:1]), "outputs": [{"name": "gain"}]}, 400, "`gain`"),
    ],
)
def test_wrong_requests_are_refused(runtime: TensorRuntime, path: str, body: Any, status: int, message: str) -> None:
    got, answer = send(runtime, path, body)
    assert (got, list(answer)) == (status, ["error"])
    assert message in answer["error"]


def test_a_request_for_an_absent_target_or_output_is_not_computed(runtime: TensorRuntime) -> None:
    def rows() -> int:
        with urlopen(f"http://{runtime.http}/v2/models/mixed/stats", timeout=PATIENCE) as response:
            count: int = json.loads(response.read())["model_stats"][0]["inference_count"]
            return count

    before = rows()
    gain = {**tensors(X[:1]), "outputs": [{"name": "gain"}]}
    for body, message in ((gain, "`gain`"), (tensors(X[:1], target=3), "from 0 to 2")):
        status, answer = send(runtime, "/v2/models/mixed/explain", body)
        assert (status, message in answer["error"]) == (400, True), answer
    assert rows() == before
    assert send(runtime, "/v2/models/mixed/explain", tensors(X[:1]))[0] == 200
    assert rows() > before


def test_a_background_of_another_width_makes_the_model_unavailable(runtime: TensorRuntime) -> None:
    index = {model["name"]: model for model in send(runtime, "/v2/repository/index", {})[1]}
    assert index["wrong"]["state"] == "UNAVAILABLE"
    assert "explain: the background wrong.csv has 2 columns, and the model has 3 features" in index["wrong"]["reason"]
