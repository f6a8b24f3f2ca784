"""Each exception of Bedrock has its class; the health check."""

import asyncio
from typing import Any

import pytest

from adapters.conformance.subject import pool
from adapters.detection import text
from adapters.detection.detect import detect
from adapters.detection.look import Look
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    InferenceError,
    ServerFailed,
    UpstreamTimeout,
)
from adapters.http1.client import Client
from adapters.registry import Address
from adapters.wire.openai import chat as openai
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.bedrock import CLAUDE, KEY, bedrock
from tests.support.providers.bedrock_adapters import adapting, chat, chatted

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("ThrottlingException", CapacityError, None),
        ("ServiceQuotaExceededException", CapacityError, None),
        ("ModelNotReadyException", CapacityError, None),
        ("ServiceUnavailableException", CapacityError, None),
        ("ValidationException", CallerError, None),
        ("content", CallerError, None),
        ("long", ContextTooLong, None),
        ("tokens", ContextTooLong, None),
        ("identifier", BackendError, "upstream_model_not_found"),
        ("access", BackendError, "upstream_model_not_found"),
        ("ResourceNotFoundException", BackendError, "upstream_model_not_found"),
        ("AccessDeniedException", BackendError, "upstream_credential"),
        ("UnrecognizedClientException", BackendError, "upstream_credential"),
        ("ExpiredTokenException", BackendError, "upstream_credential"),
        ("ModelTimeoutException", UpstreamTimeout, None),
        ("ModelErrorException", ServerFailed, None),
        ("InternalServerException", ServerFailed, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_exception_has_its_class(
    name: str, kind: type[InferenceError], code: str | None, stream: bool
) -> None:
    async with adapting() as (adapter, _):
        with pytest.raises(InferenceError) as failure:
            await adapter.call(openai.decode_chat(chat(f"!{name}", stream=stream)), within())
    assert type(failure.value) is kind
    assert code is None or failure.value.code == code
    if name == "ThrottlingException":
        assert failure.value.retry_after == 1.5


async def test_a_wrong_key_is_the_gateway_s_own_fault() -> None:
    with pytest.raises(BackendError) as failure:
        await chatted(chat(), key="another")
    assert failure.value.code == "upstream_credential"


async def test_a_model_that_the_client_named_is_the_client_s_error() -> None:
    async with adapting(model=None) as (adapter, _):
        with pytest.raises(InferenceError, match="`ours` does not exist"):
            await adapter.call(openai.decode_chat(chat()), within())


async def test_the_health_check_shows_a_wrong_key_and_a_model_that_is_not_there() -> None:
    async with adapting() as (adapter, server):
        await adapter.probe(5)
        assert server.bodies == []
    async with adapting(key="another") as (adapter, _):
        with pytest.raises(BackendError, match="answered 403"):
            await adapter.probe(5)
    async with adapting(model=None) as (adapter, _):
        await adapter.probe(5)


async def test_bedrock_is_detected_by_its_host_and_by_its_refusals() -> None:
    async with bedrock() as server:
        detection = await detect(pool("auto", server.url, key=KEY), Address(server.url), names=(CLAUDE,))
        client = Client(server.url)
        host = "vpce-1.bedrock-runtime.eu-central-1.vpce.amazonaws.com"
        look = Look(client, asyncio.get_running_loop().time() + 9, (), host)
        by_host = await text.bedrock(look)
        await client.aclose()
    assert detection is not None
    assert (detection.system, [model.name for model in detection.pools[0].models]) == ("Amazon Bedrock", [CLAUDE])
    assert by_host is not None
    assert "--model" in by_host.notes[0]


def test_the_address_follows_from_the_region() -> None:
    (section,) = config(pools=[{"name": "main", "protocol": {"name": "bedrock", "region": "eu-central-1"}}]).pools
    assert section.endpoints[0].url == "https://bedrock-runtime.eu-central-1.amazonaws.com"
