"""KServe's v1 and TensorFlow Serving's door, in front of servers of the Open Inference Protocol."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from adapters.errors import CallerError, CapacityError
from adapters.fake import Script
from adapters.tensors import Inferred, RequestedOutput, Tensor, join_bytes
from adapters.types import OIP_GRPC, OIP_JSON, PREDICT_V1, Usage
from adapters.wire.oip.proto_responses import encode_infer_response
from adapters.wire.tfserving.predict_v1 import PredictV1Payload
from gateway.fronts import metadata
from tests.gateway.fronts.oip import TensorDoor, TensorFake, tensor_door, zipped

POOL = {"name": "main", "protocol": "oip-http", "endpoints": ["http://127.0.0.1:9"]}
SCORED: dict[str, Any] = {
    "name": "chat",
    "versions": ["1", "2"],
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "p", "datatype": "FP32", "shape": [-1, 2]}],
}


def answer(*outputs: Tensor, **options: Any) -> Script:
    body = encode_infer_response(Inferred("chat", "1", "", {}, list(outputs)))
    return Script(chunks=(body,), form=OIP_GRPC, usage=Usage(rows=2), **options)


Y = answer(Tensor("y", "INT32", (2, 2), np.array([4, 6, 8, 10], dtype=np.int32).tobytes()))


def scored(*scripts: Script) -> TensorFake:
    fake = TensorFake(*scripts)
    fake.about["metadata"] = SCORED
    return fake


async def predict(d: TensorDoor, body: Any, path: str = "/v1/models/chat:predict") -> tuple[int, Any]:
    response = await d.post(path, body)
    assert response.content_type == "application/json"
    return response.status, await response.json()


async def test_rows_and_whole_inputs() -> None:
    async with tensor_door(TensorFake(Y)) as d:
        rows = {"instances": [{"A": [1, 2], "B": [3, 4]}, {"A": [5, 6], "B": [7, 8]}]}
        assert await predict(d, rows) == (200, {"predictions": [[4, 6], [8, 10]]})
        whole = {"inputs": {"A": [[1, 2], [5, 6]], "B": [[3, 4], [7, 8]]}}
        assert await predict(d, whole) == (200, {"outputs": [[4, 6], [8, 10]]})
        first, second = d.fake.received
        assert first.inference.inputs == second.inference.inputs
        assert (first.rows, first.model, first.kind) == (2, "chat", "infer")
        assert first.inference.inputs[0].data == np.array([1, 2, 5, 6], dtype=np.int32).tobytes()
        assert len(d.fake.queries) == 1  # the model's metadata is cached
    assert [(record.operation, record.usage) for record in d.rig.log.records] == [("infer", Usage(rows=2))] * 2


async def test_an_answer_in_json_is_understood_too() -> None:
    body = {"model_name": "chat", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [0.5]}]}
    async with tensor_door(scored(Script(chunks=(json.dumps(body).encode(),), form=OIP_JSON))) as d:
        assert await predict(d, {"instances": [[1, 2]]}) == (200, {"predictions": [0.5]})


@pytest.mark.parametrize("middle", ["versions/2", "labels/stable"])
async def test_a_version_or_a_label(middle: str) -> None:
    async with tensor_door(scored(Y)) as d:
        assert (await predict(d, {"instances": [[1, 2]]}, f"/v1/models/chat/{middle}:predict"))[0] == 200
        assert d.fake.received[0].version == middle.partition("/")[2]
        assert d.fake.queries[0].version == middle.partition("/")[2]


async def test_classification_and_regression() -> None:
    classes = answer(Tensor("p", "BYTES", (1, 2), join_bytes([b"0.75:1:dog", b"0.25:0:cat"])))
    value = answer(Tensor("v", "FP32", (2, 1), np.array([0.5, 1.5], dtype=np.float32).tobytes()))
    async with tensor_door(scored(classes, value)) as d:
        examples = {"examples": [{"x": [1, 2]}]}
        body = await predict(d, examples, "/v1/models/chat:classify")
        assert body == (200, {"results": [[["cat", 0.25], ["dog", 0.75]]]})
        assert d.fake.received[0].inference.outputs == [RequestedOutput("p", {"classification": 2})]
        assert await predict(d, examples, "/v1/models/chat:regress") == (200, {"results": [0.5, 1.5]})


async def test_another_model_explains() -> None:
    models = [
        {"name": "chat", "explainer": "why", "routes": [{"to": "main"}]},
        {"name": "why", "routes": [{"to": "main"}]},
    ]
    async with tensor_door(scored(Y), models=models) as d:
        body = {"instances": [[1, 2]]}
        explained = await predict(d, body, "/v1/models/chat:explain")
        assert explained == (200, {"explanations": [[4, 6], [8, 10]]})
        assert d.fake.received[0].model == "why"
        status, refused = await predict(d, body, "/v1/models/why:explain")
        assert (status, refused) == (400, {"error": "The model `why` has no explainer."})


async def test_status_and_metadata() -> None:
    async with tensor_door(scored(), pools=[POOL]) as d:
        body = await (await d.get("/v1/models/chat")).json()
        assert (body["id"], body["object"], body["kind"], body["name"], body["ready"]) == (
            "chat", "model", "tensor", "chat", True,
        )  # fmt: skip
        assert [entry["version"] for entry in body["model_version_status"]] == ["1", "2"]
        assert {entry["state"] for entry in body["model_version_status"]} == {"AVAILABLE"}
        one = await (await d.get("/v1/models/chat/versions/2")).json()
        assert [entry["version"] for entry in one["model_version_status"]] == ["2"]
        body = await (await d.get("/v1/models/chat/metadata")).json()
        assert body["model_spec"]["version"] == "2"
        listed = await (await d.get("/v1/models")).json()
        assert [(model["id"], model["kind"]) for model in listed["data"]] == [("chat", "tensor")]
        assert (await (await d.get("/v2/models")).json()) == {"models": ["chat"]}
        index = await (await d.post("/v2/repository/index", {"ready": True})).json()
        assert index == [{"name": "chat", "state": "READY"}]


async def test_a_model_that_is_not_there_is_not_ready() -> None:
    fake = scored()
    fake.failing = CapacityError("not ready")
    async with tensor_door(fake, pools=[POOL]) as d:
        body = await (await d.get("/v1/models/chat")).json()
        assert (body["ready"], body["model_version_status"]) == (False, [])
        status, _ = await predict(d, {"instances": [[1, 2]]})
        assert status == 503


async def test_a_text_model_is_described_as_by_openai() -> None:
    async with tensor_door() as d:
        body = await (await d.get("/v1/models/chat")).json()
        assert set(body) == {"id", "object", "created", "owned_by", "kind"}
        assert body["kind"] == "llm"
        response = await d.get("/v1/models/nobody")
        assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")


WRONG: list[tuple[str, Any, int, str]] = [
    ("chat:predict", b"{", 400, "not valid JSON"),
    ("chat:predict", {"instances": [["x", 1]]}, 400, "takes FP32"),
    ("chat:predict", {"instances": [[1, 2]], "inputs": 1}, 400, "either"),
    ("nobody:predict", {"instances": [[1, 2]]}, 404, "nobody"),
    ("chat:regress", {"examples": [{"x": [1, 2]}]}, 400, "no single value"),
    ("chat:shout", {}, 405, "GET"),
    ("m" * 2000 + ":predict", {}, 404, "Unknown path"),
]


@pytest.mark.parametrize(("path", "body", "status", "reason"), WRONG, ids=range(len(WRONG)))
async def test_an_invalid_request_is_refused_with_a_reason(path: str, body: Any, status: int, reason: str) -> None:
    async with tensor_door(scored(Y)) as d:
        response = await d.post(f"/v1/models/{path}", body)
        assert response.status == status
        assert reason in json.dumps(await response.json())
        d.keyed = {}
        assert (await d.post(f"/v1/models/{path}", body)).status == 401


async def test_a_request_that_does_not_fit_refreshes_the_models_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.upstreams.inference.DOUBT", -1.0)
    async with tensor_door(scored(Y)) as d:
        assert (await predict(d, {"instances": [[1, 2]]}))[0] == 200
        d.fake.about["metadata"] = {**SCORED, "inputs": [{"name": "t", "datatype": "BYTES", "shape": [-1]}]}
        assert (await predict(d, {"instances": ["text"]}))[0] == 200
        assert len(d.fake.queries) == 2


async def described(d: TensorDoor, version: int = 1) -> int:
    return (await d.get(f"/v1/models/chat/versions/{version}/metadata")).status


async def test_cached_metadata_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async with tensor_door(scored(Y)) as d:
        later = asyncio.get_running_loop().time() + metadata.FRESH_SECONDS + 1
        for query in (described, lambda d: predict(d, {"instances": [[1, 2]]})):
            d.fake.queries.clear()
            for expected in (1, 1):
                await query(d)
                assert len(d.fake.queries) == expected
            monkeypatch.setattr(d.rig.core, "clock", lambda: later)
            monkeypatch.setattr(d.fake, "clock", lambda: later)
            await query(d)
            assert len(d.fake.queries) == 2
            monkeypatch.undo()


async def test_concurrent_metadata_queries_share_one_call() -> None:
    fake = scored(Y)
    fake.pause = 0.1
    async with tensor_door(fake) as d:
        assert await asyncio.gather(*(described(d) for _ in range(5))) == [200] * 5
        assert len(fake.queries) == 1


async def test_looking_up_is_not_the_clients_to_pay() -> None:
    async with tensor_door(scored(Y), limits={"requests": "1/h"}) as d:
        assert await described(d) == 200
        assert (await predict(d, {"instances": [[1, 2]]}))[0] == 200
        assert (await predict(d, {"instances": [[1, 2]]}))[0] == 429
    assert [record.status for record in d.rig.log.records] == [200, 200, 429]


async def test_looking_up_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "LOOK_UPS", (3, 1000.0))
    async with tensor_door(scored(Y)) as d:
        assert [await described(d, version) for version in range(1, 6)] == [200, 200, 200, 429, 429]
        assert len(d.fake.queries) == 3


@pytest.mark.parametrize("name", ["embed", "nonsense"])
async def test_a_signature_that_the_model_does_not_have_is_refused(name: str) -> None:
    async with tensor_door(scored(Y)) as d:
        status, body = await predict(d, {"signature_name": name, "instances": [[1, 2]]})
        assert (status, body["error"]) == (400, f'Serving signature key "{name}" not found.')
        assert (await predict(d, {"signature_name": "serving_default", "instances": [[1, 2]]}))[0] == 200


ODD = b'{"signature_name": "x", "instances": [{"a": "text", "b": {"b64": "/w=="}}, 7, NaN]}'


async def test_bytes_pass_unchanged_between_equal_wires() -> None:
    body = b'{"predictions": [ "anything", {"b64": "/w=="} ]}'
    fake = TensorFake(Script(chunks=(body,), form=PREDICT_V1, usage=Usage(rows=3)))
    fake.plain = True
    async with tensor_door(fake) as d:
        for verb in ("predict", "classify", "regress", "explain"):
            response = await d.post(f"/v1/models/chat/versions/2:{verb}", ODD)
            assert (response.status, await response.read()) == (200, body)
            request = fake.received[-1]
            assert request.payload == PredictV1Payload(body=ODD, verb=verb)
            assert (request.version, request.rows) == ("2", 3)
        assert not fake.queries


async def test_rows_are_counted_before_any_upstream_call() -> None:
    fake = TensorFake(Script(chunks=(b"{}",), form=PREDICT_V1, usage=Usage(rows=3)))
    fake.plain = True
    async with tensor_door(fake, limits={"rows": "3/h"}) as d:
        assert (await predict(d, {"instances": [[1, 2]] * 3}))[0] == 200
        assert (await predict(d, {"instances": [[1, 2]]}))[0] == 429
        assert len(fake.received) == 1


async def test_a_body_may_be_compressed() -> None:
    fake = TensorFake(Script(chunks=(b"{}",), form=PREDICT_V1))
    fake.plain = True
    async with tensor_door(fake, http={"max_body": "1MB"}) as d:
        response = await d.post("/v1/models/chat:predict", zipped(ODD), content_encoding="gzip")
        assert (response.status, fake.received[0].payload.body) == (200, ODD)
        bomb = zipped(b" " * 2_000_000 + b"{}")
        for body, coding, status in [(bomb, "gzip", 413), (ODD, "gzip", 400), (ODD, "middle-out", 415)]:
            response = await d.post("/v1/models/chat:predict", body, content_encoding=coding)
            assert response.status == status


async def test_a_failure_of_the_server_is_returned() -> None:
    async with tensor_door(scored(Script(fault=CallerError("x must be positive")))) as d:
        assert await predict(d, {"instances": [[1, 2]]}) == (400, {"error": "x must be positive"})
