"""Inputs of batches: every kind of line, hostile files, and windows that end at the wrong moment."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import anthropic
import pytest

from adapters.http1.message import Response
from tests.e2e.test_batches import (
    batched,
    chat_line,
    client,
    counts,
    jsonl,
    results,
    submitted,
    until_ended,
)
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import upstream, whole

pytestmark = pytest.mark.timeout(1800)
MEBI = 1024 * 1024


def line(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "chat", **body}}


async def test_completions_and_responses_run_in_batches(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:

        async def answer(body: dict[str, Any]) -> Response:
            if "messages" in body:
                return whole(f"to {body['messages'][-1]['content']}")
            choice = {"index": 0, "text": f"after {body['prompt']}", "finish_reason": "stop", "logprobs": None}
            usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
            made = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
            return Response(200, [("content-type", "application/json")], json.dumps({**made, "usage": usage}).encode())

        up.behaviour = answer
        url = "/v1/completions"
        lines = [line(str(i), url, prompt=f"p{i}", max_tokens=9) for i in range(20)]
        batch = await until_ended(sdk, await submitted(sdk, lines, endpoint=url))
        texts = {made["custom_id"]: made["response"]["body"]["choices"][0]["text"]
                 for made in await results(sdk, batch.output_file_id)}  # fmt: skip
        assert texts == {str(i): f"after p{i}" for i in range(20)}
        url = "/v1/responses"
        lines = [line(str(i), url, input=f"p{i}", store=False) for i in range(20)]
        batch = await until_ended(sdk, await submitted(sdk, lines, endpoint=url))
        output = await results(sdk, batch.output_file_id)
        contents = {made["custom_id"]: made["response"]["body"]["output"][0]["content"][0]["text"] for made in output}
        assert contents == {str(i): f"to p{i}" for i in range(20)}
        assert {made["response"]["body"]["object"] for made in output} == {"response"}


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
        held = asyncio.Event()

        async def answer(body: dict[str, Any]) -> Response:
            await held.wait()
            return whole("done")

        up.behaviour = answer
        batch = await submitted(sdk, [chat_line("a"), chat_line("b")], completion_window="10s")
        async with asyncio.timeout(300):
            while len(up.received) < 2:
                await asyncio.sleep(0.05)
        folder, aside = tmp_path / "files" / "files", tmp_path / "aside"
        folder.rename(aside)
        folder.write_bytes(b"")  # no folder: no file can be created in it
        held.set()
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


@pytest.mark.nightly
async def test_invalid_json_in_line_49_999_fails_that_line_alone(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        lines: list[Any] = [chat_line(str(i)) for i in range(1, 50_001)]
        lines[49_998] = b'{"custom_id": "49999", "method": "POST", '
        batch = await until_ended(sdk, await submitted(sdk, lines), 1500.0)
        assert (batch.status, batch.request_counts) == ("completed", counts(50_000, 49_999, 1))
        (error,) = await results(sdk, batch.error_file_id)
        assert (error["error"]["code"], error["error"]["line"]) == ("invalid_json_line", 49_999)
        output = await results(sdk, batch.output_file_id)
        assert {made["custom_id"] for made in output} == {str(i) for i in range(1, 50_001)} - {"49999"}
        assert len(output) == 49_999


async def test_an_anthropic_batch_that_stops_has_its_results_so_far(tmp_path: Path) -> None:
    """Both ends at the same time: each waits for lines in flight, which do not end."""
    async with asyncio.TaskGroup() as checks:
        for stop in ("cancel", "expire"):
            folder = tmp_path / stop
            folder.mkdir()
            checks.create_task(check_a_batch_that_stops(folder, stop))


async def check_a_batch_that_stops(folder: Path, stop: str) -> None:
    async with upstream() as up:
        settings = batched(up, folder)
        if stop == "expire":
            settings["batches"]["window"] = "6s"
        held = asyncio.Event()

        async def answer(body: dict[str, Any]) -> Response:
            if len(up.received) > 1:
                await held.wait()
            return whole("done")

        up.behaviour = answer
        async with (
            gateway(folder, settings) as g,
            anthropic.AsyncAnthropic(base_url=g.url, api_key=await g.key(), max_retries=0) as sdk,
        ):
            batches = sdk.messages.batches
            params: Any = {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            requests: Any = [{"custom_id": f"id-{i}", "params": params} for i in range(60)]
            batch = await batches.create(requests=requests)
            async with asyncio.timeout(300):
                while (await batches.retrieve(batch.id)).request_counts.succeeded < 1:
                    await asyncio.sleep(0.05)
            if stop == "cancel":
                assert (await batches.cancel(batch.id)).processing_status == "canceling"
            async with asyncio.timeout(300):
                while (batch := await batches.retrieve(batch.id)).processing_status != "ended":
                    await asyncio.sleep(0.05)
            held.set()
            name = "canceled" if stop == "cancel" else "expired"
            shown = batch.request_counts.model_dump()
            assert shown == {"processing": 0, "succeeded": 1, "errored": 0, "canceled": 0, "expired": 0, name: 59}
            ends = [made async for made in await batches.results(batch.id)]
            assert sorted(made.custom_id for made in ends) == sorted(entry["custom_id"] for entry in requests)
            assert sorted(made.result.type for made in ends) == [name] * 59 + ["succeeded"]
            with pytest.raises(anthropic.BadRequestError):
                await batches.cancel(batch.id)
