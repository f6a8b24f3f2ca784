"""Our adapters before a real KServe: v2 over both wires."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.errors import BackendError, CallerError, NotFound, Unavailable
from adapters.tensors import Inference, Tensor
from adapters.types import InferRequest, ModelOrder, ModelQuery
from tests.servers.asking import PATIENCE, adapting, asked, outputs, prompted, streamed, within
from tests.servers.kserve import kserve
from tests.servers.started import Started

ONES = (1).to_bytes(4, "little") * 16
TWOS = (2).to_bytes(4, "little") * 16
ADD_SUB = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
WIRES = ["oip-http", "oip-grpc"]
wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def server() -> Iterator[Started]:
    with kserve() as running:
        yield running


def before(server: Started, wire: str) -> Any:
    return adapting(server.url(WIRES.index(wire)), {"name": wire, "server": "kserve"})


@wire
@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
@pytest.mark.parametrize("id_", ["", "7"])
async def test_sums(server: Started, wire: str, sent: str, id_: str) -> None:
    """It wants an id, and clients need not have one."""
    async with before(server, wire) as adapter:
        await adapter.probe(PATIENCE)
        inference = Inference("add_sub", id=id_, inputs=ADD_SUB)
        found = outputs(await adapter.call(asked(inference, sent), within()))
        assert {name: bytes(tensor.data) for name, tensor in found.items()} == {"OUTPUT0": TWOS, "OUTPUT1": bytes(64)}


@wire
async def test_streams_and_prompts(server: Started, wire: str) -> None:
    """It has neither: a stream is its one response, and a prompt is made tensors of."""
    async with before(server, wire) as adapter:
        asked_for = asked(Inference("add_sub", inputs=ADD_SUB), kind="infer_stream")
        (response,) = await streamed(await adapter.call(asked_for, within()))
        assert [bytes(tensor.data) for tensor in response.outputs] == [TWOS, bytes(64)]
        answer = await adapter.call(prompted("add_sub", {"INPUT0": [1] * 16, "INPUT1": [1] * 16}), within())
        if wire == "oip-http":
            assert json.loads(answer.body or b"")["OUTPUT0"] == [2] * 16
        else:
            assert bytes(outputs(answer)["OUTPUT0"].data) == TWOS


@wire
async def test_mistakes_and_failures(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        with pytest.raises(CallerError, match="it refuses all"):
            await adapter.call(asked(Inference("refuses", inputs=ADD_SUB)), within())
        with pytest.raises(CallerError):
            await adapter.call(misshapen(), within())
        for model in ("nobody", "absent"):
            with pytest.raises(BackendError, match="does not know the model"):
                await adapter.call(asked(Inference(model, inputs=ADD_SUB)), within())
        with pytest.raises(BackendError, match="The upstream failed") as caught:
            await adapter.call(asked(Inference("fails", inputs=ADD_SUB)), within())
        assert "secret" not in caught.value.message
        with pytest.raises(NotFound, match="`add_sub` has no version `1`"):
            await adapter.call(asked(Inference("add_sub", "1", inputs=ADD_SUB)), within())


def misshapen() -> InferRequest:
    request = asked(Inference("add_sub", inputs=ADD_SUB))
    request.write(request.body.replace(b"[1,16]", b"[1,17]"))
    return request


@wire
async def test_questions(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        told = json.loads((await adapter.call(ModelQuery(model="add_sub"), within())).body or b"")
        assert told["inputs"] == [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in (0, 1)]
        ready = await adapter.call(ModelQuery(model="add_sub", about="ready"), within())
        assert json.loads(ready.body or b"") == {"name": "add_sub", "ready": True}
        for model in ("nobody", "absent"):
            with pytest.raises(Unavailable):
                await adapter.call(ModelQuery(model=model, about="ready"), within())


@wire
async def test_orders(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        for _ in range(2):
            await adapter.call(ModelOrder(model="shelved", order="load"), within())
            await adapter.call(ModelQuery(model="shelved", about="ready"), within())
            await adapter.call(ModelOrder(model="shelved", order="unload"), within())
            with pytest.raises(Unavailable):
                await adapter.call(ModelQuery(model="shelved", about="ready"), within())
