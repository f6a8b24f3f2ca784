"""A request to send, and the recorded result."""

from typing import NamedTuple

from adapters.types import Form
from gateway.features.recording.entries import Content, Usages


class RecordedResult(NamedTuple):
    """The recorded result of a request. Times are seconds since its arrival."""

    status: int
    end: float
    first_byte: float | None = None
    usage: Usages | None = None
    content: Content | None = None
    """The content with an answer that can be compared; None without one."""


class ResentRequest(NamedTuple):
    """A request to send."""

    due: float
    """Seconds after the first request."""
    path: str
    body: bytes
    headers: dict[str, str]
    method: str = "POST"
    operation: str = "chat"
    form: Form = Form()
    """The wire format of its answer."""
    recorded: RecordedResult | None = None
    """None for a request of a trace."""
