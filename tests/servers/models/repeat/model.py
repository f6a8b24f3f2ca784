"""One answer for each element of its input: none, one, or many."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


class Model:
    def infer(self, inputs: Mapping[str, Ints]) -> Iterator[dict[str, Ints]]:
        for number in inputs["IN"]:
            if number < 0:
                raise ValueError(f"{number} is below zero")
            yield {"OUT": np.array([number], dtype=np.int32)}
