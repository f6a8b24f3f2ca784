"""Ids of tool calls in Anthropic's alphabet, and back.

Anthropic's API accepts letters, digits, `_` and `-`. Other servers write ids such as `functions.weather:0`, and some
expect them back. The translation is reversible, so that the gateway needs no state.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

PREFIX = "toolu_hr_"
MAX_ID = 256
"""Characters of the longest id that is encoded; of a longer one only a hash remains."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def to_message(id_: str) -> str:
    """The id in a message for a chat's id. Equal ids stay equal, and different ids different."""
    if _PLAIN.fullmatch(id_) and len(id_) <= MAX_ID and not id_.startswith(PREFIX):
        return id_
    if len(id_) > MAX_ID:
        return "toolu_" + sha256(id_.encode()).hexdigest()
    return PREFIX + urlsafe_b64encode(id_.encode()).rstrip(b"=").decode()


def to_chat(id_: str) -> str:
    """The chat's id for an id that `to_message` wrote; any other id is unchanged."""
    if not id_.startswith(PREFIX):
        return id_
    given = id_.removeprefix(PREFIX)
    try:
        decoded = urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()
    except ValueError:
        return id_
    return decoded if to_message(decoded) == id_ else id_
