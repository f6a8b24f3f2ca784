"""One look at a server over HTTP: bounded, and no redirect is followed."""

from typing import Any, NamedTuple

import msgspec

from adapters.errors import BackendError, TransportError
from adapters.http1.client import Client, encode_fields
from adapters.types import Deadline

MAX_BODY = 1024 * 1024
MAX_LOOKS = 128
LOOK_SECONDS = 5.0
_JSON = encode_fields((("content-type", "application/json"),))


class Seen(NamedTuple):
    """An answer. Status 0 stands for one that was none."""

    status: int
    body: bytes = b""

    @property
    def json(self) -> Any:
        """What a good answer holds; None where it is no JSON, or no good answer."""
        return self.told if self.status == 200 else None

    @property
    def told(self) -> Any:
        """What it holds, whatever its status."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def object(self) -> dict[str, Any]:
        """What a good answer holds, where that is an object; else an empty one."""
        return told if isinstance(told := self.json, dict) else {}


NOTHING = Seen(0)


class Look:
    """Asks each path once. `names` are models that a person says are there: not every server lists its own."""

    def __init__(self, client: Client, until: float, names: tuple[str, ...] = ()) -> None:
        self.names = names
        self._client = client
        self._until = until
        self._seen: dict[tuple[str, str, bytes], Seen] = {}

    @property
    def base_path(self) -> str:
        """Of the address itself: other paths are below it."""
        return self._client.base_path

    async def at(self, path: str, body: bytes | None = None, fields: bytes = b"", *, below: bool = True) -> Seen:
        """A GET, or a POST of this body; `below` the address's own path or not. Raises `TransportError` where nobody
        answers at all."""
        method = "GET" if body is None else "POST"
        path = self.base_path + path if below else path
        key = (method, path, fields)
        if key not in self._seen:
            if len(self._seen) >= MAX_LOOKS:
                return NOTHING
            self._seen[key] = await self._ask(method, path, body or b"", fields)
        return self._seen[key]

    async def _ask(self, method: str, path: str, body: bytes, fields: bytes) -> Seen:
        deadline = Deadline(self._until, LOOK_SECONDS, LOOK_SECONDS)
        target = path.encode()
        try:
            response = await self._client.request(
                method.encode(), target, fields + (_JSON if body else b""), body, deadline
            )
            return Seen(response.status, await response.read(MAX_BODY))
        except (TransportError, BackendError):
            if not self._seen:
                raise
            return NOTHING  # others were answered: it is this path that it breaks at


def text(value: object, most: int = 128) -> str:
    """A text out of a foreign server's answer, fit to be printed."""
    return "".join(one for one in value[:most] if one.isprintable()) if isinstance(value, str) else ""
