"""Messages between the supervisor and its workers."""

from typing import TypeVar

import msgspec

from config.schema.listen import ListenerKind
from gateway.traffic.fleet.server_tls import ServerFiles
from policies.rollouts.tally import ShareOrder, StratumTally


class WorkerSettings(msgspec.Struct, frozen=True):
    """The settings that all workers share until a reload replaces them."""

    config: str
    """Packed by `config.loader`."""
    workers: int
    runtimes: dict[str, dict[int, str]]
    """The address of each replica of a runtime, by pool and number."""
    warm: dict[str, float] = {}
    """Seconds for which the old arm of each rollout before these settings must still be able to serve."""


class StartMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a worker reads from its standard input at its start."""

    slot: int
    """0 and up; selects the worker's share of host-wide limits."""
    settings: WorkerSettings
    listeners: list[list[int]]
    """Inherited file descriptors of listening sockets, by slot."""
    kinds: list[ListenerKind]
    """The listener of each socket of a slot."""
    inboxes: list[tuple[int, int]] = []
    """Inherited file descriptors of both ends of the inboxes, by slot; none from a supervisor of an older version."""
    loads: int = -1
    """The file descriptor of the table of open connections."""
    accounts: int = -1
    """The file descriptor of the memory of accounts; none from a supervisor of an older version."""
    account_slots: int = 1
    """The most workers that share it."""
    control: str
    """The path of the worker's control socket."""
    demo: str | None
    """The demo key."""
    keys: str = ""
    """The path of a sealed copy of the keys, for a start without the database."""
    certificate: ServerFiles | None = None
    """The certificate of the listeners that is in use, if they have one."""
    overrides: bytes
    """Changes to pools by operators; may be empty."""
    rollouts: tuple[ShareOrder, ...] = ()
    """The shares of rollouts that are in force."""
    limits: int
    """The file descriptor of the shared table that counts limits."""
    limit_slot: int = -1
    """The worker's own part of that table and of the table of open connections."""
    report: int = -1
    """The file descriptor for the worker's `StartReport`."""


def calls_path(control: str) -> str:
    """The path of the socket for the console's requests to models, beside the control socket of the same worker."""
    return f"{control}.calls"


class StartReport(msgspec.Struct, frozen=True):
    """The result of a worker's start."""

    error: str = ""
    """The reason why the worker cannot serve; empty if it can."""


class CountOrder(msgspec.Struct, frozen=True):
    """A request of the admin API that a worker counts against the limits of its tenant."""

    tenant: str
    key: str
    team: str
    size: int


T = TypeVar("T")


class RolloutExchange(msgspec.Struct, frozen=True):
    """The shares to put in force, or the counts since the last exchange."""

    orders: tuple[ShareOrder, ...] = ()
    counts: tuple[StratumTally, ...] = ()


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message as one line."""
    return msgspec.json.encode(message)


def decode(line: bytes, kind: type[T]) -> T:
    """Decode a message. Raises `msgspec.MsgspecError`, a `ValueError`, e.g. if another version wrote it."""
    return msgspec.json.decode(line, type=kind)
