"""Models of KServe's SDK. Run as a program with two ports, of HTTP and gRPC, it serves them on loopback.

With a third argument, the address of another such server, it is the transformer before that one.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvicorn
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.errors import InvalidInput
from kserve.model_repository import ModelRepository
from kserve.predictor_config import PredictorConfig


def described(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


class AddSub(Model):
    """Adds and subtracts v2's tensors, and v1's rows with two named lists each."""

    def __init__(self) -> None:
        super().__init__("add_sub")
        self.ready = True

    def get_input_types(self) -> list[dict[str, Any]]:
        return [described(name, "INT32", -1, 16) for name in ("INPUT0", "INPUT1")]

    def get_output_types(self) -> list[dict[str, Any]]:
        return [described(name, "INT32", -1, 16) for name in ("OUTPUT0", "OUTPUT1")]

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        if isinstance(payload, dict):
            return {"predictions": [_added(row) for row in payload["instances"]]}
        one, other = (tensor.as_numpy() for tensor in payload.inputs)
        outputs = []
        for name, made in (("OUTPUT0", one + other), ("OUTPUT1", one - other)):
            output = InferOutput(name, list(made.shape), "INT32")
            output.set_data_from_numpy(made, binary_data=False)
            outputs.append(output)
        return InferResponse(payload.id, self.name, outputs)

    async def explain(self, payload: Any, headers: Any = None) -> Any:
        return {"explanations": {"reason": "they were added", "rows": len(payload["instances"])}}


def _added(row: dict[str, list[int]]) -> dict[str, list[int]]:
    pairs = list(zip(row["INPUT0"], row["INPUT1"], strict=True))
    return {"OUTPUT0": [a + b for a, b in pairs], "OUTPUT1": [a - b for a, b in pairs]}


class Picky(Model):
    """Refuses, fails, answers late or is not ready, as its name indicates."""

    def __init__(self, name: str, ready: bool = True) -> None:
        super().__init__(name)
        self.ready = ready

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        if self.name == "refuses":
            raise InvalidInput("it refuses all")
        if self.name == "slow":
            await asyncio.sleep(30)
        if self.name == "streams":
            return _letters()
        raise RuntimeError("a secret of the server's")


async def _letters() -> AsyncIterator[str]:
    for letter in "abc":
        yield letter


class Doubled(Model):
    """A transformer: its predictor sees each number twice as large."""

    def __init__(self) -> None:
        super().__init__("add_sub")
        self.ready = True

    async def preprocess(self, payload: Any, headers: Any = None) -> Any:
        rows = [{name: [2 * one for one in values] for name, values in row.items()} for row in payload["instances"]]
        return {"instances": rows}


class Shelf(ModelRepository):
    """A repository with a further model, which is loaded on request."""

    def __init__(self) -> None:
        super().__init__("/nowhere")

    def load(self, name: str) -> bool:
        if name == "shelved":
            self.update(Picky(name))
        return self.get_model(name) is not None


def on_loopback() -> None:
    """The SDK listens on every address and has no setting for it."""
    made, bind = uvicorn.Config.__init__, grpc.aio.Server.add_insecure_port

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **(options | {"host": "127.0.0.1"}))

    def add(self: Any, address: str) -> int:
        return int(bind(self, address.replace("[::]", "127.0.0.1")))

    uvicorn.Config.__init__ = init
    grpc.aio.Server.add_insecure_port = add


if __name__ == "__main__":
    on_loopback()
    http, rpc, *before = sys.argv[1:]
    predictor = PredictorConfig(before[0], predictor_protocol="v1") if before else None
    server = ModelServer(
        http_port=int(http), grpc_port=int(rpc), workers=1, predictor_config=predictor, registered_models=Shelf()
    )
    server.start(
        [Doubled()]
        if before
        else [
            AddSub(),
            Picky("shelved"),
            Picky("refuses"),
            Picky("fails"),
            Picky("slow"),
            Picky("streams"),
            Picky("absent", False),
        ]
    )
