"""magika under ONNX Runtime inside Triton's python backend, since this build has no ONNX backend."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(Path(__file__).parent / "model.onnx", options)

    def execute(self, requests: list[Any]) -> list[Any]:
        rows = [pb_utils.get_input_tensor_by_name(request, "bytes").as_numpy() for request in requests]
        (labels,) = self.session.run(None, {"bytes": np.concatenate(rows)})
        parts = np.split(labels, np.cumsum([len(one) for one in rows])[:-1])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("target_label", part)]) for part in parts]
