"""The REST interface."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToJson
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    regression_pb2,
)

from tests.servers.stand_ins.tfserving import json_values, rpc
from tests.servers.stand_ins.tfserving.models import INVALID_ARGUMENT, Failure, Models

_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PREDICTION = re.compile(rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<verb>classify|regress|predict)", re.IGNORECASE)
_METADATA = re.compile(rf"/v1/models/(?P<name>[^/:]+){_WHICH}/metadata", re.IGNORECASE)
_STATUS = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}", re.IGNORECASE)
_HTTP = {1: 499, 2: 500, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400, 12: 501, 14: 503}


class Rest:
    """Answers a path and a body with JSON, or fails."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def answer(self, method: str, path: str, body: bytes) -> str:
        if method == "POST" and (match := _PREDICTION.fullmatch(path)):
            verb = match["verb"].lower()
            return self._predict(match, body) if verb == "predict" else self._of_examples(match, verb, body)
        if method == "GET" and (match := _METADATA.fullmatch(path)):
            request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
            _put_spec(request.model_spec, match)
            metadata = json.loads(_written(rpc.metadata(self._models, request)))
            del metadata["metadata"]["signature_def"]["@type"]
            return json_values.write(metadata)
        if method == "GET" and (match := _STATUS.fullmatch(path)):
            if not match["name"]:
                raise Failure(INVALID_ARGUMENT, "Missing model name in request.")
            request = get_model_status_pb2.GetModelStatusRequest()
            _put_spec(request.model_spec, match)
            return _written(rpc.status(self._models, request))
        raise Failure(INVALID_ARGUMENT, f"Malformed request: {method} {path}")

    def _predict(self, match: Any, body: bytes) -> str:
        document = json_values.parse(body)
        request = predict_pb2.PredictRequest()
        _put_spec(request.model_spec, match)
        request.model_spec.signature_name = document.get("signature_name", "")
        _, version = self._models.resolve(request.model_spec)
        infos = version.signature(request.model_spec.signature_name).inputs
        tensors, by_row = json_values.tensors(document, infos)
        for name, tensor in tensors.items():
            request.inputs[name].CopyFrom(tensor)
        return json_values.predictions(rpc.predict(self._models, request).outputs, by_row=by_row)

    def _of_examples(self, match: Any, verb: str, body: bytes) -> str:
        document = json_values.parse(body)
        kind = classification_pb2.ClassificationRequest if verb == "classify" else regression_pb2.RegressionRequest
        request = kind()
        _put_spec(request.model_spec, match)
        request.model_spec.signature_name = document.get("signature_name", "")
        json_values.fill_input(document, request.input)
        if verb == "classify":
            result = rpc.classify(self._models, request).result.classifications
            rows = [[[one.label, json_values.decimal(one.score)] for one in each.classes] for each in result]
            return json_values.write({"results": rows})
        values = [json_values.decimal(one.value) for one in rpc.regress(self._models, request).result.regressions]
        return json_values.write({"results": values})


def _put_spec(spec: Any, match: Any) -> None:
    spec.name = match["name"]
    if match["version"]:
        spec.version.value = int(match["version"])
    elif match["label"]:
        spec.version_label = match["label"]


def _written(message: Any) -> str:
    return str(MessageToJson(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))


def serve(models: Models, port: int = 0) -> ThreadingHTTPServer:
    """Bound; to be run."""
    rest = Rest(models)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status = 200
            try:
                response = rest.answer(self.command, self.path.partition("?")[0], body)
            except Failure as failure:
                status = _HTTP.get(failure.code, 500)
                response = '{ "error": ' + json.dumps(failure.message) + " }"
            written = response.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
