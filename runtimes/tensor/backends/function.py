"""A Python function of a file as a model, for the steps of the gateway's pipelines.

The parameter `path` is the file, whose text is `function.py` in the version's folder: tracebacks have its lines, and it
may import modules beside it. The parameter `function` is the function.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import ModelLoadError, Tensors

SOURCE: Final = "function.py"


class FunctionModel:
    """Calls the function with the inputs by name. In place of a dict, it may return the value of the only output."""

    def __init__(self, config: ModelConfig, folder: Path) -> None:
        path, name = config.parameters["path"], config.parameters["function"]
        sys.path.append(str(Path(path).parent))
        module = ModuleType(Path(path).stem)
        module.__file__ = path
        sys.modules.setdefault(module.__name__, module)  # dataclasses and pickles look it up
        exec(compile((folder / SOURCE).read_text(), path, "exec"), module.__dict__)  # noqa: S102 - the operator's code
        function = getattr(module, name, None)
        if not callable(function):
            raise ModelLoadError(f"{path} has no function `{name}`")
        self._function = function
        self._dims = {spec.name: spec.dims for spec in config.outputs}
        self._only = next(iter(self._dims)) if len(self._dims) == 1 else None

    def infer(self, inputs: Tensors) -> Any:
        """Returns the outputs, with single values as arrays of one element where the output has a dimension."""
        returned = self._function(**inputs)
        if not isinstance(returned, dict) and self._only is not None:
            returned = {self._only: returned}
        if not isinstance(returned, dict):
            return returned  # the caller reports that it is no dict
        return {name: self._shaped(name, value) for name, value in returned.items()}

    def _shaped(self, name: str, value: Any) -> Any:
        is_single = isinstance(value, str | bytes | bool | int | float | np.generic)
        return np.array([value]).reshape((1,) * len(self._dims.get(name, ()))) if is_single else value
