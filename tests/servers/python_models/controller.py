"""Loads and unloads the model that a request names, and gives the results of all steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        config.add_input({"name": "MODEL", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "STEPS", "data_type": "TYPE_STRING", "dims": [-1]})
        config.set_max_batch_size(0)
        return config

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self.response(request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def response(self, name: str) -> Any:
        steps = [
            self.step(pb_utils.is_model_ready, name),
            self.step(pb_utils.unload_model, name),
            self.step(pb_utils.is_model_ready, name),
            self.step(pb_utils.load_model, name),
            self.step(pb_utils.is_model_ready, name, "1"),
            self.step(pb_utils.load_model, name, "{wrong"),
        ]
        return pb_utils.InferenceResponse([pb_utils.Tensor("STEPS", np.array(steps, object))])

    def step(self, operation: Callable[..., object], *arguments: str) -> str:
        try:
            return str(operation(*arguments))
        except pb_utils.TritonModelException as error:
            return f"error: {error}"
