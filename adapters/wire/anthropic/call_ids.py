"""Ids of tool calls in Anthropic's alphabet, and back.

Anthropic's API accepts letters, digits, `_` and `-`. Other servers write ids such as `functions.weather:0`, and some
expect them back. The API also demands that all ids of a conversation differ, and some servers begin again with `call_0`
in each answer. The translation is reversible, so that the gateway needs no state.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

PREFIX = "toolu_hr_"
MAX_ID = 256
"""Characters of the longest id that is encoded; of a longer one only a hash remains."""
UNIQUE = 20
"""Characters of an id that is unique already."""
_TOKEN = 8
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def to_message(id_: str, token: str = "") -> str:
    """The id in a message for a chat's id. Equal ids stay equal, and different ids different.

    `token` is unique for each answer: with it, equal short ids of two answers differ.
    """
    is_plain = _PLAIN.fullmatch(id_) is not None and not id_.startswith(PREFIX)
    if is_plain and len(id_) <= MAX_ID and (not token or len(id_) >= UNIQUE):
        return id_
    if len(id_) > MAX_ID:
        return "toolu_" + sha256(f"{token}{id_}".encode()).hexdigest()
    return PREFIX + token[:_TOKEN].ljust(_TOKEN, "0") + urlsafe_b64encode(id_.encode()).rstrip(b"=").decode()


def to_chat(id_: str) -> str:
    """The chat's id for an id that `to_message` wrote; any other id is unchanged."""
    if not id_.startswith(PREFIX):
        return id_
    token, given = id_.removeprefix(PREFIX)[:_TOKEN], id_.removeprefix(PREFIX)[_TOKEN:]
    try:
        decoded = urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()
    except ValueError:
        return id_
    return decoded if to_message(decoded, token) == id_ else id_
