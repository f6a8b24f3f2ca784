"""Both adapters before a real MLServer: its streams, codecs and repository, and what it lacks."""

import json
import shutil
import struct
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import (
    BackendError,
    CallerError,
    InferenceError,
    ModelNotReady,
    NotFound,
    TransportError,
    Unsupported,
)
from adapters.requests import ModelOrder, ModelQuery
from adapters.tensors import Inference, Tensor
from tests.servers.mlserver import mlserver
from tests.servers.pool_adapters import (
    PATIENCE,
    adapting,
    infer_request,
    outputs,
    prompted,
    streamed,
    text_of,
    texts,
    with_body,
    within,
)
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.sums import ADD_SUB, DESCRIBED, SUMS
from tests.support.tensor_runtime import tensor_runtime

WIRES = ["oip-http", "oip-grpc"]
wire = pytest.mark.parametrize("wire", WIRES)
sent = pytest.mark.parametrize("sent", ["json", "binary", "grpc"])


@pytest.fixture(scope="module")
def server() -> Started:
    return shared(mlserver)


def before(server: Started, wire: str, named: str = "mlserver", **fields: Any) -> Any:
    return adapting(server.url(WIRES.index(wire)), {"name": wire, "server": named}, **fields)


def text_inference(text: str) -> Inference:
    return Inference("words", inputs=[Tensor("text", "BYTES", (1,), texts(text), {"content_type": "str"})])


@wire
@sent
async def test_sums(server: Started, wire: str, sent: str) -> None:
    async with before(server, wire) as adapter:
        await adapter.probe(PATIENCE)
        actual = outputs(
            await adapter.call(infer_request(Inference("add_sub", id="7", inputs=ADD_SUB), sent), within())
        )
    assert {name: bytes(tensor.data) for name, tensor in actual.items()} == SUMS


@wire
@sent
async def test_streams(server: Started, wire: str, sent: str) -> None:
    async with before(server, wire) as adapter:
        request = infer_request(text_inference("one two three"), sent, "infer_stream")
        responses = await streamed(await adapter.call(request, within()))
        assert [text_of(one.outputs[0]) for one in responses] == ["one", "two", "three"]


