"""No client waits while a server decodes and encodes a large request of any datatype, on any door, over either wire.

A prober, which is another client, measures how long a small request takes meanwhile. `HEADRACE_LARGE_ELEMENTS`
sets the number of elements.
"""

import itertools
import os
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from adapters.tensors import Tensor
from adapters.wire.oip.json_data import CODES
from adapters.wire.oip.proto_contents import FIELDS
from adapters.wire.protos import METHODS, inference
from adapters.wire.protos.tfserving import PREDICTION, serving
from adapters.wire.tfserving import predict
from tests.support import typed_contents
from tests.support.pace import slowness
from tests.support.prober import Prober
from tests.support.processes import gateway
from tests.support.tensor_runtime import TensorRuntime, explicit

pytestmark = pytest.mark.timeout(1800)

ELEMENTS = int(os.environ.get("HEADRACE_LARGE_ELEMENTS", "200_000"))
LONGEST_STREAMED = 400_000
"""Elements: an event over HTTP has 4 MiB at the most."""
TRIES = 4
"""A server that holds its loop does so each time; a busy machine does not."""
ELEMENT = {"BOOL": b"\1", "BYTES": b"\2\0\0\0ab"} | {
    datatype: struct.pack(f"<{code}", 1) for datatype, code in CODES.items() if datatype != "BOOL"
}
WRITTEN = {"BOOL": b"true", "BYTES": b'"ab"'} | {
    datatype: b"1.0" if datatype.startswith("FP") else b"1" for datatype in CODES if datatype != "BOOL"
}
CONFIG = """
backend: "python" max_batch_size: 0
input [ { name: "IN" data_type: TYPE_%(type)s dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_%(type)s dims: [ -1 ] } ]
"""
ECHO = 'class Model:\n    def infer(self, inputs):\n        return {"OUT": inputs["IN"]}\n'
QUICK = ("FP32", "INT64", "BYTES")
DATATYPES = tuple(ELEMENT) if "HEADRACE_LARGE_ELEMENTS" in os.environ else QUICK


def bound() -> float:
    """Seconds that a small request may wait: 50 ms, and more on a slower machine."""
    return 0.05 * slowness()


Send = Callable[[str, int], int]
"""Sends so many elements of a datatype, and returns how many come back."""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    folder = tmp_path_factory.mktemp("models")
    for datatype in DATATYPES:
        version = folder / datatype.lower() / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(ECHO)
        (version.parent / "config.pbtxt").write_text(CONFIG % {"type": datatype.replace("BYTES", "STRING")})
    with explicit(folder) as started:
        yield started


