"""Adds one to the first number of a sequence."""

from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> list[Any]:
        return [self.response(request) for request in requests]

    def response(self, request: Any) -> Any:
        first = request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        array = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() + first
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", array.astype("int32"))])
