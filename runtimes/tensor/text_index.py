"""Large BYTES inputs of a request: checked, and the ends of their rows computed, outside of the serving process."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from adapters import offload
from adapters.tensors import Inference, Tensor, row_ends
from runtimes.tensor.texts import MAX_ROWS


@dataclass(slots=True)
class IndexedTensor(Tensor):
    """A BYTES input whose number of elements was checked against its shape."""

    ends: npt.NDArray[np.int64] | None = None


async def index(inference: Inference) -> None:
    """Check large BYTES inputs, outside of this process. Raises `CallerError`."""
    for at, tensor in enumerate(inference.inputs):
        if tensor.datatype == "BYTES" and len(tensor.data) >= offload.LARGE:
            rows = tensor.shape[0] if len(tensor.shape) > 1 and 0 < tensor.shape[0] <= MAX_ROWS else 1
            ends = await offload.run(len(tensor.data), row_ends, tensor.data, prod(tensor.shape), rows, tensor.name)
            inference.inputs[at] = IndexedTensor(
                tensor.name,
                tensor.datatype,
                tensor.shape,
                tensor.data,
                tensor.parameters,
                np.frombuffer(ends, np.int64) if rows == tensor.shape[0] else None,
            )
