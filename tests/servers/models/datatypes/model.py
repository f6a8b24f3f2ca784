"""Returns a tensor of each datatype unchanged."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt


class Model:
    def infer(self, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        return {name.replace("IN_", "OUT_"): tensor for name, tensor in inputs.items()}
