"""Failures of app servers, where the body changes the meaning of the status."""

import json

import pytest

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    ModelFailed,
    NotFound,
    ServerFailed,
    UpstreamTimeout,
)
from adapters.http1.message import Headers
from adapters.requests import AppRequest
from adapters.upstreams.apps import ray_serve
from adapters.upstreams.torchserve import models

NO_ROUTE = b"Path '/x' not found. Ping http://.../-/routes for available routes."


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (404, NO_ROUTE, BackendError, "upstream_model_not_found"),
        (404, b"no such page", None, ""),
        (408, b"Request 1 timed out after 20s.", UpstreamTimeout, "upstream_timeout"),
        (418, b"", None, ""),
        (429, b"Request dropped due to backpressure", CapacityError, "overloaded"),
        (500, b"ValueError: boom at 10.0.0.5", ServerFailed, "upstream_error"),
        (500, b"<html>ValueError</html>", BackendError, "upstream_error"),
        (503, b"Request dropped due to backpressure", CapacityError, "overloaded"),
    ],
)
def test_ray_serve(status: int, body: bytes, kind: type[InferenceError] | None, code: str) -> None:
    error = ray_serve.judged(AppRequest(model="m"), status, Headers({b"retry-after": b"7"}), body)
    assert type(error) is (kind or type(None))
    if error is not None:
        assert error.code == code
        assert ("boom" in error.message) is (type(error) is ServerFailed)
        assert "10.0.0.5" not in error.message
        assert ("dropped" in error.message) is isinstance(error, CapacityError)
    if isinstance(error, CapacityError):
        assert error.retry_after == 7


@pytest.mark.parametrize(
    ("status", "kind_of_error", "version", "kind", "code"),
    [
        (400, "InvalidKeyException", "", BackendError, "upstream_credential"),
        (400, "BadRequestException", "", CallerError, "invalid_request"),
        (404, "ModelNotFoundException", "", BackendError, "upstream_model_not_found"),
        (404, "ModelVersionNotFoundException", "2.0", NotFound, "model_not_found"),
        (404, "ModelVersionNotFoundException", "", BackendError, "upstream_model_not_found"),
        (404, "ResourceNotFoundException", "", None, ""),
        (408, "RequestTimeoutException", "", UpstreamTimeout, "upstream_timeout"),
        (408, "", "", None, ""),
        (503, "InternalServerException", "", ModelFailed, "model_failed"),
        (503, "ServiceUnavailableException", "", CapacityError, "overloaded"),
        (503, "", "", CapacityError, "overloaded"),
        (507, "InternalServerException", "", ModelFailed, "model_failed"),
    ],
)
def test_torchserve(
    status: int, kind_of_error: str, version: str, kind: type[InferenceError] | None, code: str
) -> None:
    body = (
        json.dumps({"code": status, "type": kind_of_error, "message": "at 10.0.0.5"}).encode()
        if kind_of_error
        else b"\xff"
    )
    error = models.judged(AppRequest(model="m", version=version), status, Headers({}), body)
    assert type(error) is (kind or type(None))
    if error is not None:
        assert error.code == code
        assert "10.0.0.5" not in error.message
