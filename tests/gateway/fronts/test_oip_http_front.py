import asyncio
import json
from typing import Any

import aiohttp
import numpy as np
import pytest
import tritonclient.http.aio as triton
from tritonclient.utils import InferenceServerException

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    NotFound,
    TransportError,
    UpstreamTimeout,
)
from adapters.fake import Script
from adapters.types import OIP_GENERATE, OIP_JSON, Usage
from adapters.wire.oip.bodies import HttpPayload
from tests.adapters.http1.raw import until
from tests.gateway.fronts.oip import (
    ANSWERED,
    INFER_BODY,
    METADATA,
    SUM,
    WHOLE,
    TensorFake,
    binary,
    form,
    tensor_door,
    zipped,
)

INFER = "/v2/models/chat/infer"


async def error_of(response: aiohttp.ClientResponse) -> str:
    assert response.content_type == "application/json"
    body = await response.json()
    assert set(body) == {"error"}
    return str(body["error"])


async def test_bytes_pass_unchanged_both_ways() -> None:
    async with tensor_door() as d:
        body = json.dumps(INFER_BODY, indent=3).encode()
        response = await d.post(INFER, body)
        assert (response.status, await response.read()) == (200, WHOLE)
        assert response.headers["x-headrace-endpoint"] == "main/0"
        (request,) = d.fake.received
        assert (request.payload.undecoded(), request.model, request.version) == (HttpPayload(body=body), "chat", "")
        assert request.rows == 1
    (record,) = d.rig.log.records
    assert (record.operation, record.model, record.usage) == ("infer", "chat", Usage(rows=1, device_ms=2.5))
    (line,) = d.rig.log.lines
    assert (line.rows, line.device_ms) == (1, 2.5)


async def test_an_explanation_is_an_operation_of_its_own() -> None:
    models = [{"name": "chat", "routes": [{"when": {"front": ["explain"]}, "to": "main"}]}]
    async with tensor_door(models=models, limits={"rows": "2/h"}) as d:
        for path, body in [
            ("/v2/models/chat/explain", INFER_BODY),
            ("/v2/models/chat/versions/1/explain", INFER_BODY),
            ("/v1/models/chat:explain", {"instances": [[1]]}),
        ]:
            response = await d.post(path, body)
            if "v2" not in path:
                assert response.status == 429
                break
            assert (response.status, await response.read()) == (200, WHOLE)
            request = d.fake.received[-1]
            made = request.operation, request.kind, request.rows, request.shareable
            assert made == ("explain", "explain", 1, False)
        assert (await d.post(INFER, INFER_BODY)).status in (404, 429)
    assert [record.operation for record in d.rig.log.records] == ["explain"] * 3 + ["infer"]


async def test_the_binary_extension_passes_both_ways() -> None:
    head = b'{"model_name":"chat","outputs":[]}'
    script = Script(chunks=(head + b"\1\2\3\4",), form=form(header_length=len(head)))
    async with tensor_door(TensorFake(script)) as d:
        body, length = binary(rows=3)
        response = await d.post(INFER, body, Inference_Header_Content_Length=str(length))
        assert response.headers["Inference-Header-Content-Length"] == str(len(head))
        assert await response.read() == head + b"\1\2\3\4"
        (request,) = d.fake.received
        assert (request.payload.undecoded(), request.rows) == (HttpPayload(body=body, header_length=length), 3)


async def test_a_raw_request_is_a_row_of_bytes() -> None:
    async with tensor_door() as d:
        await d.post(INFER, b"\0\1\2", Inference_Header_Content_Length="0")
        (request,) = d.fake.received
        assert (request.payload.undecoded(), request.rows) == (HttpPayload(body=b"\0\1\2", header_length=0), 1)


