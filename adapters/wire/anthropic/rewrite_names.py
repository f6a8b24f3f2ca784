"""The names of a chat's fields that a route's rewrite uses for the fields of a message."""

from collections.abc import Iterable

_ROUTES = {
    "metadata": ("user",),
    "output_config": ("reasoning_effort", "response_format"),
    "stop_sequences": ("stop",),
}


def route_names(field: str) -> Iterable[str]:
    """The names of one field in a route's rewrite."""
    return _ROUTES.get(field, ())
