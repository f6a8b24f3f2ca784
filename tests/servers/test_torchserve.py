"""Both adapters of TorchServe before a real one, whose tokens are on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from adapters.base import Adapter, Answer
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    ModelFailed,
    ModelNotReady,
    NotFound,
    Unsupported,
)
from adapters.requests import AppRequest, ModelOrder, ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.wire import torchserve as codec
from tests.servers.pool_adapters import adapting, infer_request, outputs, within
from tests.servers.sums import ROWS, SUM_OF_X, THREE_AND_SEVEN, X
from tests.servers.torchserve import QUEUE, TorchServe, torchserve
from tests.support.processes import gateway

both = pytest.mark.parametrize("wire", ["torchserve", "torchserve-grpc"])


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServe]:
    with torchserve() as made:
        yield made


def over(server: TorchServe, wire: str = "torchserve", **options: Any) -> Any:
    pool = server.pool(wire, **options)
    return adapting(server.url if wire == "torchserve" else server.grpc, pool.pop("protocol"), **pool)


def predicted(body: Any = None, version: str = "", **fields: Any) -> AppRequest:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"path": "/predictions", "content_type": "application/json", **fields}
    return AppRequest(model="probe", version=version, body=sent, **fields)


async def reported(adapter: Adapter, request: AppRequest) -> Any:
    answer = await adapter.call(request, within())
    assert answer.status == 200
    return json.loads(answer.body or b"")


async def pieces(answer: Answer) -> bytes:
    return answer.body if answer.body is not None else b"".join([piece async for piece in answer])


async def refused(adapter: Adapter, request: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await adapter.call(request, within())
    return caught.value


# ── predictions ───────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_predictions(server: TorchServe, wire: str) -> None:
    async with over(server, wire) as adapter:
        await adapter.probe(30)
        name = "body" if wire == "torchserve" else "data"
        assert await reported(adapter, predicted({"a": 1})) == {"body": {"a": 1}, "names": [name]}
        assert await reported(adapter, predicted({"a": 1}, version="1.0")) == {"body": {"a": 1}, "names": [name]}
        answer = await adapter.call(predicted(b"\x00\xff\x01", content_type="image/png"), within())
        assert answer.body == b"\x01\xff\x00"
        if wire == "torchserve":
            assert answer.content_type == "application/octet-stream"
            assert await reported(adapter, predicted({"a": 1}, path="/explanations")) == {
                "body": {"a": 1},
                "names": ["body"],
            }


async def test_forms_reach_the_handler_in_parts(server: TorchServe) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="one"\r\n\r\n1\r\n--b--\r\n'
    async with over(server) as adapter:
        answer = await reported(adapter, predicted(form, content_type="multipart/form-data; boundary=b"))
        assert answer == {"body": None, "names": ["one"]}


async def test_a_status_of_the_handlers_own_is_its_answer(server: TorchServe) -> None:
    async with over(server) as adapter:
        answer = await adapter.call(predicted({"status": 418}), within())
        assert (answer.status, json.loads(answer.body or b"")["names"]) == (418, ["body"])


@both
async def test_failures(server: TorchServe, wire: str) -> None:
    async with over(server, wire) as adapter:
        failed = await refused(adapter, predicted({"fail": 1}))
        assert type(failed) is ModelFailed
        assert "Traceback" not in failed.message
        assert isinstance(await refused(adapter, predicted({}, version="9.9")), NotFound)
        unknown = AppRequest(model="nobody", path="/predictions", body=b"{}")
        assert (await refused(adapter, unknown)).code == "upstream_model_not_found"
        elsewhere = AppRequest(model="probe", path="/predictions/other", body=b"{}")
        assert isinstance(await refused(adapter, elsewhere), Unsupported)
        assert (await reported(adapter, predicted({}))) is not None


@both
async def test_a_wrong_token_is_not_the_clients_fault(server: TorchServe, wire: str) -> None:
    protocol = server.pool(wire)["protocol"]
    async with adapting(server.url if wire == "torchserve" else server.grpc, protocol, key="nope") as adapter:
        assert (await refused(adapter, predicted({}))).code == "upstream_credential"
        with pytest.raises(BackendError, match="credential"):
            await adapter.probe(30)


async def test_a_full_queue_is_capacity(server: TorchServe) -> None:
    async with over(server) as adapter:
        calls = [adapter.call(predicted({"sleep": 2}), within()) for _ in range(QUEUE + 3)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        full = [end for end in ends if isinstance(end, BaseException)]
        assert full
        assert all(type(end) is CapacityError for end in full)
        assert sum(isinstance(end, Answer) for end in ends) >= QUEUE


@both
async def test_streams(server: TorchServe, wire: str) -> None:
    options = {"streaming": True} if wire == "torchserve-grpc" else {}
    async with over(server, wire, **options) as adapter:
        answer = await adapter.call(predicted({"words": ["one ", "two "], "gap": 0.2}), within())
        assert answer.body is None
        first = await anext(answer)
        assert first.startswith(b"one ")
        assert first + b"".join([piece async for piece in answer]) == b"one two end"
        assert answer.usage.bytes == len(b"one two end")


# ── tensors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", ["object", "instances"])
@both
async def test_tensors(server: TorchServe, wire: str, layout: str) -> None:
    async with over(server, wire, **SUM_OF_X, layout=layout) as adapter:
        inference = Inference("probe", id="7", inputs=[X])
        for sent in ("json", "binary", "grpc"):
            answer = await adapter.call(infer_request(inference, sent), within())
            assert bytes(outputs(answer)["sum"].data) == THREE_AND_SEVEN
        metadata = json.loads((await adapter.call(ModelQuery(model="probe"), within())).body or b"")
        assert metadata["inputs"] == SUM_OF_X["inputs"]
        assert metadata["versions"] == ["1.0"]
        with pytest.raises(CallerError, match=r"Expected \[-1,2\], got \[4\]"):
            await adapter.call(infer_request(Inference("probe", inputs=[Tensor("x", "INT64", (4,), ROWS)])), within())


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_versions_come_and_go(server: TorchServe, wire: str) -> None:
    config = {"url": "probe-next.mar", "response_timeout": 60}
    order = ModelOrder(model="probe", body=json.dumps({"parameters": {"config": json.dumps(config)}}).encode())
    async with over(server, wire) as adapter:
        await adapter.call(order, within(120))
        ready = await until_ready(adapter, "2.0")
        assert json.loads(ready.body or b"") == {"name": "probe", "ready": True}
        assert await reported(adapter, predicted({"a": 2}, version="2.0"))
        described = json.loads((await adapter.call(ModelQuery(model="probe", about="config"), within())).body or b"")
        assert [version["modelVersion"] for version in described["versions"]] == ["1.0", "2.0"]
        await adapter.call(order, within(120))  # a registered model gets the requested workers
        await adapter.call(ModelOrder(model="probe", order="unload"), within(120))
        assert (await refused(adapter, predicted({}))).code == "upstream_model_not_found"
        await adapter.call(ModelOrder(model="probe"), within(120))
        assert await reported(adapter, predicted({"a": 1})) is not None


async def until_ready(adapter: Adapter, version: str) -> Answer:
    """TorchServe reports workers of an older version for a moment after it has loaded a newer one."""
    async with asyncio.timeout(300):
        while True:
            try:
                return await adapter.call(ModelQuery(model="probe", version=version, about="ready"), within())
            except ModelNotReady:
                await asyncio.sleep(0.1)


async def test_orders_that_cannot_be_followed(server: TorchServe) -> None:
    async with over(server) as adapter:
        for config, words in (({"url": "nothing.mar"}, "Model not found"), ({"workers": 1}, "unknown field")):
            body = json.dumps({"parameters": {"config": json.dumps(config)}}).encode()
            with pytest.raises(CallerError, match=words):
                await adapter.call(ModelOrder(model="other", body=body), within())
        with pytest.raises(BackendError, match="does not know"):
            await adapter.call(ModelOrder(model="other", order="unload"), within())
    async with adapting(server.url, "torchserve", key=server.keys["inference"]) as unmanaged:
        with pytest.raises(Unsupported, match="management_port"):
            await unmanaged.call(ModelOrder(model="probe"), within())


# ── through a gateway ─────────────────────────────────────────────────────────────────────────────────────


async def predicted_over_grpc(address: str, headers: dict[str, str], model: str, body: bytes) -> list[Any]:
    """The responses to TorchServe's own gRPC clients, for both of their methods."""
    metadata, message = tuple(headers.items()), codec.encode_request(model, "", "data", body)
    async with grpc.aio.insecure_channel(address) as channel:
        whole = codec.decode_response(await channel.unary_unary(codec.PREDICTIONS.decode())(message, metadata=metadata))
        call = channel.unary_stream(codec.STREAM_PREDICTIONS.decode())(message, metadata=metadata)
        streamed = b"".join([codec.decode_response(each) async for each in call])
        assert streamed == whole
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(codec.PREDICTIONS.decode())(b"\xff", metadata=metadata)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    return [json.loads(whole)["body"]]


