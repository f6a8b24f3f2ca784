"""Stored responses through real gateway processes: every worker finds them at once, and so does the next gateway."""

from pathlib import Path

import openai
import pytest

from tests.support.processes import gateway, minimal
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)


def client(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


async def test_any_worker_continues_a_response_that_another_stored(tmp_path: Path) -> None:
    async with upstream("Hello!") as up:
        configured = minimal(up.url, workers=2)
        async with gateway(tmp_path, configured) as g:
            await g.until_ready(2)
            key = await g.key()
            previous: str | None = None
            for _ in range(10):  # each over a new connection, so to some worker
                async with client(g.url, key) as sdk:
                    made = await sdk.responses.create(
                        model="chat", input="hi", store=True, previous_response_id=previous
                    )
                previous = made.id
        async with gateway(tmp_path, configured) as g, client(g.url, key) as sdk:
            await g.until_ready(2)
            assert previous is not None
            assert (await sdk.responses.retrieve(previous)).output_text == "Hello!"
