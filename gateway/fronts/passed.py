"""OpenAI's operations that are forwarded unchanged: rerank, audio, images and similar ones."""

from functools import partial

from adapters import offload
from adapters.errors import CallerError
from adapters.http1.message import Request, Response
from adapters.requests import AppRequest
from adapters.wire.openai import model_field as named
from adapters.wire.openai.model_field import PASSTHROUGH
from adapters.wire.openai.ranking_size import RankingSize
from gateway.auth.keys import Principal
from gateway.fronts import decoding, errors
from gateway.fronts.apps import response_of
from gateway.fronts.door import Door, DoorPath
from gateway.telemetry import Record

_UNKNOWN = "Unknown path."
NO_SIZE = RankingSize(0, 0)


class PassedFront:
    """The handler of these paths. Keys, limits, splits and failures are handled as for every other request."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._core = door.core
        self._routes = {path.encode(): DoorPath(path, partial(self._call, path)) for path in PASSTHROUGH}

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return list(self._routes.values())

    def serves(self, target: bytes) -> bool:
        return target in self._routes

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        return await self._door.serve(http, self._routes.get(http.target), _UNKNOWN, errors.openai_response)

    async def _call(self, path: str, principal: Principal, http: Request, record: Record) -> Response:
        content_type, body = http.headers.get("content-type") or "", await http.read()
        operation = PASSTHROUGH[path].kind
        try:
            model, stream, user = await offload.scan(len(body), named.read, content_type, body)
        except CallerError as error:
            filled = await decoding.with_default_model(self._core.snapshot, operation, content_type, body, error)
            if filled is None:
                raise
            body = filled
            model, stream, user = await offload.scan(len(body), named.read, content_type, body)
        kind = named.RANKING.get(operation)
        size = NO_SIZE if kind is None else await offload.scan(len(body), named.ranking_size, content_type, body)
        request = (kind or AppRequest)(
            model=model,
            path=path,
            content_type=content_type,
            accept=http.headers.get("accept") or "",
            body=body,
            size=len(body),
            stream=stream,
            user=user,
            prompt_tokens=size.tokens,
            rows=size.rows,
            codec=named.CODEC,
        )
        answer = await self._core.handle(principal, request, http.headers, record)
        return response_of(answer, self._door.headers(record))
