"""Fields that a model has no use for, and fields that a route drops, through the real LLM server and both SDKs."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError
from adapters.fake import FakeAdapter, Script
from adapters.http1.client import Client
from adapters.requests import ModelRequest
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.anthropic.message_request import MessagesRequest
from adapters.wire.openai import chat as openai_wire
from gateway.fronts import decoding
from tests.runtimes.llm.server_fixtures import MODEL, serving
from tests.support.gateways import Rig, config, listening

pytestmark = pytest.mark.runtimes

HI: Any = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": MODEL, "messages": HI}
MESSAGE: dict[str, Any] = {**CHAT, "max_tokens": 9}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "hi"}
CHATS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
IGNORED = "x-headrace-ignored"


class Before(FakeAdapter):
    """A fake's place in the rig, with a real adapter behind it."""

    def __init__(self, inner: OpenAIAdapter) -> None:
        super().__init__()
        self._inner = inner

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._inner.call(request, call)


class Door:
    """A gateway before the LLM server, and clients of both kinds."""

    def __init__(self, rig: Rig, url: str, http: aiohttp.ClientSession) -> None:
        self.rig = rig
        self.openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=rig.key.plaintext, max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(base_url=url, api_key=rig.key.plaintext, max_retries=0)
        self._url, self._http = url, http

    async def post(self, path: str, body: Any) -> tuple[int, str | None, Any]:
        """Status, the header with the ignored fields, and the JSON."""
        headers = {"authorization": f"Bearer {self.rig.key.plaintext}"}
        async with self._http.post(self._url + path, json=body, headers=headers) as response:
            return response.status, response.headers.get(IGNORED), await response.json()


Opener = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture
def door() -> Opener:
    @asynccontextmanager
    async def open_door(*fakes: FakeAdapter, **route: Any) -> AsyncIterator[Door]:
        async with AsyncExitStack() as stack:
            if not fakes:
                running = await stack.enter_async_context(serving())
                adapter = OpenAIAdapter(Client(f"{running.url}/v1"), ours=True)
                stack.push_async_callback(adapter.aclose)
                fakes = (Before(adapter),)
            rig = Rig(config(models=[{"name": MODEL, "routes": [{"to": "main", **route}]}]), {"main": list(fakes)})
            url = await stack.enter_async_context(listening(rig))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            made = Door(rig, url, http)
            stack.push_async_callback(made.openai.close)
            stack.push_async_callback(made.anthropic.close)
            yield made

    return open_door


