"""Anthropic's Messages through the clouds, against a server as strict as each of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import anthropic as sdk
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.base import Adapter
from adapters.call import Call
from adapters.errors import BackendError, CallerError, CapacityError, ContextTooLong
from adapters.registry import Address, make
from adapters.upstreams.anthropic.bedrock import FrameEvents
from adapters.wire import sse
from adapters.wire.anthropic import requests as messages
from adapters.wire.openai import chat as openai
from tests.servers.stand_ins.anthropic import MODEL
from tests.support.doors import uncertified
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.anthropic_clouds import ARN, KEY, LOCATION, PROJECT, WORKSPACE, Clouds, chunk, clouds

Object = dict[str, Any]
AT: dict[str, Object] = {
    "vertex": {"at": "vertex", "project": PROJECT, "location": LOCATION},
    "bedrock": {"at": "bedrock", "region": "eu-west-1"},
    "aws": {"at": "aws", "region": "us-east-1", "workspace": WORKSPACE},
    "foundry": {"at": "foundry"},
}
IN_PATHS = [at for at in AT if at in ("vertex", "bedrock")]
"""The clouds with the model in the path."""
SYSTEM = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
SCOPED = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral", "scope": "global"}}]


def message(text: Any = "hi there", **fields: Any) -> bytes:
    body = {"model": "ours", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
    return json.dumps(body).encode()


def chat(text: str = "hi there", **fields: Any) -> bytes:
    return json.dumps({"model": "ours", "messages": [{"role": "user", "content": text}], **fields}).encode()


@asynccontextmanager
async def through(at: str, **fields: Any) -> AsyncIterator[tuple[Adapter, Clouds]]:
    """An adapter for one cloud."""
    async with clouds() as server:
        section = {"name": "main", "endpoints": [server.url], "key": KEY, "model": MODEL, **fields}
        (pool,) = config(pools=[{"protocol": {"name": "anthropic", **AT[at]}, **section}]).pools
        adapter = make(pool, Address(server.url))
        yield adapter, server
        await adapter.aclose()


async def text_of(adapter: Adapter, request: Any, call: Call | None = None) -> bytes:
    return b"".join([piece async for piece in await adapter.call(request, call or within())])


@pytest.mark.parametrize("at", AT)
async def test_a_message_is_forwarded_byte_for_byte(at: str) -> None:
    odd = b'{ "max_tokens":50, "messages":[ {"role":"user","content":"\\u0068i  there"} ], "model":"ours" }'
    async with through(at) as (adapter, server):
        answer = await adapter.call(messages.decode_message(odd), within())
        assert answer.body is not None
        assert json.loads(answer.body)["content"] == [{"type": "text", "text": "hi  there"}]
        assert (answer.usage.exact, answer.usage.completion_tokens) == (True, 5)
        (raw,) = server.raw
        assert b'[ {"role":"user","content":"\\u0068i  there"} ]' in raw


@pytest.mark.parametrize("at", AT)
async def test_a_stream_ends_as_a_message(at: str) -> None:
    async with through(at) as (adapter, _):
        events = await text_of(adapter, messages.decode_message(message(stream=True)))
    names = [event.partition(b"\n")[0] for event in events.strip().split(b"\n\n")]
    assert (names[0], names[-1]) == (b"event: message_start", b"event: message_stop")


@pytest.mark.parametrize("at", AT)
async def test_a_chat_with_tools_and_its_stream(at: str) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    async with through(at) as (adapter, _):
        answer = await adapter.call(openai.decode_chat(chat("call", tools=[tool])), within())
        assert answer.body is not None
        (choice,) = json.loads(answer.body)["choices"]
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
        streamed = await text_of(adapter, openai.decode_chat(chat("call", tools=[tool], stream=True)))
    data = [data for event in streamed.strip().split(b"\n\n")[:-1] if (data := sse.data_of(event))]
    chunks = [json.loads(each) for each in data]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("at", IN_PATHS)
async def test_tokens_are_counted_by_the_cloud(at: str) -> None:
    async with through(at) as (adapter, _):
        for request in (
            messages.decode_count(message(system=SCOPED)),
            messages.count_of(openai.decode_chat(chat(max_tokens=5))),
        ):
            answer = await adapter.call(request, within())
            assert answer.body is not None
            assert json.loads(answer.body)["input_tokens"] > 5


@pytest.mark.parametrize("at", IN_PATHS)
async def test_refused_betas_and_fields_are_left_out_and_reported(at: str) -> None:
    betas = "claude-code-20250219,interleaved-thinking-2025-05-14,advanced-tool-use-2025-11-20,prompt-caching-2026"
    tools = [{"name": "look", "input_schema": {"type": "object"}, "cache_control": SCOPED[0]["cache_control"]}]
    turn = [
        {"type": "text", "text": '"cache_control" and "scope"', "cache_control": {"type": "ephemeral", "scope": "x"}}
    ]
    body = message(turn, system=SCOPED, tools=tools, service_tier="auto", cache_control={"type": "ephemeral"})
    async with through(at) as (adapter, server):
        await adapter.call(messages.decode_message(body, betas), call := within())
        (sent,) = server.sent
    named = sent["anthropic_beta"] if at == "bedrock" else server.headers["anthropic-beta"].split(",")
    assert named == ["interleaved-thinking-2025-05-14", "tool-search-tool-2025-10-19"]
    assert call.ignored.ignored == ["betas", "cache_control.scope", "service_tier"]
    assert sent["system"] == SYSTEM
    assert sent["messages"][0]["content"][0]["text"] == turn[0]["text"]


async def test_foundry_and_aws_take_anthropic_s_own_betas() -> None:
    for at in ("aws", "foundry"):
        async with through(at) as (adapter, server):
            betas = "claude-code-20250219,fast-mode-2026-02-01"
            await adapter.call(messages.decode_message(message(service_tier="auto"), betas), call := within())
            assert server.headers["anthropic-beta"] == (betas if at == "aws" else "claude-code-20250219")
            assert call.ignored.ignored == ([] if at == "aws" else ["betas"])
            assert server.sent[0]["service_tier"] == "auto"


async def test_an_operator_s_betas_and_version_are_sent_as_they_are() -> None:
    async with clouds() as server:
        section = {"name": "anthropic", **AT["vertex"], "betas": ["context-1m-2025-08-07"], "version": "vertex-2099"}
        fields = {"name": "main", "endpoints": [server.url], "key": KEY, "model": MODEL, "protocol": section}
        adapter = make(config(pools=[fields]).pools[0], Address(server.url))
        with pytest.raises(CallerError, match="anthropic_version"):
            await adapter.call(messages.decode_message(message()), within())
        assert server.sent[0]["anthropic_version"] == "vertex-2099"
        assert server.headers["anthropic-beta"] == "context-1m-2025-08-07"
        await adapter.aclose()


@pytest.mark.parametrize("at", AT)
async def test_refusals_and_failures_have_the_same_meaning_at_every_cloud(at: str) -> None:
    async with through(at) as (adapter, _):
        for text, error in {"!long": ContextTooLong, "!rate": CapacityError, "!overloaded": CapacityError}.items():
            with pytest.raises(error):
                await adapter.call(messages.decode_message(message(text)), within())
    async with through(at, key="another") as (adapter, _):
        with pytest.raises(BackendError, match="credential"):
            await adapter.call(messages.decode_message(message()), within())


async def test_bedrock_s_models_are_ids_profiles_and_arns() -> None:
    async with through("bedrock", model=ARN) as (adapter, server):
        await text_of(adapter, messages.decode_message(message(stream=True)))
        (path,) = server.paths
        assert path == f"/model/{quote(ARN, safe='')}/invoke-with-response-stream"
    async with through("bedrock", model="claude-9") as (adapter, _):
        with pytest.raises(BackendError, match="does not know the model"):
            await adapter.call(messages.decode_message(message()), within())


async def test_an_exception_in_a_stream_of_frames_is_a_failure() -> None:
    async with through("bedrock") as (adapter, _):
        with pytest.raises(BackendError, match="The model failed"):
            await text_of(adapter, messages.decode_message(message("a !broken one", stream=True)))


@given(st.lists(st.integers(1, 200), max_size=60), st.sampled_from(["", "flip", "cut"]))
@settings(max_examples=60, deadline=None)
def test_frames_cut_anywhere_are_the_same_events_and_damage_is_seen(cuts: list[int], damage: str) -> None:
    sent: list[Object] = [{"type": "message_start", "text": "a\nb"}, *[{"type": f"e{i}", "i": i} for i in range(5)]]
    data = b"".join(chunk(event) for event in sent)
    if damage == "flip":
        data = data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]
    if damage == "cut":
        data = data[:-3]
    splitter, events, failed = FrameEvents(1024), list[bytes](), False
    places = sorted({sum(cuts[:i]) % len(data) for i in range(len(cuts))} | {0, len(data)})
    for begin, end in pairwise(places):
        try:
            events += splitter.feed(data[begin:end])
        except BackendError:
            failed = True
    complete = sent if not damage else sent[:-1]
    assert [json.loads(sse.data_of(event)) for event in events] == complete
    assert (failed or splitter.halfway) == bool(damage)


async def test_google_s_own_errors_are_understood() -> None:
    async with through("vertex") as (adapter, _):
        with pytest.raises(CapacityError):
            await adapter.call(messages.decode_message(message("!quota")), within())
    async with through("vertex", model="claude-9") as (adapter, _):
        with pytest.raises(BackendError, match="does not know the model"):
            await adapter.call(messages.decode_message(message()), within())


@pytest.mark.parametrize("at", AT)
async def test_a_cloud_without_a_health_path_is_healthy_while_it_answers(at: str) -> None:
    async with through(at) as (adapter, _):
        await adapter.probe(1.0)


@pytest.mark.parametrize("name", ["../secret", "a/../b", "", "a;b", "a%2fb"])
async def test_a_model_s_name_never_leaves_its_part_of_the_path(name: str) -> None:
    async with through("vertex", model=None) as (adapter, server):
        body = json.dumps({"model": name, "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}).encode()
        with pytest.raises(CallerError):
            await adapter.call(messages.decode_message(body), within())
        assert server.paths == []


@pytest.mark.parametrize(
    ("section", "url"),
    [
        ({"at": "vertex", "project": "p"}, "https://aiplatform.googleapis.com"),
        ({"at": "vertex", "project": "p", "location": "us"}, "https://aiplatform.us.rep.googleapis.com"),
        ({"at": "vertex", "project": "p", "location": "eu"}, "https://aiplatform.eu.rep.googleapis.com"),
        ({"at": "vertex", "project": "p", "location": "us-east5"}, "https://us-east5-aiplatform.googleapis.com"),
        ({"at": "bedrock", "region": "us-west-2"}, "https://bedrock-runtime.us-west-2.amazonaws.com"),
        ({"at": "aws", "region": "us-west-2"}, "https://aws-external-anthropic.us-west-2.api.aws"),
    ],
)
def test_a_pool_without_endpoints_has_the_cloud_s_address(section: Object, url: str) -> None:
    (pool,) = config(pools=[{"name": "main", "protocol": {"name": "anthropic", **section}}]).pools
    assert [endpoint.url for endpoint in pool.endpoints] == [url]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"at": "vertex"}, "needs the `project`"),
        ({"at": "foundry"}, "either endpoints"),
        ({"at": "aws"}, "either endpoints"),
        ({"project": "p"}, "project needs `at: vertex`"),
        ({"at": "vertex", "project": "p", "region": "us-east-1"}, "region needs `at: bedrock` or `at: aws`"),
    ],
)
def test_fields_of_another_cloud_are_refused(section: Object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(pools=[{"name": "main", "protocol": {"name": "anthropic", **section}}])


# ── the official clients before the same server ───────────────────────────────────────────────────────────


def official(at: str, url: str) -> Any:
    own: Object = {"max_retries": 0, "http_client": uncertified()}
    if at == "vertex":
        return sdk.AsyncAnthropicVertex(
            base_url=f"{url}/v1", region=LOCATION, project_id=PROJECT, access_token=KEY, **own
        )
    if at == "bedrock":
        return sdk.AsyncAnthropicBedrock(base_url=url, aws_region="eu-west-1", api_key=KEY, **own)
    if at == "aws":
        return sdk.AsyncAnthropicAWS(base_url=url, api_key=KEY, workspace_id=WORKSPACE, **own)
    return sdk.AsyncAnthropicFoundry(base_url=f"{url}/anthropic/", api_key=KEY, **own)


@pytest.mark.parametrize("at", AT)
async def test_the_official_client_of_each_cloud_accepts_the_server(at: str) -> None:
    async with clouds() as server, official(at, server.url) as client:
        turn = [{"role": "user", "content": "hi there"}]
        answer = await client.messages.create(model=MODEL, max_tokens=9, messages=turn)
        assert answer.content[0].text == "hi there"
        async with client.messages.stream(model=MODEL, max_tokens=9, messages=turn) as stream:
            assert (await stream.get_final_message()).content[0].text == "hi there"
        if at == "vertex":
            assert (await client.messages.count_tokens(model=MODEL, messages=turn)).input_tokens > 0
        for text, raised in {"!rate": sdk.RateLimitError, "!long": sdk.BadRequestError}.items():
            with pytest.raises(raised):
                await client.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": text}])


@pytest.mark.parametrize("at", AT)
async def test_the_gateway_sends_the_bytes_of_the_official_client(at: str) -> None:
    """The same path, and the same fields in the body and among those of the header that belong to the API."""
    async with through(at) as (adapter, server), official(at, server.url) as client:
        fields: Object = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        betas = ["context-1m-2025-08-07"]
        async for _ in await client.beta.messages.create(model=MODEL, betas=betas, **fields):
            pass
        theirs, own_headers = server.sent[-1], server.headers
        body = json.dumps({"model": "ours", **fields}).encode()
        await text_of(adapter, messages.decode_message(body, ",".join(betas)))
        assert server.paths[1] == server.paths[0].partition("?")[0]
        ours = server.sent[-1]
        assert {**ours, "anthropic_version": ""} == {**theirs, "anthropic_version": ""}
        assert ("anthropic_version" in ours) == ("anthropic_version" in theirs)
        names = {"x-api-key", "api-key", "authorization", "anthropic-workspace-id", "anthropic-version"}
        if at == "aws":  # an API key has two forms there, as at Anthropic's own API
            names -= {"x-api-key", "authorization"}
        sent = {name for name in names if name in server.headers}
        assert sent == {name for name in names if name in own_headers}
        if at != "bedrock":  # where the body has them, and the client sends them twice
            assert server.headers.get("anthropic-beta") == own_headers.get("anthropic-beta")


def signed_as_botocore_does(request: Any, body: bytes) -> bool:
    """Whether botocore makes the same signature for a request that has arrived."""
    given: str = request.headers["authorization"]
    names = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    scope = given.partition("Credential=")[2].partition(",")[0].split("/")
    headers = {name: request.headers[name] for name in names if name not in ("host", "x-amz-date")}
    made = AWSRequest("POST", f"http://{request.host}{request.raw_path}", headers=headers, data=body)
    made.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials(scope[0], SECRET), scope[3], scope[2])
    signer._modify_request_before_signing(made)
    signature = signer.signature(signer.string_to_sign(made, signer.canonical_request(made)), made)
    return bool(given.endswith(f"Signature={signature}"))


SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(("at", "service"), [("bedrock", "bedrock"), ("aws", "aws-external-anthropic")])
async def test_requests_are_signed_for_the_service_of_the_cloud(at: str, service: str) -> None:
    key = {"key_id": "AKIDEXAMPLE", "secret": SECRET, "region": "eu-west-1", "service": service}
    model = ARN if at == "bedrock" else MODEL
    async with through(at, key=None, credentials={"aws": key}, model=model) as (adapter, server):
        server.verify = signed_as_botocore_does
        for stream in (False, True):
            await text_of(adapter, messages.decode_message(message(stream=stream)))
        scope = server.headers["authorization"].split("/")
        assert scope[2:4] == ["eu-west-1", service]
