"""Ids of stored responses with something sealed in them, which the request that continues the response brings back."""

import re

_ID = re.compile(r"(resp_[A-Za-z0-9_-]+?)_p([A-Za-z0-9_-]{40,})")


def joined_id(id_: str, sealed: str) -> str:
    """An id with a sealed part, which is base64url. `split_id` is the inverse."""
    return f"{id_}_p{sealed}" if sealed else id_


def split_id(id_: str) -> tuple[str, str]:
    """The id of the response, and its sealed part, which may be empty."""
    match = _ID.fullmatch(id_)
    return (id_, "") if match is None else (match[1], match[2])
