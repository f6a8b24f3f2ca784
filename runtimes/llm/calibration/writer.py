"""Writes a folder whose matrices are rounded with calibration texts: layer by layer, each on what the rounded layers
before it give."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from runtimes.llm.calibration.gptq import gptq
from runtimes.llm.calibration.layer_run import Inputs, LayerRun
from runtimes.llm.weights.quantized_writer import Bits, Codes, QuantizedFolder, numbers_of, quantized

Method = Literal["gptq"]
FEWEST_ROWS = 32
"""A matrix that multiplied fewer rows, such as that of an expert that few tokens chose, is rounded to the nearest."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How matrices are rounded: codes of `bits` in groups of `group`."""

    bits: Bits
    group: int
    method: Method = "gptq"
    act_order: bool = False


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
    return _Writer(QuantizedFolder(source, target, how.bits, how.group), run, how).written()


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
            for name in inside:
                self._add(name, observed.inputs.get(name))
            self._run.advance(index)
            self._run.files.replaced.clear()
            done.update(inside)
        for name in self._folder.files:
            if name not in done:
                self._add(name, None)
        return Written(self._folder.close(), self._nearest)

    def _add(self, name: str, inputs: Inputs | None) -> None:
        tensor = self._folder.files.tensor(name)
        if name not in self._folder.matrices:
            self._folder.add(name, tensor)
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
