"""Anthropic's models at the paths of Vertex AI, over every pool that serves chats.

Clients have the project and the location in the path. Both select nothing here: a key decides what its holder may call.
"""

import re
from functools import partial
from urllib.parse import unquote

from adapters.errors import InferenceError
from adapters.http1.message import Request, Response
from adapters.wire.anthropic import errors as anthropic_errors
from adapters.wire.anthropic import requests as wire
from adapters.wire.body import with_last_fields
from adapters.wire.field_names import MESSAGES
from gateway.auth.keys import Principal
from gateway.fronts import errors
from gateway.fronts.anthropic import AnthropicFront
from gateway.fronts.door import Door, DoorPath, Fields
from gateway.fronts.openai import require_json
from gateway.telemetry import Record

_PATH = "/v1/projects/{project}/locations/{location}/publishers/anthropic/models/"
_CALL = re.compile(
    rb"(?:/v1)?/projects/[^/]+/locations/[^/]+/publishers/anthropic/models/([^/:]+):(rawPredict|streamRawPredict)"
)
"""Clients with a base URL of their own may leave out the version."""
_COUNT = b"count-tokens"
_NOT_FOUND = (
    "Unknown path. This gateway serves /v1/projects/PROJECT/locations/LOCATION/publishers/anthropic/models/MODEL with "
    ":rawPredict and :streamRawPredict."
)


class VertexFront:
    """The handler of these paths."""

    def __init__(self, door: Door, created: int) -> None:
        self._door = door
        self._anthropic = AnthropicFront(door, created)
        self._whole = DoorPath(_PATH + "{model}:rawPredict", self._message)
        self._stream = DoorPath(_PATH + "{model}:streamRawPredict", self._message)
        self._count = DoorPath(_PATH + "count-tokens:rawPredict", self._counted)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._whole, self._stream, self._count]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = None
        if match := _CALL.fullmatch(http.target):
            streams = match[2] == b"streamRawPredict"
            route = self._stream if streams else self._count if match[1] == _COUNT else self._whole
        headers = self._anthropic.headers
        return await self._door.serve(http, route, _NOT_FOUND, _refusal, headers, anthropic_errors.as_event)

    async def _message(self, principal: Principal, http: Request, record: Record) -> Response:
        require_json(http)
        match = _CALL.fullmatch(http.target)
        assert match is not None
        own = {"model": unquote(match[1].decode("latin-1")), "stream": match[2] == b"streamRawPredict"}
        body = with_last_fields(await http.read(), own)
        read = partial(wire.decode_cloud_message, betas=http.headers.get("anthropic-beta"))
        return await self._anthropic.message(principal, http, record, body, read)

    async def _counted(self, principal: Principal, http: Request, record: Record) -> Response:
        require_json(http)
        read = partial(wire.decode_cloud_count, betas=http.headers.get("anthropic-beta"))
        return await self._anthropic.count(principal, http, record, await http.read(), read)


def _refusal(error: InferenceError, headers: Fields) -> Response:
    """Anthropic's error response, with the fields of Google's errors too."""
    made = errors.anthropic_response(MESSAGES.of(error), headers)
    assert isinstance(made.body, bytes)
    return Response(made.status, made.headers, anthropic_errors.with_google_status(made.body, made.status))
