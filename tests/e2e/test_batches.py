"""Batches through real gateway processes, by the official SDKs."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from openai.types import Batch, BatchRequestCounts

from adapters.http1.message import Response
from tests.e2e.test_full_disk import Disk, on_a_small_disk
from tests.e2e.test_operations import configuration, until_status
from tests.support.processes import GatewayProcess, command, gateway, starting_gateway
from tests.support.upstreams import Upstream, upstream, whole

pytestmark = pytest.mark.timeout(1800)


def batched(up: Upstream, folder: Path, **changes: Any) -> dict[str, Any]:
    """A configuration with batches, prices and usage."""
    price = {"prompt": "1 usd/1M", "completion": "2 usd/1M", "batch": "50%"}
    models = [{"name": "chat", "routes": [{"to": "up"}], "price": price}]
    batches = {"storage": f"file:{folder}/files", "commit": "100ms"}
    return configuration(up, models=models, batches=batches, usage={"flush": "100ms"}, **changes)


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


async def test_an_openai_batch_has_one_line_for_each_line(tmp_path: Path) -> None:
    async with (
        upstream("Hello!") as up,
        gateway(tmp_path, batched(up, tmp_path)) as g,
        client(g, await g.key()) as sdk,
    ):
        lines = [chat_line(f"line-{i}", f"question {i}") for i in range(700)]
        batch = await submitted(sdk, [*lines, b"{this is not JSON"], metadata={"run": "one"})
        assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"run": "one"})
        batch = await until_ended(sdk, batch)
        assert batch.status == "completed"
        assert batch.request_counts is not None
        assert batch.request_counts.model_dump() == {"total": 701, "completed": 700, "failed": 1}
        output = await results(sdk, batch.output_file_id)
        assert sorted(line["custom_id"] for line in output) == sorted(line["custom_id"] for line in lines)
        assert {line["response"]["body"]["choices"][0]["message"]["content"] for line in output} == {"Hello!"}
        (error,) = await results(sdk, batch.error_file_id)
        assert (error["error"]["code"], error["error"]["line"]) == ("invalid_json_line", 701)
        assert batch.usage is not None
        assert (batch.usage.input_tokens, batch.usage.output_tokens) == (3500, 4900)


async def test_a_batch_with_wrong_lines_fails_and_names_them(tmp_path: Path) -> None:
    async with (
        upstream() as up,
        gateway(tmp_path, batched(up, tmp_path)) as g,
        client(g, await g.key()) as sdk,
    ):
        other_url = {**chat_line("b"), "url": "/v1/embeddings"}
        cases: list[tuple[list[dict[str, Any] | bytes], set[tuple[str | None, int | None]]]] = [
            ([chat_line("a"), chat_line("b"), chat_line("a")], {("duplicate_custom_id", 3)}),
            ([chat_line("a"), other_url, b"", chat_line("c", stream=True)],
             {("mismatched_endpoint", 2), ("invalid_body", 4)}),
            ([{**chat_line("a"), "custom_id": 7}, {**chat_line("b"), "method": "GET"}],
             {("missing_required_parameter", 1), ("invalid_method", 2)}),
            ([b"", b"   "], {("empty_file", None)}),
        ]  # fmt: skip
        for lines, expected in cases:
            batch = await until_ended(sdk, await submitted(sdk, lines))
            assert batch.status == "failed"
            assert batch.errors is not None
            assert {(each.code, each.line) for each in batch.errors.data or []} == expected
            assert (batch.output_file_id, batch.error_file_id) == (None, None)
        assert up.received == []


async def test_files_belong_to_their_tenant(tmp_path: Path) -> None:
    tenants = [{"name": "acme", "models": ["*"]}, {"name": "other", "models": ["*"]}]
    async with (
        upstream() as up,
        gateway(tmp_path, batched(up, tmp_path, tenants=tenants)) as g,
        client(g, await g.key()) as mine,
        client(g, await g.key("other")) as theirs,
    ):
        batch = await until_ended(mine, await submitted(mine, [chat_line("a")]))
        assert batch.output_file_id is not None
        for id_ in (batch.input_file_id, batch.output_file_id):
            for use in (theirs.files.retrieve, theirs.files.content, theirs.files.delete):
                with pytest.raises(openai.NotFoundError):
                    await use(id_)
        for manage in (theirs.batches.retrieve, theirs.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await manage(batch.id)
        with pytest.raises(openai.NotFoundError):
            await theirs.batches.create(
                input_file_id=batch.input_file_id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        assert (await theirs.files.list()).data == []
        assert (await theirs.batches.list()).data == []
        shown = await mine.files.retrieve(batch.input_file_id)
        assert (shown.filename, shown.purpose) == ("in.jsonl", "batch")
        await mine.files.delete(batch.input_file_id)
        with pytest.raises(openai.NotFoundError):
            await mine.files.content(batch.input_file_id)
        assert [file.id for file in (await mine.files.list()).data] == [batch.output_file_id]


async def test_lists_are_paged(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        made = [await submitted(sdk, [chat_line("a")]) for _ in range(5)]
        listed = [batch.id async for batch in sdk.batches.list(limit=2)]
        assert listed == [batch.id for batch in made[::-1]]
        inputs = [batch.input_file_id for batch in made]
        first = await sdk.files.list(limit=2, order="asc", purpose="batch")
        assert [file.id for file in first.data] == inputs[:2]
        assert first.has_more


async def test_a_batch_of_a_revoked_key_calls_nothing_more(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        own, held, sent = await g.key(), asyncio.Event(), 0

        async def answer(body: dict[str, Any]) -> Response:
            nonlocal sent
            if body["messages"][0]["content"] == "line":
                sent += 1
                if sent > 1:
                    await held.wait()
            return whole("done")

        up.behaviour = answer
        async with client(g, own) as revoked:
            batch = await submitted(revoked, [chat_line(str(i), "line") for i in range(600)])
        async with asyncio.timeout(300):
            while (await sdk.batches.retrieve(batch.id)).request_counts != counts(600, 1, 0):
                await asyncio.sleep(0.05)
        assert (await command("keys", "revoke", own.split("-")[1], "--config", str(g.config)))[0] == 0
        await until_status(g, own, 401)
        sent_before = sent
        held.set()
        batch = await until_ended(sdk, batch)
        assert batch.status == "completed"
        assert sent == sent_before < 600
        errors = await results(sdk, batch.error_file_id)
        assert len(errors) == 600 - sent
        assert {(line["response"]["status_code"], line["response"]["body"]["error"]["code"]) for line in errors} == {
            (401, "invalid_api_key")
        }


async def test_a_cancelled_batch_has_its_results_so_far(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        held = asyncio.Event()

        async def answer(body: dict[str, Any]) -> Response:
            if len(up.received) > 1:
                await held.wait()
            return whole("done")

        up.behaviour = answer
        batch = await submitted(sdk, [chat_line(str(i)) for i in range(600)])
        async with asyncio.timeout(300):
            while (await sdk.batches.retrieve(batch.id)).request_counts != counts(600, 1, 0):
                await asyncio.sleep(0.05)
        assert (await sdk.batches.cancel(batch.id)).status == "cancelling"
        batch = await until_ended(sdk, batch)
        held.set()
        assert batch.status == "cancelled"
        (answered,) = await results(sdk, batch.output_file_id)
        rest = await results(sdk, batch.error_file_id)
        assert {line["error"]["code"] for line in rest} == {"batch_cancelled"}
        assert sorted(int(line["custom_id"]) for line in [answered, *rest]) == list(range(600))
        with pytest.raises(openai.BadRequestError):
            await sdk.batches.cancel(batch.id)


async def test_operators_see_why_a_batch_waits(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        held = asyncio.Event()

        async def answer(body: dict[str, Any]) -> Response:
            await held.wait()
            return whole("done")

        up.behaviour = answer
        batch = await submitted(sdk, [chat_line(str(i)) for i in range(600)])
        async with aiohttp.ClientSession() as http:

            async def shown() -> dict[str, Any]:
                async with http.get(f"{g.admin}/admin/batches/{batch.id}") as response:
                    return dict(await response.json())

            async with asyncio.timeout(300):
                while not any(
                    "and the limit that rises while lines succeed is 4" in w for w in (await shown())["waits"]
                ):
                    await asyncio.sleep(0.05)
            first = await shown()
            assert first["band"].startswith("batch: ")
            assert "of 2 open parts, processes hold 2" in first["waits"]
            async with asyncio.timeout(300):
                while 'headrace_batch_unfinished_lines{state="total",tenant="acme"} 600.0' not in await metrics(
                    http, g
                ):
                    await asyncio.sleep(0.2)
            held.set()
            await until_ended(sdk, batch)
            ended = await shown()
            assert "waits" not in ended
            read = await metrics(http, g)
            assert 'headrace_batch_tokens_total{model="chat",tenant="acme",type="completion"} 4200.0' in read


async def metrics(http: aiohttp.ClientSession, g: GatewayProcess) -> str:
    async with http.get(f"{g.admin}/metrics") as response:
        return await response.text()


async def test_a_batch_that_expires_has_a_line_for_each_line(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        up.behaviour = lambda body: asyncio.sleep(0, Response(429, [("retry-after", "1")], b"{}"))
        batch = await submitted(sdk, [chat_line(str(i)) for i in range(20)], completion_window="3s")
        batch = await until_ended(sdk, batch)
        assert batch.status == "expired"
        rest = await results(sdk, batch.error_file_id)
        assert {line["error"]["code"] for line in rest} == {"batch_expired"}
        assert sorted(int(line["custom_id"]) for line in rest) == list(range(20))


async def test_anthropic_batches(tmp_path: Path) -> None:
    async with upstream("Hello!") as up, gateway(tmp_path, batched(up, tmp_path)) as g:
        key = await g.key()
        async with anthropic.AsyncAnthropic(base_url=g.url, api_key=key, max_retries=0) as sdk, client(g, key) as other:
            batches = sdk.messages.batches
            params: Any = {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            wrong: Any = {**params, "model": "none"}
            requests: Any = [{"custom_id": f"id-{i}", "params": params} for i in range(40)]
            batch = await batches.create(requests=[*requests, {"custom_id": "wrong", "params": wrong}])
            assert batch.processing_status == "in_progress"
            async with asyncio.timeout(300):
                while (batch := await batches.retrieve(batch.id)).processing_status != "ended":
                    await asyncio.sleep(0.05)
            counts = batch.request_counts.model_dump()
            assert counts == {"processing": 0, "succeeded": 40, "errored": 1, "canceled": 0, "expired": 0}
            ends = {line.custom_id: line.result async for line in await batches.results(batch.id)}
            assert ends.keys() == {entry["custom_id"] for entry in requests} | {"wrong"}
            end = ends["id-7"]
            assert end.type == "succeeded"
            assert [block.text for block in end.message.content if block.type == "text"] == ["Hello!"]
            failure = ends["wrong"]
            assert failure.type == "errored"
            assert failure.error.error.type == "not_found_error"
            assert [each.id async for each in batches.list()] == [batch.id]
            with pytest.raises(openai.NotFoundError):
                await other.batches.retrieve(batch.id)
            assert (await batches.delete(batch.id)).id == batch.id
            with pytest.raises(anthropic.NotFoundError):
                await batches.retrieve(batch.id)


async def test_wrong_anthropic_batches_are_refused(tmp_path: Path) -> None:
    async with (
        upstream() as up,
        gateway(tmp_path, batched(up, tmp_path)) as g,
        anthropic.AsyncAnthropic(base_url=g.url, api_key=await g.key(), max_retries=0) as sdk,
    ):
        params: Any = {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        one: Any = {"custom_id": "a", "params": params}
        for requests in (
            [], [one, one], [{**one, "custom_id": "a b"}], [{**one, "params": {**params, "stream": True}}],
            [{"custom_id": "a"}], [{**one, "params": []}], 7,
        ):  # fmt: skip
            with pytest.raises(anthropic.BadRequestError) as refused:
                await sdk.messages.batches.create(requests=requests)  # type: ignore[arg-type]
            assert "requests" in refused.value.message
        assert [batch async for batch in sdk.messages.batches.list()] == []


async def test_embeddings_and_tensors_run_in_batches(tmp_path: Path) -> None:
    async with upstream() as up, upstream() as tensors, gateway(tmp_path, both(up, tensors, tmp_path)) as g:

        async def embedded(body: dict[str, Any]) -> Response:
            data = [{"object": "embedding", "index": 0, "embedding": [1.0, 2.0]}]
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            made = {"object": "list", "model": "m", "data": data, "usage": usage}
            return Response(200, [("content-type", "application/json")], json.dumps(made, indent=1).encode())

        async def inferred(body: dict[str, Any]) -> Response:
            made = {"model_name": "t", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}
            return Response(200, [("content-type", "application/json")], json.dumps(made).encode())

        up.behaviour, tensors.behaviour = embedded, inferred
        async with client(g, await g.key()) as sdk:
            url = "/v1/embeddings"
            lines: list[Any] = [
                {"custom_id": str(i), "method": "POST", "url": url, "body": {"model": "chat", "input": "hi"}}
                for i in range(20)
            ]
            batch = await until_ended(sdk, await submitted(sdk, lines, endpoint=url))
            output = await results(sdk, batch.output_file_id)
            assert [line["response"]["body"]["data"][0]["embedding"] for line in output] == [[1.0, 2.0]] * 20
            url = "/v2/models/t/infer"
            tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
            lines = [
                {"custom_id": str(i), "method": "POST", "url": url, "body": {"inputs": [tensor]}} for i in range(20)
            ]
            batch = await until_ended(sdk, await submitted(sdk, lines, endpoint=url))
            output = await results(sdk, batch.output_file_id)
            assert [line["response"]["body"]["outputs"][0]["data"] for line in output] == [[2.0]] * 20


def both(up: Upstream, tensors: Upstream, folder: Path) -> dict[str, Any]:
    made = batched(up, folder)
    made["pools"] = [*made["pools"], {"name": "tensors", "protocol": "oip-http", "endpoints": [tensors.url]}]
    made["models"] = [*made["models"], {"name": "t", "routes": [{"to": "tensors"}]}]
    return made


def unfinished_uploads(folder: Path) -> list[Path]:
    return list(folder.glob("files/**/*.new"))


async def test_a_large_file_is_streamed_and_a_larger_one_refused(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = batched(up, tmp_path)
        settings["batches"]["max_file"] = "8MiB"
        async with gateway(tmp_path, {**settings, "http": {"max_body": "64KiB"}}) as g, client(g, await g.key()) as sdk:
            data = os.urandom(8 * 1024 * 1024)
            file = await sdk.files.create(file=("big.bin", data), purpose="batch")
            assert file.bytes == len(data)
            assert (await sdk.files.content(file.id)).content == data
            with pytest.raises(openai.APIStatusError) as refused:
                await sdk.files.create(file=("big.bin", data + bytes(100 * 1024)), purpose="batch")
            assert refused.value.status_code == 413
            long = chat_line("long", "x" * 70_000)
            batch = await until_ended(sdk, await submitted(sdk, [chat_line("a"), long, chat_line("b")]))
            (error,) = await results(sdk, batch.error_file_id)
            assert (error["error"]["code"], error["error"]["line"]) == ("line_too_long", 2)
            assert len(await results(sdk, batch.output_file_id)) == 2
        assert unfinished_uploads(tmp_path) == []


async def test_a_full_disk_pauses_a_batch(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    async with (
        upstream() as up,
        starting_gateway(tmp_path, batched(up, tmp_path), behind=on_a_small_disk(folder)) as g,
    ):
        await g.listens()
        disk, held = Disk(g.process.pid, folder), asyncio.Event()

        async def answer(body: dict[str, Any]) -> Response:
            await held.wait()
            return whole("x" * 2000)

        up.behaviour = answer
        async with client(g, await g.key()) as sdk:
            batch = await submitted(sdk, [chat_line(str(i)) for i in range(60)])
            async with asyncio.timeout(300):
                while not up.received:
                    await asyncio.sleep(0.05)
            disk.fill()
            held.set()
            await g.printed("waits: .*No space left on device")
            with pytest.raises(openai.InternalServerError) as refused:
                await sdk.files.create(file=("more.jsonl", bytes(100_000)), purpose="batch")
            assert (refused.value.status_code, refused.value.code) == (503, "storage_unavailable")
            disk.free()
            batch = await until_ended(sdk, batch)
            assert (batch.status, batch.request_counts) == ("completed", counts(60, 60, 0))
            assert len(await results(sdk, batch.output_file_id)) == 60


async def test_enqueued_tokens_and_active_batches_are_bounded(tmp_path: Path) -> None:
    bounds = {"enqueued_tokens": 1000, "active": 2}
    tenants = [{"name": "acme", "models": ["*"], "batches": bounds}]
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path, tenants=tenants)) as g:
        held = asyncio.Event()

        async def answer(body: dict[str, Any]) -> Response:
            await held.wait()
            return whole("done")

        up.behaviour = answer
        async with client(g, await g.key()) as sdk:
            first = await submitted(sdk, [chat_line("a", "x" * 2400)])  # about 600 tokens
            async with asyncio.timeout(300):
                while (await sdk.batches.retrieve(first.id)).status == "validating":
                    await asyncio.sleep(0.05)
            second = await until_ended(sdk, await submitted(sdk, [chat_line("b", "x" * 2400)]))
            assert second.errors is not None
            assert [each.code for each in second.errors.data or []] == ["token_limit_exceeded"]
            third = await submitted(sdk, [chat_line("c", "x" * 400)])
            with pytest.raises(openai.RateLimitError):
                await submitted(sdk, [chat_line("d")])
            held.set()
            for batch in (first, third):
                assert (await until_ended(sdk, batch)).status == "completed"
            assert (await until_ended(sdk, await submitted(sdk, [chat_line("e", "x" * 2400)]))).status == "completed"


@pytest.mark.nightly
async def test_a_batch_on_the_bundled_model(tmp_path: Path) -> None:
    settings = {
        "batches": {"storage": f"file:{tmp_path}/files"},
        "pools": [{"name": "smollm2", "runtime": {"kind": "llm", "model": "bundled:smollm2-135m-instruct"}}],
        "models": [{"name": "smollm2", "routes": [{"to": "smollm2"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, settings) as g, client(g, await g.key()) as sdk:
        lines = [chat_line(str(i), f"Count to {i}.", model="smollm2", max_tokens=8) for i in range(24)]
        batch = await until_ended(sdk, await submitted(sdk, lines))
        assert (batch.status, batch.request_counts) == ("completed", counts(24, 24, 0))
        output = await results(sdk, batch.output_file_id)
        assert all(line["response"]["body"]["usage"]["completion_tokens"] > 0 for line in output)
        anthropic_sdk = anthropic.AsyncAnthropic(base_url=g.url, api_key=sdk.api_key, max_retries=0)
        params: Any = {"model": "smollm2", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]}
        made = await anthropic_sdk.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
        async with asyncio.timeout(300):
            while (made := await anthropic_sdk.messages.batches.retrieve(made.id)).processing_status != "ended":
                await asyncio.sleep(0.1)
        assert made.request_counts.succeeded == 1
        await anthropic_sdk.close()
