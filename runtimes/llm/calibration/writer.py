"""Writes a folder whose matrices are rounded with calibration texts: layer by layer, each on what the rounded layers
before it give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from runtimes.llm.calibration.awq import ScaledLayer, folds
from runtimes.llm.calibration.gptq import gptq
from runtimes.llm.calibration.layer_run import Inputs, LayerRun
from runtimes.llm.weights.quantized_writer import Bits, Codes, QuantizedFolder, numbers_of, quantized

CalibrationMethod = Literal["gptq", "awq"]
FEWEST_ROWS = 32
"""A matrix that multiplied fewer rows, such as that of an expert that few tokens chose, is rounded to the nearest."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How matrices are rounded: codes of `bits` in groups of `group`."""

    bits: Bits
    group: int
    method: CalibrationMethod = "gptq"
    act_order: bool = True
    """Of GPTQ. Without it models with a few large channels lose more than with the nearest codes."""


@dataclass(frozen=True, slots=True)
class Written:
    """How many matrices a folder has in codes, and how many of them were rounded to the nearest."""

    matrices: int
    nearest: int


def write_calibrated(source: Path, target: Path, how: Calibration, texts: Sequence[Sequence[int]]) -> Written:
    """Write `source`, a folder with config.json, to `target`, a new folder. Holds one layer in float32, the Gram
    matrices of its inputs and the states of all tokens.

    `texts` are of two tokens or more. Raises as `write_quantized` does, and UnsupportedModel for a family that the
    engine does not compute.
    """
    run = LayerRun(source, texts)
    with QuantizedFolder(source, target, how.bits, how.group) as folder:
        return _Writer(folder, run, how).written()


class _Writer:
    def __init__(self, folder: QuantizedFolder, run: LayerRun, how: Calibration) -> None:
        self._folder = folder
        self._run = run
        self._how = how
        self._nearest = 0

    def written(self) -> Written:
        done: set[str] = set()
        for index in range(self._run.layers):
            observed = self._run.observed(index, self._folder.matrices)
            inside = [name for name in self._folder.files if name in observed.stored]
            if self._how.method == "awq":
                self._add_scaled(index, inside, observed.inputs)
            else:
                for name in inside:
                    self._add(name, self._folder.files.tensor(name), observed.inputs.get(name))
            self._run.advance(index)
            self._run.files.replaced.clear()
            done.update(inside)
        for name in self._folder.files:
            if name not in done:
                self._add(name, self._folder.files.tensor(name), None)
                self._run.files.replaced.clear()  # no layer reads it any more
        return Written(self._folder.close(), self._nearest)

    def _add_scaled(self, index: int, inside: Sequence[str], inputs: Mapping[str, Inputs]) -> None:
        """The layer's tensors with AWQ's factors, which the nearest codes are taken of."""
        checkpoint, how = self._run.checkpoint, self._how
        layer = ScaledLayer(checkpoint, self._folder.files, index, inputs, FEWEST_ROWS)
        for fold in folds(checkpoint.config, index):
            layer.scale(fold, how.bits, how.group)
        for name in inside:
            tensor = layer.tensors.get(name)
            self._add(name, self._folder.files.tensor(name) if tensor is None else tensor, None)
        self._nearest -= len(layer.calibrated)

    def _add(self, name: str, tensor: Tensor, inputs: Inputs | None) -> None:
        if name not in self._folder.matrices:
            self._folder.add(name, tensor)
            self._run.files.replaced[name] = tensor
            return
        codes = self._codes(tensor, inputs)
        self._folder.add(name, tensor, codes)
        self._run.files.replaced[name] = numbers_of(codes, self._how.bits)

    def _codes(self, weight: Tensor, inputs: Inputs | None) -> Codes:
        how = self._how
        if inputs is None or inputs.count < FEWEST_ROWS:
            self._nearest += 1
            return quantized(weight, how.bits, how.group)
        return gptq(weight, inputs.gram, how.bits, how.group, act_order=how.act_order)
