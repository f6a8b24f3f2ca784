"""Both adapters of TensorFlow Serving before its stand-in, for requests of every wire."""

import json
import struct
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.errors import BackendError, CallerError, NotFound, Unavailable, Unsupported
from adapters.requests import ChatRequest, InferRequest, ModelOrder, ModelQuery
from adapters.tensors import Inference, Inferred, RequestedOutput, Tensor, join_bytes, split_bytes
from adapters.upstreams.inferred import inferred
from adapters.wire import sse
from adapters.wire.oip.request_view import request_of
from adapters.wire.openai.request_codec import OpenAIPayload
from adapters.wire.tfserving import predict_v1_view
from tests.servers.pool_adapters import PATIENCE, adapting, infer_request, within
from tests.servers.shared import shared, tfserving_of_half
from tests.servers.tfserving import TfServing, config_of, tfserving

both = pytest.mark.parametrize("wire", ["tfserving", "tfserving-grpc"])
X = Tensor("x", "FP32", (2, 2), struct.pack("<4f", 1, 2, 3, 4))
TEXT = [Tensor("text", "BYTES", (1,), join_bytes([b"hi"])), Tensor("times", "INT64", (1,), struct.pack("<q", 3))]
SHOUT: dict[str, Any] = {"signature_name": "shout"}


@pytest.fixture(scope="module")
def server() -> TfServing:
    return shared(tfserving_of_half)


def before(server: TfServing, wire: str, **more: Any) -> Any:
    return adapting(f"http://{server.http if wire == 'tfserving' else server.grpc}", wire, **more)


def infer(sent: str, *tensors: Tensor, version: str = "", outputs: tuple[str, ...] = (), **parameters: Any) -> Any:
    named = [RequestedOutput(name) for name in outputs]
    return infer_request(Inference("half", version, "7", parameters, list(tensors), named), sent)


def plain(body: Any, verb: Any = "predict", version: str = "", *, explainer: bool = False) -> InferRequest:
    written = body if isinstance(body, bytes) else json.dumps(body).encode()
    return predict_v1_view.request_of(written, model="half", version=version, verb=verb, explainer=explainer)


def floats(response: Inferred) -> dict[str, Any]:
    return {
        tensor.name: (tensor.shape, struct.unpack(f"<{len(tensor.data) // 4}f", tensor.data))
        for tensor in response.outputs
    }


@pytest.mark.parametrize("sent", ["json", "binary", "grpc"])
@both
async def test_tensors_of_every_wire(server: TfServing, wire: str, sent: str) -> None:
    async with before(server, wire) as adapter:
        answer = await adapter.call(infer(sent, X), within())
        result = inferred(answer)
        assert floats(result) == {"y": ((2, 2), (5, 10, 15, 20)), "sum": ((2,), (3, 7))}
        assert (result.model_name, result.id) == ("half", "7")
        assert (answer.usage.rows, answer.usage.exact) == (2, True)
        assert answer.usage.bytes > 0
        for version, scale in (("1", 3), ("stable", 3), ("canary", 5)):
            result = inferred(await adapter.call(infer(sent, X, version=version), within()))
            assert floats(result)["y"] == ((2, 2), tuple(scale * value for value in (1, 2, 3, 4)))
        (only,) = inferred(await adapter.call(infer(sent, X, outputs=("sum",)), within())).outputs
        assert only.name == "sum"
        with pytest.raises(CallerError):
            await adapter.call(infer(sent, X, outputs=("other",)), within())


@both
async def test_texts_bytes_and_another_signature(server: TfServing, wire: str) -> None:
    async with before(server, wire) as adapter:
        result = inferred(await adapter.call(infer("binary", *TEXT, **SHOUT), within()))
        by_name = {tensor.name: tensor for tensor in result.outputs}
        assert split_bytes(by_name["loud"].data, 1, "loud") == [b"hi3!"]
        assert split_bytes(by_name["raw_bytes"].data, 1, "raw_bytes") == [b"hi\xff"]
        assert (by_name["odd"].datatype, bytes(by_name["odd"].data)) == ("BOOL", b"\x01")


