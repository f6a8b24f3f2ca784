"""Inputs of batches: every kind of line, hostile files, and windows that end at the wrong moment."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from adapters.http1.message import Response
from tests.support.batches import batched, chat_line, client, counts, held, jsonl, results, submitted, until_ended
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Behaviour, upstream

pytestmark = pytest.mark.timeout(1800)
MEBI = 1024 * 1024


def answered(**fields: Any) -> Behaviour:
    """A server with this answer, which is whole JSON."""
    return lambda _: asyncio.sleep(
        0, Response(200, [("content-type", "application/json")], json.dumps(fields).encode())
    )


USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
CHOICE = {"index": 0, "text": "some words", "finish_reason": "stop", "logprobs": None}
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
KINDS: dict[str, tuple[dict[str, Any], Behaviour | None, str]] = {
    "/v1/completions": (
        {"model": "chat", "prompt": "hi"},
        answered(id="1", object="text_completion", created=1, model="m", choices=[CHOICE], usage=USAGE),
        '"text":"some words"',
    ),
    "/v1/responses": ({"model": "chat", "input": "hi", "store": False}, None, '"text":"hello there"'),
    "/v1/embeddings": (
        {"model": "chat", "input": "hi"},
        answered(object="list", model="m", data=[{"object": "embedding", "index": 0, "embedding": [1.5]}], usage=USAGE),
        '"embedding":[1.5]',
    ),
    "/v2/models/t/infer": (
        {"inputs": [TENSOR]},
        answered(model_name="t", outputs=[{**TENSOR, "name": "y", "data": [2.0]}]),
        '"data":[2.0]',
    ),
}
"""The body of a line, the server, and a part of the result."""


async def test_lines_of_every_kind_run_in_batches(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = batched(up, tmp_path)
        settings["pools"].append({"name": "tensors", "protocol": "oip-http", "endpoints": [up.url]})
        settings["models"].append({"name": "t", "routes": [{"to": "tensors"}]})
        async with gateway(tmp_path, settings) as g, client(g, await g.key()) as sdk:
            for url, (body, up.behaviour, expected) in KINDS.items():
                lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": body} for i in range(20)]
                batch = await until_ended(sdk, await submitted(sdk, lines, endpoint=url))
                output = await results(sdk, batch.output_file_id)
                assert sorted(int(made["custom_id"]) for made in output) == list(range(20)), url
                texts = [json.dumps(made["response"]["body"], separators=(",", ":")) for made in output]
                assert all(expected in text for text in texts), (url, texts[0])


async def test_models_of_a_batch_may_differ_and_must_be_allowed(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = batched(up, tmp_path)
        settings["models"].append({"name": "other", "routes": [{"to": "up"}]})
        settings["models"].append({"name": "secret", "routes": [{"to": "up"}]})
        settings["tenants"] = [{"name": "acme", "models": ["chat", "other"]}]
        async with gateway(tmp_path, settings) as g, client(g, await g.key()) as sdk:
            lines = [chat_line(f"{name}-{i}", model=name) for i in range(5) for name in ("chat", "other", "secret")]
            batch = await until_ended(sdk, await submitted(sdk, lines))
            assert (batch.status, batch.request_counts) == ("completed", counts(15, 10, 5))
            errors = await results(sdk, batch.error_file_id)
            assert {made["custom_id"].split("-")[0] for made in errors} == {"secret"}
            assert {made["response"]["status_code"] for made in errors} == {404}
            assert len(up.received) == 10


async def test_a_batch_that_expires_while_it_is_finalized_is_complete(tmp_path: Path) -> None:
    """All lines have a result, and the storage does not take the output file before the window has ended."""
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        release = held(up)
        batch = await submitted(sdk, [chat_line("a"), chat_line("b")], completion_window="10s")
        async with asyncio.timeout(300):
            while len(up.received) < 2:
                await asyncio.sleep(0.05)
        folder, aside = tmp_path / "files" / "files", tmp_path / "aside"
        folder.rename(aside)
        folder.write_bytes(b"")  # no folder: no file can be created in it
        release.set()
        await g.printed("waits: ")
        async with asyncio.timeout(300):
            while (shown := await sdk.batches.retrieve(batch.id)).status != "finalizing":
                await asyncio.sleep(0.05)
        assert shown.expires_at is not None
        await until_past(shown.expires_at)
        folder.unlink()
        aside.rename(folder)
        batch = await until_ended(sdk, batch)
        assert (batch.status, batch.request_counts) == ("completed", counts(2, 2, 0))
        assert {made["custom_id"] for made in await results(sdk, batch.output_file_id)} == {"a", "b"}
        assert batch.error_file_id is None


async def until_past(unix: int) -> None:
    async with asyncio.timeout(300):
        while time.time() <= unix + 1:
            await asyncio.sleep(0.1)


def peak(g: GatewayProcess) -> int:
    """The largest resident memory of the gateway so far, in bytes."""
    status = Path(f"/proc/{g.process.pid}/status").read_text()
    return 1024 * int(next(text for text in status.splitlines() if text.startswith("VmHWM")).split()[1])


async def test_a_line_of_200_megabytes_fails_alone_in_bounded_memory(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = batched(up, tmp_path)
        settings["batches"]["max_file"] = "256MiB"
        async with gateway(tmp_path, settings) as g, client(g, await g.key()) as sdk:
            source = tmp_path / "in.jsonl"
            with source.open("wb") as file:
                file.write(jsonl([chat_line("a")]))
                file.write(jsonl([chat_line("huge")])[:-5] + b'"')
                for _ in range(200):
                    file.write(b"x" * 1_000_000)
                file.write(b'"}}\n')
                file.write(jsonl([chat_line("b")]))
            before = peak(g)
            uploaded = await sdk.files.create(file=source, purpose="batch")
            batch = await sdk.batches.create(
                input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            batch = await until_ended(sdk, batch)
            assert (batch.status, batch.request_counts) == ("completed", counts(3, 2, 1))
            (error,) = await results(sdk, batch.error_file_id)
            assert (error["error"]["code"], error["error"]["line"]) == ("line_too_long", 2)
            assert len(up.received) == 2
            assert peak(g) - before < 150 * MEBI