CASES: list[tuple[str, dict[str, Any], str]] = [
    (CHATS, {**CHAT, "verbosity": "low"}, "verbosity"),
    (CHATS, {**CHAT, "metadata": {"a": "b"}}, "metadata"),
    (CHATS, {**CHAT, "stop": ""}, "stop"),
    (CHATS, {**CHAT, "stop": ["", "zz"]}, "stop"),
    (RESPONSES, {**RESPONSE, "text": {"verbosity": "low"}}, "text.verbosity"),
    (RESPONSES, {**RESPONSE, "reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    (MESSAGES, {**MESSAGE, "metadata": {"user_id": "u", "team": "t"}}, "metadata"),
    (MESSAGES, {**MESSAGE, "stop_sequences": [""]}, "stop_sequences"),
    (MESSAGES, {**MESSAGE, "thread": {"type": "create"}}, "thread"),
]


async def test_a_field_without_use_is_left_out_and_listed_by_the_doors_name(door: Opener) -> None:
    async with door() as d:
        for path, body, name in CASES:
            status, ignored, answer = await d.post(path, body)
            assert (status, ignored) == (200, name), answer
        for path, body in ((CHATS, CHAT), (RESPONSES, RESPONSE), (MESSAGES, MESSAGE)):
            assert (await d.post(path, body))[:2] == (200, None)


async def test_a_strict_route_refuses_the_field(door: Opener) -> None:
    async with door(strict=True) as d:
        for path, body, name in CASES:
            status, _, answer = await d.post(path, body)
            assert status == 400, (body, answer)
            if path != MESSAGES:  # whose errors have no field for it
                assert answer["error"]["param"].startswith(name.split(".")[0])


async def test_effort_is_accepted_from_both_clients(door: Opener) -> None:
    async with door() as d:
        chat = await d.openai.chat.completions.with_raw_response.create(
            model=MODEL, messages=HI, reasoning_effort="low"
        )
        assert chat.status_code == 200
        message = await d.anthropic.messages.with_raw_response.create(
            model=MODEL, messages=HI, max_tokens=9, output_config={"effort": "low"}
        )
        assert message.status_code == 200


# ── Anthropic's threads ───────────────────────────────────────────────────────────────────────────────


def answering(content: str | None, *calls: Any) -> Script:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Script(chunks=(json.dumps(body).encode(),))


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}


@pytest.mark.parametrize("strict", [False, True])
async def test_the_tool_runner_of_the_official_client_works_unchanged(door: Opener, strict: bool) -> None:
    @anthropic.beta_async_tool
    async def add(x: int) -> str:
        """Add one.

        Args:
            x: The number.
        """
        return str(x + 1)

    fake = FakeAdapter(answering(None, CALL), answering("Two."))
    async with door(fake, strict=strict) as d:
        runner = d.anthropic.beta.messages.tool_runner(
            model=MODEL, max_tokens=99, messages=[{"role": "user", "content": "1+1?"}], tools=[add]
        )
        last = await runner.until_done()
    assert last.content[0].type == "text"
    assert last.content[0].text == "Two."
    request = fake.calls[-1].request
    assert isinstance(request, MessagesRequest)
    roles = [message["role"] for message in json.loads(bytes(request.fields["messages"]))]
    assert roles == ["user", "assistant", "tool"]  # all of the conversation, since the gateway holds no thread


async def test_a_continued_thread_is_unsupported(door: Opener) -> None:
    async with door(FakeAdapter(), rewrite={"drop": ["thread"]}) as d:
        thread = {"type": "continue", "previous_message_id": "msg_1"}
        status, _, answer = await d.post(MESSAGES, {**MESSAGE, "thread": thread})
        assert (status, answer["error"]["details"]) == (404, {"error_code": "thread_not_found"})
    async with door(FakeAdapter()) as d:
        status, _, answer = await d.post(MESSAGES, {**MESSAGE, "thread": {"type": "forget"}})
        assert status == 400


# ── dropped fields ────────────────────────────────────────────────────────────────────────────────────

DROPPED: list[tuple[str, dict[str, Any], str]] = [
    (CHATS, {**CHAT, "max_tokens": "many"}, "max_tokens"),
    (CHATS, {**CHAT, "n": 0, "user": 7}, "n"),
    ("/v1/embeddings", {"model": MODEL, "input": "a", "user": 7}, "user"),
    (RESPONSES, {**RESPONSE, "background": True}, "background"),
    (RESPONSES, {**RESPONSE, "store": 7}, "store"),
    (RESPONSES, {**RESPONSE, "truncation": "auto"}, "truncation"),
    (RESPONSES, {**RESPONSE, "max_output_tokens": 0}, "max_tokens"),
    (RESPONSES, {**RESPONSE, "reasoning": 7}, "reasoning_effort"),
    (MESSAGES, {**MESSAGE, "metadata": 7}, "user"),
    (MESSAGES, {**MESSAGE, "stop_sequences": 7}, "stop"),
]


@pytest.mark.parametrize(("path", "body", "dropped"), DROPPED)
async def test_a_dropped_field_is_removed_before_a_door_validates_it(
    door: Opener, path: str, body: dict[str, Any], dropped: str
) -> None:
    data = b'{"object":"list","data":[],"choices":[{"message":{"role":"assistant","content":"a"}}]}'
    fake = FakeAdapter(Script(chunks=(data,)))
    async with door(fake, rewrite={"drop": [dropped, "user"] if dropped != "user" else ["user"]}) as d:
        status, _, answer = await d.post(path, body)
        assert status == 200, answer
    async with door(fake, rewrite={"drop": ["seed"]}) as d:
        assert (await d.post(path, body))[0] == 400


async def test_a_field_that_only_another_route_drops_is_refused() -> None:
    routes = [{"to": "main", "when": {"stream": True}, "rewrite": {"drop": ["n"]}}, {"to": "main"}]
    rig = Rig(config(models=[{"name": MODEL, "routes": routes}]), {"main": [FakeAdapter()]})
    headers = {"authorization": f"Bearer {rig.key.plaintext}"}
    async with listening(rig) as url, aiohttp.ClientSession() as http:
        for stream, expected in ((True, 200), (False, 400)):
            body = {**CHAT, "n": 0, "stream": stream}
            async with http.post(url + CHATS, json=body, headers=headers) as response:
                assert response.status == expected
                if expected == 400:
                    assert (await response.json())["error"]["param"] == "n"


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.lists(st.integers()),
)
FIELDS = st.sampled_from(["max_tokens", "n", "user", "max_completion_tokens", "stop", "metadata", "seed"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(FIELDS, JUNK), st.sets(FIELDS, min_size=1))
async def test_no_value_of_a_dropped_field_is_refused(junk: dict[str, Any], dropped: set[str]) -> None:
    if {"max_tokens", "max_completion_tokens"} <= dropped:
        dropped.remove("max_completion_tokens")  # one field of two names
    rewrite = {"drop": sorted(dropped)}
    configuration = config(models=[{"name": MODEL, "routes": [{"to": "main", "rewrite": rewrite}]}])
    snapshot = Rig(configuration, {"main": [FakeAdapter()]}).core.snapshot
    read = openai_wire.decode_chat
    model = snapshot.catalogue.find(MODEL)
    assert model is not None
    forwarded = {name: value for name, value in junk.items() if name not in model.rules.dropped}
    body = json.dumps({**CHAT, **junk}).encode()
    try:
        await decoding.decode(snapshot, read, body)
        refused = False
    except CallerError:
        refused = True
    assert refused == _refused(read, {**CHAT, **forwarded})


def _refused(read: Callable[[bytes], ModelRequest], body: dict[str, Any]) -> bool:
    try:
        read(json.dumps(body).encode())
    except CallerError:
        return True
    return False