class Doors:
    """Every way to send a request to one server. `headers` are sent with each request."""

    def __init__(self, http: str, rpc: str, headers: dict[str, str], prober: Prober) -> None:
        self.http = f"http://{http}"
        self.prober = prober
        self._headers = headers
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(rpc, options=options)
        self.calls: dict[str, Send] = {
            "json": self.json,
            "binary": self.binary,
            "raw": self.raw,
            "typed": self.typed,
        }

    def with_gateway(self) -> "Doors":
        self.calls |= {"predict": self.predict, "rows": self.rows, "tfserving": self.tfserving, "stream": self.stream}
        return self

    # ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────

    def _post(self, path: str, body: bytes, **headers: str) -> bytes:
        request = urllib.request.Request(self.http + path, body, {**self._headers, **headers}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error.code}: {error.read()[:500]!r}") from None

    def json(self, datatype: str, count: int) -> int:
        data = b",".join([WRITTEN[datatype]] * count)
        head = b'{"inputs":[{"name":"IN","datatype":"%b","shape":[%d],"data":[' % (datatype.encode(), count)
        answer = self._post(f"/v2/models/{datatype.lower()}/infer", head + data + b"]}]}")
        (output,) = msgspec.json.decode(answer)["outputs"]
        return len(output["data"])

    def binary(self, datatype: str, count: int) -> int:
        data = ELEMENT[datatype] * count
        parameters = {"binary_data_size": len(data)}
        tensor = {"name": "IN", "datatype": datatype, "shape": [count], "parameters": parameters}
        output = {"name": "OUT", "parameters": {"binary_data": True}}
        head = msgspec.json.encode({"inputs": [tensor], "outputs": [output]})
        length = {"inference-header-content-length": str(len(head))}
        answer = self._post(f"/v2/models/{datatype.lower()}/infer", head + data, **length)
        assert answer.endswith(data)
        return count

    def predict(self, datatype: str, count: int) -> int:
        body = b'{"inputs":[%b]}' % b",".join([WRITTEN[datatype]] * count)
        answer = self._post(f"/v1/models/{datatype.lower()}:predict", body)
        return len(msgspec.json.decode(answer)["outputs"])

    def rows(self, datatype: str, count: int) -> int:
        body = b'{"instances":[%b]}' % b",".join([WRITTEN[datatype]] * count)
        answer = self._post(f"/v1/models/{datatype.lower()}:predict", body)
        return len(msgspec.json.decode(answer)["predictions"])

    # ── over gRPC ─────────────────────────────────────────────────────────────────────────────────────

    def _call(self, path: str, message: bytes) -> bytes:
        method = self._channel.unary_unary(path, lambda sent: sent, lambda raw: raw)
        return bytes(method(message, timeout=600, metadata=tuple(self._headers.items())))

    def raw(self, datatype: str, count: int) -> int:
        message = self._message(datatype, count)
        data = ELEMENT[datatype] * count
        message.raw_input_contents.append(data)
        answer = self._call(METHODS["ModelInfer"].path, message.SerializeToString())
        assert inference.ModelInferResponse.FromString(answer).raw_output_contents == [data]
        return count

    def typed(self, datatype: str, count: int) -> int:
        if datatype not in FIELDS:
            return count
        message = self._message(datatype, count)
        tensor = Tensor("IN", datatype, (count,), ELEMENT[datatype] * count)
        typed_contents.write(message.inputs[0].contents, tensor)
        answer = self._call(METHODS["ModelInfer"].path, message.SerializeToString())
        (data,) = inference.ModelInferResponse.FromString(answer).raw_output_contents
        return len(data) // len(ELEMENT[datatype])

    def stream(self, datatype: str, count: int) -> int:
        sent = min(count, LONGEST_STREAMED)
        message = self._message(datatype, sent)
        message.raw_input_contents.append(ELEMENT[datatype] * sent)
        path = METHODS["ModelStreamInfer"].path
        method = self._channel.stream_stream(path, lambda sent: sent, lambda raw: raw)
        calls = method(iter([message.SerializeToString()]), timeout=600, metadata=tuple(self._headers.items()))
        (answer,) = [inference.ModelStreamInferResponse.FromString(each) for each in calls]
        assert not answer.error_message
        received = len(answer.infer_response.raw_output_contents[0]) // len(ELEMENT[datatype])
        return count if received == sent else received

    def _message(self, datatype: str, count: int) -> Any:
        message = inference.ModelInferRequest(model_name=datatype.lower())
        message.inputs.add(name="IN", datatype=datatype, shape=[count])
        return message

    def tfserving(self, datatype: str, count: int) -> int:
        message = serving.PredictRequest()
        message.model_spec.name = datatype.lower()
        tensor = Tensor("IN", datatype, (count,), ELEMENT[datatype] * count)
        predict.encode_tensor(message.inputs["IN"], tensor, by_value=True)
        answer = self._call(PREDICTION["Predict"].path, message.SerializeToString())
        output = serving.PredictResponse.FromString(answer).outputs["OUT"]
        return len(predict.decode_tensor("OUT", output).data) // len(ELEMENT[datatype])

    # ── what others wait ──────────────────────────────────────────────────────────────────────────────

    def waits(self, send: Send, datatype: str, count: int) -> float:
        """Seconds that a small request waits at the most. The first answer has all elements."""
        longest = []
        for _ in range(TRIES):
            self.prober.begin()
            assert send(datatype, count) == count
            longest.append(self.prober.worst())
            if longest[-1] < bound():
                break
        return min(longest)


@pytest.fixture(scope="module")
def direct(runtime: TensorRuntime) -> Iterator[Doors]:
    with Prober(f"http://{runtime.http}/v2/health/live", runtime.process.pid) as prober:
        yield Doors(runtime.http, runtime.grpc, {}, prober)


CASES = list(itertools.product(("json", "binary", "raw", "typed"), DATATYPES))


@pytest.mark.parametrize(("door", "datatype"), CASES)
def test_a_large_request_delays_no_other_at_the_runtime(direct: Doors, door: str, datatype: str) -> None:
    assert direct.waits(direct.calls[door], datatype, ELEMENTS) < bound()


@pytest.mark.parametrize("wire", ["http", "grpc"])
async def test_a_large_request_delays_no_other_at_the_gateway(
    runtime: TensorRuntime, tmp_path: Path, wire: str
) -> None:
    address = runtime.http if wire == "http" else runtime.grpc
    configuration: dict[str, Any] = {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "http": {"max_body": "256MiB"},
        "pools": [{"name": "tensors", "protocol": f"oip-{wire}", "endpoints": [f"http://{address}"]}],
        "models": [{"name": name.lower(), "routes": [{"to": "tensors"}]} for name in DATATYPES],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as made:
        headers = {"authorization": f"Bearer {await made.key()}"}
        with Prober(f"{made.url}/v2/health/live", made.process.pid) as prober:
            doors = Doors(made.url.removeprefix("http://"), made.grpc, headers, prober).with_gateway()
            waited = {
                (door, datatype): doors.waits(send, datatype, ELEMENTS)
                for door, send in doors.calls.items()
                for datatype in DATATYPES
            }
        most = bound()
        assert {case: round(seconds, 3) for case, seconds in waited.items() if seconds >= most} == {}
        await made.until_idle()
