"""Backends by name, and missing packages."""

import sys

import pytest

from runtimes.tensor.backends.registry import backend, in_thread
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import ModelLoadError

pytestmark = pytest.mark.plain


@pytest.mark.runtimes
def test_backends_have_our_names_and_tritons() -> None:
    assert backend("onnx") is backend("onnxruntime") is backend("onnxruntime_onnx")
    assert backend("python").name == "python"


def test_a_name_that_is_nearly_right_is_recognised() -> None:
    with pytest.raises(ModelLoadError, match="no backend is called `onx`: did you mean `onnx`"):
        backend("onx")
    with pytest.raises(ModelLoadError, match=r"no backend is called `fortran`: there are .*onnx, .*python"):
        backend("fortran")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("onnx", "onnxruntime"),
        ("torch", "torch"),
        ("openvino", "openvino"),
        ("tensorflow", "tensorflow"),
        ("sklearn", "joblib"),
        ("xgboost", "xgboost"),
        ("lightgbm", "lightgbm"),
        ("catboost", "catboost"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.delitem(sys.modules, f"runtimes.tensor.backends.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelLoadError, match=rf"needs {package}, .* run `pip install --editable '\.\[{name}\]'`"):
        backend(name)


def test_the_placement_of_a_model_needs_no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "tensorflow", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    assert in_thread(ModelConfig("model", "onnxruntime"))
    assert in_thread(ModelConfig("model", "torch", default_model_filename="model.pt"))
    assert not in_thread(ModelConfig("model", "torch", default_model_filename="model.safetensors"))
    assert not in_thread(ModelConfig("model", "torch", parameters={"class": "package:Class"}))
    assert not in_thread(ModelConfig("model", "tensorflow"))
    assert not in_thread(ModelConfig("model", "python"))


def test_a_plan_of_tensorrt_is_served_elsewhere() -> None:
    with pytest.raises(ModelLoadError, match=r"`tensorrt_plan`: serve the plan by a Triton, or its ONNX model here"):
        backend("tensorrt_plan")


def test_pmml_is_served_elsewhere() -> None:
    with pytest.raises(ModelLoadError, match=r"`pmml`: export the model as ONNX .* KServe's pmmlserver"):
        backend("pmml")
