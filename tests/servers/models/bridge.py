"""A model written for our python backend, run by Triton's: the same arithmetic on both sides.

It lies beside the model as `model.py`, and the model beside it as `headrace_model.py`.
"""

import json
from typing import Any

import triton_python_backend_utils as pb_utils
from headrace_model import Model


class TritonPythonModel:
    """One request at a time, so that one which raises fails alone, as Triton's own examples do."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        controls = config.get("sequence_batching", {}).get("control_input", [])
        self.names = [one["name"] for one in [*config["input"], *controls]]
        self.model = Model(config) if "__init__" in vars(Model) else Model()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        if self.decoupled:
            for request in requests:
                self.stream(request)
            return None
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        try:
            return self.response(self.model.infer(self.inputs(request)))
        except Exception as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))

    def stream(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            for outputs in self.model.infer(self.inputs(request)):
                sender.send(self.response(outputs))
        except Exception as error:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def inputs(self, request: Any) -> dict[str, Any]:
        tensors = ((name, pb_utils.get_input_tensor_by_name(request, name)) for name in self.names)
        return {name: tensor.as_numpy() for name, tensor in tensors if tensor is not None}

    def response(self, outputs: dict[str, Any]) -> Any:
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, tensor) for name, tensor in outputs.items()])
