"""Our adapter before a real BentoML: what its methods take, give, refuse and stream."""

import asyncio
import json
import struct
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.base import Adapter, Answer
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ModelFailed,
    NotFound,
    Unsupported,
    UpstreamTimeout,
)
from adapters.requests import AppRequest, ChatRequest, InferRequest, ModelOrder, ModelQuery
from adapters.tensors import Inference, RequestedOutput, Tensor
from adapters.wire.openai.request_codec import OpenAIPayload
from tests.servers.bentoml import bentoml
from tests.servers.pool_adapters import (
    PATIENCE,
    adapting,
    infer_request,
    outputs,
    prompted,
    streamed,
    text_of,
    texts,
    within,
)
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.sums import ADD_SUB, DESCRIBED, ONES, TWOS


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def one(name: str, datatype: str, data: bytes) -> Tensor:
    return Tensor(name, datatype, (1,), data)


def int64(name: str, value: int) -> Tensor:
    return one(name, "INT64", value.to_bytes(8, "little", signed=True))


def fp64(name: str, value: float) -> Tensor:
    return one(name, "FP64", struct.pack("<d", value))


@pytest.fixture(scope="module")
def server() -> Started:
    return shared(bentoml)


@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
async def test_sums(server: Started, sent: str) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        await adapter.probe(PATIENCE)
        answer = await adapter.call(infer_request(Inference("add_sub", id="7", inputs=ADD_SUB), sent), within())
    sums = outputs(answer)
    assert {name: (t.datatype, t.shape, bytes(t.data)) for name, t in sums.items()} == {
        "OUTPUT0": ("INT32", (1, 16), TWOS),
        "OUTPUT1": ("INT32", (1, 16), bytes(64)),
    }
    assert answer.usage.rows == 1
    assert answer.usage.bytes > 0


async def test_requested_outputs(server: Started) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        inference = Inference("add_sub", inputs=ADD_SUB, outputs=[RequestedOutput("OUTPUT1")])
        assert list(outputs(await adapter.call(infer_request(inference), within()))) == ["OUTPUT1"]
        inference.outputs = [RequestedOutput("OUTPUT9")]
        with pytest.raises(CallerError, match="no output `OUTPUT9`"):
            await adapter.call(infer_request(inference), within())


FOUR = Tensor("rows", "FP32", (1, 4), floats(1, 2, 3, 4))


@pytest.mark.parametrize(
    ("inference", "datatype", "shape", "data"),
    [
        (Inference("double", inputs=[FOUR]), "FP32", (1, 4), floats(2, 4, 6, 8)),
        (Inference("scale", inputs=[FOUR]), "FP64", (1, 4), struct.pack("<4d", 2, 4, 6, 8)),
        (Inference("scale", inputs=[FOUR, fp64("factor", 3)]), "FP64", (1, 4), struct.pack("<4d", 3, 6, 9, 12)),
        (
            Inference("scale", parameters={"factor": 0.5}, inputs=[FOUR]),
            "FP64", (1, 4), struct.pack("<4d", 0.5, 1, 1.5, 2),
        ),
        (
            Inference("negate", inputs=[Tensor("input", "FP32", (2,), floats(1, -2))]),
            "FP64", (2,), struct.pack("<2d", -1, 2),
        ),
        (Inference("greet", inputs=[one("name", "BYTES", texts("ann"))]), "BYTES", (1,), texts("hello ann")),
        (
            Inference("greet", parameters={"times": 2, "loud": True}, inputs=[one("name", "BYTES", texts("ann"))]),
            "BYTES", (1,), texts("HELLO ANN HELLO ANN"),
        ),
        (Inference("length", inputs=[one("text", "BYTES", texts("süß"))]), "INT64", (1,), (3).to_bytes(8, "little")),
        (Inference("text/length", inputs=[one("text", "BYTES", texts("a"))]), "INT64", (1,), (1).to_bytes(8, "little")),
        (
            Inference("size", inputs=[one("file", "BYTES", b"\x04\0\0\0\xff\0\r\n"), int64("extra", 3)]),
            "INT64", (1,), (7).to_bytes(8, "little"),
        ),
        (Inference("later", inputs=[int64("number", 21)]), "INT64", (1,), (42).to_bytes(8, "little")),
    ],
    ids=lambda value: value.model_name if isinstance(value, Inference) else None,
)  # fmt: skip
@pytest.mark.parametrize("sent", ["json", "grpc"])
async def test_arguments_of_every_kind(
    server: Started, inference: Inference, datatype: str, shape: Any, data: bytes, sent: str
) -> None:
    if sent == "json" and inference.model_name == "size":
        sent = "binary"  # its bytes are no text
    async with adapting(server.url(), "bentoml") as adapter:
        (result,) = outputs(await adapter.call(infer_request(inference, sent), within())).values()
    assert (result.name, result.datatype, result.shape, bytes(result.data)) == ("output", datatype, shape, data)


