"""Messages of protobuf as plain objects, as Triton writes them as JSON: the fields' own names, integers as numbers."""

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError

from adapters.errors import CallerError

M = TypeVar("M")


def plain(message: Any, *, defaults: bool = True) -> dict[str, Any]:
    """All fields; those that hold nothing are left out, and with `defaults` False those that hold a default too."""
    told: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if value or defaults:
                told[field.name] = _repeated(field, value, defaults)
        elif field.has_presence:
            if message.HasField(field.name):
                told[field.name] = _one(field, value, defaults)
        elif defaults or value != field.default_value:
            told[field.name] = _one(field, value, defaults)
    return told


def _repeated(field: Any, value: Any, defaults: bool) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        item = kind.fields_by_name["value"]
        return {str(key): _one(item, value[key], defaults) for key in value}
    return [_one(field, item, defaults) for item in value]


def _one(field: Any, value: Any, defaults: bool) -> Any:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return plain(value, defaults=defaults)
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def fill(message: M, told: dict[str, Any]) -> M:
    """The message with the fields of a plain object. Unknown ones are left. Raises `CallerError`."""
    try:
        return ParseDict(told, message, ignore_unknown_fields=True)  # type: ignore[no-any-return]
    except ParseError as error:
        raise CallerError(f"The body is not valid: {error}.") from None
