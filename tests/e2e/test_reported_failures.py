"""Clients read the text with which a server fails, without addresses and secrets; the access log has it too."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from tests.servers.stand_ins.serving import serving
from tests.support.processes import gateway

RAISED = "ValueError: boom at http://10.0.0.5:8000, token=opensesame"
SHOWN = "ValueError: boom at [address] token=[secret]"
LOGGED = "ValueError: boom at http://10.0.0.5:8000, token=[secret]"
HIDDEN = "The model failed."
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
TENSORS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
_ONE = {"datatype": "FP32", "shape": [1]}
DECLARED = {"inputs": [{"name": "x", **_ONE}], "outputs": [{"name": "y", **_ONE}]}


class Case(NamedTuple):
    """A pool's protocol, a request, and the upstream's response to it."""

    protocol: Any
    path: str
    body: Any
    status: int
    report: Any
    content_type: str = "application/json"


NESTED = {"error": {"message": RAISED, "type": "InternalServerError", "code": 500}}
EVENTS = "text/event-stream"
CASES = {
    "nested": Case("openai", "/v1/chat/completions", CHAT, 500, NESTED),
    "openai_flat": Case("openai", "/v1/chat/completions", CHAT, 500, {"object": "error", "message": RAISED}),
    "openai_detail": Case("openai", "/v1/completions", {"prompt": "hi"}, 500, {"detail": RAISED}),
    "openai_ok": Case("openai", "/v1/chat/completions", CHAT, 200, NESTED),
    "openai_embeddings": Case("openai", "/v1/embeddings", {"input": "hi"}, 500, {"error": RAISED}),
    "openai_stream": Case("openai", "/v1/chat/completions", {**CHAT, "stream": True}, 200, NESTED, EVENTS),
    "openai_message": Case("openai", "/v1/messages", {**CHAT, "max_tokens": 5}, 500, NESTED),
    "anthropic": Case(
        {"name": "anthropic"}, "/v1/messages", {**CHAT, "max_tokens": 5}, 500,
        {"type": "error", "error": {"type": "api_error", "message": RAISED}},
    ),
    "tgi": Case(
        "tgi", "/v1/completions", {"prompt": "hi"}, 424, {"error": RAISED, "error_type": "generation"}
    ),
    "tgi_stream": Case(
        "tgi", "/v1/completions", {"prompt": "hi", "stream": True}, 200,
        {"error": RAISED, "error_type": "generation"}, EVENTS,
    ),
    "ray": Case("ray-serve", "/apps/ray/x", {}, 500, RAISED, "text/plain"),
    "ray_tensors": Case(
        {"name": "ray-serve", **DECLARED}, "/v2/models/ray_tensors/infer", TENSORS, 500, RAISED, "text/plain"
    ),
    "app": Case("http", "/apps/app/x", {}, 500, {"error": RAISED}),
    "tfserving": Case("tfserving", "/v1/models/tfserving:predict", {"instances": [1]}, 500, {"error": RAISED}),
    "tfserving_ok": Case("tfserving", "/v1/models/tfserving_ok:predict", {"instances": [1]}, 200, {"error": RAISED}),
    "kserve_v1": Case("kserve-v1", "/v1/models/kserve_v1:predict", {"instances": [1]}, 200, {"error": RAISED}),
    "kserve_tensors": Case(
        {"name": "kserve-v1", **DECLARED}, "/v2/models/kserve_tensors/infer", TENSORS, 200, {"error": RAISED}
    ),
}  # fmt: skip


async def upstream(http: web.Request) -> web.Response:
    """The first part of a path names the case."""
    name = http.path.split("/")[1]
    if http.path == "/-/routes":  # of Ray Serve's proxy
        return web.json_response({f"/{case}": "app" for case in CASES})
    if http.method == "GET":
        return web.json_response({"data": [], "ready": True})
    case = CASES[name]
    text = case.report if isinstance(case.report, str) else json.dumps(case.report)
    if case.content_type == EVENTS:
        text = f"data: {text}\n\n"
    return web.Response(status=case.status, text=text, content_type=case.content_type)


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", upstream)
    async with serving(app) as url:
        yield url


def configuration(endpoint: str) -> dict[str, Any]:
    return {
        "pools": [
            {"name": name, "protocol": case.protocol, "endpoints": [f"{endpoint}/{name}"]}
            for name, case in CASES.items()
        ],
        "models": [
            {
                "name": name,
                "routes": [
                    {"when": {"header": {"x-hide": "yes"}}, "to": name, "hide_model_errors": True},
                    {"else": True, "to": name},
                ],
            }
            for name in CASES
        ],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def test_clients_and_the_log_have_the_text_of_a_failure(endpoint: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(endpoint)) as running:
        headers = {"authorization": f"Bearer {await running.key()}"}
        async with aiohttp.ClientSession(running.url, headers=headers) as http:
            for name, case in CASES.items():
                body = {"model": name, **case.body} if not case.path.startswith(("/v1/models", "/v2")) else case.body
                for hide, expected in (("no", SHOWN), ("yes", HIDDEN)):
                    async with http.post(case.path, json=body, headers={"x-hide": hide}) as answer:
                        text = await answer.text()
                    assert answer.status == 502, (name, text)
                    assert expected in text, (name, text)
                    assert "10.0.0.5" not in text, (name, text)
                    assert "opensesame" not in text, (name, text)
        count = 2 * len(CASES)
        async with asyncio.timeout(300):
            while (tmp_path / "access.log").read_text().count('"detail"') < count:
                await asyncio.sleep(0.05)
        lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
        details = {line["detail"] for line in lines if line.get("detail")}
        assert {re.sub(r"^(424|500): ", "", detail) for detail in details} == {LOGGED}
