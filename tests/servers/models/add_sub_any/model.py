"""The sum and the difference of two rows of any length."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Model:
    def infer(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        one, other = inputs["INPUT0"], inputs["INPUT1"]
        return {"OUTPUT0": one + other, "OUTPUT1": one - other}
