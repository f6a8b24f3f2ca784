"""The tenant, salt, priority and deadline of a request, from headers and body to the engine."""

import asyncio
import json
import time
from typing import Any

import pytest

from adapters.wire.internal_headers import InternalHeaders
from runtimes.llm.api.submission import RequestOrigin
from tests.runtimes.llm.server_fixtures import MODEL, post, serving, until_idle
from tests.support.conditions import until

BODY = {"model": MODEL, "prompt": "hi", "max_tokens": 5}


@pytest.mark.parametrize(
    ("priority_of_gateway", "written", "priority"),
    [(None, None, 0), (None, -7, -7), (1, None, 1), (1, -7, 1), (-1, None, -1), (-1, -7, -1), (-1, 0, 0), (0, 9, 9)],
)
def test_a_client_lowers_the_gateways_priority_and_cannot_raise_it(
    priority_of_gateway: int | None, written: int | None, priority: int
) -> None:
    assert (
        RequestOrigin.of(InternalHeaders(priority=priority_of_gateway), None, written, 0.0).standing.priority
        == priority
    )


def test_a_salt_is_within_a_tenants_own() -> None:
    salts = {
        RequestOrigin.of(InternalHeaders(tenant), salt, None, 0.0).salt
        for tenant in ("", "a", "b")
        for salt in (None, "a", "b")
    }
    assert len(salts) == 9


@pytest.mark.parametrize(
    ("headers", "fields", "param"),
    [
        ({"x-headrace-share": "-1"}, {}, "x-headrace-share"),
        ({"x-headrace-timeout": "soon"}, {}, "x-headrace-timeout"),
        ({"x-headrace-priority": "-1"}, {}, "x-headrace-priority"),
        ({}, {"priority": 2**31}, "priority"),
        ({}, {"priority": "high"}, "priority"),
    ],
)
async def test_unreadable_values_are_refused(headers: dict[str, str], fields: dict[str, Any], param: str) -> None:
    async with serving() as running:
        status, _, answer = await post(running, "/v1/completions", BODY | fields, **headers)
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_past_its_deadline_gets_504_and_frees_its_pages(stream: bool) -> None:
    async with serving() as running:
        running.parrot.gate.clear()
        pending = asyncio.create_task(
            post(running, "/v1/completions", BODY | {"stream": stream}, **{"x-headrace-timeout": "60"})
        )
        await until(lambda: running.engine.stats().running)
        running.engine._engine.clock = lambda: time.monotonic() + 61
        running.parrot.gate.set()
        if stream:  # its first token had come
            with pytest.raises(json.JSONDecodeError) as caught:
                await pending
            assert '"deadline_exceeded"' in caught.value.doc
            assert "[DONE]" not in caught.value.doc
        else:
            status, _, answer = await pending
            assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
        await until_idle(running.engine)


async def test_a_flood_of_one_tenants_is_answered_with_429_and_another_is_served() -> None:
    async with serving(max_queue=3, max_num_seqs=1) as running:
        running.parrot.gate.clear()
        flood = [asyncio.create_task(post(running, "/v1/completions", BODY, **{"x-headrace-tenant": "a"}))]
        await until(lambda: running.engine.stats().running)
        for number in range(3):
            flood.append(asyncio.create_task(post(running, "/v1/completions", BODY, **{"x-headrace-tenant": "a"})))
            await until(lambda count=number + 1: running.engine.stats().waiting == count)  # type: ignore[misc]
        status, headers, answer = await post(running, "/v1/completions", BODY, **{"x-headrace-tenant": "a"})
        assert (status, headers["retry-after"], answer["error"]["code"]) == (429, "1", "overloaded")
        assert headers["x-headrace-refused"] == "tenant"
        other = asyncio.create_task(post(running, "/v1/completions", BODY, **{"x-headrace-tenant": "b"}))
        await until(lambda: running.engine._engine._scheduler._failures)
        running.parrot.gate.set()
        assert (await other)[0] == 200
        assert sorted([(await one)[0] for one in flood]) == [200, 200, 200, 429]
