"""Sends one message to the address of a webhook, and to no other.

Redirects are not followed, proxies of the environment are not used, and a name that resolves to a private address is
refused unless the file allows it: the address that is checked is the address of the connection.
"""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from config.schema.pricing.soft_budget import WebhookConfig


class NotDelivered(Exception):
    """The receiver did not accept the message. The reason is for the log."""


class _PublicResolver(AbstractResolver):
    """Resolves names to public addresses alone."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host, port, family)
        for address in addresses:
            check_public(address["host"])
        return addresses

    async def close(self) -> None:
        await self._resolver.close()


def check_public(address: str) -> None:
    """Raises `OSError` for an address that is not public."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    if not mapped.is_global or mapped.is_multicast:
        raise OSError(f"{address} is not a public address")


async def send(webhook: WebhookConfig, body: bytes, headers: dict[str, str]) -> None:
    """Deliver a message. Raises `NotDelivered`."""
    try:
        async with asyncio.timeout(webhook.timeout):
            await _post(webhook, body, headers)
    except TimeoutError:
        raise NotDelivered(f"no response within {webhook.timeout:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotDelivered(f"{type(error).__name__}: {error}"[:300]) from None


async def _post(webhook: WebhookConfig, body: bytes, headers: dict[str, str]) -> None:
    connector = aiohttp.TCPConnector(
        resolver=None if webhook.private else _PublicResolver(), use_dns_cache=False, force_close=True
    )
    if not webhook.private and _is_address(host := urlsplit(webhook.url).hostname or ""):
        check_public(host)  # an address is not resolved
    async with (
        aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(webhook.url, data=body, headers=headers, allow_redirects=False) as response,
    ):
        status = response.status
        response.close()  # the body is not read: it may be endless
    if not 200 <= status < 300:
        raise NotDelivered(f"status {status}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
