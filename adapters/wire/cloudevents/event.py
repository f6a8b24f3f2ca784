"""An event, and the check of its attributes."""

import re
from collections.abc import Mapping
from typing import NamedTuple

MAX_ID, MAX_SOURCE, MAX_VALUE, MAX_EXTENSIONS = 512, 2048, 4096, 64
_NAME = re.compile(r"[a-z0-9]{1,64}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of a pair of surrogates, which no encoding has."""
REQUIRED = ("specversion", "id", "source", "type")


class EnvelopeError(Exception):
    """A message that is no valid CloudEvent. `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class CloudEvent(NamedTuple):
    """An event with its data as bytes."""

    id: str
    source: str
    type: str
    data: bytes
    content_type: str = ""
    """The type of the data; empty when it is not given."""
    extensions: Mapping[str, str] = {}
    """All other attributes by name."""


def is_name(name: str) -> bool:
    """Whether a text may name an attribute."""
    return _NAME.fullmatch(name) is not None


def event_of(attributes: dict[str, str], data: bytes) -> CloudEvent:
    """An event of checked attributes. `attributes` is consumed. Raises `EnvelopeError`."""
    for name in REQUIRED:
        if not attributes.get(name):
            raise EnvelopeError("missing_attribute", f"The CloudEvent has no `{name}`.")
    version = attributes.pop("specversion")
    if version != "1.0":
        raise EnvelopeError("unsupported_version", "The `specversion` of the CloudEvent is not 1.0.")
    if len(attributes) > MAX_EXTENSIONS:
        raise EnvelopeError("too_many_attributes", f"The CloudEvent has more than {MAX_EXTENSIONS} attributes.")
    for name, value in attributes.items():
        most = {"id": MAX_ID, "source": MAX_SOURCE}.get(name, MAX_VALUE)
        if len(value) > most or _UNPRINTABLE.search(value):
            message = f"The attribute `{name}` has more than {most} characters, or a control character."
            raise EnvelopeError("invalid_attribute", message)
    id_, source, type_ = (attributes.pop(name) for name in REQUIRED[1:])
    return CloudEvent(id_, source, type_, data, attributes.pop("datacontenttype", ""), attributes)
