"""Requests to the servers of a protocol, and their correct responses."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from adapters.requests import ModelRequest
from tests.hostile.attacks import EVENTS as EVENTS
from tests.hostile.attacks import FRAMES as FRAMES
from tests.hostile.attacks import Right
from tests.hostile.server import http

JSON = "application/json"


def on_shelf(plain: bool) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case. All cases run over sockets on the shelf of processes, but those that run in memory."""
    return () if plain else (pytest.mark.processes,)


def crossed(each: list[Any], attacks: list[Any], applies: Callable[[Any, Any], bool]) -> list[Any]:
    """Each sample with each attack that applies to it. Attacks that `flood` are none for the plain shelf."""
    return [
        pytest.param(
            *case.values, attack, id=f"{case.id}-{attack.name}", marks=case.marks or on_shelf(not attack.floods)
        )
        for case in each
        for attack in attacks
        if applies(case.values[1], attack)
    ]


@dataclass(frozen=True)
class Sample:
    """One kind of request to one protocol, over HTTP/1.1."""

    kind: str
    request: Callable[[], ModelRequest]
    body: bytes
    """The right answer."""
    content_type: str = JSON
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the protocol."""
    good: Mapping[str, bytes] = field(default_factory=dict)
    """Responses to other requests, by path; they are never attacked: an adapter reads its model's metadata."""
    wrong: Mapping[str, bytes] = field(default_factory=dict)
    """Bodies that are well-formed, healthy and wrong, by their defect."""
    unreadable: Mapping[str, bytes] = field(default_factory=dict)
    """Right answers with a report that cannot be read, by its defect."""
    opaque: bool = False
    """Any bytes are right: they are an app's own business."""
    lenient: frozenset[str] = frozenset()
    """Attacks whose bytes it may take for an answer."""
    open_ended: bool = False
    """A stream that has no last event: where it ends it is over."""

    @property
    def right(self) -> Right:
        return Right(self.body, self.content_type)


def dump(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def events(*data: bytes) -> bytes:
    return b"".join(b"data: %b\n\n" % one for one in data)


def good_of(sample: Sample) -> Callable[[str], bytes | None]:
    return lambda path: http(200, JSON, sample.good[path]) if path in sample.good else None
