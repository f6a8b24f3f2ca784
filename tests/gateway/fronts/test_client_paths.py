"""Paths, headers and bodies that client libraries send in other ways: Azure's, HEAD, a last slash, no model."""

import json
from collections.abc import AsyncIterator
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
from gateway.fronts.listener import Fronts
from gateway.fronts.paths import readdressed
from tests.support.gateways import Rig, config, listening

HI: Any = [{"role": "user", "content": "hi"}]
CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}],
    "object": "chat.completion", "id": "1", "created": 1, "model": "m", "data": [], "results": [],
}  # fmt: skip
DEFAULTS = dict.fromkeys(
    ("chat", "completions", "embeddings", "responses", "images", "moderations", "audio", "rerank", "score", "tokenize"),
    "chat",
)


class Door:
    def __init__(self, rig: Rig, url: str, http: aiohttp.ClientSession) -> None:
        self.rig, self.url, self._http = rig, url, http

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers = headers or {"authorization": f"Bearer {self.rig.key.plaintext}"}
        sent = {"data": body} if isinstance(body, aiohttp.FormData) else {"json": body}
        async with self._http.request(method, self.url + path, headers=headers, **sent) as response:
            return response.status, await response.read()

    def sent(self) -> Any:
        return self.rig.adapters["main"][0].calls[-1].request


async def opened(**changes: Any) -> AsyncIterator[Door]:
    rig = Rig(config(**changes), {"main": [FakeAdapter(Script(chunks=(json.dumps(CHAT).encode(),)))]})
    async with listening(rig) as url, aiohttp.ClientSession() as http:
        yield Door(rig, url, http)


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async for one in opened():
        yield one


@pytest.fixture
async def door_with_defaults() -> AsyncIterator[Door]:
    async for one in opened(default_models=DEFAULTS):
        yield one


# ── Azure ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_azures_official_client_works_unchanged(door: Door) -> None:
    key = door.rig.key.plaintext
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=door.url, api_key=key, api_version="2024-10-21", max_retries=0
    ) as azure:
        answer = await azure.chat.completions.create(model="chat", messages=HI)
        assert answer.choices[0].message.content == "Hello!"
        await azure.embeddings.create(model="chat", input="a", encoding_format="float")
        await azure.images.generate(model="chat", prompt="a")
        response = await azure.responses.create(model="chat", input="hi")
        assert response.output_text == "Hello!"
        assert [model.id async for model in azure.models.list()] == ["chat"]
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=door.url, azure_deployment="chat", azure_ad_token=key, api_version="2024-10-21", max_retries=0
    ) as azure:
        assert (await azure.chat.completions.create(model="other", messages=HI)).id == "1"
        assert isinstance(sent := door.sent(), GenerateRequest)
        assert sent.model == "chat"  # the deployment in the path decides
    v1 = openai.AsyncOpenAI(base_url=f"{door.url}/openai/v1/", api_key=key, max_retries=0)
    assert (await v1.chat.completions.create(model="chat", messages=HI)).id == "1"
    await v1.close()


async def test_azures_header_carries_the_key(door: Door) -> None:
    path = "/openai/deployments/chat/chat/completions?api-version=2024-10-21"
    assert (await door.send("POST", path, {"messages": HI}, api_key=door.rig.key.plaintext))[0] == 200
    assert (await door.send("POST", path, {"messages": HI}, api_key="wrong"))[0] == 401
    status, body = await door.send("POST", path.replace("chat/chat", "gpt/chat"), {"messages": HI})
    assert (status, json.loads(body)["error"]["param"]) == (404, "model")


# ── the method and the path ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/chat", "/v2", "/v2/health/ready"])
async def test_head_is_get_without_a_body(door: Door, path: str) -> None:
    status, body = await door.send("GET", path)
    assert status == 200
    assert body
    assert await door.send("HEAD", path) == (200, b"")


async def test_head_of_a_path_without_get_is_refused(door: Door) -> None:
    assert await door.send("HEAD", "/v1/chat/completions") == (405, b"")


async def test_a_last_slash_changes_nothing_but_for_an_app(door: Door) -> None:
    assert (await door.send("POST", "/v1/chat/completions/", {"model": "chat", "messages": HI}))[0] == 200
    assert (await door.send("GET", "/v1/models/"))[0] == 200
    assert (await door.send("GET", "/v2/"))[0] == 200
    assert (await door.send("GET", "/apps/chat/"))[0] == 200
    assert isinstance(sent := door.sent(), AppRequest)
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
    routes = list(Fronts(rig.core).routes())
    assert any("GET" in route.methods for route in routes)
    assert not any("HEAD" in route.methods for route in routes)  # the door has it for all of them


# ── the model ─────────────────────────────────────────────────────────────────────────────────────────

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/moderations": {"input": "a"},
    "/v1/images/generations": {"prompt": "a"},
    "/v1/audio/speech": {"input": "a", "voice": "b"},
    "/v1/rerank": {"query": "a", "documents": []},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "a"},
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_without_a_model_gets_its_operations_default(
    door: Door, door_with_defaults: Door, path: str
) -> None:
    status, body = await door.send("POST", path, BODIES[path])
    assert (status, json.loads(body)["error"]["param"]) == (400, "model")
    status, body = await door_with_defaults.send("POST", path, BODIES[path])
    assert status == 200, body
    assert door_with_defaults.sent().model == "chat"
    for wrong in (None, 7, ["chat"]):
        status, body = await door_with_defaults.send("POST", path, {**BODIES[path], "model": wrong})
        assert (status, json.loads(body)["error"]["param"]) == (400, "model")


async def test_a_form_without_a_model_gets_it_as_a_field(door_with_defaults: Door) -> None:
    data = aiohttp.FormData()
    data.add_field("image", b"\x89PNG", filename="a.png")
    assert (await door_with_defaults.send("POST", "/v1/images/variations", data))[0] == 200
    sent = door_with_defaults.sent()
    target_path = form.field_of(sent.content_type, sent.body, "model")
    assert target_path is not None
    assert target_path.value == "chat"
    assert b"\x89PNG" in sent.body


async def test_the_official_client_leaves_out_the_model_where_it_may(door_with_defaults: Door) -> None:
    d = door_with_defaults
    async with openai.AsyncOpenAI(base_url=f"{d.url}/v1", api_key=d.rig.key.plaintext, max_retries=0) as sdk:
        await sdk.moderations.create(input="a")
        await sdk.images.generate(prompt="a")
        assert (await sdk.responses.create(input="a")).output_text == "Hello!"


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_official_client_counts_a_responses_input() -> None:
    fake = FakeAdapter(Script(chunks=(b'{"input_tokens": 11}',), form=ANTHROPIC))
    rig = Rig(config(), {"main": [fake]})
    async with (
        listening(rig) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=rig.key.plaintext, max_retries=0) as sdk,
    ):
        counted = await sdk.responses.input_tokens.count(model="chat", input="hi", instructions="Be brief.")
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 11)
        with pytest.raises(openai.BadRequestError) as refused:
            await sdk.responses.input_tokens.count(model="chat", input=[])
        assert refused.value.param == "input"
    assert isinstance(request := fake.calls[0].request, TokenCount)
    assert json.loads(bytes(request.chat.fields["messages"])) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
