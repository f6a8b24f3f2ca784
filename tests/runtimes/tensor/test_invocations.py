"""Clients of MLflow, SageMaker and Vertex AI get what the library answers."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import lightgbm
import numpy as np
import pandas
import pytest
import yaml

from tests.support.tensor_runtime import TensorRuntime, tensor_runtime

pytestmark = [pytest.mark.processes]
PATIENCE = 300.0
NAMES = ["length", "width"]
RNG = np.random.default_rng(7)
TABLE = pandas.DataFrame(RNG.normal(size=(60, 2)), columns=NAMES)
MODEL = lightgbm.LGBMRegressor(n_estimators=4, min_child_samples=2, verbose=-1, num_threads=1)
MODEL.fit(TABLE, TABLE["length"] * 3 - TABLE["width"])
RIGHT = MODEL.predict(TABLE.head(5))
TARGET = "x-amzn-sagemaker-target-model"


def send(
    runtime: TensorRuntime, body: Any, path: str = "/invocations", method: str = "POST", **headers: str
) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = HTTPConnection(runtime.http, timeout=PATIENCE)
    connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    status, text = response.status, response.read()
    connection.close()
    return status, json.loads(text)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    """A folder of MLflow's, alone, in a container of Vertex AI."""
    root = tmp_path_factory.mktemp("one")
    folder = root / "m"
    folder.mkdir()
    columns = json.dumps([{"type": "double", "name": name, "required": True} for name in NAMES])
    flavors = {"python_function": {}, "lightgbm": {"data": "model.lgb", "model_class": "lightgbm.basic.Booster"}}
    (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors, "signature": {"inputs": columns}}))
    MODEL.booster_.save_model(folder / "model.lgb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIP_PREDICT_ROUTE", "/v1/endpoints/7/deployedModels/8:predict")
        patch.setenv("AIP_HEALTH_ROUTE", "/v1/endpoints/7/deployedModels/8")
        with tensor_runtime("--repository", str(root)) as runtime:
            yield runtime


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    """Two models, each with one input of two features."""
    root = tmp_path_factory.mktemp("two")
    for name in ("first", "second"):
        (root / name / "1").mkdir(parents=True)
        MODEL.booster_.save_model(root / name / "1" / "model.txt")
    with tensor_runtime("--repository", str(root)) as runtime:
        yield runtime


HEAD = TABLE.head(5)
SHUFFLED = HEAD[["width", "length"]].assign(comment="left out")


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_split": SHUFFLED.to_dict(orient="split")},
        {"dataframe_records": SHUFFLED.to_dict(orient="records")},
        {"instances": HEAD.to_dict(orient="records")},
        {"inputs": {name: [[value] for value in HEAD[name]] for name in NAMES}},
        SHUFFLED.to_csv(index=False).encode(),
    ],
    ids=["split", "records", "instances", "inputs", "csv"],
)
def test_every_form_of_a_table_has_the_predictions_of_the_library(one: TensorRuntime, body: Any) -> None:
    kind = "text/csv" if isinstance(body, bytes) else "application/json"
    status, got = send(one, body, content_type=kind)
    assert status == 200, got
    assert got.keys() == {"predictions"}
    np.testing.assert_allclose(np.ravel(got["predictions"]), RIGHT)


def test_a_missing_number_is_nan_as_in_pandas(one: TensorRuntime) -> None:
    table = HEAD.astype(object)
    table.loc[1, "width"] = None
    right = MODEL.predict(table.astype(float))
    for body in (table.to_dict(orient="split"), table.to_csv(index=False).encode()):
        is_csv = isinstance(body, bytes)
        sent = body if is_csv else {"dataframe_split": body}
        status, got = send(one, sent, content_type="text/csv" if is_csv else "application/json")
        assert status == 200, got
        np.testing.assert_allclose(np.ravel(got["predictions"]), right)