async def test_clients_of_torchserve_and_of_triton_unchanged(server: TorchServe, tmp_path: Path) -> None:
    """TorchServe's own paths, chunked streams, tensors over HTTP and gRPC, and the queue as the signal of load."""
    signals = {"server": "torchserve", "port": server.management_port, "path": "/models/probe", "interval": "100ms"}
    pools = [
        {
            "name": "ts", "endpoints": [server.url], **server.written(tmp_path, **SUM_OF_X),
            "balance": {"by": "load", "signals": signals},
        },
            {
                "name": "ts-grpc", "endpoints": [server.grpc], "model": "probe",
                **server.written(tmp_path, "torchserve-grpc", **SUM_OF_X),
            },
    ]  # fmt: skip
    models = [{"name": "probe", "routes": [{"to": "ts"}]}, {"name": "other", "routes": [{"to": "ts-grpc"}]}]
    configuration = {
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        "pools": pools, "models": models, "tenants": [{"name": "acme", "models": ["*"]}],
    }  # fmt: skip
    async with gateway(tmp_path, configuration) as g:
        await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        headers = {"authorization": f"Bearer {await g.key()}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            for model in ("probe", "other"):
                async with http.post(f"{g.url}/predictions/{model}", json={"a": 1}) as response:
                    assert (response.status, (await response.json(content_type=None))["body"]) == (200, {"a": 1})
            async with http.post(f"{g.url}/predictions/probe/9.9", json={}) as response:
                assert (response.status, (await response.json())["code"]) == (404, 404)
            async with http.post(f"{g.url}/apps/probe/predictions/1.0", json={}) as response:
                assert response.status == 400
            async with http.post(
                f"{g.url}/predictions/probe", json={"words": ["one ", "two "], "gap": 0.2}
            ) as response:
                assert (await response.read(), response.headers["transfer-encoding"]) == (b"one two end", "chunked")
            for model in ("probe", "other"):
                triton = grpcclient.InferenceServerClient(g.grpc)
                tensor = grpcclient.InferInput("x", [2, 2], "INT64")
                tensor.set_data_from_numpy(np.array([[1, 2], [3, 4]]))
                result = await asyncio.to_thread(triton.infer, model, [tensor], headers=headers)
                assert result.as_numpy("sum").tolist() == [3, 7]
                triton.close()
                assert await predicted_over_grpc(g.grpc, headers, model, b'{"a": 3}') == [{"a": 3}]
            rows = {"inputs": {"x": [[1, 2], [3, 4]]}}
            async with http.post(f"{g.url}/v1/models/probe:predict", json=rows) as response:
                assert await response.json() == {"outputs": [3, 7]}
            async with http.post(f"{g.url}/v2/repository/models/probe/load") as response:
                assert response.status == 403
        async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/admin/pools") as response:
            (described, _) = (await response.json())["pools"]
            assert described["endpoints"][0]["signals"]["error"] == ""
        await g.until_idle()
