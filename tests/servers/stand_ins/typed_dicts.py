"""Whether a JSON value is a valid `TypedDict`: no member is missing or unknown, and each has its type.

Client libraries publish what their servers take as such types, so a stand-in built on them is as strict.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

_PLAIN: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), float: (int, float), int: (int,), NoneType: (NoneType,),
}  # fmt: skip


def mistakes(value: object, kind: Any, where: str = "") -> Iterator[str]:
    """The mistakes in `value`, each with its place."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return
    if origin in (Annotated, Required, NotRequired):
        yield from mistakes(value, arguments[0], where)
    elif origin in (Union, UnionType):
        yield from _of_several(value, arguments, where)
    elif origin is Literal:
        if value not in arguments:
            yield f"{where}: Input should be {' or '.join(map(repr, arguments))}"
    elif is_typeddict(kind):
        yield from _of_object(value, kind, where)
    elif kind in _PLAIN:
        if not isinstance(value, _PLAIN[kind]) or (isinstance(value, bool) and kind is not bool):
            yield f"{where}: Input should be a valid {kind.__name__}"
    elif origin in (dict, Mapping):
        if not isinstance(value, dict):
            yield f"{where}: Input should be a valid dictionary"
    elif arguments:  # some sequence
        if not isinstance(value, list):
            yield f"{where}: Input should be a valid list"
            return
        for i, inner in enumerate(value):
            yield from mistakes(inner, arguments[0], f"{where}.{i}")
    else:
        yield f"{where}: Input is of a type that no JSON has"


def _of_several(value: object, kinds: tuple[Any, ...], where: str) -> Iterator[str]:
    """The mistakes by the kind that the object's `type` or `role` names, of all kinds that it may be."""
    problems = [list(mistakes(value, kind, where)) for kind in kinds]
    if any(not each for each in problems):
        return
    for tag in ("type", "role"):
        if isinstance(value, dict) and tag in value:
            same = [each for kind, each in zip(kinds, problems, strict=True) if _accepts(kind, tag, value[tag])]
            yield from same[0] if same else [f"{where}.{tag}: Input tag {value[tag]!r} is none of the expected"]
            return
    lists = [each for kind, each in zip(kinds, problems, strict=True) if isinstance(value, list) and _is_list(kind)]
    yield from lists[0] if lists else problems[0][:1]


def _is_list(kind: Any) -> bool:
    return bool(get_args(kind)) and get_origin(kind) not in (Union, UnionType, Literal, dict, Mapping)


def _accepts(kind: Any, tag: str, value: object) -> bool:
    literal = _hints(kind).get(tag) if is_typeddict(kind) else None
    while get_origin(literal) in (Required, NotRequired, Annotated):
        literal = get_args(literal)[0]
    return get_origin(literal) is Literal and value in get_args(literal)


def _of_object(value: object, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: Input should be an object"
        return
    hints, dot = _hints(kind), f"{where}." if where else ""
    for name in [name for name, hint in hints.items() if get_origin(hint) is Required and name not in value]:
        yield f"{dot}{name}: Field required"
    for name, inner in value.items():
        if name in hints:
            yield from mistakes(inner, hints[name], f"{dot}{name}")
        elif not _open(kind):
            yield f"{dot}{name}: Extra inputs are not permitted"


def _open(kind: Any) -> bool:
    return bool(getattr(kind, "__pydantic_config__", {}).get("extra") == "allow")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
