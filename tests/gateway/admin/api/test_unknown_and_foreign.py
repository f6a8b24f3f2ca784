"""What another tenant has, or another key's scope, is refused exactly as what does not exist: status, body, headers."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from config.schema.batches import BatchesConfig
from gateway.auth.keys import id_of
from gateway.features.batches.service import BatchService
from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.batch_specs import spec
from tests.support.gateways import PEPPER, config
from tests.support.state_doors import FORM, StateGateway, state_gateway

pytestmark = pytest.mark.realtime  # the databases have threads

MODELS: list[dict[str, Any]] = [
    {"name": "chat", "routes": [{"to": "main"}]},
    {"name": "theirs-model", "routes": [
        {"name": "theirs-route", "when": {"label": {"theirs-label": "x"}}, "to": "main"},
        {"to": "main"},
    ]},
]  # fmt: skip
TENANTS: list[dict[str, Any]] = [
    {"name": "ours", "models": ["chat"]},
    {"name": "theirs", "models": ["*"], "teams": [{"name": "theirs-team"}]},
]


def near(name: str, draw: random.Random) -> str:
    """Another name of the same form, mostly one that a suggestion would take for the first."""
    at = [index for index, letter in enumerate(name) if letter.isalnum()]
    for index in draw.sample(at[-8:], draw.choice((1, 1, 1, 4))):
        others = "0123456789" if name[index].isdigit() else "abcdef"
        name = name[:index] + draw.choice(others.replace(name[index], "")) + name[index + 1 :]
    return name


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
ASK = {"model": "chat", "input": "x"}
BATCH = {"endpoint": "/v1/chat/completions", "completion_window": "1h"}
CLIENT: list[tuple[str, str, str, Any]] = [
    ("model", "POST", "/v1/chat/completions", {**CHAT, "model": "$NAME"}),
    ("model", "POST", "/v1/completions", {"prompt": "x", "model": "$NAME"}),
    ("model", "POST", "/v1/embeddings", {"input": "x", "model": "$NAME"}),
    ("model", "POST", "/v1/responses", {**ASK, "model": "$NAME"}),
    ("model", "POST", "/v1/responses", {**ASK, "model": "$NAME", "store": True}),
    ("model", "POST", "/v1/messages", {**CHAT, "max_tokens": 5, "model": "$NAME"}),
    ("model", "POST", "/v1/rerank", {"query": "a", "documents": ["b"], "model": "$NAME"}),
    ("model", "POST", "/v1/models/$NAME:predict", {"instances": [[1]]}),
    ("model", "POST", "/v2/models/$NAME/infer", {"inputs": []}),
    ("model", "GET", "/v2/models/$NAME", None),
    ("model", "GET", "/v2/models/$NAME/ready", None),
    ("model", "GET", "/v1/models/$NAME", None),
    ("model", "POST", "/apps/$NAME/path", {"any": 1}),
    ("response", "GET", "/v1/responses/$NAME", None),
    ("response", "GET", "/v1/responses/$NAME/input_items", None),
    ("response", "DELETE", "/v1/responses/$NAME", None),
    ("response", "POST", "/v1/responses/$NAME/cancel", None),
    ("response", "POST", "/v1/responses", {**ASK, "previous_response_id": "$NAME"}),
    ("conversation", "GET", "/v1/conversations/$NAME", None),
    ("conversation", "POST", "/v1/conversations/$NAME", {"metadata": {"a": "b"}}),
    ("conversation", "DELETE", "/v1/conversations/$NAME", None),
    ("conversation", "GET", "/v1/conversations/$NAME/items", None),
    ("conversation", "POST", "/v1/conversations/$NAME/items", {"items": []}),
    ("conversation", "GET", "/v1/conversations/$NAME/items/msg_1", None),
    ("conversation", "POST", "/v1/responses", {**ASK, "conversation": "$NAME"}),
    ("file", "GET", "/v1/files/$NAME", None),
    ("file", "GET", "/v1/files/$NAME/content", None),
    ("file", "DELETE", "/v1/files/$NAME", None),
    ("file", "GET", "/v1/files?after=$NAME", None),
    ("file", "POST", "/v1/batches", {**BATCH, "input_file_id": "$NAME"}),
    ("batch", "GET", "/v1/batches/$NAME", None),
    ("batch", "POST", "/v1/batches/$NAME/cancel", None),
    ("batch", "GET", "/v1/batches?after=$NAME", None),
    ("message_batch", "GET", "/v1/messages/batches/$NAME", None),
    ("message_batch", "DELETE", "/v1/messages/batches/$NAME", None),
    ("message_batch", "POST", "/v1/messages/batches/$NAME/cancel", None),
    ("message_batch", "GET", "/v1/messages/batches/$NAME/results", None),
    ("message_batch", "GET", "/v1/messages/batches?after_id=$NAME", None),
]


async def theirs(g: StateGateway) -> dict[str, str]:
    """One name of each kind that the other tenant has."""

    async def made(path: str, body: Any) -> str:
        status, answer = await g.send("POST", path, body)
        assert status == 200, answer
        return str(answer["id"])

    g.rig.hold(tenant="theirs")
    file = await made("/v1/files", FORM.format("{}"))
    line = {"custom_id": "1", "params": {**CHAT, "model": "chat", "max_tokens": 1}}
    names = {
        "model": "theirs-model",
        "response": await made("/v1/responses", {**ASK, "store": True}),
        "conversation": await made("/v1/conversations", {}),
        "file": file,
        "batch": await made("/v1/batches", {**BATCH, "input_file_id": file}),
        "message_batch": await made("/v1/messages/batches", {"requests": [line]}),
    }
    g.rig.hold(tenant="ours")
    return names


async def refusal(g: StateGateway, method: str, path: str, body: Any, name: str) -> tuple[Any, ...]:
    sent = None if body is None else json.loads(json.dumps(body).replace("$NAME", name))
    status, headers, text = await g.whole(method, path.replace("$NAME", name), sent)
    ids = {"x-request-id", "request-id"}
    own = text.decode().replace(name, "NAME").replace(headers["x-request-id"], "ID")
    return status, own, sorted((k, v.replace(name, "NAME")) for k, v in headers.items() if k not in ids)


async def test_a_client_gets_one_refusal_for_foreign_and_unknown_names(tmp_path: Path) -> None:
    draw = random.Random(7)
    async with state_gateway(tmp_path, TENANTS, models=MODELS) as g:
        names = await theirs(g)
        for kind, method, path, body in CLIENT:
            foreign = await refusal(g, method, path, body, names[kind])
            assert 400 <= foreign[0] < 500, (method, path, foreign)
            for _ in range(3):
                assert await refusal(g, method, path, body, near(names[kind], draw)) == foreign, (method, path)


# ── tenant-admins ─────────────────────────────────────────────────────────────────────────────────────

KEYS = "/admin/tenants/ours/keys"
ADMIN: list[tuple[str, str, str, Any]] = [
    ("model", "POST", KEYS, {"scopes": {"models": ["$NAME"]}}),
    ("route", "POST", KEYS, {"scopes": {"routes": ["$NAME"]}}),
    ("label", "POST", KEYS, {"labels": {"$NAME": "x"}}),
    ("team", "POST", KEYS, {"team": "$NAME"}),
    ("team", "PUT", f"{KEYS}/OWN/team", {"team": "$NAME"}),
    ("team", "DELETE", "/admin/tenants/ours/teams/$NAME", None),
    ("model", "PUT", "/admin/tenants/ours/teams/t", {"limits": {"requests": "1/min", "models": ["$NAME"]}}),
    ("key", "POST", f"{KEYS}/$NAME/rotate", {}),
    ("key", "DELETE", f"{KEYS}/$NAME", None),
    ("key", "PUT", f"{KEYS}/$NAME/team", {"team": ""}),
    ("key", "GET", f"{KEYS}?after=$NAME", None),
    ("tenant", "GET", "/admin/tenants/$NAME", None),
    ("tenant", "GET", "/admin/tenants/$NAME/keys", None),
    ("tenant", "POST", "/admin/tenants/$NAME/keys", {}),
    ("tenant", "GET", "/admin/tenants/$NAME/teams", None),
    ("tenant", "GET", "/admin/tenants/$NAME/invoices/2026-11", None),
    ("tenant", "GET", "/admin/batches?tenant=$NAME", None),
    ("tenant", "GET", "/admin/usage?tenant=$NAME", None),
    ("tenant", "GET", "/admin/requests?tenant=$NAME", None),
    ("tenant", "GET", "/admin/playground/models?tenant=$NAME", None),
    ("tenant", "GET", "/console/api/quickstart?tenant=$NAME", None),
    ("batch", "GET", "/admin/batches/$NAME", None),
    ("batch", "POST", "/admin/batches/$NAME/cancel", {}),
    ("batch", "GET", "/admin/batches?after=$NAME", None),
]


async def answer(d: AdminDoor, key: str, method: str, path: str, body: Any, name: str) -> tuple[Any, ...]:
    sent = None if body is None else json.loads(json.dumps(body).replace("$NAME", name))
    status, text = await d.send(method, path.replace("$NAME", name), key, sent)
    if status == 201:  # the new key is secret, and its id is random
        text = sorted(text)
    headers = sorted((k, v) for k, v in d.headers.items() if k not in ("Date", "Content-Length", "Location"))
    return status, json.dumps(text).replace(name, "NAME"), headers


async def test_a_tenant_admin_gets_one_refusal_for_foreign_and_unknown_names(
    admin_door: OpenDoor, tmp_path: Path
) -> None:
    draw, url = random.Random(7), f"sqlite:///{tmp_path}/state/state.db"
    async with admin_door(required=True) as d:
        d.backend.config = config(
            tenants=TENANTS, models=MODELS, auth={"admin": {"required": True}}, usage={}, requests={}
        )
        d.backend.batches = batches = BatchService(BatchesConfig(), url, lambda: PEPPER, time.time)
        await batches.query(lambda store: store.create(spec(1, "theirs", "openai"), 9, 1e12))
        admin, own = d.backend.key("ours", role="tenant-admin"), id_of(d.backend.key("ours")) or ""
        await d.send("PUT", "/admin/tenants/ours/teams/t", admin, {"limits": {}})
        names = {
            "model": "theirs-model", "route": "theirs-route", "label": "theirs-label", "team": "theirs-team",
            "tenant": "theirs", "key": id_of(d.backend.key("theirs")) or "", "batch": "batch_1",
        }  # fmt: skip
        for kind, method, path, body in ADMIN:
            path = path.replace("OWN", own)
            foreign = await answer(d, admin, method, path, body, names[kind])
            for _ in range(3):
                unknown = near(names[kind], draw)
                assert await answer(d, admin, method, path, body, unknown) == foreign, (method, path, unknown)
        batches.close()
