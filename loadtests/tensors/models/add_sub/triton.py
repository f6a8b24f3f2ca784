"""The sum and the difference, as in Triton's own example of its python backend."""

from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            one = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            other = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", one + other), pb_utils.Tensor("OUTPUT1", one - other)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
