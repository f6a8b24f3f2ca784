"""Models of BentoML's store answer as the frameworks do that wrote them."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import catboost
import cloudpickle
import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from onnx import TensorProto, helper
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from runtimes.tensor.interfaces import Array, ModelLoadError
from tests.runtimes.tensor.loaded import answers, end, load, load_listed
from tests.support.bentoml_store import BATCHED, PREDICT, bento_model

X, Y = load_iris(return_X_y=True)
SINGLE = X.astype(np.float32)
TRUSTED = "parameters: {allow_pickle: true}\n"


async def answered(folder: Path, rows: Array, **inputs: str) -> dict[str, Array]:
    served = await load(folder)
    name = inputs.get("name", "input")
    got = await answers(served, [{name: part} for part in np.array_split(rows, 3)])
    await end(served)
    return {name: np.concatenate([one[name] for one in got]) for name in got[0]}


async def test_scikit_learn_with_the_methods_of_its_signatures(tmp_path: Path) -> None:
    model = LogisticRegression(max_iter=500).fit(X, Y)
    folder = bento_model(tmp_path, "iris:h5z", "bentoml.sklearn", **BATCHED, decision_function={"batchable": True})
    (folder / "saved_model.pkl").write_bytes(pickle.dumps(model))
    with pytest.raises(ModelLoadError, match="runs code when it is read"):
        await load(tmp_path / "iris")
    (tmp_path / "iris" / "model.yaml").write_text(TRUSTED)
    got = await answered(tmp_path / "iris", X)
    assert got.keys() == {"predict", "decision_function"}
    np.testing.assert_array_equal(got["predict"][:, 0], model.predict(X))
    np.testing.assert_allclose(got["decision_function"], model.decision_function(X))


@pytest.mark.parametrize("batchable", [True, False])
async def test_requests_are_joined_only_if_the_signature_allows_it(batchable: bool, tmp_path: Path) -> None:
    model = LogisticRegression(max_iter=500).fit(X, Y)
    folder = bento_model(tmp_path, "iris:h5z", "bentoml.sklearn", **(BATCHED if batchable else PREDICT))
    (folder / "saved_model.pkl").write_bytes(pickle.dumps(model))
    (tmp_path / "iris" / "model.yaml").write_text(TRUSTED)
    served = await load(tmp_path / "iris")
    assert (served.config.max_batch_size > 0, served.config.dynamic_batching is not None) == (batchable, batchable)
    got = await answers(served, [{"input": X[i : i + 5]} for i in range(0, 150, 5)])
    await end(served)
    np.testing.assert_array_equal(np.concatenate([one["predict"].ravel() for one in got]), model.predict(X))
    assert (served.statistics.executions < 30) == batchable


@pytest.mark.parametrize("kind", ["XGBClassifier", "XGBRegressor", "Booster", "probabilities"])
async def test_xgboost_answers_as_the_class_that_was_saved(kind: str, tmp_path: Path) -> None:
    made = xgboost.XGBRegressor if kind == "XGBRegressor" else xgboost.XGBClassifier
    model = made(n_estimators=9, max_depth=2, early_stopping_rounds=1)
    model.fit(X, Y, eval_set=[(X[::3], Y[::3])], verbose=False)
    model.get_booster().set_attr(best_iteration="1")
    expected = {
        "XGBClassifier": lambda: model.predict(X),
        "XGBRegressor": lambda: model.predict(X),
        "Booster": lambda: model.get_booster().predict(xgboost.DMatrix(X)),
        "probabilities": lambda: model.predict_proba(X),
    }[kind]()
    options = {"model_class": "XGBClassifier" if kind == "probabilities" else kind}
    signatures = {"predict_proba": {"batchable": True}} if kind == "probabilities" else BATCHED
    folder = bento_model(tmp_path, "iris:h5z", "bentoml.xgboost", options=options, **signatures)
    model.save_model(folder / "saved_model.ubj")
    got = (await answered(tmp_path / "iris", SINGLE))["predict"]
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-6)


async def test_a_booster_of_lightgbm_in_a_file_named_ubj(tmp_path: Path) -> None:
    model = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(X, Y).booster_
    folder = bento_model(tmp_path, "iris:h5z", "bentoml.lightgbm", **PREDICT)
    model.save_model(folder / "saved_model.ubj")
    np.testing.assert_allclose((await answered(tmp_path / "iris", X))["predict"], model.predict(X))


@pytest.mark.parametrize("kind", ["CatBoostClassifier", "CatBoostRegressor", "CatBoost"])
async def test_catboost_answers_as_the_class_that_was_saved(kind: str, tmp_path: Path) -> None:
    made: Any = getattr(catboost, kind)
    options = {"iterations": 3, "verbose": False, "allow_writing_files": False}
    model = made({**options, "loss_function": "MultiClass"}) if kind == "CatBoost" else made(**options)
    model.fit(X, Y)
    folder = bento_model(tmp_path, "iris:h5z", "bentoml.catboost", options={"training_class_name": kind}, **PREDICT)
    model.save_model(str(folder / "saved_model.cbm"))
    expected = model.predict(X)
    got = (await answered(tmp_path / "iris", X))["predict"]
    np.testing.assert_allclose(got.reshape(expected.shape), expected)


@pytest.mark.parametrize("batchable", [True, False])
async def test_onnx(batchable: bool, tmp_path: Path) -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Sqrt", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options: dict[str, Any] = {
        "input_specs": {"run": []},
        "output_specs": {"run": []},
        "providers": None,
        "session_options": None,
    }
    folder = bento_model(tmp_path, "root:h5z", "bentoml.onnx", options=options, run={"batchable": batchable})
    (folder / "saved_model.onnx").write_bytes(model.SerializeToString())
    served = await load(tmp_path / "root")
    assert (served.config.max_batch_size > 0) == batchable
    await end(served)
    np.testing.assert_allclose((await answered(tmp_path / "root", SINGLE, name="x"))["y"], np.sqrt(SINGLE), rtol=1e-6)


async def test_torchscript_with_its_tensors_in_a_configuration_beside(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    folder = bento_model(tmp_path, "line:h5z", "bentoml.torchscript", __call__={"batchable": True})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but widely used
        torch.jit.trace(model, torch.zeros(1, 4)).save(str(folder / "saved_model.pt"))
    (tmp_path / "line" / "model.yaml").write_text(
        "max_batch_size: 64\n"
        "inputs: [{name: x, datatype: FP32, dims: [4]}]\noutputs: [{name: y, datatype: FP32, dims: [2]}]\n"
    )
    got = (await answered(tmp_path / "line", SINGLE, name="x"))["y"]
    with torch.inference_mode():
        np.testing.assert_allclose(got, model(torch.from_numpy(SINGLE)).numpy(), rtol=1e-5)


async def test_a_pickled_function_of_one_array_if_it_is_trusted(tmp_path: Path) -> None:
    folder = bento_model(tmp_path, "twice:h5z", "bentoml.picklable_model", __call__={"batchable": True})
    (folder / "saved_model.pkl").write_bytes(cloudpickle.dumps(lambda table: 2 * table))
    (folder / "custom_objects.pkl").write_bytes(b"x")
    (tmp_path / "twice" / "model.yaml").write_text(
        f"{TRUSTED}inputs: [{{name: x, datatype: FP32, dims: [4]}}]\n"
        "outputs: [{name: y, datatype: FP32, dims: [4]}]\n"
    )
    np.testing.assert_array_equal((await answered(tmp_path / "twice", SINGLE, name="x"))["y"], 2 * SINGLE)


async def test_a_folder_of_one_version_alone(tmp_path: Path) -> None:
    model = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(X, Y).booster_
    folder = bento_model(tmp_path / "store", "iris:h5z", "bentoml.lightgbm", **PREDICT)
    model.save_model(folder / "saved_model.ubj")
    alone = folder.rename(tmp_path / "flowers")
    np.testing.assert_allclose((await answered(alone, X))["predict"], model.predict(X))


async def test_files_without_a_module_are_those_of_their_names(tmp_path: Path) -> None:
    """`bentoml.models.create` stores any files."""
    model = xgboost.XGBRegressor(n_estimators=3).fit(X, Y)
    folder = bento_model(tmp_path, "iris:h5z", "")
    model.save_model(folder / "iris.ubj")
    np.testing.assert_allclose(
        (await answered(tmp_path / "iris", SINGLE))["predict"][:, 0], model.predict(X), rtol=1e-6
    )


async def test_each_version_answers_as_its_own_model(tmp_path: Path) -> None:
    models = {}
    for version, day in (("v1", "01"), ("v2", "02")):
        models[int(version[1])] = model = xgboost.XGBRegressor(n_estimators=int(version[1])).fit(X, Y)
        created = f"2026-01-{day}T00:00:00+00:00"
        options = {"model_class": "XGBRegressor"}
        folder = bento_model(
            tmp_path, f"iris:{version}", "bentoml.xgboost", options=options, created=created, **BATCHED
        )
        model.save_model(folder / "saved_model.ubj")
    for number, model in models.items():
        served = await load_listed(tmp_path, "iris", number)
        (got,) = await answers(served, [{"input": SINGLE}])
        await end(served)
        np.testing.assert_allclose(got["predict"][:, 0], model.predict(X), rtol=1e-6)
