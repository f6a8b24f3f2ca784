"""The sum and the difference, as a model of KServe's SDK; run as a program, it serves on a port of loopback."""

import sys
from typing import Any

import uvicorn
from kserve import InferOutput, InferResponse, Model, ModelServer


class AddSub(Model):
    def __init__(self) -> None:
        super().__init__("add_sub")
        self.ready = True

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        one, other = (tensor.as_numpy() for tensor in payload.inputs)
        outputs = []
        for name, made in (("OUTPUT0", one + other), ("OUTPUT1", one - other)):
            outputs.append(InferOutput(name, list(made.shape), "INT32", made.tolist()))
        return InferResponse(payload.id, self.name, outputs)


def on_loopback() -> None:
    """The SDK listens on every address and has no setting for it."""
    made = uvicorn.Config.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **(options | {"host": "127.0.0.1"}))

    uvicorn.Config.__init__ = init


if __name__ == "__main__":
    on_loopback()
    ModelServer(http_port=int(sys.argv[1]), workers=1, enable_grpc=False, enable_latency_logging=False).start(
        [AddSub()]
    )
