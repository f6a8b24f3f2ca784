"""The prefix cache as a client sees it: the number of cached tokens, and only from requests of its own tenant."""

from typing import Any

import aiohttp
import pytest

from tests.runtimes.llm.server_fixtures import MODEL, Running, serving

PROMPT = "x" * 40  # a token a character


async def cached(running: Running, headers: dict[str, str] | None = None, **fields: Any) -> int:
    """The number of the prompt's tokens that came from the cache."""
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 2, **fields}
    url = f"{running.url}/v1/completions"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        reply = await response.json()
        assert response.status == 200, reply
    tokens: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


async def test_a_prompt_again_and_one_that_begins_like_it() -> None:
    async with serving(prefix_cache=True) as running:
        assert await cached(running) == 0
        assert await cached(running) == 32
        assert await cached(running, prompt=PROMPT[:20] + "y" * 40) == 16
        assert await cached(running, prompt=[PROMPT, "z" * 40], n=2) == 32
        async with aiohttp.ClientSession() as http, http.get(f"{running.url}/metrics") as response:
            metrics = dict(line.rsplit(" ", 1) for line in (await response.text()).splitlines() if line[0] != "#")
    assert float(metrics["headrace_llm_prefix_cache_hits_total"]) >= 32 + 16 + 32
    assert float(metrics["headrace_llm_prefix_cache_queries_total"]) >= 40 + 40 + 60 + 80


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"headers": {"x-headrace-tenant": "a"}}, {"headers": {"x-headrace-tenant": "b"}}),
        ({"cache_salt": "a"}, {"cache_salt": "b"}),
        ({"headers": {"x-headrace-tenant": "a"}}, {"cache_salt": "a"}),
        ({}, {"cache_salt": "a"}),
        ({"headers": {"x-headrace-salt": "a"}}, {"headers": {"x-headrace-salt": "b"}}),
        ({"headers": {"x-headrace-tenant": "a"}}, {"headers": {"x-headrace-tenant": "a", "x-headrace-salt": "b"}}),
    ],
)
async def test_the_cache_is_private_to_a_tenant_and_salt(one: dict[str, Any], other: dict[str, Any]) -> None:
    async with serving(prefix_cache=True) as running:
        assert await cached(running, **one) == 0
        assert await cached(running, **other) == 0
        assert await cached(running, **one) == 32


async def test_tenants_share_where_the_gateway_gives_them_one_salt() -> None:
    async with serving(prefix_cache=True) as running:
        for tenant, expected in (("a", 0), ("b", 32)):
            assert await cached(running, headers={"x-headrace-tenant": tenant, "x-headrace-salt": ""}) == expected


async def test_it_can_be_turned_off() -> None:
    async with serving(prefix_cache=False) as running:
        assert [await cached(running) for _ in range(2)] == [0, 0]
