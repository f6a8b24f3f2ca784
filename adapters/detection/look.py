"""Bounded HTTP requests for the detection of a server. Redirects are not followed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from adapters.errors import BackendError, TransportError
from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.types import Deadline
from config.schema.protocols.base import Serves

MAX_BODY = 1024 * 1024
MAX_LOOKS = 128
LOOK_SECONDS = 5.0
_JSON = encode_fields((("content-type", "application/json"),))


class Seen(NamedTuple):
    """A response. Status 0 stands for no response."""

    status: int
    body: bytes = b""
    exception: str = ""
    """The exception by which services of AWS refuse a request."""

    @property
    def json(self) -> Any:
        """The JSON of a response with status 200; None for any other status and for invalid JSON."""
        return self.decoded if self.status == 200 else None

    @property
    def decoded(self) -> Any:
        """The JSON of a response with any status; None for invalid JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def object(self) -> dict[str, Any]:
        """The JSON object of a response with status 200; otherwise an empty object."""
        return decoded if isinstance(decoded := self.json, dict) else {}


NOTHING = Seen(0)


class Look:
    """Requests each path at most once. `names` are models given by the user: not every server lists its models."""

    def __init__(self, client: Client, until: float, names: tuple[str, ...] = (), host: str = "") -> None:
        self.names = names
        self.host = host
        self._client = client
        self._until = until
        self._seen: dict[tuple[str, str, bytes], Seen] = {}

    @property
    def base_path(self) -> str:
        """The path of the address; all other paths are below it."""
        return self._client.base_path

    async def at(self, path: str, body: bytes | None = None, fields: bytes = b"", *, below: bool = True) -> Seen:
        """Send a GET, or a POST of `body`, to a path `below` the path of the address or at the root.

        Raises `TransportError` if no server responds at all.
        """
        method = "GET" if body is None else "POST"
        path = self.base_path + path if below else path
        key = (method, path, fields)
        if key not in self._seen:
            if len(self._seen) >= MAX_LOOKS:
                return NOTHING
            self._seen[key] = await self._request(method, path, body or b"", fields)
        return self._seen[key]

    async def _request(self, method: str, path: str, body: bytes, fields: bytes) -> Seen:
        deadline = Deadline(self._until, LOOK_SECONDS, LOOK_SECONDS)
        target = path.encode()
        try:
            response = await self._client.request(
                method.encode(), target, fields + (_JSON if body else b""), body, deadline
            )
            exception = response.headers.get("x-amzn-errortype") or ""
            return Seen(response.status, await response.read(MAX_BODY), exception)
        except (TransportError, BackendError):
            if not self._seen:
                raise
            return NOTHING  # the server has answered other paths: it fails only for this path


def text(value: object, most: int = 128) -> str:
    """The printable characters of a text from a foreign server, at most `most`; empty for any other value."""
    return "".join(one for one in value[:most] if one.isprintable()) if isinstance(value, str) else ""


class DetectedModel(NamedTuple):
    """A detected model. `description` describes it: its tensors or its context length."""

    name: str
    kind: Serves
    description: str = ""


class DetectedPool(NamedTuple):
    """One protocol of a server, as a pool. A server may offer several protocols on separate paths."""

    name: str
    protocol: Mapping[str, Any]
    """The `protocol` section of the pool."""
    models: tuple[DetectedModel, ...] = ()
    path: str = ""
    """The path after the address."""
    more: Mapping[str, Any] = {}
    """Further fields of the pool that this system needs."""


class Detection(NamedTuple):
    """A detected server. `system` is its official name."""

    system: str
    version: str
    pools: tuple[DetectedPool, ...]
    notes: tuple[str, ...] = ()
    """Remarks for the author of the configuration."""


def pool(
    name: str, protocol: str | Mapping[str, Any], *models: DetectedModel, path: str = "", **more: Any
) -> DetectedPool:
    section = {"name": protocol} if isinstance(protocol, str) else protocol
    return DetectedPool(name, section, models, path, more)
