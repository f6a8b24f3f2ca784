"""The protocol over HTTP where Triton's client does not reach: statuses, streams of events, probes, bad bodies."""

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple

import pytest

from tests.support.tensor_runtime import TensorRuntime

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


def test_probes_have_no_body(http: Client) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/add_sub/ready", "/v2/models/add_sub"):
        for method in ("GET", "HEAD"):
            assert http.send(method, path).status == 200
    assert http.send("HEAD", "/v2").body == b""


def test_generate_answers_once(http: Client) -> None:
    reported = http.post("/v2/models/text/generate", {"TEXT": "abc", "id": "seven"})
    assert reported.status == 200
    assert reported.json == {"model_name": "text", "model_version": "1", "id": "seven", "SAME": "abc"}
    for count in (0, 2):
        refused = http.post("/v2/models/repeat/generate", {"IN": [1] * count})
        assert refused.status == 400
        assert "generate_stream" in refused.json["error"]


def test_streams_are_events(http: Client) -> None:
    reported = http.post("/v2/models/repeat/generate_stream", {"IN": [7, 8]})
    assert (reported.status, reported.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert [event["OUT"] for event in reported.events] == [7, 8]
    sent = {"inputs": [{"name": "IN", "shape": [2], "datatype": "INT32", "data": [7, 8]}], "id": "seven"}
    events = http.post("/v2/models/repeat/infer_stream", sent).events
    assert [event["outputs"][0]["data"] for event in events] == [[7], [8]]
    assert [event["id"] for event in events] == ["seven", "seven"]


def test_an_error_in_a_stream_is_its_last_event(http: Client) -> None:
    events = http.post("/v2/models/repeat/generate_stream", {"IN": [7, -1, 9]}).events
    assert events[0]["OUT"] == 7
    assert "below zero" in events[1]["error"]
    assert len(events) == 2


def test_an_error_before_a_stream_has_a_status(http: Client) -> None:
    assert http.post("/v2/models/repeat/generate_stream", {"IN": [-1]}).status == 500
    assert http.post("/v2/models/nobody/generate_stream", {"IN": [1]}).status == 404
    assert http.post("/v2/models/repeat/generate_stream", {}).status == 400


def test_a_model_that_answers_once_may_be_streamed(http: Client) -> None:
    assert [event["SAME"] for event in http.post("/v2/models/text/generate_stream", {"TEXT": "a"}).events] == ["a"]


def test_a_closed_stream_frees_the_model(runtime: TensorRuntime, http: Client) -> None:
    """Its only copy waits for a reader of the first stream until that one is known to have left."""
    body = json.dumps({"IN": list(range(200_000))}).encode()
    host, port = runtime.http.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as leaving:
        head = f"POST /v2/models/repeat/generate_stream HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        leaving.sendall(head.encode() + body)
        assert leaving.recv(12) == b"HTTP/1.1 200"
    assert [event["OUT"] for event in http.post("/v2/models/repeat/generate_stream", {"IN": [7]}).events] == [7]


def test_a_raw_request_is_its_only_input(http: Client) -> None:
    reported = http.post("/v2/models/picky/infer", struct.pack("<f", 9), Inference_Header_Content_Length="0")
    length = int(reported.headers["inference-header-content-length"])
    assert struct.unpack("<f", reported.body[length:]) == (3.0,)
    refused = http.post("/v2/models/add_sub/infer", b"\0" * 64, Inference_Header_Content_Length="0")
    assert refused.status == 400
    assert "one input" in refused.json["error"]


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
        ("GET", "/", 404),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2/models/nobody", 404),
        ("GET", "/v2/models/add_sub/versions/9", 404),
        ("GET", "/v2/models/add_sub/versions/9/ready", 404),
        ("GET", "/v2/models/nobody/config", 404),
        ("GET", "/v2/models/nobody/stats", 404),
        ("GET", "/v2/models/nobody/trace/setting", 404),
        ("GET", "/v2/systemsharedmemory/region/nobody/status", 404),
        ("POST", "/v2/models/nobody/infer", 400),
        ("POST", "/v2/repository/models/nobody/load", 404),
        ("GET", "/v2/models/add_sub/infer", 405),
        ("GET", "/v2/repository/index", 405),
        ("POST", "/v2/health/live", 405),
        ("DELETE", "/v2/models/add_sub", 405),
        ("POST", "/v2/cudasharedmemory/region/r/register", 501),
        ("POST", "/v2/cudasharedmemory/unregister", 200),
        ("POST", "/v2/systemsharedmemory/region/nobody/unregister", 200),
    ],
)
def test_statuses(http: Client, method: str, path: str, status: int) -> None:
    reported = http.send(method, path, b"" if method == "POST" else None)
    assert (reported.status, reported.headers["content-type"]) == (status, "application/json")
    assert status == 200 or list(reported.json) == ["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"inputs": 1}', b'{"inputs": [[]]}', b'{"inputs": []}', b"[" * 100_000,
        json.dumps({**ADD_SUB, "outputs": [{"name": "OUTPUT9"}]}).encode(),
        json.dumps(ADD_SUB).replace("15]", "1.5]").encode(), json.dumps(ADD_SUB).replace("15]", "NaN]").encode(),
        json.dumps(ADD_SUB).replace("15]", "99999999999]").encode(), json.dumps(ADD_SUB).replace("15]", "]").encode(),
        json.dumps(ADD_SUB).replace("INT32", "FP32").encode(), json.dumps(ADD_SUB).replace("INPUT1", "INPUT0").encode(),
        json.dumps(ADD_SUB).replace("[1, 16]", "[-1, 16]").encode(),
        json.dumps(ADD_SUB).replace("[1, 16]", "[2, 8]").encode(),
        json.dumps({**ADD_SUB, "parameters": {"binary_data_output": {}}}).encode(),
        json.dumps({**ADD_SUB, "outputs": [{"name": "OUTPUT0", "parameters": {"classification": "x"}}]}).encode(),
        json.dumps({**ADD_SUB, "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": 1}}]}).encode(),
    ],
    ids=range(21),
)  # fmt: skip
def test_bad_requests_are_the_callers(http: Client, body: bytes) -> None:
    reported = http.post("/v2/models/add_sub/infer", body)
    assert reported.status in (400, 404), reported
    assert reported.json["error"]
    assert http.post("/v2/models/add_sub/infer", ADD_SUB).status == 200


@pytest.mark.parametrize("length", ["-1", "x", "5", str(2**63), "999"])
def test_a_header_length_that_lies(http: Client, length: str) -> None:
    reported = http.post("/v2/models/add_sub/infer", ADD_SUB, Inference_Header_Content_Length=length)
    assert reported.status == 400
    assert http.get("/v2/health/live").status == 200


def test_content_codings(http: Client) -> None:
    assert http.post("/v2/models/add_sub/infer", b"x", Content_Encoding="gzip").status == 400
    refused = http.post("/v2/models/add_sub/infer", b"x", Content_Encoding="middle-out")
    assert refused.status == 415
    assert "gzip" in refused.headers["accept-encoding"]


@pytest.mark.parametrize(
    "path", ["/v2/trace/setting", "/v2/logging", "/v2/repository/models/text/load", "/v2/repository/index",
             "/v2/systemsharedmemory/region/r/register"],
)  # fmt: skip
def test_bodies_of_control_that_are_none(http: Client, path: str) -> None:
    for body in (b"{", b"[1]", b'"x"', b"\xff"):
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
