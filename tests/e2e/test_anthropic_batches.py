"""Batches of Anthropic's messages through real gateway processes, by its SDK."""

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support.batches import batched, client, held
from tests.support.processes import gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
PARAMS: Any = {"model": "chat", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


async def test_anthropic_batches(tmp_path: Path) -> None:
    async with upstream("Hello!") as up, gateway(tmp_path, batched(up, tmp_path)) as g:
        key = await g.key()
        async with anthropic.AsyncAnthropic(base_url=g.url, api_key=key, max_retries=0) as sdk, client(g, key) as other:
            batches = sdk.messages.batches
            wrong: Any = {**PARAMS, "model": "none"}
            requests: Any = [{"custom_id": f"id-{i}", "params": PARAMS} for i in range(40)]
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
        one: Any = {"custom_id": "a", "params": PARAMS}
        for requests in (
            [], [one, one], [{**one, "custom_id": "a b"}], [{**one, "params": {**PARAMS, "stream": True}}],
            [{"custom_id": "a"}], [{**one, "params": []}], 7,
        ):  # fmt: skip
            with pytest.raises(anthropic.BadRequestError) as refused:
                await sdk.messages.batches.create(requests=requests)  # type: ignore[arg-type]
            assert "requests" in refused.value.message
        assert [batch async for batch in sdk.messages.batches.list()] == []


async def test_an_anthropic_batch_that_is_cancelled_has_its_results_so_far(tmp_path: Path) -> None:
    async with upstream() as up:
        release = held(up, after=1)
        async with (
            gateway(tmp_path, batched(up, tmp_path)) as g,
            anthropic.AsyncAnthropic(base_url=g.url, api_key=await g.key(), max_retries=0) as sdk,
        ):
            batches = sdk.messages.batches
            requests: Any = [{"custom_id": f"id-{i}", "params": PARAMS} for i in range(60)]
            batch = await batches.create(requests=requests)
            async with asyncio.timeout(300):
                while (await batches.retrieve(batch.id)).request_counts.succeeded < 1:
                    await asyncio.sleep(0.05)
                assert (await batches.cancel(batch.id)).processing_status == "canceling"
                while (batch := await batches.retrieve(batch.id)).processing_status != "ended":
                    await asyncio.sleep(0.05)
            release.set()
            shown = batch.request_counts.model_dump()
            assert shown == {"processing": 0, "succeeded": 1, "errored": 0, "canceled": 59, "expired": 0}
            ends = [made async for made in await batches.results(batch.id)]
            assert sorted(made.custom_id for made in ends) == sorted(entry["custom_id"] for entry in requests)
            assert sorted(made.result.type for made in ends) == ["canceled"] * 59 + ["succeeded"]
            with pytest.raises(anthropic.BadRequestError):
                await batches.cancel(batch.id)