@both
async def test_plain_json(server: TfServing, wire: str) -> None:
    async with before(server, wire) as adapter:

        async def body_of(*args: Any, **more: Any) -> Any:
            answer = await adapter.call(plain(*args, **more), within())
            assert (answer.form.wire, answer.content_type) == ("predict-v1", "application/json")
            return json.loads(answer.body or b"")

        assert await body_of({"instances": [[1, 2.5]]}) == {"predictions": [{"sum": 3.5, "y": [5, 12.5]}]}
        assert await body_of({"inputs": {"x": [[1, 2]]}}, version="1") == {"outputs": {"sum": [3], "y": [[3, 6]]}}
        rows = [{"text": "a", "times": 1}, {"text": {"b64": "/w=="}, "times": 2}]
        predictions = (await body_of({**SHOUT, "instances": rows[:1]}))["predictions"]
        assert predictions == [{"loud": "a1!", "odd": True, "raw_bytes": {"b64": "Yf8="}}]
        assert len((await body_of({**SHOUT, "instances": rows}))["predictions"]) == 2
        nan = await body_of(b'{"instances": [[NaN, Infinity], [1, 2]]}')
        assert nan["predictions"][0]["y"] == [None, None]
        assert nan["predictions"][1] == {"sum": 3, "y": [5, 10]}
        examples = {"examples": [{"a": 1.0, "b": 2.0}, {"a": 3.0}], "context": {"b": 0.5}}
        classes = (await body_of({**examples, "signature_name": "classify"}, "classify"))["results"]
        assert [[label for label, _ in row] for row in classes] == [["cat", "dog", "fish"]] * 2
        assert sum(score for _, score in classes[0]) == pytest.approx(1)
        values = await body_of({**examples, "signature_name": "regress"}, "regress", version="stable")
        assert values == {"results": [9, 10.5]}


@both
async def test_both_wires_report_the_same_metadata(server: TfServing, wire: str) -> None:
    async with before(server, wire, model="half") as adapter:
        await adapter.probe(PATIENCE)
        answer = await adapter.call(ModelQuery(model="called"), within())
        metadata = json.loads(answer.body or b"")
        assert (metadata["name"], metadata["versions"], metadata["platform"]) == (
            "called",
            ["1", "2"],
            "tensorflow_savedmodel",
        )
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        outputs = sorted(metadata["outputs"], key=lambda one: str(one["name"]))
        assert outputs == [
            {"name": "sum", "datatype": "FP32", "shape": [-1]}, {"name": "y", "datatype": "FP32", "shape": [-1, 2]},
        ]  # fmt: skip
        assert metadata["signature_def"]["shout"]["inputs"]["times"]["dtype"] == "DT_INT64"
        assert metadata["signature_def"]["classify"]["method_name"] == "tensorflow/serving/classify"
        for version in ("1", "canary"):
            await adapter.call(ModelQuery(model="called", version=version, about="ready"), within())
        with pytest.raises(Unavailable):
            await adapter.call(ModelQuery(model="called", version="9", about="ready"), within())
        for about in ("config", "stats"):
            with pytest.raises(Unsupported):
                await adapter.call(ModelQuery(model="called", about=about), within())


