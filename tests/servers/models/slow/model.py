"""Takes the requested time."""

import time
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


class Model:
    def infer(self, inputs: Mapping[str, Ints]) -> dict[str, Ints]:
        time.sleep(int(inputs["MILLISECONDS"].max()) / 1000)
        return {"SLEPT": inputs["MILLISECONDS"]}
