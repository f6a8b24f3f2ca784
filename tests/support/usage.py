"""Requests whose usage is counted, and the reports of a gateway."""

import asyncio
from typing import Any

import aiohttp

from tests.support.processes import GatewayProcess


async def ask(g: GatewayProcess, key: str, count: int) -> int:
    """Send so many chats. Returns how many were answered."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}

    async def one(http: aiohttp.ClientSession) -> bool:
        try:
            async with http.post(f"{g.url}/v1/chat/completions", json=body) as response:
                await response.read()
                return response.status == 200
        except aiohttp.ClientError:  # its worker was killed
            return False

    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
        return sum(await asyncio.gather(*[one(http) for _ in range(count)]))


async def reported(g: GatewayProcess, **query: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{g.admin}/admin/usage", params=query) as response,
    ):
        is_json = response.content_type == "application/json"
        return response.status, await response.json() if is_json else await response.text()
