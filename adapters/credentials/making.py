"""The credential of a pool, or of one of its endpoints."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from adapters.credentials.renewed import Issued, Renewed
from adapters.http1.signing import Credential
from config.schema.protocols.credentials import AwsCredentials, CredentialsConfig

_sources: WeakValueDictionary[tuple[int, object], Renewed[Any]] = WeakValueDictionary()
"""The sources in use, by event loop and configuration: one renewal serves all endpoints, pools and reloads."""


def make(config: CredentialsConfig, pool: str, url: str, header: str | None, region: str | None = None) -> Credential:
    """The credential of the requests to `url`. `pool` is in its errors; `header` is the pool's own for tokens.

    `region` is that of the pool's protocol. Nothing is requested before the first request.
    """
    if config.aws is not None:
        return _aws(config.aws, pool, url, region)
    from adapters.credentials.bearer import BearerCredential

    if config.oauth is not None:
        from adapters.credentials.oauth import access_token

        oauth = config.oauth
        source = _source(oauth, f"OAuth at {urlsplit(oauth.url).netloc}", lambda: access_token(oauth))
    else:
        from adapters.credentials.command import printed_token

        assert config.command is not None
        command = config.command
        source = _source(command, f"the program {os.path.basename(command.run[0])}", lambda: printed_token(command))
    return BearerCredential(pool, source, header or "authorization")


def _aws(config: AwsCredentials, pool: str, url: str, region: str | None) -> Credential:
    from adapters.credentials.aws import AwsCredential, scope_of_host
    from adapters.credentials.sigv4 import AccessKey, SigningScope

    region_of_host, service_of_host = scope_of_host(urlsplit(url).hostname or "")
    scope = SigningScope(
        config.region or region_of_host or region or os.environ.get("AWS_REGION") or "us-east-1",
        config.service or service_of_host or "bedrock",
    )

    async def fixed() -> Issued[AccessKey]:
        token = "" if config.session_token is None else config.session_token.get_secret_value()
        return Issued(AccessKey(config.key_id.get_secret_value(), config.secret.get_secret_value(), token), None)

    return AwsCredential(pool, _source(config, "AWS", fixed), scope)


def _source(config: object, label: str, make: Callable[[], Awaitable[Issued[Any]]]) -> Renewed[Any]:
    loop = asyncio.get_running_loop()
    source = _sources.get((id(loop), config))
    if source is None or source.loop is not loop:
        source = _sources[id(loop), config] = Renewed(label, make)
    return source
