"""A request to a server, byte for byte, and its response in a form in which two servers can be compared."""

import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

PATIENCE = 300.0
_COUNTS = ("last_inference", "inference_count", "execution_count")
_BINARY = "inference-header-content-length"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    until: bytes = b""
    """Repeated until the response contains this, because statistics are written after the responses that they count."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `document` is its JSON, with binary tensors as hexadecimal `data`; an error's text is omitted.

    The text of an error is each server's own and is not compared; its shape is.
    """

    status: int
    kind: str = ""
    document: Any = None


def get(path: str, **headers: str) -> HttpRequest:
    return HttpRequest("GET", path, headers=_fields(headers))


def post(path: str, document: Any = None, **headers: str) -> HttpRequest:
    """A POST with a JSON body, or with unchanged bytes."""
    body = document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
    return HttpRequest("POST", path, body, _fields(headers))


def _fields(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def tensor(name: str, datatype: str, shape: Sequence[Any], data: Any, **parameters: Any) -> dict[str, Any]:
    """An input with its data in JSON."""
    made = {"name": name, "datatype": datatype, "shape": list(shape), "data": data}
    return made | ({"parameters": parameters} if parameters else {})


def binary(name: str, datatype: str, shape: Sequence[Any], size: Any) -> dict[str, Any]:
    """An input whose `size` bytes follow the JSON."""
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": {"binary_data_size": size}}


def infer(model: str, *inputs: Any, **more: Any) -> HttpRequest:
    """An inference in JSON; `more` are further members of the request."""
    return post(f"/v2/models/{model}/infer", {"inputs": list(inputs), **more})


def infer_binary(model: str, inputs: Sequence[Any], blobs: bytes, length: Any = None, **more: Any) -> HttpRequest:
    """An inference with binary tensors; `length` is the header's, where it is to lie."""
    head = json.dumps({"inputs": list(inputs), **more}).encode()
    declared = str(len(head) if length is None else length)
    return HttpRequest("POST", f"/v2/models/{model}/infer", head + blobs, {"Inference-Header-Content-Length": declared})


def reply_to(address: str, request: HttpRequest, headers: Mapping[str, str]) -> Reply:
    """Send it on a connection of its own to `HOST:PORT`, with the further `headers` that this server requires."""
    end = time.monotonic() + PATIENCE
    while True:
        status, fields, body = _sent(address, request, headers)
        if request.until in body.replace(b" ", b"") or time.monotonic() > end:
            return _reply(status, fields, body)
        time.sleep(0.05)


def _sent(address: str, request: HttpRequest, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request(request.method, request.path, request.body or None, {**request.headers, **headers})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def _reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    if headers.get("content-encoding") in ("gzip", "deflate"):
        body = zlib.decompress(body, 47)
    kind = headers.get("content-type", "").partition(";")[0]
    if kind == "text/event-stream":
        return Reply(status, kind, [_document(event) for event in body.decode().split("\n\n") if event])
    if _BINARY in headers:
        return Reply(
            status, "binary", _joined(json.loads(body[: int(headers[_BINARY])]), body[int(headers[_BINARY]) :])
        )
    if not body:
        return Reply(status)
    return Reply(status, "error" if status >= 400 else kind, _document(body.decode(errors="surrogateescape")))


def _document(text: str) -> Any:
    try:
        document = json.loads(text.removeprefix("data: "))
    except ValueError:
        return {"text": True}
    if isinstance(document, dict) and list(document) == ["error"]:
        return {"error": isinstance(document["error"], str)}
    return steady(document)


def steady(document: Any) -> Any:
    """Without the values that differ between runs: times, and the number of earlier requests."""
    if isinstance(document, dict):
        counted = document.keys() if "ns" in document else _COUNTS
        return {key: "a number" if key in counted else steady(value) for key, value in document.items()}
    return [steady(one) for one in document] if isinstance(document, list) else document


def _joined(document: Any, blobs: bytes) -> Any:
    """The JSON of a binary answer, with each output's bytes in it."""
    for output in document["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            output["data"], blobs = blobs[:size].hex(), blobs[size:]
    assert not blobs, "bytes that belong to no output"
    return document
