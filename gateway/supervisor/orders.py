"""What a worker is told, and what it answers at its start."""

from typing import TypeVar

import msgspec


class Terms(msgspec.Struct, frozen=True):
    """What all workers have in common, until a reload brings other terms."""

    config: str
    """Packed by `config.handover`."""
    workers: int
    runtimes: dict[str, str]
    """The address of each runtime, by pool."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's, on its standard input."""

    slot: int
    """0 and up: which part of the host's numbers is its own."""
    terms: Terms
    path: str
    """The configuration's file, for what is told of it."""
    listeners: list[list[int]]
    """Inherited file descriptors by slot."""
    grpc_from: int
    """Which of a slot's are of gRPC: from that one on."""
    control: str
    """The Unix socket on which the supervisor asks things of it."""
    demo: str | None
    """The demo key."""
    overrides: bytes
    """What operators have changed in the pools; empty for nothing."""
    limits: int
    """The file descriptor of the table in which all workers count what tenants use."""
    limit_slot: int = -1
    """Which part of that table is its own: nobody else who lives has it."""
    report: int = -1
    """The file descriptor to tell on how the start went."""


class Report(msgspec.Struct, frozen=True):
    """How a worker's start went: no error, or why there was none."""

    error: str = ""


T = TypeVar("T")


def encode(message: msgspec.Struct) -> bytes:
    """One line."""
    return msgspec.json.encode(message)


def decode(line: bytes, kind: type[T]) -> T:
    """Raises `msgspec.MsgspecError`, a `ValueError` for what another version wrote."""
    return msgspec.json.decode(line, type=kind)
