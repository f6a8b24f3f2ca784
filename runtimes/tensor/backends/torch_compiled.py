"""Packages of AOTInductor: `.pt2` files with native code, as `torch._inductor.aoti_compile_and_package` writes them.

The code runs when the file is read, so it must be allowed as a pickle is (`parameters: {allow_pickle: true}`). A file
has the trees of the arguments and results, and no shapes: the configuration declares the tensors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
import torch.utils._pytree as pytree

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import ModelFailed, ModelLoadError

_CHECKS: Final = "AOTI_RUNTIME_CHECK_INPUTS"
"""Without it the code reads beyond inputs that have other shapes than those that it was compiled for."""
_OF_INPUTS: Final = "input_handles["
_COUNT: Final = re.compile(r"expected inputs vector size to be (\d+)")
_LEAST: Final = re.compile(r"dim value is too small at 0, expected it to be >= (\d+)")
MOST_ROWS: Final = 64
"""The largest least number of rows that a smaller batch is filled up to."""
Order = Callable[[list[str], list[str]], list[str]]


class CompiledCall:
    """Calls the code with the inputs as its arguments, which `order` puts in order by their names.

    Answers a dict if the model does, with points between the keys of dicts within, else a list. Raises
    `ModelLoadError`; a call raises `ModelFailed` for other shapes than those of the code.
    """

    def __init__(self, path: Path, config: ModelConfig, device: torch.device, names: list[str], order: Order) -> None:
        _check(path, config)
        os.environ[_CHECKS] = "1"
        model = torch._inductor.aoti_load_package(str(path), device_index=-1 if device.index is None else device.index)
        target = model.get_metadata().get("AOTI_DEVICE_KEY", device.type)
        if target != device.type:
            raise ModelLoadError(f"{path.name} was compiled for {target}: set the instance group's `kind` to it")
        self._loader = model.loader
        inputs, outputs = (pytree.treespec_loads(text) for text in self._loader.get_call_spec())
        count = self._count(len(names))
        self._taken = order([name or f"argument {place}" for place, name in enumerate(_names(inputs, count))], names)
        self._answers = _names(outputs, outputs.num_leaves)
        self._is_batched = config.max_batch_size > 0
        self._least = 1
        """Rows of the smallest batch. Exported dimensions that vary begin with 2, unless their author changes it."""

    def __call__(self, tensors: dict[str, torch.Tensor]) -> Any:
        given = [tensors[name].contiguous() for name in self._taken]
        try:
            results = self._run(given)
        except RuntimeError as error:
            least = _LEAST.search(str(error))
            if not self._is_batched or least is None or not self._least < int(least[1]) <= MOST_ROWS:
                raise _failure(error, self._taken) from error
            self._least = int(least[1])
            return self(tensors)
        return dict(zip(self._answers, results, strict=True)) if self._answers and all(self._answers) else results

    def _run(self, given: list[torch.Tensor]) -> Any:
        """The results. A batch that is too small is filled up with its first row, whose answers are left out."""
        rows = len(given[0]) if self._is_batched and given else 0
        if not 0 < rows < self._least:
            return self._loader.boxed_run(given)
        filled = [torch.cat([one, one[:1].expand(self._least - rows, *one.shape[1:])]) for one in given]
        return [one[:rows] for one in self._loader.boxed_run(filled)]

    def _count(self, given: int) -> int:
        """The number of tensors that the code takes, by its error for none: the file does not have it."""
        try:
            self._loader.boxed_run([])
        except RuntimeError as error:
            if (match := _COUNT.search(str(error))) is not None:
                return int(match[1])
        return given


def _check(path: Path, config: ModelConfig) -> None:
    if config.parameters.get("allow_pickle") != "true":
        raise ModelLoadError(
            f"{path.name} has native code, which runs when it is read: save the model with torch.export, or set"
            " parameters: {allow_pickle: true} if you trust its author"
        )
    if config.quantize:
        raise ModelLoadError("`quantize` converts weights, and this model's code is compiled: compile it converted")


def _names(spec: Any, count: int) -> list[str]:
    """The names of a tree's leaves: the keys of dicts, with points between them; empty for those of tuples.

    A tree with constants among its leaves has no names: which of them are tensors is not in the file.
    """
    if spec.num_leaves != count:
        return [""] * count
    tree = pytree.tree_unflatten(list(range(count)), spec)
    paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    keys = [[step for step in path if isinstance(step, pytree.MappingKey)] for path in paths]
    return [".".join(str(step.key) for step in steps) for steps in keys]


def _failure(error: RuntimeError, names: Sequence[str]) -> ModelFailed:
    """The first line of an error, with the input's name for its number. The other lines have paths of this machine."""
    text = str(error).partition("\n")[0][:300]
    if text.startswith(_OF_INPUTS):
        number, _, reason = text.removeprefix(_OF_INPUTS).partition("]: ")
        if number.isdecimal() and int(number) < len(names):
            text = f"input `{names[int(number)]}`: {reason}"
    return ModelFailed(f"the compiled model refused the request: {text}")
