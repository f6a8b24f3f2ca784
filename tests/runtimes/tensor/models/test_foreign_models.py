"""Folders of MLflow and MLServer answer as the libraries do that wrote them."""

import json
import pickle
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas
import pytest
import xgboost
import yaml
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.models.loading import SourceError
from tests.runtimes.tensor.loaded import answers, end, load

X, Y = load_iris(return_X_y=True)
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
TABLE = pandas.DataFrame(X, columns=NAMES)
COLUMNS = json.dumps([{"type": "double", "name": name, "required": True} for name in NAMES])
CLASSES = json.dumps([{"type": "tensor", "tensor-spec": {"dtype": "int64", "shape": [-1]}}])


def folder_of(folder: Path, flavors: dict[str, Any]) -> Path:
    folder.mkdir()
    document = {"flavors": {"python_function": {}, **flavors}, "signature": {"inputs": COLUMNS, "outputs": CLASSES}}
    (folder / "MLmodel").write_text(yaml.safe_dump(document))
    return folder


async def predicted(folder: Path) -> np.ndarray:
    """The answers to three requests at once, whose columns are not in the order of the model."""
    served = await load(folder)
    parts = np.array_split(X, 3)
    requests = [{name: part[:, i : i + 1] for i, name in reversed([*enumerate(NAMES)])} for part in parts]
    got = await answers(served, requests)
    await end(served)
    return np.concatenate([one["predict"] for one in got])[:, 0]


async def test_a_pickle_of_scikit_learn_when_it_is_trusted(tmp_path: Path) -> None:
    model = LogisticRegression(max_iter=500).fit(TABLE, Y)
    folder = folder_of(tmp_path / "m", {"sklearn": {"pickled_model": "model.pkl"}})
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    with pytest.raises(ModelLoadError, match="runs code when it is read"):
        await load(folder)
    (folder / "model.yaml").write_text("parameters: {allow_pickle: true}\n")
    np.testing.assert_array_equal(await predicted(folder), model.predict(TABLE))


async def test_a_classifier_of_xgboost_answers_classes(tmp_path: Path) -> None:
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(TABLE, Y)
    flavor = {"data": "model.ubj", "model_class": "xgboost.sklearn.XGBClassifier", "model_format": "ubj"}
    folder = folder_of(tmp_path / "m", {"xgboost": flavor})
    model.save_model(folder / "model.ubj")
    np.testing.assert_array_equal(await predicted(folder), model.predict(TABLE))


async def test_a_booster_of_lightgbm(tmp_path: Path) -> None:
    model = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(TABLE, X @ [1, 2, 3, 4])
    flavor = {"data": "model.lgb", "model_class": "lightgbm.basic.Booster"}
    folder = folder_of(tmp_path / "m", {"lightgbm": flavor})
    document = yaml.safe_load((folder / "MLmodel").read_text())
    tensor = {"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 4]}}
    document["signature"] = {"inputs": json.dumps([tensor])}
    (folder / "MLmodel").write_text(yaml.safe_dump(document))
    model.booster_.save_model(folder / "model.lgb")
    served = await load(folder)
    (got,) = await answers(served, [{"input": X}])
    await end(served)
    np.testing.assert_allclose(got["predict"][:, 0], model.predict(TABLE))


async def test_a_classifier_of_catboost_answers_classes(tmp_path: Path) -> None:
    model = catboost.CatBoostClassifier(iterations=3, verbose=False, allow_writing_files=False).fit(TABLE, Y)
    flavor = {"data": "model.cb", "model_type": "CatBoostClassifier", "save_format": "cbm"}
    folder = folder_of(tmp_path / "m", {"catboost": flavor})
    model.save_model(str(folder / "model.cb"))
    np.testing.assert_array_equal(await predicted(folder), model.predict(TABLE)[:, 0])


@pytest.mark.parametrize("classes", [True, False])
async def test_a_folder_of_mlserver(classes: bool, tmp_path: Path) -> None:
    """MLServer answers classes of classifiers, and numbers of regressors."""
    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    model = kind(n_estimators=3, max_depth=2).fit(X, Y)
    folder = tmp_path / "m"
    folder.mkdir()
    model.save_model(folder / "model.json")
    settings = {"name": "m", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./model.json"}}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    served = await load(folder)
    (got,) = await answers(served, [{"input": X.astype(np.float32)}])
    await end(served)
    np.testing.assert_allclose(got["predict"][:, 0], model.predict(X), rtol=1e-6)


@pytest.mark.parametrize("name", ["iris.bst", "iris.ubj", "iris.txt.bst", "iris.joblib", "iris.cbm"])
async def test_a_folder_of_kserve(name: str, tmp_path: Path) -> None:
    """Its storage has the model's file alone, with any name."""
    folder = tmp_path / "m"
    folder.mkdir()
    path, data = folder / name, X
    model: Any
    if name == "iris.joblib":
        model = LogisticRegression(max_iter=500).fit(X, Y)
        path.write_bytes(pickle.dumps(model))
        (folder / "model.yaml").write_text("parameters: {allow_pickle: true}\n")
        expected = model.predict(X)
    elif name == "iris.cbm":
        model = catboost.CatBoostRegressor(iterations=3, verbose=False, allow_writing_files=False).fit(X, Y)
        model.save_model(str(path))
        expected = model.predict(X)
    elif name == "iris.txt.bst":
        model = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(X, X @ [1, 2, 3, 4])
        model.booster_.save_model(path)
        expected = model.predict(X)
    else:
        model, data = xgboost.XGBRegressor(n_estimators=3, max_depth=2).fit(X, Y), X.astype(np.float32)
        model.save_model(folder / "iris.ubj")
        (folder / "iris.ubj").rename(path)
        expected = model.predict(X)
    served = await load(folder)
    (got,) = await answers(served, [{"input": data}])
    await end(served)
    np.testing.assert_allclose(got["predict"][:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("a.joblib", "b.joblib"), r"has a\.joblib, b\.joblib: keep one"), (("m.pmml",), "is PMML")],
)
async def test_files_of_kserve_that_are_not_served(names: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in names:
        (tmp_path / "m" / name).write_bytes(b"x")
    with pytest.raises(SourceError, match=reason):
        await load(tmp_path / "m")
