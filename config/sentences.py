"""pydantic's errors as sentences that name what to change, with the line each is on."""

from collections.abc import Container, Iterator
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from config.document import Document
from config.place import Place, fields_at, type_at
from config.problem import Problem, closest
from config.schema import Config
from config.section import Section

_EXPECTED = {
    "bool_type": "expected true or false",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "string_type": "expected text: put a number, true or false in quotes",
    "tuple_type": "expected a list",
    "dict_type": "expected fields",
    "model_type": "expected fields",
}
_BOUNDS = {
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "needs {min_length} or more entries",
    "too_long": "takes {max_length} entries at most",
    "string_too_short": "must not be empty",
}


def problems(
    doc: Document, error: ValidationError, skip: Container[Place], root: type[Section] = Config
) -> Iterator[Problem]:
    """One problem for each of the schema's complaints, save about the places in ``skip``."""
    for details in error.errors(include_url=False, include_input=False):
        place = tuple(step for step in details["loc"] if not _nobody_wrote(step))
        if place not in skip and not _already_told(doc, place, details):
            yield _problem(doc, place, details, root)


def _nobody_wrote(step: str | int) -> bool:
    """pydantic's own steps, and those that name which of several forms was written."""
    return isinstance(step, str) and step.startswith("[") and step.endswith("]")


def _already_told(doc: Document, place: Place, details: ErrorDetails) -> bool:
    """pydantic counts a list's valid entries only: one that is long enough has its own complaints inside."""
    entries = doc.value(place)
    return (
        details["type"] == "too_short" and isinstance(entries, tuple) and len(entries) >= details["ctx"]["min_length"]
    )


def _problem(doc: Document, place: Place, details: ErrorDetails, root: type[Section]) -> Problem:
    kind = details["type"]
    if kind == "extra_forbidden":
        section = details["loc"][:-1]
        return doc.problem_with_key(place, "unknown field", closest(str(place[-1]), fields_at(section, root)))
    if kind == "missing":
        return doc.problem(place, "is required")
    if kind == "literal_error":
        return _not_a_choice(doc, place, type_at(details["loc"], root))
    return doc.problem(place, sentence(details) + _got(doc.value(place)))


def sentence(details: ErrorDetails) -> str:
    """What was expected, of a complaint that is not about a field's name or a choice."""
    kind, context, otherwise = details["type"], details.get("ctx", {}), details["msg"]
    if kind == "value_error":
        return str(context["error"])
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    return _EXPECTED.get(kind, otherwise)


def _not_a_choice(doc: Document, place: Place, hint: object) -> Problem:
    choices = ["true" if choice is True else str(choice) for choice in get_args(hint)]
    value = doc.value(place)
    suggestion = closest(value, choices) if isinstance(value, str) else None
    return doc.problem(place, f"expected {' or '.join(choices)}{_got(value)}", suggestion)


def _got(value: object) -> str:
    """Numbers and booleans only: a text may be a secret that was put in the wrong place."""
    if isinstance(value, bool):
        return f", got {str(value).lower()}"
    return f", got {value}" if isinstance(value, int | float) else ""
