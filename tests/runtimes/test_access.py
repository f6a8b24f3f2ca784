"""The key of a runtime that listens on a network."""

import os

import pytest

from adapters.http1.message import Headers, Request, Response
from adapters.wire.spans import PATH
from runtimes.access import KEY_VARIABLE, keyed, take_key

pytestmark = pytest.mark.plain


async def served(request: Request) -> Response:
    return Response(200, [], b"")


def request(method: str, target: str, authorization: str | None = None) -> Request:
    fields = {} if authorization is None else {b"authorization": authorization.encode("latin-1")}
    return Request(method, target.encode(), Headers(fields), "10.0.0.9")


@pytest.mark.parametrize(
    ("http", "status"),
    [
        (request("POST", "/v1/chat/completions", "Bearer k3y"), 200),
        (request("POST", "/v1/chat/completions"), 401),
        (request("POST", "/v1/chat/completions", "Bearer k3"), 401),
        (request("POST", "/v1/chat/completions", "Bearer k3yy"), 401),
        (request("POST", "/v1/chat/completions", "k3y"), 401),
        (request("POST", "/v1/chat/completions", "Bearer \xe9"), 401),
        (request("GET", "/v2/health/ready"), 401),
        (request("POST", "/v2/repository/models/m/unload"), 401),
        (request("GET", "/metrics"), 200),
        (request("POST", "/metrics"), 401),
        (request("POST", PATH), 200),
    ],
)
async def test_only_metrics_and_times_need_no_key(http: Request, status: int) -> None:
    assert (await keyed(served, "k3y")(http)).status == status


async def test_without_a_key_each_request_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keyed(served, "") is served


def test_the_key_leaves_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "k3y")
    assert take_key() == "k3y"
    assert KEY_VARIABLE not in os.environ
    assert take_key() == ""
