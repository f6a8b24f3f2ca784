"""One browser for each module, and gateways with keys of every role."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest

from config.schema.identity import GrantConfig
from gateway.auth.audit import Actor
from gateway.auth.terminal import open_store, settings_of
from tests.support.browsing.chromium import chromium
from tests.support.browsing.page import Page, page
from tests.support.processes import GatewayProcess, gateway
from tests.support.waiting import until


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


class ConsoleRig:
    """A gateway and a page of its console."""

    def __init__(self, g: GatewayProcess, page: Page) -> None:
        self.g = g
        self.page = page

    async def issue(self, tenant: str = "acme", role: str = "user", **grant: Any) -> str:
        """A new key, once the listener that it is for accepts it."""
        given = GrantConfig.model_validate({"role": role, **grant})
        with closing(open_store(settings_of(self.g.config))) as store:
            key = store.create(tenant, "", by=Actor("tests"), now=time.time(), grant=given).plaintext
        url = f"{self.g.url}/v1/models" if role == "user" else f"{self.g.admin}/admin/tenants"
        headers = {"authorization": f"Bearer {key}"}
        async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
            while True:
                async with http.get(url) as response:
                    if response.status == 200:
                        return key
                await asyncio.sleep(0.02)

    async def chat(self, key: str = "", content: str = "hi", model: str = "chat", **fields: Any) -> tuple[int, str]:
        """Send a chat; return its status and the id of the request."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
        url = f"{self.g.url}/v1/chat/completions" if key else f"{self.g.admin}/admin/playground/chat"
        async with aiohttp.ClientSession(headers=headers) as http, http.post(url, json=body) as response:
            return response.status, response.headers.get("x-request-id", "")

    async def until_stored(self, count: int, key: str = "") -> None:
        """Wait until the gateway has the records of so many requests: they are written behind the requests."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with aiohttp.ClientSession(headers=headers) as http:

            async def stored() -> bool:
                async with http.get(f"{self.g.admin}/admin/requests?limit=500") as response:
                    return len((await response.json())["requests"]) >= count

            await until(stored)

    async def open(self, path: str = "") -> None:
        """Open the console at a screen."""
        await self.page.goto(f"{self.g.admin}/console/#{path}")

    async def sign_in(self, key: str) -> None:
        """Sign in with a key on the open page."""
        await self.page.fill("Key of an operator", key)
        await self.page.click("Sign in", "button")
        await self.page.until("!!document.querySelector('nav')")

    async def sign_out(self) -> None:
        """Sign out by the menu of the person."""
        await self.page.evaluate("document.querySelector('.account').open = true")
        await self.page.click("Sign out")


class OpenConsole(Protocol):
    """Starts a gateway with a page of its console, which must have no defect at the end."""

    def __call__(self, configuration: dict[str, Any] | None = None) -> AbstractAsyncContextManager[ConsoleRig]: ...


def settings(url: str = "http://127.0.0.1:9", **changes: Any) -> dict[str, Any]:
    """A configuration whose admin listener requires a credential."""
    return {
        "auth": {"admin": {"required": True}},
        "pools": [{"name": "main", "endpoints": [url]}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}, {"name": "beta", "models": ["chat"]}],
        **changes,
    }


@pytest.fixture
def console(browser: str, tmp_path: Path) -> OpenConsole:
    @asynccontextmanager
    async def open_console(configuration: dict[str, Any] | None = None) -> AsyncIterator[ConsoleRig]:
        async with gateway(tmp_path, configuration or settings()) as g, page(browser) as shown:
            yield ConsoleRig(g, shown)

    return open_console
