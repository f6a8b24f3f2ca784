"""The sum and the difference, for our python backend."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


class Model:
    def infer(self, inputs: Mapping[str, Ints]) -> dict[str, Ints]:
        one, other = inputs["INPUT0"], inputs["INPUT1"]
        return {"OUTPUT0": one + other, "OUTPUT1": one - other}