@pytest.mark.parametrize("path", [INFER, f"{INFER}/"])
async def test_compression_passes_both_ways(path: str) -> None:
    script = Script(chunks=(zipped(ANSWERED),), form=form(encoding="gzip"))
    async with tensor_door(TensorFake(script)) as d:
        body = zipped(INFER_BODY)
        response = await d.post(path, body, content_encoding="gzip", accept_encoding="gzip")
        assert response.headers["content-encoding"] == "gzip"
        assert await response.read() == zipped(ANSWERED)
        (request,) = d.fake.received
        payload = request.payload
        assert isinstance(payload, HttpPayload)
        assert (payload.body, payload.encoding, payload.accepts, request.rows) == (body, "gzip", "gzip", 1)


@pytest.mark.parametrize(
    ("path", "model", "version"),
    [
        ("/v2/models/chat/versions/3/infer", "chat", "3"),
        ("/v2/models/chat@3/infer", "chat", "3"),
        ("/v2/models/c%68at/infer", "chat", ""),
        ("/v2/models/alias/infer", "chat", ""),
    ],
)
async def test_a_path_names_model_and_version(path: str, model: str, version: str) -> None:
    models = [{"name": "chat", "aliases": ["alias"], "routes": [{"to": "main"}]}]
    async with tensor_door(models=models) as d:
        assert (await d.post(path)).status == 200
        (request,) = d.fake.received
        assert (request.model, request.version) == (model, version)


@pytest.mark.parametrize("versions", [["1", "2"], []])
async def test_a_version_of_the_file_or_of_the_server_chooses_the_route(versions: list[str]) -> None:
    routes = [{"when": {"version": ["2"]}, "to": "main"}]
    async with tensor_door(models=[{"name": "chat", "versions": versions, "routes": routes}]) as d:
        assert (await d.post("/v2/models/chat/versions/2/infer")).status == 200
        assert (await d.post("/v2/models/chat/versions/1/infer")).status == 404
        assert versions or (await d.post(INFER)).status == 404
        assert [request.version for request in d.fake.received] == ["2"]


@pytest.mark.parametrize("about", ["metadata", "ready", "config", "stats"])
async def test_questions_about_a_model_reach_its_server(about: str) -> None:
    async with tensor_door() as d:
        path = "/v2/models/chat" if about == "metadata" else f"/v2/models/chat/{about}"
        response = await d.get(path)
        assert (response.status, await response.json()) == (200, d.fake.about[about])
        assert (await d.get(f"/v2/models/chat/versions/4{path.removeprefix('/v2/models/chat')}")).status == 200
        assert [(q.about, q.version) for q in d.fake.queries] == [(about, ""), (about, "4")]
    assert {record.operation for record in d.rig.log.records} == {"models"}


async def test_without_a_key_only_liveness_is_answered() -> None:
    async with tensor_door() as d:
        d.keyed = {}
        for path, body in (("live", {"live": True}), ("ready", {"ready": True})):
            response = await d.get(f"/v2/health/{path}")
            assert (response.status, await response.json()) == (200, body)
        for path in ("/v2", "/v2/models", "/v2/models/chat", "/v2/models/chat/ready", "/v2/nothing"):
            response = await d.get(path)
            assert response.status == 401
            await error_of(response)
        assert (await d.post(INFER)).status == 401


