"""The protocol over HTTP beyond what `tests/servers` compares with a real Triton."""

import json
import socket
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple

import pytest

from tests.support.tensor_runtime import TensorRuntime

pytestmark = pytest.mark.processes
PATIENCE = 300.0
ADD_SUB = {
    "inputs": [
        {"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": list(range(16))},
        {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": [1] * 16},
    ]
}


class HttpReply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        frames = self.body.decode().split("\n\n")
        assert frames.pop() == ""
        return [json.loads(frame.removeprefix("data: ")) for frame in frames]


class Client:
    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=PATIENCE)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> HttpReply:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, data, fields)
        response: HTTPResponse = self._connection.getresponse()
        return HttpReply(
            response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        )

    def get(self, path: str, **headers: str) -> HttpReply:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = b"", **headers: str) -> HttpReply:
        return self.send("POST", path, body, **headers)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def http(runtime: TensorRuntime) -> Iterator[Client]:
    client = Client(runtime.http)
    yield client
    client.close()


def test_an_infer_stream_has_events_with_its_id(http: Client) -> None:
    sent = {"inputs": [{"name": "IN", "shape": [2], "datatype": "INT32", "data": [7, 8]}], "id": "seven"}
    events = http.post("/v2/models/repeat/infer_stream", sent).events
    assert [event["outputs"][0]["data"] for event in events] == [[7], [8]]
    assert [event["id"] for event in events] == ["seven", "seven"]


def test_a_closed_stream_frees_the_model(runtime: TensorRuntime, http: Client) -> None:
    """Its only copy waits for a reader of the first stream until that one is known to have left."""
    body = json.dumps({"IN": list(range(200_000))}).encode()
    host, port = runtime.http.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as leaving:
        head = f"POST /v2/models/repeat/generate_stream HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        leaving.sendall(head.encode() + body)
        assert leaving.recv(12) == b"HTTP/1.1 200"
    assert [event["OUT"] for event in http.post("/v2/models/repeat/generate_stream", {"IN": [7]}).events] == [7]


def test_answers_report_the_device(http: Client) -> None:
    reported = http.post("/v2/models/add_sub/infer", ADD_SUB)
    assert reported.status == 200
    assert float(reported.headers["headrace-device-ms"]) > 0


def test_large_answers_are_compressed_for_clients_that_accept_it(http: Client) -> None:
    big = {"shape": [8, 500], "datatype": "FP32", "data": [1.0] * 4000}
    sent = {"inputs": [{"name": f"INPUT{at}", **big} for at in (0, 1)]}
    plain = http.post("/v2/models/add_sub_any/infer", sent)
    packed = http.post("/v2/models/add_sub_any/infer", sent, Accept_Encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 10
    small = http.post("/v2/models/add_sub/infer", ADD_SUB, Accept_Encoding="gzip")
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/nobody/trace/setting", 404),
        ("GET", "/v2/systemsharedmemory/region/nobody/status", 404),
        ("DELETE", "/v2/models/add_sub", 405),
        ("POST", "/v2/cudasharedmemory/unregister", 200),
    ],
)
def test_statuses(http: Client, method: str, path: str, status: int) -> None:
    reported = http.send(method, path, b"" if method == "POST" else None)
    assert (reported.status, reported.headers["content-type"]) == (status, "application/json")
    assert status == 200 or list(reported.json) == ["error"]


def test_the_refusal_of_a_coding_lists_the_possible_ones(http: Client) -> None:
    refused = http.post("/v2/models/add_sub/infer", b"x", Content_Encoding="middle-out")
    assert refused.status == 415
    assert "gzip" in refused.headers["accept-encoding"]


@pytest.mark.parametrize(
    "path", ["/v2/trace/setting", "/v2/logging", "/v2/repository/models/text/load", "/v2/models/add_sub/infer",
             "/v2/repository/index",
             "/v2/systemsharedmemory/region/r/register"],
)  # fmt: skip
def test_bodies_of_control_that_are_none(http: Client, path: str) -> None:
    for body in (b"{", b"[1]", b'"x"', b"\xff", b"[" * 100_000):
        assert http.post(path, body).status == 400


def test_metrics_are_valid_for_prometheus(http: Client) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    http.post("/v2/models/add_sub/infer", ADD_SUB)
    reported = http.get("/metrics")
    samples = {
        (sample.name.removesuffix("_total"), sample.labels.get("model"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(reported.body.decode())
        for sample in family.samples
    }
    assert samples["nv_inference_request_success", "add_sub", None] >= 1
    assert samples["nv_inference_count", "add_sub", None] >= 1
    assert samples["nv_inference_request_duration_us", "add_sub", None] > 0
    assert samples["headrace_tensor_model_ready", "add_sub", None] == 1
    counted = samples["headrace_tensor_request_duration_seconds_count", "add_sub", None]
    assert counted == samples["headrace_tensor_request_duration_seconds_bucket", "add_sub", "+Inf"] >= 1
    assert 0 < samples["nv_cpu_memory_used_bytes", None, None] < samples["nv_cpu_memory_total_bytes", None, None]
