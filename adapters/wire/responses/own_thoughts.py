"""Removes the thoughts that only this gateway wrote from the input of a server of Responses.

A turn that a server of chats answered has reasoning that no server of Responses has stored or encrypted. Clients send
it back, also after the session has moved to such a server, which refuses it.
"""

import re

import msgspec
from msgspec import Raw

from adapters.requests import Fields
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.openai import kept_signatures
from adapters.wire.responses.answers import response_of

_SIGN = re.compile(rb'"rs_[0-9a-f]{36}"|"%b' % re.escape(kept_signatures.PREFIX.encode()))
"""A sign of such an item. In a text the quotes would be escaped."""


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    encrypted_content: str | None = None


_items = msgspec.json.Decoder(list[Raw]).decode
_item = msgspec.json.Decoder(_Item).decode
_encode = msgspec.json.Encoder().encode


def without_own_thoughts(fields: Fields) -> Fields:
    """The fields of a Response without such items. All other bytes are unchanged, those of a malformed input too."""
    given = fields.get("input")
    if given is None or _SIGN.search(memoryview(given)) is None:
        return fields
    try:
        return {**fields, "input": Raw(_encode([raw for raw in _items(given) if not _is_own(raw)]))}
    except MALFORMED_JSON:
        return fields


def _is_own(raw: Raw) -> bool:
    """Raises msgspec's errors."""
    item = _item(raw)
    if item.type != "reasoning":
        return False
    if item.encrypted_content:
        return kept_signatures.is_own(item.encrypted_content)
    return response_of(item.id or "") is not None
