"""Adds and subtracts numbers, and texts of numbers."""

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> list[Any]:
        return [self.response(request) for request in requests]

    def response(self, request: Any) -> Any:
        one, other = (pb_utils.get_input_tensor_by_name(request, f"INPUT{i}").as_numpy() for i in (0, 1))
        outputs = self.calculated(one, other)
        return pb_utils.InferenceResponse([pb_utils.Tensor(f"OUTPUT{i}", array) for i, array in enumerate(outputs)])

    def calculated(self, one: Any, other: Any) -> Any:
        if one.dtype != object:
            return one + other, one - other
        results = self.calculated(one.astype(np.int32), other.astype(np.int32))
        return [array.astype(str).astype(object) for array in results]
