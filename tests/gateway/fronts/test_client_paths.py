"""Paths, headers and bodies that client libraries send in other ways: Azure's, HEAD, a last slash, no model."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.fake import FakeAdapter, Script
from adapters.http1.message import Headers, Request
from adapters.requests import AppRequest, GenerateRequest
from adapters.types import ANTHROPIC
from adapters.wire import form
from adapters.wire.anthropic.message_request import TokenCount
from gateway.fronts.paths import Readdressed, readdressed
from gateway.process.client_fronts import client_fronts
from tests.support.doors import HI, Door, door, uncertified
from tests.support.gateways import Rig, config

CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}],
    "object": "chat.completion", "id": "1", "created": 1, "model": "m", "data": [], "results": [],
}  # fmt: skip
DEFAULTS = dict.fromkeys(
    (
        "chat", "completions", "embeddings", "responses", "images", "moderations", "audio", "rerank", "score",
        "tokenize", "classify", "ocr",
    ),
    "chat",
)  # fmt: skip


@pytest.fixture
async def plain() -> AsyncIterator[Door]:
    async with opened() as made:
        yield made


@pytest.fixture
async def defaults() -> AsyncIterator[Door]:
    async with opened(default_models=DEFAULTS) as made:
        yield made


def opened(**changes: Any) -> AbstractAsyncContextManager[Door]:
    return door(FakeAdapter(Script(chunks=(json.dumps(CHAT).encode(),))), **changes)


async def send(d: Door, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    response = await d.send(method, path, body, **headers)
    return response.status, await response.read()


# ── Azure ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_azures_official_client_works_unchanged(plain: Door) -> None:
    key = plain.rig.key.plaintext
    azure = openai.AsyncAzureOpenAI(
        azure_endpoint=plain.url, api_key=key, api_version="2024-10-21", http_client=uncertified()
    )
    async with azure:
        answer = await azure.chat.completions.create(model="chat", messages=HI)
        assert answer.choices[0].message.content == "Hello!"
        await azure.embeddings.create(model="chat", input="a", encoding_format="float")
        await azure.images.generate(model="chat", prompt="a")
        response = await azure.responses.create(model="chat", input="hi")
        assert response.output_text == "Hello!"
        assert [model.id async for model in azure.models.list()] == ["chat"]
    azure = openai.AsyncAzureOpenAI(
        azure_endpoint=plain.url, azure_deployment="chat", azure_ad_token=key, api_version="2024-10-21",
        http_client=uncertified(),
    )  # fmt: skip
    async with azure:
        assert (await azure.chat.completions.create(model="other", messages=HI)).id == "1"
        assert isinstance(sent := plain.fake.calls[-1].request, GenerateRequest)
        assert sent.model == "chat"  # the deployment in the path decides
    v1 = plain.openai.with_options(base_url=f"{plain.url}/openai/v1/")
    assert (await v1.chat.completions.create(model="chat", messages=HI)).id == "1"


async def test_azures_header_carries_the_key(plain: Door) -> None:
    path = "/openai/deployments/chat/chat/completions?api-version=2024-10-21"
    assert (await send(plain, "POST", path, {"messages": HI}, authorization="", api_key=plain.rig.key.plaintext))[
        0
    ] == 200
    assert (await send(plain, "POST", path, {"messages": HI}, authorization="", api_key="wrong"))[0] == 401
    status, body = await send(plain, "POST", path.replace("chat/chat", "gpt/chat"), {"messages": HI})
    assert (status, json.loads(body)["error"]["param"]) == (404, "model")


# ── the method and the path ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/chat", "/v2", "/v2/health/ready"])
async def test_head_is_get_without_a_body(plain: Door, path: str) -> None:
    status, body = await send(plain, "GET", path)
    assert status == 200
    assert body
    assert await send(plain, "HEAD", path) == (200, b"")


async def test_head_of_a_path_without_get_is_refused(plain: Door) -> None:
    assert await send(plain, "HEAD", "/v1/chat/completions") == (405, b"")


async def test_a_last_slash_changes_nothing_but_for_an_app(plain: Door) -> None:
    assert (await send(plain, "POST", "/v1/chat/completions/", {"model": "chat", "messages": HI}))[0] == 200
    assert (await send(plain, "GET", "/v1/models/"))[0] == 200
    assert (await send(plain, "GET", "/v2/"))[0] == 200
    assert (await send(plain, "GET", "/apps/chat/"))[0] == 200
    assert isinstance(sent := plain.fake.calls[-1].request, AppRequest)
    assert sent.path == "/"


@given(st.lists(st.sampled_from([b"/openai", b"/v1", b"/deployments", b"/chat", b"/..", b"/", b"/apps", b"/%2e"])))
def test_a_readdressed_path_stays_below_v1(parts: list[bytes]) -> None:
    target = b"".join(parts) or b"/"
    target_path = readdressed(Request("GET", target, Headers({}), "")).target
    if target.startswith(b"/openai/"):
        assert target_path.startswith(b"/v1")
    else:
        assert target_path in (target, target[:-1])


async def test_every_route_that_answers_get_answers_head() -> None:
    rig = Rig(config(), {"main": [FakeAdapter()]})
    routes = list(client_fronts(rig.core).routes())
    assert any("GET" in route.methods for route in routes)
    assert not any("HEAD" in route.methods for route in routes)  # the door has it for all of them


# ── the model ─────────────────────────────────────────────────────────────────────────────────────────

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/moderations": {"input": "a"},
    "/v1/classify": {"input": "a"},
    "/v1/ocr": {"document": {"type": "document_url", "document_url": "https://a.b/c.pdf"}},
    "/v1/images/generations": {"prompt": "a"},
    "/v1/audio/speech": {"input": "a", "voice": "b"},
    "/v1/rerank": {"query": "a", "documents": []},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "a"},
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_without_a_model_gets_its_operations_default(plain: Door, defaults: Door, path: str) -> None:
    status, body = await send(plain, "POST", path, BODIES[path])
    assert (status, json.loads(body)["error"]["param"]) == (400, "model")
    status, body = await send(defaults, "POST", path, BODIES[path])
    assert status == 200, body
    assert defaults.fake.calls[-1].request.model == "chat"
    for wrong in (None, 7, ["chat"]):
        status, body = await send(defaults, "POST", path, {**BODIES[path], "model": wrong})
        assert (status, json.loads(body)["error"]["param"]) == (400, "model")


async def test_a_form_without_a_model_gets_it_as_a_field(defaults: Door) -> None:
    data = aiohttp.FormData()
    data.add_field("image", b"\x89PNG", filename="a.png")
    assert (await send(defaults, "POST", "/v1/images/variations", data))[0] == 200
    sent: Any = defaults.fake.calls[-1].request
    target_path = form.field_of(sent.content_type, sent.body, "model")
    assert target_path is not None
    assert target_path.value == "chat"
    assert b"\x89PNG" in sent.body


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_official_client_counts_a_responses_input() -> None:
    fake = FakeAdapter(Script(chunks=(b'{"input_tokens": 11}',), form=ANTHROPIC))
    async with door(fake) as d:
        counted = await d.openai.responses.input_tokens.count(model="chat", input="hi", instructions="Be brief.")
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 11)
        with pytest.raises(openai.BadRequestError) as refused:
            await d.openai.responses.input_tokens.count(model="chat", input=[])
        assert refused.value.param == "input"
    assert isinstance(request := fake.calls[0].request, TokenCount)
    assert json.loads(bytes(request.chat.fields["messages"])) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


def test_a_readdressed_request_inherits_nothing_that_depends_on_its_connection() -> None:
    """A default of the base class would read no body, or charge nobody for it."""
    own = {"method", "target", "headers", "query", "peer", "path", "encoded"}
    inherited = {name for name in vars(Request) if not name.startswith("_")} - set(vars(Readdressed)) - own
    assert inherited == set()
