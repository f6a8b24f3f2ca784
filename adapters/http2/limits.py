"""Bounds on one accepted connection."""

from dataclasses import dataclass

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one connection; sizes in bytes, times in seconds.

    A message that has begun gets `message_timeout` plus the time that its bytes take at `min_message_rate`, and so
    does one that must come. `max_held` bounds what was received and not read, `max_unsent` what was answered and
    not taken, of all calls of a connection; `max_held_by_all` bounds what all connections hold, where the server has no
    budget that is shared. A connection that is silent is pinged after `ping_interval` while it has
    calls, and dropped after another; without calls it is closed after `idle_timeout`.
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
    """How long a drain waits for a client to have heard of it."""