REFUSED: list[tuple[str, Any, dict[str, str], int, str]] = [
    (INFER, b"{", {}, 400, "JSON"),
    (INFER, b"[]", {}, 400, "not valid"),
    (INFER, {"inputs": [{"shape": "x"}]}, {}, 400, "not valid"),
    (INFER, {"inputs": [], "parameters": {"sequence_id": 1.5}}, {}, 400, "sequence_id"),
    (INFER, {"inputs": [], "parameters": {"sequence_id": "x" * 129}}, {}, 400, "128 characters"),
    ("/v2/models/" + "m" * 2000 + "/infer", None, {}, 404, "Unknown path"),
    (INFER, b'{"x":' + b"[" * 200_000, {}, 400, "nested"),
    (INFER, None, {"Inference_Header_Content_Length": "-1"}, 400, "number"),
    (INFER, None, {"Inference_Header_Content_Length": "99999"}, 400, "99999"),
    (INFER, None, {"content_encoding": "gzip"}, 400, "gzip"),
    (INFER, None, {"content_encoding": "middle-out"}, 415, "middle-out"),
    (INFER, zipped(b" " * 40_000_000), {"content_encoding": "gzip"}, 413, "decompressed"),
    (INFER, b" " * 1_000_001, {}, 413, "bytes"),
    ("/v2/models/nobody/infer", None, {}, 404, "nobody"),
    ("/v2/models/chat/nothing", None, {}, 404, "Unknown path"),
    ("/v2/models//infer", None, {}, 404, "Unknown path"),
    ("/v2/models/chat/ready", None, {}, 405, "GET"),
    ("/v2/repository/models/chat/load", {}, {}, 403, "on the admin listener"),
    ("/v2/systemsharedmemory/region/r/register", {}, {}, 403, "server itself"),
]


@pytest.mark.parametrize(("path", "body", "headers", "status", "reason"), REFUSED, ids=range(len(REFUSED)))
async def test_an_invalid_request_is_refused_in_the_form_of_the_protocol(
    path: str, body: Any, headers: dict[str, str], status: int, reason: str
) -> None:
    async with tensor_door() as d:
        response = await d.post(path, body, **headers)
        assert response.status == status
        assert reason in await error_of(response)
        assert not d.fake.calls
        assert (await d.post(INFER)).status == 200  # the connection and the gateway are well


FAILURES: list[tuple[InferenceError, int]] = [
    (CallerError("unexpected size for input 'A'"), 400),
    (NotFound("unknown version 9"), 404),
    (CapacityError("full"), 503),
    (BackendError("it failed"), 502),
    (TransportError("reset"), 502),
    (UpstreamTimeout("silent"), 504),
]


@pytest.mark.parametrize(("error", "status"), FAILURES, ids=lambda value: getattr(value, "code", None))
async def test_a_failure_of_the_upstream_has_its_status(error: InferenceError, status: int) -> None:
    routes = [{"to": "main", "retry": {"attempts": 1}}]
    async with tensor_door(TensorFake(Script(fault=error)), models=[{"name": "chat", "routes": routes}]) as d:
        response = await d.post(INFER)
        assert (response.status, await error_of(response)) == (status, error.message)
        assert ("retry-after" in response.headers) == (status == 503)


@pytest.mark.parametrize("kind", ["infer_stream", "generate_stream"])
async def test_streams_are_forwarded_and_a_break_is_an_error_event(kind: str) -> None:
    events = (b'data: {"outputs":[]}\n\n', b'data: {"outputs":[1]}\n\n')
    form = OIP_JSON if kind == "infer_stream" else OIP_GENERATE
    whole = Script(chunks=events, form=form)
    broken = Script(chunks=events, form=form, fault=BackendError("It broke."), fault_after=1)
    async with tensor_door(TensorFake(whole, broken)) as d:
        body = INFER_BODY if kind == "infer_stream" else {"text_input": "x"}
        response = await d.post(f"/v2/models/chat/{kind}", body)
        assert response.content_type == "text/event-stream"
        assert await response.read() == b"".join(events)
        response = await d.post(f"/v2/models/chat/{kind}", body)
        assert (response.status, await response.read()) == (200, events[0] + b'data: {"error":"It broke."}\n\n')
        assert [request.kind for request in d.fake.received] == [kind, kind]


