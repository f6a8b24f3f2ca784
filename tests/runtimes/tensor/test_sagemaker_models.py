"""The contract of SageMaker's multi-model containers: an agent puts folders below the repository, and names them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from tests.support.tensor_runtime import TensorRuntime, tensor_runtime

pytestmark = [pytest.mark.processes]
PATIENCE = 300.0
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(60, 2))


def trained(factor: float) -> lightgbm.Booster:
    options = {"n_estimators": 4, "min_child_samples": 2, "verbose": -1, "num_threads": 1}
    return lightgbm.LGBMRegressor(**options).fit(ROWS, factor * ROWS[:, 0] - ROWS[:, 1]).booster_


MODELS = {"6bbd1e6e": trained(3), "0a1b2c3d": trained(-1)}


def send(runtime: TensorRuntime, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection = HTTPConnection(runtime.http, timeout=PATIENCE)
    connection.request(method, path, data, {"content-type": "application/json", **headers})
    response = connection.getresponse()
    status, text = response.status, response.read()
    connection.close()
    return status, json.loads(text)


def order(root: Path, name: str) -> dict[str, str]:
    return {"model_name": name, "url": str(root / name / "model")}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`/opt/ml/models` of the agent, with folders beside it that nobody may load."""
    root = tmp_path_factory.mktemp("ml") / "models"
    for name, booster in MODELS.items():
        (root / name / "model").mkdir(parents=True)
        booster.save_model(root / name / "model" / "model.bst")
    (root / "large" / "model" / "1").mkdir(parents=True)
    MODELS["6bbd1e6e"].save_model(root / "large" / "model" / "1" / "model.txt")
    (root / "large" / "model" / "model.yaml").write_text("memory: 8GiB\n")
    (root / "broken" / "model").mkdir(parents=True)
    (root / "broken" / "model" / "model.bst").write_text("tree\nnoise")
    (root.parent / "secret" / "1").mkdir(parents=True)
    (root / "link").symlink_to(root.parent / "secret")
    return root


@pytest.fixture(scope="module")
def runtime(root: Path) -> Iterator[TensorRuntime]:
    with tensor_runtime("--repository", str(root), "--mode", "explicit", "--memory-budget", "4GiB") as running:
        yield running


def predictions(runtime: TensorRuntime, name: str) -> np.ndarray:
    status, got = send(runtime, "POST", f"/models/{name}/invoke", {"instances": ROWS[:5].tolist()})
    assert status == 200, got
    return np.ravel(got["predictions"])


def test_the_life_of_a_model(runtime: TensorRuntime, root: Path) -> None:
    assert send(runtime, "GET", "/ping")[0] == 200
    assert send(runtime, "GET", "/models") == (200, {"models": []})
    for name in MODELS:
        assert send(runtime, "GET", f"/models/{name}")[0] == 404
        assert send(runtime, "POST", f"/models/{name}/invoke", {"instances": [[1, 2]]})[0] == 404
        assert send(runtime, "POST", "/models", order(root, name))[0] == 200
    listed = [{"modelName": name, "modelUrl": str(root / name / "model")} for name in sorted(MODELS)]
    assert send(runtime, "GET", "/models") == (200, {"models": listed})
    assert send(runtime, "GET", "/models?limit=1") == (200, {"models": listed[:1], "nextPageToken": "1"})
    assert send(runtime, "GET", "/models?limit=1&next_page_token=1") == (200, {"models": listed[1:]})
    for name, booster in MODELS.items():
        assert send(runtime, "GET", f"/models/{name}") == (
            200,
            {"modelName": name, "modelUrl": str(root / name / "model")},
        )
        np.testing.assert_allclose(predictions(runtime, name), booster.predict(ROWS[:5]))
        target = {"x-amzn-sagemaker-target-model": name}
        status, got = send(runtime, "POST", "/invocations", {"instances": ROWS[:5].tolist()}, **target)
        np.testing.assert_allclose(np.ravel(got["predictions"]), booster.predict(ROWS[:5]))
        status, got = send(runtime, "POST", "/models", order(root, name))
        assert (status, got["code"], got["type"]) == (409, 409, "ConflictStatusException")
    for name in MODELS:
        assert send(runtime, "DELETE", f"/models/{name}")[0] == 200
        assert send(runtime, "DELETE", f"/models/{name}")[0] == 404
        assert send(runtime, "POST", f"/models/{name}/invoke", {"instances": [[1, 2]]})[0] == 404
    assert send(runtime, "GET", "/models") == (200, {"models": []})


