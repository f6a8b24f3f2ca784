"""The backends by name. A framework is imported when a model first needs it."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from config.installing import installing
from runtimes.tensor.configuration.model_config import PMML_ADVICE, ModelConfig
from runtimes.tensor.interfaces import Backend, Device, ExplainingBackend, Model, ModelLoadError


class _Entry(NamedTuple):
    extra: str
    needs: tuple[str, ...]
    """Packages by their import names."""
    in_thread: bool
    """Whether it computes outside of Python's lock, so that a thread is enough."""


_BACKENDS: Final[dict[str, _Entry]] = {
    "python": _Entry("tensor", ("numpy",), in_thread=False),
    "onnx": _Entry("onnx", ("numpy", "onnxruntime", "onnx"), in_thread=True),
    "torch": _Entry("torch", ("numpy", "torch", "safetensors"), in_thread=True),
    "openvino": _Entry("openvino", ("numpy", "openvino"), in_thread=True),
    # Its calls go through much Python, and its start takes seconds.
    "tensorflow": _Entry("tensorflow", ("numpy", "tensorflow"), in_thread=False),
    "sklearn": _Entry("sklearn", ("numpy", "sklearn", "joblib"), in_thread=False),
    "xgboost": _Entry("xgboost", ("numpy", "xgboost", "scipy"), in_thread=True),
    "torchserve": _Entry("tensor", ("numpy",), in_thread=False),
    "lightgbm": _Entry("lightgbm", ("numpy", "lightgbm", "scipy"), in_thread=True),
    "transformers": _Entry("transformers", ("numpy", "torch", "transformers", "PIL"), in_thread=False),
    "catboost": _Entry("catboost", ("numpy", "catboost"), in_thread=True),
}
_ALIASES: Final = {
    "onnxruntime": "onnx",
    "onnxruntime_onnx": "onnx",
    "pytorch": "torch",
    "pytorch_libtorch": "torch",
    "tensorflow_savedmodel": "tensorflow",
}
"""Triton's names of backends."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, and the effect of its quantization."""

    model: Model
    quantization: Mapping[str, float | str] = field(default_factory=dict)


def own_name(name: str) -> str:
    """Our name of a backend, of ours or Triton's. Raises `ModelLoadError`."""
    ours = _ALIASES.get(name, name)
    if ours in _BACKENDS:
        return ours
    close = difflib.get_close_matches(name, [*_BACKENDS, *_ALIASES], 1)
    if name in ("tensorrt", "tensorrt_plan"):
        hint = "serve the plan by a Triton, or its ONNX model here by the provider TensorrtExecutionProvider"
    elif name == "pmml":
        hint = PMML_ADVICE
    else:
        hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(sorted(_BACKENDS))}"
    raise ModelLoadError(f"no backend is called `{name}`: {hint}")


def in_thread(config: ModelConfig) -> bool:
    """Whether a thread is enough. It does not import the framework, which may be installed for processes only."""
    ours = own_name(config.backend)
    if any(spec.datatype == "BYTES" for spec in (*config.inputs, *config.outputs)):
        return False  # its texts are Python's objects, which a thread makes while it holds the lock
    if ours == "torch" and ("class" in config.parameters or config.default_model_filename.endswith(".safetensors")):
        return False  # a module of Python code
    if ours == "torch" and config.parameters.get("allow_pickle") == "true":
        return False  # native code, whose crash ends its process
    return _BACKENDS[ours].in_thread


def backend(name: str) -> Backend:
    """Return a backend by our name or Triton's. Raises `ModelLoadError`, which names the package that is missing."""
    ours = own_name(name)
    entry = _BACKENDS[ours]
    try:
        module = importlib.import_module(f"runtimes.tensor.backends.{ours}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in entry.needs:
            raise
        raise ModelLoadError(
            f"backend `{ours}` needs {missing}, which is not installed: {installing(entry.extra)}"
        ) from None
    made: Backend = module.BACKEND
    return made


def complete_config(kind: Backend, config: ModelConfig, folder: Path) -> ModelConfig:
    """`Backend.complete`. Any exception of a framework becomes a `ModelLoadError`."""
    try:
        return kind.complete(config, folder)
    except ModelLoadError:
        raise
    except Exception as error:
        raise ModelLoadError(_short(error, folder)) from error


def load_model(kind: Backend, config: ModelConfig, folder: Path, device: Device) -> Loaded:
    """`Backend.load`. Any exception of a framework or the model's code becomes a `ModelLoadError`."""
    try:
        return Loaded((explaining(kind).explainer if config.explains else kind.load)(config, folder, device))
    except ModelLoadError:
        raise
    except BaseException as error:  # SystemExit too: the model's code does not decide when we end
        raise ModelLoadError(_short(error, folder)) from error


def explaining(kind: Backend) -> ExplainingBackend:
    """The backend, as one that explains. Raises `ModelLoadError` for any other."""
    if not isinstance(kind, ExplainingBackend):
        raise ModelLoadError(f"the backend `{kind.name}` has neither trees nor gradients: use `method: permutation`")
    return kind


def _short(error: BaseException, folder: Path) -> str:
    """The message of an exception, shortened and without the path of the folder."""
    message = str(error).replace(str(folder) + os.sep, "")
    return f"{type(error).__name__}: {message}"[:1000]
