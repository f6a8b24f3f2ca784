"""A day of a tenant that stores as much as it can, through the door of clients, on virtual time."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.features.batches.rows import file_object
from tests.support.state_doors import FORM, StateGateway, state_gateway

pytestmark = pytest.mark.realtime  # the database has threads
KIB, DAY = 1024, 86400.0
QUOTA = 512 * KIB


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[StateGateway]:
    limits = {"storage": f"{QUOTA}B"}
    tenant = {"name": "evil", "models": ["*"], "limits": limits, "batches": {"active": 1000}}
    async with state_gateway(tmp_path, [tenant]) as made:
        yield made


async def act(g: StateGateway, draw: random.Random, ids: dict[str, list[str]]) -> tuple[int, str]:
    """One request of the tenant. Returns its status and the code of its error."""
    text = "é" * draw.choice((1, 1000, 20_000, 60_000))
    items = [{"role": "user", "content": text}] * draw.randrange(1, 5)
    talk = draw.choice(ids["conversation"] or ["none"])
    file = draw.choice(ids["file"] or ["none"])
    metadata = {str(n): text[:500] for n in range(16)}
    line = {"custom_id": "1", "params": {"model": "chat", "max_tokens": 1, "messages": items}}
    batch = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "1h", "metadata": metadata}
    requests: list[tuple[str, str, Any]] = [
        ("POST", "/v1/conversations", {"items": items, "metadata": metadata}),
        ("POST", f"/v1/conversations/{talk}", {"metadata": metadata}),
        ("POST", f"/v1/conversations/{talk}/items", {"items": items}),
        ("POST", "/v1/responses", {"model": "chat", "input": text, "store": True}),
        ("POST", "/v1/responses", {"model": "chat", "input": text, "conversation": talk}),
        ("POST", "/v1/files", FORM.format(text)),
        ("POST", "/v1/batches", batch),
        ("POST", "/v1/messages/batches", {"requests": [line]}),
        ("DELETE", f"/v1/files/{file}", None),
        ("DELETE", f"/v1/conversations/{talk}", None),
    ]
    weights = [4, 4, 4, 4, 4, 4, 4, 4, 1, 1]
    method, path, body = draw.choices(requests, weights)[0]
    status, answer = await g.send(method, path, body)
    if status == 200 and answer.get("object") in ids and method == "POST":
        ids[answer["object"]].append(answer["id"])
    error = answer.get("error") or {}
    return status, error.get("code") or error.get("type") or ""


async def test_a_tenant_cannot_make_the_state_grow_beyond_its_quota(gateway: StateGateway) -> None:
    g, draw, ids = gateway, random.Random(1), dict[str, list[str]](conversation=[], file=[])
    seen = set[tuple[int, str]]()
    begin, acts = g.now, 0
    while g.now < begin + DAY:
        g.now += draw.choice((60, 600, 1800))
        for _ in range(3):
            seen.add(await act(g, draw, ids))
            acts += 1
        now = g.now
        if draw.random() < 0.3:  # what has expired, as the runners of batches and the keeper delete it
            await g.keeper.read(lambda store, now=now: store.sweep(now, 10_000))  # type: ignore[misc]
            for id_ in await g.batches.query(lambda store, now=now: store.expired_files(now, 100)):  # type: ignore[misc]
                await g.batches.stored(lambda storage, id_=id_: storage.delete(file_object(id_)))  # type: ignore[misc]
                await g.batches.query(lambda store, id_=id_: store.forget_files([id_]))  # type: ignore[misc]
        database, files = g.stored()
        assert files <= QUOTA
        assert database <= 2 * QUOTA + 512 * KIB  # rows share pages, and indexes repeat their keys
    assert (429, "storage_quota_exceeded") in seen
    assert not [status for status, _ in seen if status >= 500]
    assert acts > 200
    for id_ in ids["conversation"]:
        await g.send("DELETE", f"/v1/conversations/{id_}")
    for id_ in ids["file"]:
        await g.send("DELETE", f"/v1/files/{id_}")
    assert (await g.send("POST", "/v1/conversations", {"items": []}))[0] == 200  # deletions give the space back


async def test_the_refusal_comes_before_the_upstream_is_called(gateway: StateGateway) -> None:
    while (await gateway.send("POST", "/v1/conversations", {"items": [{"role": "user", "content": "x" * 90_000}]}))[
        0
    ] < 400:
        pass
    large = "x" * 90_000
    calls = gateway.rig.adapters["main"][0].calls
    status, answer = await gateway.send("POST", "/v1/responses", {"model": "chat", "input": large, "store": True})
    assert (status, answer["error"]["code"], len(calls)) == (429, "storage_quota_exceeded", 0)
    assert "delete stored responses, conversations or files" in answer["error"]["message"]
    assert (await gateway.send("POST", "/v1/responses", {"model": "chat", "input": "x", "store": False}))[0] == 200
