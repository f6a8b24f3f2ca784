"""What a policy may know about one request."""

from collections.abc import Mapping
from typing import NamedTuple


class Facts(NamedTuple):
    """Identity comes from the credential; everything else is what the client says."""

    tenant: str
    key: str  # the key's id, never its secret
    model: str
    headers: Mapping[str, str]  # lower-case names
    stream: bool
    prompt_tokens: int  # an estimate where the gateway has no tokenizer
    user: str | None  # the request's own end-user field
    request_id: str