@wire
async def test_responses_before_a_failure_are_delivered(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        answer = await adapter.call(infer_request(text_inference("one fail two"), kind="infer_stream"), within())
        await anext(answer)
        with pytest.raises((BackendError, TransportError)):
            _ = [piece async for piece in answer]
        with pytest.raises(InferenceError):
            await anext(await adapter.call(infer_request(text_inference("fail"), kind="infer_stream"), within()))


@wire
async def test_prompts_are_made_tensors_of(server: Started, wire: str) -> None:
    """MLServer requires tensors on Triton's path for prompts."""
    async with before(server, wire) as adapter:
        answer = await adapter.call(prompted("words", {"text": "a b"}), within())
        assert (
            text_of(outputs(answer)["text"]) == "a b"
            if wire == "oip-grpc"
            else json.loads(answer.body)["text"] == "a b"
        )
        stream = await adapter.call(prompted("words", {"text": "a b"}, "generate_stream"), within())
        if wire == "oip-grpc":
            assert [text_of(one.outputs[0]) for one in await streamed(stream)] == ["a", "b"]
        else:
            events = b"".join([piece async for piece in stream]).split(b"\n\n")
            assert [json.loads(event[6:])["text"] for event in events if event] == ["a", "b"]


@wire
async def test_codecs_go_by_parameters(server: Started, wire: str) -> None:
    inputs = [
        Tensor("height", "FP64", (2,), struct.pack("<2d", 180, 160)),
        Tensor("weight", "FP64", (2,), struct.pack("<2d", 90, 40)),
        Tensor("name", "BYTES", (2,), texts("ann", "süßer"), {"content_type": "str"}),
    ]
    async with before(server, wire) as adapter:
        for form in ("json", "grpc"):
            inference = Inference("frame", parameters={"content_type": "pd"}, inputs=inputs)
            answer = await adapter.call(infer_request(inference, form), within())
            actual = outputs(answer)
            assert struct.unpack("<2d", actual["ratio"].data) == (2.0, 4.0)
            assert struct.unpack("<2q", actual["length"].data) == (3, 5)


@wire
async def test_versions(server: Started, wire: str) -> None:
    rows = [Tensor("x", "FP32", (1, 4), struct.pack("<4f", 5.1, 3.5, 1.4, 0.2))]
    async with before(server, wire) as adapter:
        actual = outputs(await adapter.call(infer_request(Inference("iris", "v1", inputs=rows)), within()))
        assert bytes(actual["predict"].data) == bytes(8)
        with pytest.raises(NotFound, match="`iris` has no version `v9`"):
            await adapter.call(infer_request(Inference("iris", "v9", inputs=rows)), within())


@wire
async def test_mistakes_and_failures(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        with pytest.raises(CallerError, match="it takes two inputs"):
            await adapter.call(infer_request(Inference("add_sub", inputs=ADD_SUB[:1])), within())
        misshapen = infer_request(Inference("iris", inputs=[Tensor("x", "FP32", (1, 4), bytes(16))]))
        misshapen = with_body(misshapen, misshapen.payload.body.replace(b"[1,4]", b"[1,5]"))
        with pytest.raises(CallerError):  # it blames itself for this one
            await adapter.call(misshapen, within())
        with pytest.raises(BackendError, match=r"The upstream failed|a secret of the server's"):  # in its own words
            await adapter.call(infer_request(Inference("fails", inputs=ADD_SUB)), within())


@wire
async def test_questions(server: Started, wire: str) -> None:
    async with before(server, wire) as adapter:
        metadata = json.loads((await adapter.call(ModelQuery(model="add_sub"), within())).body or b"")
        assert metadata["inputs"] == DESCRIBED
        with pytest.raises(Unsupported):
            await adapter.call(ModelQuery(model="add_sub", about="config"), within())


@wire
async def test_an_unloaded_model_is_not_ready(server: Started, wire: str) -> None:
    rows = [Tensor("x", "FP32", (1, 4), struct.pack("<4f", 5.1, 3.5, 1.4, 0.2))]
    async with before(server, wire) as adapter:
        await adapter.call(ModelOrder(model="iris", order="unload"), within())
        with pytest.raises(ModelNotReady, match="`iris` is not ready"):
            await adapter.call(infer_request(Inference("iris", inputs=rows)), within())
        await adapter.call(ModelOrder(model="iris", order="load"), within())
        assert outputs(await adapter.call(infer_request(Inference("iris", inputs=rows)), within()))


@wire
async def test_seldons_servers_accept_the_same_requests(server: Started, wire: str) -> None:
    """Servers ignore the header that Seldon's router requires; only the router receives the name of a pipeline."""
    async with before(server, wire, "seldon", model="add_sub.pipeline") as adapter:
        assert len(outputs(await adapter.call(infer_request(Inference("sums", inputs=ADD_SUB)), within()))) == 2


def answer_at(address: str, rows: list[list[float]]) -> list[float]:
    """The prediction for rows, over plain HTTP."""
    tensor = {
        "name": "input",
        "shape": [len(rows), 4],
        "datatype": "FP64",
        "data": [cell for row in rows for cell in row],
    }
    body = json.dumps({"inputs": [tensor]}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{address}/v2/models/iris/infer", body, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        outputs = {one["name"]: one["data"] for one in json.load(response)["outputs"]}
    return [float(value) for value in outputs["predict"]]


def test_its_folder_in_our_own_runtime_answers_the_same(server: Started, tmp_path: Path) -> None:
    shutil.copytree(server.folder / "iris", tmp_path / "iris")
    (tmp_path / "iris" / "model.yaml").write_text("parameters: {allow_pickle: true}\n")
    rows = [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3], [5.9, 2.8, 4.2, 1.3]]
    with tensor_runtime("--repository", str(tmp_path)) as runtime:
        assert answer_at(runtime.http, rows) == answer_at(f"127.0.0.1:{server.ports[0]}", rows)
