"""Models written in Python: a class `Model` with `infer`, in a file of the version's folder or by import path.

class Model:
    def __init__(self, config): ...         # optional; `folder` and `device` are further optional arguments
    def infer(self, inputs): ...            # a dict of arrays to a dict of arrays; a generator if decoupled
    def close(self): ...                    # optional

A file with the class `TritonPythonModel` is loaded as Triton's Python backend loads it (`triton_api`).
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from runtimes.tensor.backends.files import forget, model_class
from runtimes.tensor.backends.signature import declared
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, Model, ModelLoadError, Tensors
from runtimes.tensor.triton_api import loading

FILENAME = "model.py"


class PythonBackend:
    """Python's lock lets one thread at a time compute, so each copy has a process by default."""

    name = "python"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        file = _file(config, folder)
        if not loading.is_written_for_triton(file):
            return declared(self.name, config)
        loading.offer_utils(folder)
        return loading.auto_completed(loading.class_of(file), config)

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` converts weights of a framework: a Python model has none that it can read")
        file = _file(config, folder)
        if "class" not in config.parameters and loading.is_written_for_triton(file):
            loading.offer_utils(folder)
            return loading.initialized(loading.class_of(file), config, folder, device)
        kind = model_class(config, file)
        infer = getattr(kind, "infer", None)
        if not callable(infer):
            raise ModelLoadError(f"class `{kind.__name__}` has no `infer`")
        if inspect.iscoroutinefunction(infer) or inspect.isasyncgenfunction(infer):
            raise ModelLoadError(f"`{kind.__name__}.infer` is async: it must be a plain function or a generator")
        if inspect.isgeneratorfunction(infer) and not config.decoupled:
            raise ModelLoadError(f"`{kind.__name__}.infer` is a generator: set decoupled, or return all at once")
        return _PythonModel(_made(kind, config, folder, device))


def _file(config: ModelConfig, folder: Path) -> Path:
    return folder / (config.default_model_filename or FILENAME)


class _PythonModel:
    def __init__(self, instance: Any) -> None:
        self._instance = instance
        self._infer = instance.infer

    def infer(self, inputs: Tensors) -> Any:
        return self._infer(inputs)

    def close(self) -> None:
        try:
            if callable(close := getattr(self._instance, "close", None)):
                close()
        finally:
            forget(type(self._instance).__module__)


def _made(kind: type, config: ModelConfig, folder: Path, device: Device) -> Any:
    """An instance, with those arguments that its `__init__` has."""
    if kind.__init__ is object.__init__:  # type: ignore[misc]
        return kind()
    offered = {"config": config, "folder": folder, "device": device}
    parameters = list(inspect.signature(kind).parameters.values())
    if parameters and parameters[0].name not in offered and parameters[0].default is inspect.Parameter.empty:
        raise ModelLoadError(
            f"`{kind.__name__}.__init__` requires `{parameters[0].name}`: it may have config, folder and device"
        )
    return kind(**{one.name: offered[one.name] for one in parameters if one.name in offered})


BACKEND = PythonBackend()
