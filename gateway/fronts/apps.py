"""HTTP apps: `/apps/NAME/…`, and TorchServe's own paths `/predictions/NAME` and `/explanations/NAME`."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from adapters.base import Answer
from adapters.http1.message import Request, Response
from adapters.paths import LONGEST, check_path
from adapters.requests import AppRequest
from gateway.auth.keys import Principal
from gateway.fronts import errors, tensors
from gateway.fronts.door import UNBUFFERED, Door, DoorPath, Fields
from gateway.telemetry import Record

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_APP = re.compile(r"/apps/([^/]+)(/.*)?")
_SERVE = re.compile(r"/(predictions|explanations)/([^/]+)(?:/([^/]+))?/?")
_NOT_FOUND = "Unknown path. Apps are called as /apps/NAME/PATH, and TorchServe's models as /predictions/NAME."


class AppTarget(NamedTuple):
    """A decoded path. The app's own part of the path is not changed."""

    model: str
    version: str = ""
    path: str = ""
    predicts: bool = False
    """Whether the request is an inference, for any method. Inferences may be repeated."""


def target_of(path: bytes) -> AppTarget | None:
    """Decode a path; None for an unknown or overlong path. The result is cached, as few paths are in use."""
    return _target_of(path) if len(path) <= LONGEST + 256 else None


@lru_cache(1024)
def _target_of(path: bytes) -> AppTarget | None:
    text = path.decode("latin-1")
    if match := _SERVE.fullmatch(text):
        return AppTarget(_name(match[2]), _name(match[3] or ""), f"/{match[1]}", True)
    match = _APP.fullmatch(text)
    return None if match is None else AppTarget(_name(match[1]), "", match[2] or "")


def _name(text: str) -> str:
    return unquote(text, errors="replace")


class AppsFront:
    """The handler of `/apps`, `/predictions` and `/explanations`."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._core = door.core
        self._route = DoorPath("/apps/{model}", self._call)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._route]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = None if target_of(http.target) is None else self._route
        return await self._door.serve(http, route, _NOT_FOUND, errors.app_response)

    async def _call(self, principal: Principal, http: Request, record: Record) -> Response:
        target = target_of(http.target)
        assert target is not None
        check_path(target.path, http.query)
        body = await http.read_encoded()
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        accept = http.headers.get("accept") or ""
        request = AppRequest(
            model=model,
            version=version,
            method="POST" if target.predicts else "GET" if http.method == "HEAD" else http.method,
            path=target.path,
            query=http.query,
            content_type=http.headers.get("content-type") or "",
            accept=accept,
            encoding=http.headers.get("content-encoding") or "",
            body=body,
            size=len(body),
            stream="text/event-stream" in accept,
            repeatable=target.predicts or http.method in IDEMPOTENT,
        )
        answer = await self._core.handle(principal, request, http.headers, record)
        return response_of(answer, self._door.headers(record))


def response_of(answer: Answer, headers: Fields) -> Response:
    """The app's own status, type and body. A header of a stream prevents proxies from buffering the stream."""
    if answer.body is None:
        headers = [*headers, UNBUFFERED]
    fields = [*([("content-type", answer.content_type)] if answer.content_type else []), *headers, *answer.headers]
    return Response(answer.status, fields, AppBody(answer) if answer.body is None else answer.body)


class AppBody:
    """The pieces of an answer. An app's stream cannot report an error, so a broken stream closes the connection
    before the end of the body."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __aiter__(self) -> "AppBody":
        return self

    async def __anext__(self) -> bytes:
        return await self._answer.__anext__()

    async def aclose(self) -> None:
        await self._answer.aclose()
