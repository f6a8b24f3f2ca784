"""Bounds on one accepted connection."""

from dataclasses import dataclass

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one connection; sizes in bytes, times in seconds.

    A head must be whole within `head_timeout`. A body gets `body_timeout` plus the time that its bytes take
    at `min_body_rate`, so that a drip of single bytes ends soon and a large upload does not. `max_held` bounds what all
    bodies together hold, where the server has no budget that is shared. `http2` serves clients that speak HTTP/2, too:
    it needs the package `h2`.
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
