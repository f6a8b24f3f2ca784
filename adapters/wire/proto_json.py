"""Converts protobuf messages to plain objects as Triton does: original field names, integers as numbers."""

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError

from adapters.errors import CallerError

M = TypeVar("M")


def plain(message: Any, *, defaults: bool = True) -> dict[str, Any]:
    """Convert a message. Empty fields are omitted, and so are default values if `defaults` is False."""
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if value or defaults:
                fields[field.name] = _repeated(field, value, defaults)
        elif field.has_presence:
            if message.HasField(field.name):
                fields[field.name] = _one(field, value, defaults)
        elif defaults or value != field.default_value:
            fields[field.name] = _one(field, value, defaults)
    return fields


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
        declared = field.enum_type.values_by_number.get(value)
        return value if declared is None else declared.name
    return value


def fill(message: M, value: dict[str, Any]) -> M:
    """Fill a message from a plain object. Unknown fields are ignored. Raises `CallerError`."""
    try:
        return ParseDict(value, message, ignore_unknown_fields=True)  # type: ignore[no-any-return]
    except ParseError as error:
        raise CallerError(f"The body is not valid: {error}.") from None
