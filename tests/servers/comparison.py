"""Compares the responses of two servers, except for intended differences."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.servers.exchange import Reply

Status = int | str
"""A number over HTTP, a word over gRPC."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An intended difference between our runtime and Triton. The texts are a row of `docs/tensor-runtime.md`."""

    topic: str
    triton: str
    ours: str
    why: str
    cases: Mapping[str, Sequence[Status | None]] = field(default_factory=dict)
    """The status of each of our answers by case; None where it is Triton's. Bodies of other statuses are not
    compared beyond their shape."""
    free: Collection[str] = ()
    """Cases in which only statuses are compared."""
    keys: Collection[str] = ()
    """Members that are left out of every comparison of the cases in `leaves_out`, however deep they lie."""
    leaves_out: Collection[str] = ()


def status(response: Reply) -> Status:
    """The status of a response on its wire."""
    return response.status or response.kind


def disagreements(name: str, theirs: Sequence[Reply], ours: Sequence[Reply], table: Sequence[Difference]) -> list[str]:
    """Descriptions of the unintended differences; empty without any."""
    meant = next((one.cases[name] for one in table if name in one.cases), [None] * len(theirs))
    keys = {key for one in table if name in one.leaves_out for key in one.keys}
    free = any(name in one.free for one in table)
    problems = []
    for number, (their, our, intended) in enumerate(zip(theirs, ours, meant, strict=True)):
        expected = status(their) if intended is None else intended
        if status(our) != expected:
            problems.append(f"answer {number}: {status(our)} instead of {expected}: {our.document}")
        elif intended is None and not free and _without(our, keys) != _without(their, keys):
            problems.append(f"answer {number}:\n  ours   {our}\n  triton {their}")
        elif intended is not None and is_error(expected) and not is_well_formed(our):
            problems.append(f"answer {number}: an error of another shape: {our}")
    return problems


def is_error(one: Status) -> bool:
    return one != "OK" if isinstance(one, str) else one >= 400


def is_well_formed(response: Reply) -> bool:
    """Whether an error is one object with a text, in JSON; a failed call has no message."""
    if not response.status:
        return bool(response.document == [])
    return response.kind in ("error", "") and bool(response.document in ({"error": True}, None))


def _without(response: Reply, keys: Collection[str]) -> Reply:
    return Reply(response.status, response.kind, _stripped(response.document, keys))


def _stripped(document: Any, keys: Collection[str]) -> Any:
    if isinstance(document, dict):
        return {key: _stripped(value, keys) for key, value in document.items() if key not in keys}
    return [_stripped(one, keys) for one in document] if isinstance(document, list) else document
