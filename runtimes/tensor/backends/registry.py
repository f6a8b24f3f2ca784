"""The backends by name. A framework is imported when a model first asks for it."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from runtimes.tensor.backends.base import Backend, Device, Model, ModelLoadError
from runtimes.tensor.model_config import ModelConfig


class _Entry(NamedTuple):
    module: str
    extra: str
    needs: tuple[str, ...] = ()
    """Packages by their import names."""


_BACKENDS: Final[dict[str, _Entry]] = {
    "python": _Entry("python", "tensor", ("numpy",)),
    "onnx": _Entry("onnx", "onnx", ("numpy", "onnxruntime", "onnx")),
    "torch": _Entry("torch", "torch", ("numpy", "torch", "safetensors")),
    "openvino": _Entry("openvino", "openvino", ("numpy", "openvino")),
    "tensorflow": _Entry("tensorflow", "tensorflow", ("numpy", "tensorflow")),
    "sklearn": _Entry("sklearn", "sklearn", ("numpy", "sklearn", "joblib")),
    "xgboost": _Entry("xgboost", "xgboost", ("numpy", "xgboost", "scipy")),
    "lightgbm": _Entry("lightgbm", "lightgbm", ("numpy", "lightgbm", "scipy")),
}
_ALIASES: Final = {
    "onnxruntime": "onnx",
    "onnxruntime_onnx": "onnx",
    "pytorch": "torch",
    "pytorch_libtorch": "torch",
    "tensorflow_savedmodel": "tensorflow",
}
"""Triton's names for them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, and what quantizing it changed."""

    model: Model
    quantization: Mapping[str, float | str] = field(default_factory=dict)


def backend(name: str) -> Backend:
    """By our name or Triton's. Raises `ModelLoadError`, which names the package that is missing."""
    known = _ALIASES.get(name, name)
    if (entry := _BACKENDS.get(known)) is None:
        close = difflib.get_close_matches(name, [*_BACKENDS, *_ALIASES], 1)
        hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(sorted(_BACKENDS))}"
        raise ModelLoadError(f"no backend is called `{name}`: {hint}")
    try:
        module = importlib.import_module(f"runtimes.tensor.backends.{entry.module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in entry.needs:
            raise
        raise ModelLoadError(
            f'backend `{known}` needs {missing}, which is not installed: run `pip install "headrace[{entry.extra}]"`'
        ) from None
    made: Backend = module.BACKEND
    return made


def complete_config(kind: Backend, config: ModelConfig, folder: Path) -> ModelConfig:
    """`Backend.complete`, with whatever a framework raises as `ModelLoadError`."""
    try:
        return kind.complete(config, folder)
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(_told(error, folder)) from error


def load_model(kind: Backend, config: ModelConfig, folder: Path, device: Device) -> Loaded:
    """`Backend.load`, with whatever a framework or the model's own code raises as `ModelLoadError`."""
    try:
        return Loaded(kind.load(config, folder, device))
    except ModelLoadError:
        raise
    except BaseException as error:  # SystemExit too: the model's code does not decide when we end
        raise ModelLoadError(_told(error, folder)) from error


def _told(error: BaseException, folder: Path) -> str:
    """What it said, shorter and without the folder's place on this machine."""
    said = str(error).replace(str(folder) + os.sep, "")
    return f"{type(error).__name__}: {said}"[:1000]
