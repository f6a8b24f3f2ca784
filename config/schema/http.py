"""The ``http`` of the file: bounds on client connections and requests."""

from typing import Self

from pydantic import Field, model_validator

from config.schema.cors import CorsConfig
from config.schema.section import Section
from config.schema.units import HELD_COPIES, Duration, Size, format_size


class HttpConfig(Section):
    """Bounds on client connections and requests."""

    max_head: Size = 32 * 1024
    """Largest request line and headers together."""
    max_body: Size = 32 * 1024**2
    """Largest request body; a larger one is refused with 413."""
    head_timeout: Duration = 10.0
    """Longest time from the first byte of a request to the end of its headers."""
    body_timeout: Duration = 30.0
    """Longest time until the body is complete."""
    keepalive_timeout: Duration = 75.0
    """How long an idle connection stays open."""
    send_timeout: Duration = 60.0
    """How long a client may read nothing of its response before its connection is closed."""
    max_connections: int = Field(10_000, ge=1)
    """Open client connections of each listener. At the bound, idle connections are closed for new ones. The effective
    bound is lower, and logged at start-up, when the limit of open files is too low."""
    cors: CorsConfig | None = None
    """Origins whose web pages may use the HTTP listener; none when absent."""
    stream_comments: Duration | None = None
    """After this time without a first event, a stream begins with a comment, and sends another one at the same
    interval. So no proxy closes the silent connection. The status is then 200: a later failure is sent as an event,
    which client libraries do not retry. Disabled when absent."""
    http2: bool = True
    """Whether HTTP/2 is served, with or without TLS. Each stream counts as a connection. A client that supports both
    versions is served over HTTP/1.1, which costs less."""
    max_held: Size | None = None
    """Bytes that all requests of one process may hold at once; more are refused with 503. A body counts three times
    (received, decoded, sent). Response bytes count until the client has read them. When absent: 2 GiB, or eight of the
    largest bodies if that is more."""
    max_held_by_tenant: Size | None = None
    """The same bound for each tenant; more are refused with 429. Half of ``max_held`` when absent."""

    @property
    def held_by_all(self) -> int:
        """Maximum of bytes that a process holds."""
        return max(2 * 1024**3, 8 * HELD_COPIES * self.max_body) if self.max_held is None else self.max_held

    @property
    def held_by_tenant(self) -> int:
        """Maximum of bytes that a tenant holds."""
        return self.held_by_all // 2 if self.max_held_by_tenant is None else self.max_held_by_tenant

    @model_validator(mode="after")
    def _largest_body_fits(self) -> Self:
        largest = HELD_COPIES * self.max_body
        if self.held_by_tenant < largest:
            raise ValueError(
                f"a tenant may hold {format_size(self.held_by_tenant)}, and the largest body takes "
                f"{format_size(largest)}: raise `max_held`, or lower `max_body`"
            )
        if self.held_by_tenant > self.held_by_all:
            raise ValueError("`max_held_by_tenant` is more than `max_held`, which all tenants share")
        return self
