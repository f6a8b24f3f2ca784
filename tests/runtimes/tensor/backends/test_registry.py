"""Backends by name, and what is missing."""

import sys

import pytest

from runtimes.tensor.backends.base import ModelLoadError
from runtimes.tensor.backends.registry import backend


def test_backends_have_our_names_and_tritons() -> None:
    assert backend("onnx") is backend("onnxruntime") is backend("onnxruntime_onnx")
    assert backend("python").name == "python"


def test_a_name_that_is_nearly_right_is_recognised() -> None:
    with pytest.raises(ModelLoadError, match="no backend is called `onx`: did you mean `onnx`"):
        backend("onx")
    with pytest.raises(ModelLoadError, match=r"no backend is called `fortran`: there are .*onnx, .*python"):
        backend("fortran")


def test_a_package_that_is_not_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "runtimes.tensor.backends.onnx", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        ModelLoadError, match=r'onnxruntime, which is not installed: run `pip install "headrace\[onnx\]"`'
    ):
        backend("onnx")
