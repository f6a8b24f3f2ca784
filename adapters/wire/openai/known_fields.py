"""Decodes JSON of another protocol, and leaves out what the decoder's type does not define.

Types forbid unknown fields, so a value without any is decoded once. Only a value with unknown fields is searched for
them: a client that is newer than the gateway adds fields at every level, and its requests must not fail.
"""

from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, inspect

from adapters.ignored_fields import requests_nothing

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_list = msgspec.json.Decoder(list[Raw]).decode
_text = msgspec.json.Decoder(str).decode


class Ignores(Protocol):
    """Takes the names of fields that are left out."""

    def ignore(self, name: str, /) -> None:
        """Raises `CallerError` where the field may not be left out."""


class LeftOut(msgspec.Struct, tag_field="type", tag="headrace_left_out", forbid_unknown_fields=True):
    """An entry of a list whose type is unknown. A list keeps its place if its union has this struct."""

    of: str


class DefinedFields(Generic[T]):
    """The decoder of one type."""

    def __init__(self, type_: Any) -> None:
        self._decoder = msgspec.json.Decoder(type_)
        self._type = inspect.type_info(type_)

    def reporting(self, ignored: Ignores) -> "Reporting[T]":
        """The decoder for one request."""
        return Reporting(self._decoder, self._type, ignored)


class Reporting(Generic[T]):
    """Decodes values of one request, and reports the unknown fields by their own names."""

    __slots__ = ("_decoder", "_ignored", "_type")

    def __init__(self, decoder: "msgspec.json.Decoder[T]", type_: inspect.Type, ignored: Ignores) -> None:
        self._decoder = decoder
        self._type = type_
        self._ignored = ignored

    def decode(self, raw: bytes | Raw) -> T:
        """Decode. Raises msgspec's errors for a value that is invalid without its unknown fields too, and
        `CallerError` on a strict route."""
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError:
            return self._decoder.decode(self._defined(self._type, Raw(raw)) or raw)

    def _defined(self, type_: inspect.Type, raw: Raw) -> Raw | None:
        """The known part of a value; None if its type is unknown."""
        kinds = type_.types if isinstance(type_, inspect.UnionType) else (type_,)
        first = bytes(memoryview(raw)[:1])
        if first == b"[":
            for kind in kinds:
                if isinstance(kind, inspect.ListType):
                    return self._defined_entries(kind.item_type, raw)
        elif first == b"{" and (structs := [kind for kind in kinds if isinstance(kind, inspect.StructType)]):
            return self._defined_object(structs, raw)
        return raw

    def _defined_entries(self, type_: inspect.Type, raw: Raw) -> Raw:
        entries = [self._defined(type_, entry) for entry in _list(raw)]
        return Raw(_encode([entry for entry in entries if entry is not None]))

    def _defined_object(self, structs: list[inspect.StructType], raw: Raw) -> Raw | None:
        given = _object(raw)
        struct, tag_field = structs[0], structs[0].tag_field
        if tag_field is not None and tag_field in given:
            tag = given[tag_field]
            if bytes(memoryview(tag)[:1]) != b'"':
                return raw
            by_tag = {each.tag: each for each in structs}
            if (name := _text(tag)) not in by_tag:
                return self._unknown(name, by_tag)
            struct = by_tag[name]
        types = {field.encode_name: field.type for field in struct.fields}
        fields = {}
        for name, value in given.items():
            if name in types:
                defined = self._defined(types[name], value)
                fields[name] = value if defined is None else defined
            elif name == tag_field:
                fields[name] = value
            elif bytes(value) == b"{}" or not requests_nothing(name, value):  # an empty object may be a hosted tool
                self._ignored.ignore(name)
        return Raw(_encode(fields))

    def _unknown(self, name: str, by_tag: dict[Any, inspect.StructType]) -> Raw | None:
        """The mark of an object whose type is unknown, where such a mark is possible."""
        self._ignored.ignore(name)
        tag = LeftOut.__struct_config__.tag
        return Raw(_encode({"type": tag, "of": name[:64]})) if tag in by_tag else None
