"""Finds routes that can never match because another route's ``when`` covers theirs."""

import math
import re
from collections.abc import Callable
from decimal import Decimal

from config.node import Node
from config.schema.globs import covers


def covers_when(wide: Node, narrow: Node) -> bool:
    """Whether ``wide`` certainly matches every request that ``narrow`` matches.

    Fields are compared separately, so True is certain, and some coverings are not detected.
    """
    return all(
        _COVERS[name](node, narrow[name]) for name, node in wide.fields() if name in _COVERS and node.value is not None
    )


def token_range(comparison: str) -> tuple[float, float] | None:
    """``>4000`` → ``(4001, inf)``: the least and the most tokens that match. None for an invalid comparison."""
    parts = re.fullmatch(r"([<>]=?)\s*(\d{1,9})", comparison)
    if parts is None:
        return None
    sign, bound = parts[1], int(parts[2])
    if sign[0] == ">":
        return bound + (sign == ">"), math.inf
    return 0, bound - (sign == "<")


def cost_range(comparison: str) -> tuple[str, Decimal] | None:
    """``>0.01 usd`` → ``(">", 0.01)``. None for an invalid comparison."""
    parts = re.fullmatch(r"([<>]=?)\s*(\d{1,12}(?:\.\d{1,12})?)\s*[A-Za-z]{3}", comparison)
    return None if parts is None else (parts[1], Decimal(parts[2]))


def _globs(wide: Node, narrow: Node) -> bool:
    texts = narrow.texts()
    return bool(texts) and all(any(covers(glob, text) for glob in wide.texts()) for text in texts)


def _pairs(wide: Node, narrow: Node) -> bool:
    return all(
        node.text is not None and (text := narrow[name].text) is not None and covers(node.text, text)
        for name, node in wide.fields()
    )


def _headers(wide: Node, narrow: Node) -> bool:
    return _pairs(_lower(wide), _lower(narrow))


def _lower(headers: Node) -> Node:
    return Node({name.lower(): node.value for name, node in headers.fields()}, headers.place)


def _same(wide: Node, narrow: Node) -> bool:
    return wide.value == narrow.value


def _tokens(wide: Node, narrow: Node) -> bool:
    outer, inner = token_range(wide.text or ""), token_range(narrow.text or "")
    return outer is not None and inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


def _costs(wide: Node, narrow: Node) -> bool:
    outer, inner = cost_range(wide.text or ""), cost_range(narrow.text or "")
    if outer is None or inner is None or outer[0][0] != inner[0][0]:
        return False
    if outer[1] == inner[1]:
        return outer[0] == inner[0] or outer[0].endswith("=")
    return (outer[1] < inner[1]) == (outer[0][0] == ">")


_COVERS: dict[str, Callable[[Node, Node], bool]] = {
    "tenant": _globs,
    "role": _globs,
    "key": _globs,
    "label": _pairs,
    "model": _globs,
    "version": _globs,
    "front": _globs,
    "header": _headers,
    "stream": _same,
    "prompt_tokens": _tokens,
    "max_tokens": _tokens,
    "tools": _same,
    "json_schema": _same,
    "vision": _same,
    "cost": _costs,
    "time": _same,
}
