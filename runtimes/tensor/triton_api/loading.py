"""Loads a `TritonPythonModel` as Triton does: the file may import modules beside it, and beside its version."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, ModelLoadError
from runtimes.tensor.sources import import_uncached
from runtimes.tensor.triton_api import configuration, process
from runtimes.tensor.triton_api.model import TritonModel

CLASS: Final = "TritonPythonModel"
UTILS: Final = "triton_python_backend_utils"
_ENVIRONMENT: Final = "EXECUTION_ENV_PATH"
_MOST_SOURCE: Final = 16 << 20


def is_written_for_triton(file: Path) -> bool:
    """Whether a model's file has the class of Triton's Python backend. The file is not executed."""
    return _mentions(file, CLASS)


def completes_itself(config: ModelConfig, file: Path) -> bool:
    """Whether the model must be executed to complete its configuration."""
    return not config.outputs or _mentions(file, "auto_complete_config")


def _mentions(file: Path, name: str) -> bool:
    try:
        with file.open("rb") as source:
            return name.encode() in source.read(_MOST_SOURCE)
    except OSError:
        return False


def offer_utils(folder: Path) -> None:
    """Make Triton's module importable, and the folders of the version and the model."""
    from runtimes.tensor.triton_api import backend_utils

    sys.modules[UTILS] = backend_utils
    import_uncached(folder.parent)
    sys.path += [str(folder), str(folder.parent)]
    sys.argv[1:] = []  # models that run unittest read it


def auto_completed(kind: Any, config: ModelConfig) -> ModelConfig:
    """The configuration as `auto_complete_config` completes it. Raises `ModelLoadError`."""
    complete = getattr(kind, "auto_complete_config", None)
    if complete is None:
        return config
    made = complete(configuration.BackendModelConfig(process.description))
    if not isinstance(made, configuration.BackendModelConfig):
        raise ModelLoadError(
            f"auto_complete_config function in model '{config.name}' must return a valid pb.ModelConfig object."
        )
    return configuration.completed(config, made.as_dict())


def initialized(kind: Any, config: ModelConfig, folder: Path, device: Device) -> TritonModel:
    """The model, ready to execute. Raises `ModelLoadError`, or the exception of `initialize`."""
    if process.connection is None:
        raise ModelLoadError(f"a {CLASS} needs a process: set the instance group's placement to process")
    if _ENVIRONMENT in config.parameters:
        raise ModelLoadError(f"parameter `{_ENVIRONMENT}` is not supported: set `interpreter` to the Python to use")
    if config.sequence_batching is not None and config.sequence_batching.states:
        raise ModelLoadError(f"a {CLASS} cannot have `state`: keep it in the model by the request's correlation_id")
    model = kind()
    if callable(initialize := getattr(model, "initialize", None)):
        initialize(_arguments(config, folder, device))
    return TritonModel(model, config.name, decoupled=config.decoupled)


def _arguments(config: ModelConfig, folder: Path, device: Device) -> dict[str, str]:
    groups = json.loads(process.description).get("instance_group") or [{}]
    kind = "GPU" if device.gpu is not None else "MODEL" if groups[0].get("kind") == "KIND_MODEL" else "CPU"
    return {
        "model_config": process.description,
        "model_instance_kind": kind,
        "model_instance_name": process.instance,
        "model_instance_device_id": str(device.gpu or 0),
        "model_repository": str(folder.parent),
        "model_version": folder.name,
        "model_name": config.name,
    }


def class_of(file: Path) -> Any:
    """The class `TritonPythonModel` of a file, which is imported as a module of its version's package."""
    package = _package(file.parent)
    try:
        module = importlib.import_module(f"{package}.{file.stem}")
    except ModuleNotFoundError as error:
        raise ModelLoadError(f"{file.name} imports {error.name}, which is not installed") from error
    kind = getattr(module, CLASS, None)
    if not isinstance(kind, type):
        raise ModelLoadError(f"{file.name} has no class `{CLASS}`")
    return kind


def _package(folder: Path) -> str:
    """The package of the version's folder, whose parent is on the path."""
    return folder.name