async def test_generate_is_one_answer() -> None:
    async with tensor_door(TensorFake(Script(chunks=(b'{"text_output":"y"}',), form=OIP_GENERATE))) as d:
        response = await d.post("/v2/models/chat/generate", {"text_input": "x", "parameters": {"sequence_id": 5}})
        assert await response.json() == {"text_output": "y"}
        (request,) = d.fake.received
        assert (request.kind, request.sequence, request.rows) == ("generate", "5", 1)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ("", False, False)),
        ({"sequence_id": 0}, ("", False, False)),
        ({"sequence_id": ""}, ("", False, False)),
        ({"sequence_id": 2**64 - 1, "sequence_start": True}, (str(2**64 - 1), True, False)),
        ({"sequence_id": "a-b", "sequence_end": True, "custom": {"x": 1}}, ('"a-b', False, True)),
    ],
)
async def test_a_sequence_is_decoded(parameters: dict[str, Any], expected: tuple[str, bool, bool]) -> None:
    async with tensor_door() as d:
        await d.post(INFER, {**INFER_BODY, "parameters": parameters})
        (request,) = d.fake.received
        assert (request.sequence, request.starts, request.ends) == expected


async def test_sequences_of_a_model_that_tenants_share_are_each_tenants_own() -> None:
    sequence = {**INFER_BODY, "parameters": {"sequence_id": 5, "sequence_start": True}}
    alone = [{"name": "acme", "models": ["*"]}]
    for tenants in (alone, [*alone, {"name": "beta", "models": ["chat"]}], [*alone, {"name": "beta", "models": ["x"]}]):
        async with tensor_door(tenants=tenants) as d:
            await d.post(INFER, sequence)
            (request,) = d.fake.received
            unchanged = request.inference.parameters["sequence_id"] == 5
            assert unchanged == (tenants[-1]["models"] != ["chat"])
            assert request.sequence == "5"


async def test_limits_count_rows_and_device_time() -> None:
    models = [{"name": "chat", "routes": [{"to": "main"}]}]
    fake = TensorFake(Script(chunks=(WHOLE,), form=OIP_JSON, usage=Usage(rows=4)))
    async with tensor_door(fake, limits={"rows": "10/h"}, models=models) as d:
        body, length = binary(rows=4)
        answers = [await d.post(INFER, body, Inference_Header_Content_Length=str(length)) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert "rows" in await error_of(answers[2])
        assert [answer.headers["x-ratelimit-remaining-rows"] for answer in answers] == ["6", "2", "2"]
        assert int(answers[2].headers["retry-after"]) >= 1


async def test_a_routes_rewrite_is_of_parameters() -> None:
    rewrite = {"force": {"priority": 2}, "drop": ["timeout"], "defaults": {"tag": "x"}, "model": "other"}
    async with tensor_door(models=[{"name": "chat", "routes": [{"to": "main", "rewrite": rewrite}]}]) as d:
        body, length = binary()
        head = json.loads(body[:length])
        head["parameters"] = {"timeout": 5, "mine": True, "priority": 1}
        sent = json.dumps(head).encode()
        await d.post(INFER, sent + body[length:], Inference_Header_Content_Length=str(len(sent)))
        (request,) = d.fake.received
        payload = request.payload
        assert isinstance(payload, HttpPayload)
        assert payload.header_length is not None
        rewritten = json.loads(payload.body[: payload.header_length])
        assert rewritten == {"inputs": head["inputs"], "parameters": {"mine": True, "priority": 2, "tag": "x"}}
        assert payload.body[payload.header_length :] == body[length:]
        assert request.model == "other"


async def test_responses_are_cached_for_the_same_request_in_the_same_form() -> None:
    models = [{"name": "chat", "routes": [{"to": "main", "cache": {}}]}]
    head = b'{"outputs":[]}'
    extended = Script(chunks=(head + b"\0",), form=form(header_length=len(head)))
    async with tensor_door(TensorFake(extended, SUM), models=models) as d:
        body, length = binary()
        for result in ("miss", "hit"):
            response = await d.post(INFER, body, Inference_Header_Content_Length=str(length))
            assert response.headers["x-headrace-cache"] == result
            assert response.headers["Inference-Header-Content-Length"] == str(len(head))
            assert await response.read() == head + b"\0"
        for result in ("miss", "hit"):
            response = await d.post(INFER)
            assert response.headers["x-headrace-cache"] == result
            assert "Inference-Header-Content-Length" not in response.headers
        assert (await d.post(INFER, {**INFER_BODY, "id": "8"})).headers["x-headrace-cache"] == "miss"
        assert len(d.fake.received) == 3


@pytest.mark.parametrize("role", ["user", "tenant-admin", "operator"])
@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/models/chat/load", "/v2/repository/models/chat/unload", "/v2/repository/main/models/chat/load",
        "/v2/repository/models/chat/load/", "/v2/repository/models/chat/%6coad", "/v2/models/chat/trace/setting",
        "/v2/trace/setting", "/v2/logging", "/v2/systemsharedmemory/region/r/register",
    ],
)  # fmt: skip
async def test_no_role_gives_orders_to_models_on_the_data_listener(path: str, role: str) -> None:
    async with tensor_door() as d:
        d.rig.hold(roles=frozenset({"user", role}))
        assert (await d.post(path, {})).status == 403
        assert not d.fake.orders
        assert not d.fake.calls


