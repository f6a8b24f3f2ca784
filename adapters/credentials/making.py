"""The credential of a pool, or of one of its endpoints."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from adapters.credentials.renewed import Issued, Renewed
from adapters.credentials.token_endpoint import TokenOutlet
from adapters.http1.signing import Credential
from adapters.registry import Unmakeable
from config.schema.config import PoolConfig
from config.schema.protocols.credentials import (
    AwsCredentials,
    AzureCredentials,
    CommandCredentials,
    CredentialsConfig,
    GoogleCredentials,
    OAuthCredentials,
)

if TYPE_CHECKING:
    from adapters.credentials.sigv4 import AccessKey

_DIRECTLY = TokenOutlet()
_sources: WeakValueDictionary[tuple[int, Hashable], Renewed[Any]] = WeakValueDictionary()
"""The sources in use, by event loop and configuration: one renewal serves all endpoints, pools and reloads."""


def make(config: CredentialsConfig, pool: PoolConfig, url: str) -> Credential:
    """The credential of the requests of a pool to `url`. Nothing is requested before the first of them.

    Raises `Unmakeable`.
    """
    outlet = TokenOutlet(pool.proxy, pool.tls.ca if pool.tls is not None else None)
    header = pool.key_header or "authorization"
    if config.aws is not None:
        return _aws(config.aws, pool, url, outlet)
    if config.google is not None:
        return _google(config.google, pool.name, outlet)
    if config.azure is not None:
        return _azure(config.azure, pool.name, url, outlet)
    if config.oauth is not None:
        return _oauth(config.oauth, pool.name, header, outlet)
    assert config.command is not None
    return _command(config.command, pool.name, header)


def _aws(config: AwsCredentials, pool: PoolConfig, url: str, outlet: TokenOutlet) -> Credential:
    from adapters.credentials import aws_files
    from adapters.credentials.aws import AwsCredential, scope_of_host
    from adapters.credentials.sigv4 import SigningScope

    region_of_host, service_of_host = scope_of_host(urlsplit(url).hostname or "")
    region = config.region or region_of_host or getattr(pool.protocol, "region", None) or aws_files.region()
    if region is None:
        raise Unmakeable(f"pool {pool.name}: credentials: aws: the region is unknown: write `region`")
    source = access_keys(config, region, outlet)
    return AwsCredential(pool.name, source, SigningScope(region, config.service or service_of_host or "bedrock"))


def access_keys(config: AwsCredentials, region: str, outlet: TokenOutlet = _DIRECTLY) -> "Renewed[AccessKey]":
    """The access keys of AWS of a section. A role is assumed in `region`; any other key is the same everywhere."""
    from adapters.credentials import aws_keys

    return _source(
        (config, region, outlet),
        "AWS",
        lambda: aws_keys.access_key(config, region, outlet),
        lambda key: (key.secret, key.session_token),
    )


def _google(config: GoogleCredentials, pool: str, outlet: TokenOutlet) -> Credential:
    from adapters.credentials.bearer import BearerCredential
    from adapters.credentials.google import fields_of, google_token

    source = _source((config, outlet), "Google", lambda: google_token(config, outlet), lambda token: (token.text,))
    return BearerCredential(pool, source, fields_of)


def _azure(config: AzureCredentials, pool: str, url: str, outlet: TokenOutlet) -> Credential:
    from adapters.credentials.azure import entra_token, scope_of
    from adapters.credentials.bearer import BearerCredential, bearer

    scope = config.scope or scope_of(url)
    source = _source((config, scope, outlet), "Entra", lambda: entra_token(config, scope, outlet))
    return BearerCredential(pool, source, bearer())


def _oauth(config: OAuthCredentials, pool: str, header: str, outlet: TokenOutlet) -> Credential:
    from adapters.credentials.bearer import BearerCredential, bearer
    from adapters.credentials.oauth import access_token

    label = f"OAuth at {urlsplit(config.url).netloc}"
    source = _source((config, outlet), label, lambda: access_token(config, outlet))
    return BearerCredential(pool, source, bearer(header))


def _command(config: CommandCredentials, pool: str, header: str) -> Credential:
    from adapters.credentials.bearer import BearerCredential, bearer
    from adapters.credentials.command import printed_token

    label = f"the program {os.path.basename(config.run[0])}"
    return BearerCredential(pool, _source(config, label, lambda: printed_token(config)), bearer(header))


def _source(
    key: Hashable,
    label: str,
    issue: Callable[[], Awaitable[Issued[Any]]],
    secrets: Callable[[Any], Iterable[str]] = lambda token: (token,),
) -> Renewed[Any]:
    loop = asyncio.get_running_loop()
    source = _sources.get((id(loop), key))
    if source is None or source.loop is not loop:
        source = _sources[id(loop), key] = Renewed(label, issue, secrets)
    return source
