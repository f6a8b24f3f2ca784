"""Whether one route's ``when`` takes all that another's would, and so leaves it nothing."""

import math
import re
from collections.abc import Callable

from config.globs import covers
from config.node import Node


def covers_when(wide: Node, narrow: Node) -> bool:
    """Whether every request that ``narrow`` matches is surely matched by ``wide``.

    Fields are compared one by one, so that a True is certain and some coverings go unseen.
    """
    return all(
        _COVERS[name](node, narrow[name]) for name, node in wide.fields() if name in _COVERS and node.value is not None
    )


def token_range(comparison: str) -> tuple[float, float] | None:
    """``>4000`` → ``(4001, inf)``: the least and the most tokens that match. None where it is no comparison."""
    parts = re.fullmatch(r"([<>]=?)\s*(\d{1,9})", comparison)
    if parts is None:
        return None
    sign, bound = parts[1], int(parts[2])
    if sign[0] == ">":
        return bound + (sign == ">"), math.inf
    return 0, bound - (sign == "<")


def _globs(wide: Node, narrow: Node) -> bool:
    texts = narrow.texts()
    return bool(texts) and all(any(covers(glob, text) for glob in wide.texts()) for text in texts)


def _headers(wide: Node, narrow: Node) -> bool:
    values = {name.lower(): node.text for name, node in narrow.fields()}
    return all(
        node.text is not None and (text := values.get(name.lower())) is not None and covers(node.text, text)
        for name, node in wide.fields()
    )


def _same(wide: Node, narrow: Node) -> bool:
    return wide.value == narrow.value


def _tokens(wide: Node, narrow: Node) -> bool:
    outer, inner = token_range(wide.text or ""), token_range(narrow.text or "")
    return outer is not None and inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


_COVERS: dict[str, Callable[[Node, Node], bool]] = {
    "tenant": _globs,
    "model": _globs,
    "header": _headers,
    "stream": _same,
    "prompt_tokens": _tokens,
}