async def test_a_client_that_leaves_stops_its_inference() -> None:
    async with tensor_door(TensorFake(Script(latency=30.0, form=OIP_JSON))) as d:
        task = asyncio.create_task(d.post(INFER))
        await until(lambda: bool(d.fake.calls))
        task.cancel()
        await until(lambda: d.fake.calls[0].end == "cancelled")
        await d.rig.until_idle()


async def test_tritons_client_works_as_it_is() -> None:
    head = {
        "model_name": "chat",
        "model_version": "1",
        "outputs": [{"name": "SUM", "datatype": "INT32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}],
    }
    sent = json.dumps(head).encode()
    data = np.array([[4, 6]], dtype=np.int32).tobytes()
    fake = TensorFake(Script(chunks=(sent + data,), form=form(header_length=len(sent))))
    async with tensor_door(fake) as d:
        client = triton.InferenceServerClient(d.address)
        try:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("chat", headers=d.keyed)
            assert (await client.get_server_metadata(headers=d.keyed))["name"] == "headrace"
            assert await client.get_model_metadata("chat", headers=d.keyed) == METADATA
            assert await client.get_model_config("chat", headers=d.keyed) == {"name": "chat"}
            inputs = [triton.InferInput(name, [1, 2], "INT32") for name in "AB"]
            for one, values in zip(inputs, ([[1, 2]], [[3, 4]]), strict=True):
                one.set_data_from_numpy(np.array(values, dtype=np.int32))
            result = await client.infer("chat", inputs, headers=d.keyed)
            assert result.as_numpy("SUM").tolist() == [[4, 6]]
            with pytest.raises(InferenceServerException, match="does not exist"):
                await client.infer("nobody", inputs, headers=d.keyed)
            with pytest.raises(InferenceServerException, match="on the admin listener"):
                await client.load_model("chat", headers=d.keyed)
        finally:
            await client.close()


async def test_the_index_has_the_listed_names_of_a_family() -> None:
    pools = [{"name": "main", "protocol": "oip-http", "endpoints": ["http://10.0.0.1:80"]}]
    models = [{"name": "*", "listed": ["resnet", "bert"], "routes": [{"to": "main"}]}]
    async with tensor_door(pools=pools, models=models) as d:
        response = await d.post("/v2/repository/index", b"")
        assert [(entry["name"], entry["state"]) for entry in await response.json()] == [
            ("resnet", "READY"), ("bert", "READY"),
        ]  # fmt: skip
        assert await (await d.get("/v2/models")).json() == {"models": ["resnet", "bert"]}
        answer = await (await d.get("/v1/models")).json()
        assert [(model["id"], model["kind"]) for model in answer["data"]] == [("resnet", "tensor"), ("bert", "tensor")]
