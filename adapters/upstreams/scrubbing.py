"""What the texts of a pool's servers must not show: the gateway's credentials there, and their addresses."""

from __future__ import annotations

import asyncio

from pydantic import SecretStr

from adapters import offload
from adapters.answer import Answer
from adapters.errors import CallerError
from adapters.wire import compression, decoding
from adapters.wire.failure_text import Scrubber
from config.schema.config import PoolConfig

LARGEST = 4 * 1024 * 1024
"""Bytes of the largest decompressed error body."""


def scrubber(pool: PoolConfig, *addresses: str) -> Scrubber:
    """The scrubber of a pool's server at these addresses."""
    fields = [value for _, value in pool.protocol]
    own = [header.secret for header in pool.headers]
    made = () if pool.credentials is None else pool.credentials.secrets
    secrets = [pool.key, *made, *own, getattr(getattr(pool.runtime, "ray", None), "key", None), *fields]
    others = [field for field in fields if isinstance(field, str) and "://" in field]  # such as an explainer
    return Scrubber([one.get_secret_value() for one in secrets if isinstance(one, SecretStr)], (*addresses, *others))


async def clean(answer: Answer, scrubber: Scrubber) -> None:
    """Scrub an app's own error, which is forwarded. Raises `BackendError` for a body that cannot be decompressed."""
    headers = {name: scrubber.without_values(value) for name, value in answer.headers}
    if coding := headers.pop("content-encoding", ""):
        try:
            answer.body = await asyncio.to_thread(compression.decompress, answer.body or b"", coding, LARGEST)
        except CallerError:
            raise decoding.bad_response("The upstream's error is not validly compressed.") from None
    body = answer.body or b""
    answer.body = await offload.run(len(body), scrubber.body, body)
    answer.content_type = scrubber.without_values(answer.content_type)
    answer.headers = tuple(headers.items())