def test_one_of_two_loads_at_once_is_refused(runtime: TensorRuntime, root: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        work = [threads.submit(send, runtime, "POST", "/models", order(root, "6bbd1e6e")) for _ in range(4)]
        assert sorted(one.result()[0] for one in work) == [200, 409, 409, 409]
    assert send(runtime, "DELETE", "/models/6bbd1e6e")[0] == 200


def test_a_name_is_free_to_be_another_folder(runtime: TensorRuntime, root: Path) -> None:
    for name, booster in MODELS.items():
        assert send(runtime, "POST", "/models", {**order(root, name), "model_name": "x"})[0] == 200
        np.testing.assert_allclose(predictions(runtime, "x"), booster.predict(ROWS[:5]))
        assert send(runtime, "DELETE", "/models/x")[0] == 200


def test_a_model_without_memory_is_507(runtime: TensorRuntime, root: Path) -> None:
    status, got = send(runtime, "POST", "/models", order(root, "large"))
    assert (status, got["code"], got["type"]) == (507, 507, "InsufficientStorageException")
    assert send(runtime, "GET", "/models/large")[0] == 404


def test_a_broken_model_is_400_and_may_be_loaded_once_it_is_repaired(runtime: TensorRuntime, root: Path) -> None:
    assert send(runtime, "POST", "/models", order(root, "broken"))[0] == 400
    assert send(runtime, "GET", "/models/broken")[0] == 404
    MODELS["6bbd1e6e"].save_model(root / "broken" / "model" / "model.bst")
    assert send(runtime, "POST", "/models", order(root, "broken"))[0] == 200
    assert send(runtime, "DELETE", "/models/broken")[0] == 200


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/model.tar.gz", "s3://bucket/model", "file:///etc", "/etc", "../secret", "6bbd1e6e/model",
        "ROOT", "ROOT/..", "ROOT/../secret", "ROOT/link", "ROOT/6bbd1e6e/model/../../../secret", "ROOT/absent",
        "ROOT/6bbd1e6e/model/model.bst", "ROOT/a\x00b", "", "/" + "x" * 5000,
    ],
)  # fmt: skip
def test_an_address_outside_of_the_repository_is_refused(url: str, runtime: TensorRuntime, root: Path) -> None:
    written = {"model_name": "x", "url": url.replace("ROOT", str(root))}
    status, got = send(runtime, "POST", "/models", written)
    assert (status, got["code"]) == (400, 400)
    assert "the url of" in got["message"]
    assert send(runtime, "GET", "/models/x")[0] == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", {}, {"model_name": 1, "url": "/x"}, {"model_name": "x"}, {"model_name": "../x", "url": "/"}],
)
def test_a_malformed_order_is_400(body: Any, runtime: TensorRuntime) -> None:
    status, got = send(runtime, "POST", "/models", body)
    assert (status, got["code"], got["type"]) == (400, 400, "BadRequestException")


@pytest.mark.parametrize("query", ["limit=x", "limit=0", "limit=-1", "next_page_token=a", "limit=" + "9" * 40])
def test_a_malformed_page_is_400(query: str, runtime: TensorRuntime) -> None:
    assert send(runtime, "GET", f"/models?{query}")[0] == 400


def test_without_explicit_mode_no_request_loads_or_unloads(root: Path, tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    MODELS["6bbd1e6e"].save_model(tmp_path / "m" / "1" / "model.txt")
    restricted = ("--restrict", "model-repository:admin-key=s3cret")
    with tensor_runtime("--repository", str(tmp_path), *restricted) as runtime:
        assert send(runtime, "POST", "/models", order(tmp_path, "m"))[0] == 403
        assert send(runtime, "DELETE", "/models/m")[0] == 403
        key = {"admin-key": "s3cret"}
        status, got = send(runtime, "POST", "/models", {"model_name": "n", "url": str(tmp_path / "m")}, **key)
        assert (status, "not explicit" in got["message"]) == (400, True)
        assert send(runtime, "DELETE", "/models/m", **key)[0] == 400
        np.testing.assert_allclose(predictions(runtime, "m"), MODELS["6bbd1e6e"].predict(ROWS[:5]))
        assert send(runtime, "PUT", "/models", {})[0] == 405
