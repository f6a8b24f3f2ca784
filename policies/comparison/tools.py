"""Tool calls: names and arguments."""

from collections.abc import Sequence
from typing import Any

import msgspec

from policies.comparison.answers import ComparedTool


def tool_difference(first: Sequence[ComparedTool], second: Sequence[ComparedTool]) -> str:
    """The difference of the calls of two answers, in their order; empty if they agree."""
    if len(first) != len(second):
        return f"{len(first)} and {len(second)} calls"
    for one, other in zip(first, second, strict=True):
        if one.name != other.name:
            return f"{one.name[:64]} and {other.name[:64]}"
        if _arguments(one) != _arguments(other):
            return f"the arguments of {one.name[:64]}"
    return ""


def _arguments(call: ComparedTool) -> Any:
    """The arguments as a JSON value, so that neither white space nor the order of names counts."""
    try:
        return msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return call.arguments
