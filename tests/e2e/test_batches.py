"""Batches through real gateway processes, by the official SDKs."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from adapters.http1.message import Response
from tests.support.batches import (
    batched,
    chat_line,
    client,
    counts,
    held,
    results,
    submitted,
    until_counted,
    until_ended,
)
from tests.support.processes import command, gateway, starting_gateway
from tests.support.small_disk import Disk, on_a_small_disk
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)


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
        own, release = await g.key(), held(up, after=1)
        async with client(g, own) as revoked:
            batch = await submitted(revoked, [chat_line(str(i), "line") for i in range(600)])
        await until_counted(sdk, batch.id, 600, 1)
        assert (await command("keys", "revoke", own.split("-")[1], "--config", str(g.config)))[0] == 0
        await g.until_refused(own)
        sent = len(up.received)
        release.set()
        batch = await until_ended(sdk, batch)
        assert batch.status == "completed"
        assert len(up.received) == sent < 600
        errors = await results(sdk, batch.error_file_id)
        assert len(errors) == 600 - sent
        assert {(line["response"]["status_code"], line["response"]["body"]["error"]["code"]) for line in errors} == {
            (401, "invalid_api_key")
        }


async def test_a_cancelled_batch_has_its_results_so_far(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        release = held(up, after=1)
        batch = await submitted(sdk, [chat_line(str(i)) for i in range(600)])
        await until_counted(sdk, batch.id, 600, 1)
        assert (await sdk.batches.cancel(batch.id)).status == "cancelling"
        batch = await until_ended(sdk, batch)
        release.set()
        assert batch.status == "cancelled"
        (answered,) = await results(sdk, batch.output_file_id)
        rest = await results(sdk, batch.error_file_id)
        assert {line["error"]["code"] for line in rest} == {"batch_cancelled"}
        assert sorted(int(line["custom_id"]) for line in [answered, *rest]) == list(range(600))
        with pytest.raises(openai.BadRequestError):
            await sdk.batches.cancel(batch.id)


async def test_operators_see_why_a_batch_waits(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        release = held(up)
        batch = await submitted(sdk, [chat_line(str(i)) for i in range(600)])

        async def until(holds: Callable[[dict[str, Any], str], bool]) -> dict[str, Any]:
            """The batch as operators see it, when the batch or the metrics are as expected."""
            async with asyncio.timeout(300):
                while True:
                    _, shown = await g.administer("GET", f"/admin/batches/{batch.id}")
                    if holds(shown, await g.metrics()):
                        return dict(shown)
                    await asyncio.sleep(0.05)

        limit = "and the limit that rises while lines succeed is 4"
        first = await until(lambda shown, _: any(limit in reason for reason in shown["waits"]))
        assert first["band"].startswith("batch: ")
        assert "of 2 open parts, processes hold 2" in first["waits"]
        lines = 'headrace_batch_unfinished_lines{state="total",tenant="acme"} 600.0'
        await until(lambda _, metrics: lines in metrics)
        release.set()
        await until_ended(sdk, batch)
        tokens = 'headrace_batch_tokens_total{model="chat",tenant="acme",type="completion"} 4200.0'
        await until(lambda shown, metrics: "waits" not in shown and tokens in metrics)


async def test_a_batch_that_expires_has_a_line_for_each_line(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, batched(up, tmp_path)) as g, client(g, await g.key()) as sdk:
        up.behaviour = lambda body: asyncio.sleep(0, Response(429, [("retry-after", "1")], b"{}"))
        batch = await submitted(sdk, [chat_line(str(i)) for i in range(20)], completion_window="3s")
        batch = await until_ended(sdk, batch)
        assert batch.status == "expired"
        rest = await results(sdk, batch.error_file_id)
        assert {line["error"]["code"] for line in rest} == {"batch_expired"}
        assert sorted(int(line["custom_id"]) for line in rest) == list(range(20))


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
        disk, release = Disk(g.process.pid, folder), held(up, text="x" * 2000)
        async with client(g, await g.key()) as sdk:
            batch = await submitted(sdk, [chat_line(str(i)) for i in range(60)])
            async with asyncio.timeout(300):
                while not up.received:
                    await asyncio.sleep(0.05)
            disk.fill()
            release.set()
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
        release = held(up)
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
            release.set()
            for batch in (first, third):
                assert (await until_ended(sdk, batch)).status == "completed"
            assert (await until_ended(sdk, await submitted(sdk, [chat_line("e", "x" * 2400)]))).status == "completed"
