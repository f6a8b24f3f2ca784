"""Batches at a gateway: its configuration, files of lines, and results by OpenAI's SDK."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
from openai.types import Batch, BatchRequestCounts

from adapters.http1.message import Response
from tests.support.processes import GatewayProcess, minimal
from tests.support.upstreams import Upstream, whole

COST = (5 * 10**6 + 7 * 2 * 10**6) // 2
"""Picos of an answer: 5 tokens and 7, at half of the price."""


def batched(up: Upstream, folder: Path, **changes: Any) -> dict[str, Any]:
    """A configuration with batches, prices and usage."""
    price = {"prompt": "1 usd/1M", "completion": "2 usd/1M", "batch": "50%"}
    models = [{"name": "chat", "routes": [{"to": "up"}], "price": price}]
    batches = {"storage": f"file:{folder}/files", "commit": "100ms"}
    return minimal(up.url, models=models, batches=batches, usage={"flush": "100ms"}, **changes)


def client(g: GatewayProcess, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=key, max_retries=0)


def chat_line(custom_id: str, content: str = "hi", **fields: Any) -> dict[str, Any]:
    body = {"model": "chat", "messages": [{"role": "user", "content": content}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def jsonl(lines: Sequence[dict[str, Any] | bytes]) -> bytes:
    return b"".join([(line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines])


async def submitted(sdk: openai.AsyncOpenAI, lines: Sequence[dict[str, Any] | bytes], **fields: Any) -> Batch:
    file = await sdk.files.create(file=("../../in.jsonl", jsonl(lines)), purpose="batch")
    return await sdk.batches.create(
        input_file_id=file.id, **{"endpoint": "/v1/chat/completions", "completion_window": "24h", **fields}
    )


def counts(total: int, completed: int, failed: int) -> BatchRequestCounts:
    return BatchRequestCounts(total=total, completed=completed, failed=failed)


async def until_ended(sdk: openai.AsyncOpenAI, batch: Batch, seconds: float = 300.0) -> Batch:
    async with asyncio.timeout(seconds):
        while batch.status not in ("completed", "failed", "expired", "cancelled"):
            await asyncio.sleep(0.05)
            batch = await sdk.batches.retrieve(batch.id)
    return batch


async def results(sdk: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(line) for line in (await sdk.files.content(file_id)).text.splitlines()]


async def until_counted(sdk: openai.AsyncOpenAI, id_: str, total: int, completed: int, failed: int = 0) -> None:
    """Wait until so many lines of a batch have ended."""
    async with asyncio.timeout(300):
        while (await sdk.batches.retrieve(id_)).request_counts != counts(total, completed, failed):
            await asyncio.sleep(0.05)


def answers(output: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The text of each line. Fails where a line is answered twice."""
    texts = {made["custom_id"]: made["response"]["body"]["choices"][0]["message"]["content"] for made in output}
    assert len(texts) == len(output)
    return texts


def held(up: Upstream, after: int = 0, text: str = "done") -> asyncio.Event:
    """Let all requests but the first ones wait for the event that is returned."""
    release = asyncio.Event()

    async def answer(_: dict[str, Any]) -> Response:
        if len(up.received) > after:
            await release.wait()
        return whole(text)

    up.behaviour = answer
    return release