WRONG: list[Any] = [
    lambda: infer("json", Tensor("x", "FP32", (1, 3), bytes(12))),
    lambda: infer("json", Tensor("z", "FP32", (1, 2), bytes(8))),
    lambda: infer("json", X, signature_name="sing"),
    lambda: infer("json", X, version="unstable"),
    lambda: plain({"instances": [["one", "two"]]}),
    lambda: plain({"instances": [[1, 2]], "inputs": [[1, 2]]}),
    lambda: plain({"instances": [[1, 2], [3]]}),
    lambda: plain({}),
    lambda: plain({"instances": [[1, 2]], "signature_name": "sing"}),
    lambda: plain({"instances": [[1, 2]], "signature_name": 7}),
    lambda: plain({"examples": [{"a": 1.0, "b": 1.0}]}, "classify"),
    lambda: plain({"examples": [], "signature_name": "classify"}, "classify"),
    lambda: plain({"examples": [{"a": "no", "b": 1.0}], "signature_name": "regress"}, "regress"),
    lambda: plain({"instances": [[1, 2]]}, "explain"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
@both
async def test_mistakes_are_the_callers(server: TfServing, wire: str, wrong: Any) -> None:
    async with before(server, wire) as adapter:
        with pytest.raises(CallerError):
            await adapter.call(wrong(), within())


@both
async def test_absent_models_and_unsupported_requests(server: TfServing, wire: str) -> None:
    async with before(server, wire) as adapter:
        for request in (infer("json", X, version="9"), plain({"instances": [[1, 2]]}, version="9")):
            with pytest.raises(NotFound, match="`half` has no version `9`"):
                await adapter.call(request, within())
        with pytest.raises(Unsupported, match="infer"):
            await adapter.call(request_of(b"{}", model="half", version="", kind="generate"), within())
        with pytest.raises(Unsupported, match="have no state"):
            await adapter.call(infer("json", X, sequence_id=5), within())
        with pytest.raises(Unsupported, match="OpenAI"):
            await adapter.call(ChatRequest(model="half", payload=OpenAIPayload(fields={})), within())
    async with before(server, wire, model="nobody") as adapter:
        with pytest.raises(BackendError, match="health check"):
            await adapter.probe(PATIENCE)


@both
async def test_a_stream_of_one(server: TfServing, wire: str) -> None:
    request = replace(infer("json", X), kind="infer_stream", stream=True)
    async with before(server, wire) as adapter:
        answer = await adapter.call(request, within())
        (event,) = [piece async for piece in answer]
    assert [one["name"] for one in json.loads(sse.data_of(event))["outputs"]] == ["sum", "y"]
    assert answer.ended


@both
async def test_a_raw_body_is_the_only_input(server: TfServing, wire: str) -> None:
    raw = request_of(bytes(X.data), model="half", version="", header_length=0)
    async with before(server, wire) as adapter:
        assert floats(inferred(await adapter.call(raw, within())))["sum"] == ((2,), (3, 7))


@both
async def test_a_request_that_does_not_fit_reads_the_signature_again(
    server: TfServing, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cached signature before the model got another: only the cache is wrong."""
    monkeypatch.setattr("adapters.upstreams.tfserving.models.DOUBT", -1.0)
    async with before(server, wire) as adapter:
        await adapter.call(infer("json", X), within())
        models = adapter._models
        ((key, (at, signatures)),) = models._cached.items()
        old = json.loads(json.dumps(signatures).replace('"x"', '"z"'))
        models._cached[key] = (at, old)
        explained = plain({"instances": [{"x": [1, 2]}]}, "explain", explainer=True)
        metadata = json.loads((await adapter.call(explained, within())).body or b"")
        assert metadata == {"explanations": [{"sum": 3, "y": [5, 10]}]}
        assert models._cached[key][1] == signatures


async def test_models_and_labels_are_ordered_all_at_once(tmp_path: Any, server: TfServing) -> None:
    """The server is its own, since an order unloads all other models."""
    base = server.config.read_text().split('base_path: "')[1].split('"')[0]

    def config(**labels: int) -> bytes:
        model = {
            "name": "half", "base_path": base, "model_platform": "tensorflow",
            "model_version_policy": {"specific": {"versions": [1, 2]}}, "version_labels": labels,
        }  # fmt: skip
        return json.dumps({"parameters": {"config": json.dumps({"model_config_list": {"config": [model]}})}}).encode()

    with tfserving(config_of("other", server.config.parent)) as empty:
        async with before(empty, "tfserving-grpc", model="half") as adapter:
            with pytest.raises(BackendError):
                await adapter.probe(PATIENCE)
            await adapter.call(ModelOrder(model="half", body=config(old=1)), within())
            await adapter.probe(PATIENCE)
            result = inferred(await adapter.call(infer("json", X, version="old"), within()))
            assert floats(result)["y"][1] == (3, 6, 9, 12)
            await adapter.call(ModelOrder(model="half", body=config(old=2)), within())
            result = inferred(await adapter.call(infer("json", X, version="old"), within()))
            assert floats(result)["y"][1] == (5, 10, 15, 20)
            with pytest.raises(CallerError, match="label"):
                await adapter.call(ModelOrder(model="half", body=config(old=3)), within())
            for body, why in [(b"", "config"), (b'{"parameters": {"config": "{\\"no\\": 1}"}}', "ModelServerConfig")]:
                with pytest.raises(CallerError, match=why):
                    await adapter.call(ModelOrder(model="half", body=body), within())
            with pytest.raises(Unsupported, match="all its models together"):
                await adapter.call(ModelOrder(model="half", order="unload"), within())
        async with before(empty, "tfserving") as adapter:
            with pytest.raises(Unsupported, match="gRPC"):
                await adapter.call(ModelOrder(model="half"), within())
