"""Sends one message to the address of a webhook, and to no other.

Redirects are not followed, proxies of the environment are not used, and a connection to a private address is refused
unless the file allows it: what is checked is the address of each socket, not the text of the URL.
"""

import asyncio
import socket
from typing import Any

import aiohttp

from config.addresses import is_public
from config.schema.tenant import WebhookConfig


class NotDelivered(Exception):
    """The receiver did not accept the message. The reason is for the log."""


def _public_socket(address: tuple[Any, ...]) -> socket.socket:
    """The socket of a connection. Raises `OSError` unless its address is public."""
    family, kind, protocol, _, (host, *_) = address
    if not is_public(host):
        raise OSError(f"{host} is not a public address")
    return socket.socket(family, kind, protocol)


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
        socket_factory=None if webhook.private else _public_socket, use_dns_cache=False, force_close=True
    )
    async with (
        aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.post(webhook.url, data=body, headers=headers, allow_redirects=False) as response,
    ):
        status = response.status
        response.close()  # the body is not read: it may be endless
    if not 200 <= status < 300:
        raise NotDelivered(f"status {status}")