async def test_tensors_that_the_service_does_not_describe_are_declared(server: Started) -> None:
    rows = {"name": "rows", "datatype": "FP32", "shape": [-1, 4]}
    protocol = {"name": "bentoml", "inputs": [rows], "outputs": [{**rows, "name": "scaled"}]}
    async with adapting(server.url(), protocol) as adapter:
        actual = outputs(await adapter.call(infer_request(Inference("scale", inputs=[FOUR])), within()))
        assert (actual["scaled"].datatype, bytes(actual["scaled"].data)) == ("FP32", floats(2, 4, 6, 8))
        wrong = Tensor("rows", "FP64", (1, 4), bytes(32))
        with pytest.raises(CallerError, match="`rows` is FP32, and was sent FP64"):
            await adapter.call(infer_request(Inference("scale", inputs=[wrong])), within())


async def test_data_frames_are_a_tensor_a_column(server: Started) -> None:
    inputs = [
        Tensor("people.height", "FP64", (2,), struct.pack("<2d", 180, 160)),
        Tensor("people.weight", "FP64", (2,), struct.pack("<2d", 90, 40)),
    ]
    async with adapting(server.url(), "bentoml") as adapter:
        actual = outputs(await adapter.call(infer_request(Inference("ratio", inputs=inputs)), within()))
        assert struct.unpack("<2d", actual["ratio"].data) == (2.0, 4.0)
        assert (actual["row"].datatype, actual["row"].shape) == ("INT64", (2,))
        inputs[1].name = "people.age"
        with pytest.raises(CallerError, match=r"no input `people.age`. It has: people.height, people.weight"):
            await adapter.call(infer_request(Inference("ratio", inputs=inputs)), within())


async def test_objects_are_json_texts(server: Started) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        point = one("point", "BYTES", texts('{"x": 3}'))
        actual = outputs(await adapter.call(infer_request(Inference("mirror", inputs=[point])), within()))
        assert json.loads(text_of(actual["point"])) == {"x": 1.0, "y": 3.0}
        assert struct.unpack("<d", actual["sum"].data) == (4.0,)
        point.data = texts("{x}")
        with pytest.raises(CallerError, match="takes a JSON text"):
            await adapter.call(infer_request(Inference("mirror", inputs=[point])), within())


async def test_mistakes_are_the_callers(server: Started) -> None:
    """BentoML would accept some of them, and detects others itself."""
    wrong = [
        (Inference("add_sub", inputs=ADD_SUB[:1]), "`INPUT1` is missing"),
        (Inference("add_sub", inputs=[*ADD_SUB, one("INPUT9", "BYTES", texts("a"))]), "no input `INPUT9`"),
        (Inference("add_sub", inputs=[Tensor("INPUT0", "INT32", (2, 8), ONES), ADD_SUB[1]]), "was sent"),
        (Inference("add_sub", inputs=[Tensor("INPUT0", "FP32", (1, 16), ONES), ADD_SUB[1]]), "was sent FP32"),
        (Inference("greet", inputs=[int64("name", 1)]), "was sent INT64"),
        (Inference("greet", inputs=[Tensor("name", "BYTES", (2,), texts("a", "b"))]), "one element, and has 2"),
        (Inference("greet", parameters={"times": "x"}, inputs=[one("name", "BYTES", texts("a"))]), "times: "),
        (Inference("refuse", inputs=[one("text", "BYTES", texts("cake"))]), "^no cake$"),
        (Inference("find", inputs=[one("text", "BYTES", texts("cake"))]), "^cake was not found$"),
        (Inference("later", inputs=[int64("number", -1)]), "numbers begin at zero"),
    ]
    async with adapting(server.url(), "bentoml") as adapter:
        for inference, message in wrong:
            with pytest.raises(CallerError, match=message):
                await adapter.call(infer_request(inference), within())
        with pytest.raises(NotFound, match="`add_sub` has no version `3`"):
            await adapter.call(infer_request(Inference("add_sub", "3", inputs=ADD_SUB)), within())
        with pytest.raises(ModelFailed, match="check the server log"):
            await adapter.call(infer_request(Inference("fail", inputs=[one("text", "BYTES", texts("a"))])), within())


async def test_unsupported_requests_are_refused(server: Started) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        for request in (
            ChatRequest(model="add_sub", payload=OpenAIPayload(fields={})),
            ModelOrder(model="add_sub"),
            ModelQuery(model="add_sub", about="config"),
        ):
            with pytest.raises(Unsupported):
                await adapter.call(request, within())


async def test_questions(server: Started) -> None:
    async with adapting(server.url(), "bentoml", model="add_sub") as adapter:
        metadata = await adapter.call(ModelQuery(model="sums"), within())
        assert json.loads(metadata.body or b"") == {
            "name": "sums",
            "versions": [],
            "platform": "bentoml",
            "inputs": DESCRIBED,
            "outputs": [{"name": f"OUTPUT{i}", "datatype": "INT32", "shape": [-1, -1]} for i in (0, 1)],
        }
        assert "OUTPUT0" in outputs(await adapter.call(infer_request(Inference("sums", inputs=ADD_SUB)), within()))


