"""The path of a model's file, its Python module, and the parts of its configuration that all backends read."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.sources import UncachedLoader, import_uncached

_PREFIX = "_model_"
_serials = itertools.count()


def model_file(config: ModelConfig, folder: Path, *usual: str) -> Path:
    """The file that the configuration names, or the first usual file that exists."""
    names = (config.default_model_filename,) if config.default_model_filename else usual
    for name in names:
        if (path := folder / name).exists():
            return path
    raise ModelLoadError(f"there is no {' or '.join(names)} in the version's folder")


def input_names(config: ModelConfig) -> list[str]:
    """The inputs of the model in order: those of requests, then those that the runtime adds for sequences."""
    names = [spec.name for spec in config.inputs]
    names += [name for made in config.batch_inputs for name in made.target_name]
    if (sequence := config.sequence_batching) is not None:
        names += [control.name for control in sequence.controls]
        names += [state.input_name for state in sequence.states]
    return list(dict.fromkeys(names))


def output_names(config: ModelConfig) -> list[str]:
    """The outputs of the model in order."""
    names = [spec.name for spec in config.outputs]
    if (sequence := config.sequence_batching) is not None:
        names += [state.output_name for state in sequence.states]
    return list(dict.fromkeys(names))


def model_class(config: ModelConfig, path: Path) -> type:
    """The class `Model` of a file, or the class that the parameter `class` names by its import path."""
    if written := config.parameters.get("class", ""):
        module_name, _, name = written.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise ModelLoadError(f"parameter `class` is `{written}`, and there is no module {error.name}") from None
    else:
        module, name = _module(path), ""
    kind = getattr(module, name or "Model", None)
    if not isinstance(kind, type):
        raise ModelLoadError(f"{written or path.name} has no class `{name or 'Model'}`")
    return kind


def _module(path: Path) -> ModuleType:
    """The file as a separate package, so that models may import modules beside them: `from . import name`."""
    if not path.is_file():
        raise ModelLoadError(f"there is no {path.name} in the version's folder")
    name = f"{_PREFIX}{next(_serials)}"
    import_uncached(path.parent)
    loader = UncachedLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(
        name, path, loader=loader, submodule_search_locations=[str(path.parent)]
    )
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        forget(name)
        raise
    return module


def forget(name: str) -> None:
    """Remove the modules of an unloaded version. A module by import path is shared and stays."""
    if name.startswith(_PREFIX):
        for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            del sys.modules[module]
