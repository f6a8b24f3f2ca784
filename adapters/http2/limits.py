"""Limits of a gRPC server and of each accepted connection."""

from dataclasses import dataclass

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server and of each connection: sizes in bytes, times in seconds.

    A message that has begun, or that the handler must receive, has `message_timeout` plus the time that its bytes take
    at `min_message_rate`. For all calls of a connection, `max_held` limits the received but unread bytes, and
    `max_unsent` the response bytes that the client has not read. `max_held_by_all` limits the held bytes of all
    connections, unless the server has a shared budget. A silent connection with calls is pinged after `ping_interval`
    and dropped after another interval; without calls it is closed after `idle_timeout`.
    """

    max_head: int = 32 * KiB
    max_message: int = 64 * MiB
    max_held: int = 256 * MiB
    max_held_by_all: int = 2 * GiB
    max_unsent: int = 64 * MiB
    max_streams: int = 1024
    max_connections: int = 10_000
    greeting_timeout: float = 10.0
    message_timeout: float = 30.0
    min_message_rate: int = 8 * KiB
    send_timeout: float = 60.0
    ping_interval: float = 60.0
    idle_timeout: float = 600.0
    lull: float = 1.0
    """Time that a drain waits for a client to receive the announcement."""