@pytest.mark.parametrize(("model", "pieces"), [("count", ["0 ", "1 ", "2 "]), ("events", ["0", "1", "2"])])
async def test_generators(server: Started, model: str, pieces: list[str]) -> None:
    """Both declare a stream of events; one of them sends one."""
    async with adapting(server.url(), "bentoml") as adapter:
        request = infer_request(Inference(model, inputs=[int64("upto", 3)]), kind="infer_stream")
        responses = await streamed(await adapter.call(request, within()))
        assert "".join(text_of(one.outputs[0]) for one in responses) == "".join(pieces)
        assert len(responses) > 1
        generated = await adapter.call(prompted(model, {"upto": 2}, "generate_stream"), within())
        events = b"".join([piece async for piece in generated]).split(b"\n\n")
        assert "".join(json.loads(event[6:])["output"] for event in events if event) == "".join(pieces[:2])


async def test_prompts(server: Started) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        answer = await adapter.call(prompted("greet", {"name": "ann", "times": 2, "id": "7"}), within())
        metadata = json.loads(answer.body or b"")
        assert (metadata["output"], metadata["id"]) == ("hello ann hello ann", "7")
        stream = await adapter.call(prompted("greet", {"name": "ann"}, "generate_stream"), within())
        (event,) = [piece async for piece in stream]
        assert json.loads(event[6:])["output"] == "hello ann"


def called(method: str, path: str, body: bytes = b"", query: str = "") -> AppRequest:
    content_type = "application/json"
    return AppRequest(model="zoo", method=method, path=path, body=body, content_type=content_type, query=query)


async def test_any_route_is_an_app(server: Started) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        answer = await adapter.call(called("POST", "/greet", b'{"name": "ann"}'), within())
        assert (answer.status, answer.body, answer.content_type) == (200, b"hello ann", "text/plain; charset=utf-8")
        refused = await adapter.call(called("POST", "/refuse", b'{"text": "cake"}'), within())
        assert (refused.status, refused.body) == (400, b'[{"error":"no cake"}]')
        assert (await adapter.call(called("GET", "/nowhere"), within())).status == 404
        with pytest.raises(BackendError):
            await adapter.call(called("POST", "/fail", b'{"text": "cake"}'), within())
        stream = await adapter.call(called("POST", "/count", b'{"upto": 3}'), within())
        assert b"".join([piece async for piece in stream]) == b"0 1 2 "
        greeting = called("POST", "/greet", b"\x80\x04N.")
        pickled = replace(greeting, content_type="Application/vnd.bentoml+pickle")
        with pytest.raises(Unsupported, match="Pickled"):
            await adapter.call(pickled, within())


async def test_tasks_by_hand(server: Started) -> None:
    async with adapting(server.url(), "bentoml") as adapter:
        submitted = await adapter.call(called("POST", "/later/submit", b'{"number": 4}'), within())
        query = f"task_id={json.loads(submitted.body or b'')['task_id']}"
        async with asyncio.timeout(PATIENCE):
            while True:
                status = await adapter.call(called("GET", "/later/status", query=query), within())
                if json.loads(status.body or b"")["status"] == "completed":
                    break
                await asyncio.sleep(0.05)
        assert (await adapter.call(called("GET", "/later/get", query=query), within())).body == b"8"
        assert (await adapter.call(called("PUT", "/later/cancel", query=query), within())).status == 400
        assert (await adapter.call(called("GET", "/later/get", query="task_id=no"), within())).status == 404


async def test_too_many_at_once(server: Started) -> None:
    """Four run, as its `max_concurrency` has it; the others may go elsewhere."""

    async def nap() -> object:
        try:
            return await adapter.call(infer_request(Inference("sleep", inputs=[fp64("seconds", 3)])), within())
        except (CapacityError, UpstreamTimeout) as error:
            return error

    async with adapting(server.url(), "bentoml") as adapter:
        await adapter.call(ModelQuery(model="sleep"), within())
        statuses = await asyncio.gather(*(nap() for _ in range(9)))
    assert any(isinstance(one, CapacityError) for one in statuses)
    assert any(isinstance(one, Answer) for one in statuses)


async def test_too_slow(server: Started) -> None:
    """Its `timeout` is four seconds; a task may take longer, because its status is polled."""
    async with adapting(server.url(), "bentoml") as adapter:
        with pytest.raises(UpstreamTimeout):
            await adapter.call(infer_request(Inference("sleep", inputs=[fp64("seconds", 20)])), within())
        inputs = [int64("number", 1), fp64("seconds", 5)]
        (result,) = outputs(await adapter.call(infer_request(Inference("later", inputs=inputs)), within())).values()
        assert bytes(result.data) == (2).to_bytes(8, "little")


async def test_a_client_that_disconnects_ends_the_stream(server: Started) -> None:
    """Four that were not ended would fill it for fifty seconds."""
    request = Inference("count", inputs=[int64("upto", 1000), fp64("pause", 0.05)])
    async with adapting(server.url(), "bentoml") as adapter:
        for _ in range(8):
            answer = await until_it_is_free(adapter, infer_request(request, kind="infer_stream"))
            await anext(answer)
            await answer.aclose()
            assert answer.ended


async def until_it_is_free(adapter: Adapter, request: InferRequest) -> Answer:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await adapter.call(request, within())
            except CapacityError:
                await asyncio.sleep(0.05)
