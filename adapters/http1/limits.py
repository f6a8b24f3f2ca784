"""Limits of a server and of each accepted connection."""

from collections.abc import Mapping
from dataclasses import dataclass, field

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server and of each connection: sizes in bytes, times in seconds.

    A head must be complete within `head_timeout`. A body has `body_timeout` plus the time that its bytes take at
    `min_body_rate`: a slow drip of bytes ends soon, a large upload does not. `max_held` limits the memory of all bodies
    together, unless the server has a shared budget. `http2` also serves HTTP/2 and needs the package `h2`.
    """

    max_head: int = 32 * KiB
    max_headers: int = 100
    max_body: int = 32 * MiB
    max_held: int = 2 * GiB
    max_pipelined: int = 16
    max_connections: int = 10_000
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    min_body_rate: int = 8 * KiB
    keepalive_timeout: float = 75.0
    send_timeout: float = 60.0
    http2: bool = False
    uploads: Mapping[bytes, int] = field(default_factory=dict)
    """The largest body by path, for paths whose handler reads the body in pieces; `max_body` for all others."""