def test_the_paths_of_vertex_are_those_of_its_environment(one: TensorRuntime) -> None:
    path = "/v1/endpoints/7/deployedModels/8"
    status, got = send(one, {"instances": HEAD.to_dict(orient="records"), "parameters": {}}, f"{path}:predict")
    assert status == 200, got
    np.testing.assert_allclose(np.ravel(got["predictions"]), RIGHT)
    assert send(one, b"", path, "GET")[0] == send(one, b"", "/ping", "GET")[0] == 200
    status, got = send(one, {"instances": []}, f"{path}:predict")
    assert (status, [*got]) == (400, ["error"])


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ({"rows": []}, "application/json", "Send exactly one of `dataframe_split`"),
        ({"instances": [], "inputs": []}, "application/json", "Send exactly one of"),
        ({"dataframe_split": [1]}, "application/json", "must be an object with `data`"),
        ({"dataframe_split": {"columns": {}, "data": [[1]]}}, "application/json", "No|list of names|Name the columns"),
        ({"dataframe_split": {"columns": ["length"], "data": [[1, 2]]}}, "application/json", "Row 0 of the table"),
        ({"dataframe_split": {"columns": ["width", "width"], "data": [[1, 2]]}}, "application/json", "the same name"),
        ({"dataframe_split": {"columns": [0, 1], "data": [[1, 2]]}}, "application/json", "Name the columns"),
        ({"dataframe_split": {"columns": NAMES, "data": []}}, "application/json", "no rows"),
        ({"dataframe_split": {"columns": NAMES, "data": [["x", 2]]}}, "application/json", "takes FP64"),
        ({"dataframe_records": [{"height": 1}]}, "application/json", "No column of the table is an input"),
        ({"dataframe_records": [3]}, "application/json", "a list of objects"),
        ({"dataframe_records": [{"length": 1}]}, "application/json", "width"),
        (b"[", "application/json", "not valid JSON"),
        (b"1,2\n3,4\n", "text/csv", "names no input of the model"),
        (b"length,width\n1,x\n", "text/csv", "takes FP64"),
        (b"length,width\n1\n", "text/csv", "Row 0"),
        (b"length,width\n", "text/csv", "no rows"),
        (b"", "text/csv", "names no input"),
        (b"\xff", "text/csv", "not CSV|CSV in UTF-8"),
        (b'length,width\n1,"2\n', "text/csv", "CSV in UTF-8"),
    ],
)
def test_a_wrong_body_is_refused_as_mlflow_refuses(one: TensorRuntime, body: Any, kind: str, message: str) -> None:
    status, got = send(one, body, content_type=kind)
    assert (status, [*got]) == (400, ["error_code", "message"])
    assert got["error_code"] == "BAD_REQUEST"
    assert any(part in got["message"] for part in message.split("|")), got


def test_one_of_several_models_is_named_by_the_header_or_the_path(two: TensorRuntime) -> None:
    rows = HEAD.to_numpy().tolist()
    for name in ("first", "second.tar.gz", "/second"):
        status, got = send(two, {"instances": rows}, **{TARGET: name})
        assert status == 200, got
        np.testing.assert_allclose(np.ravel(got["predictions"]), RIGHT)
    csv = HEAD.to_csv(index=False, header=False).encode()
    for sent in ({"dataframe_split": {"columns": [0, 1], "data": rows}}, {"inputs": rows}, csv):
        status, got = send(
            two,
            sent,
            "/models/first/invoke",
            content_type="text/csv; header=absent" if sent is csv else "application/json",
        )
        assert status == 200, got
        np.testing.assert_allclose(np.ravel(got["predictions"]), RIGHT)


def test_several_models_without_a_name_or_with_an_unknown_one_are_refused(two: TensorRuntime) -> None:
    status, got = send(two, {"instances": [[1, 2]]})
    assert (status, got["error_code"]) == (400, "BAD_REQUEST")
    assert "first, second" in got["message"]
    for path, headers in {"/invocations": {TARGET: "third"}, "/models/third/invoke": {}}.items():
        status, got = send(two, {"instances": [[1, 2]]}, path, **headers)
        assert (status, got["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")


def test_names_that_the_model_does_not_have_are_not_joined_by_place(two: TensorRuntime) -> None:
    body = {"dataframe_split": SHUFFLED[["width", "length"]].to_dict(orient="split")}
    status, got = send(two, body, "/models/first/invoke")
    assert status == 400
    assert "No column of the table is an input" in got["message"]
