"""Texts of another protocol within the bounds of OpenAI's: a longer text becomes a hash, the same one each time."""

import re
from hashlib import sha256

MAX_USER = 64
"""Characters of `user`. Clients of Messages send 150."""
MAX_CALL_ID = 40
MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HASH = 10
_HASHED = re.compile(r".*_[0-9a-f]{10}", re.DOTALL)


def user(id_: str, most: int = MAX_USER) -> str:
    """The id of an end user. A SHA-256 in hexadecimal has 64 characters."""
    return id_ if len(id_) <= most else sha256(id_.encode()).hexdigest()


def call_id(id_: str) -> str:
    """The id of a tool's call."""
    return id_ if len(id_) <= MAX_CALL_ID else "call_" + sha256(id_.encode()).hexdigest()[:32]


def tool_name(name: str, most: int = MAX_NAME) -> str:
    """The name of a tool: letters, digits, `_` and `-`, and `most` characters. Different names stay different."""
    if len(name) <= most and _NAME.fullmatch(name):
        return name
    start = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: most - _HASH - 1]
    return f"{start}_{sha256(name.encode()).hexdigest()[:_HASH]}"


def may_be_shortened(name: str) -> bool:
    """Whether a name may be one that `tool_name` made."""
    return _HASHED.fullmatch(name) is not None
