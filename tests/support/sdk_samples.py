"""Objects of the official client's types, with the required fields only or with all."""

from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel


def members(union: Any) -> list[Any]:
    """The types of a union, which may be annotated."""
    return list(get_args(get_args(union)[0] if get_origin(union) is Annotated else union))


def sample(type_: Any, *, full: bool, choice: int = 0) -> Any:
    """JSON of a type. `choice` selects the members of unions."""
    origin, inner = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return sample(inner[0], full=full, choice=choice)
    if origin in (Union, UnionType):
        given = [each for each in inner if each is not type(None)]
        return sample(given[choice % len(given)], full=full, choice=choice)
    if origin is Literal:
        return inner[choice % len(inner)]
    if origin in (list, tuple):
        return [sample(inner[0], full=full, choice=choice)]
    if origin is dict:
        return {"a": sample(inner[1], full=full, choice=choice)}
    if isinstance(type_, type) and issubclass(type_, BaseModel):
        return {
            field.alias or name: "{}" if name == "arguments" else sample(field.annotation, full=full, choice=choice)
            for name, field in type_.model_fields.items()
            if full or field.is_required() or name == "type"
        }
    assert not (isinstance(type_, type) and issubclass(type_, Enum))
    return {str: "x", int: 1, float: 0.5, bool: True}.get(type_, {"x": 1})
