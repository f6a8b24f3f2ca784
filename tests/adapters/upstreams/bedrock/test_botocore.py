"""AWS's own library: it reads the stand-in's answers, and verifies the signatures of our requests."""

import asyncio
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import botocore.session
import pytest
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, EventStreamError

from adapters.errors import BackendError
from adapters.registry import Address, make
from adapters.wire.openai import chat as openai
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.bedrock import CLAUDE, PROFILE, bedrock
from tests.support.providers.bedrock_adapters import chat

KEY_ID, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1"


def is_signed(request: web.Request, body: bytes) -> bool:
    """Whether botocore signs the request as its sender did."""
    given = request.headers.get("authorization", "")
    if not given.startswith("AWS4-HMAC-SHA256 "):
        return False
    fields = dict(part.strip().split("=", 1) for part in given.removeprefix("AWS4-HMAC-SHA256 ").split(","))
    signed = {name: request.headers[name] for name in fields["SignedHeaders"].split(";")}
    again = AWSRequest("POST", f"http://{request.host}{request.raw_path}", headers=signed, data=body)
    again.context["timestamp"] = signed.get("x-amz-date", "")
    datetime.strptime(again.context["timestamp"], "%Y%m%dT%H%M%SZ")
    _, _, region, service, _ = unquote(fields["Credential"]).split("/")
    signer = SigV4Auth(Credentials(KEY_ID, SECRET), service, region)
    expected = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    return (service, region, expected) == ("bedrock", REGION, fields["Signature"])


@pytest.mark.parametrize("model", [CLAUDE, PROFILE])
async def test_a_signed_request_is_accepted_and_one_of_another_secret_is_not(model: str) -> None:
    async with bedrock(authorized=is_signed) as server:
        for secret in (SECRET, "another"):
            pool = {
                "name": "main", "endpoints": [server.url], "model": model,
                "protocol": {"name": "bedrock", "region": REGION},
                "credentials": {"aws": {"key_id": KEY_ID, "secret": secret}},
            }  # fmt: skip
            adapter = make(config(pools=[pool]).pools[0], Address(server.url))
            try:
                if secret == SECRET:
                    for stream in (False, True):
                        answer = await adapter.call(openai.decode_chat(chat(stream=stream)), within())
                        parts = [part async for part in answer]
                        assert b"hi" in (answer.body or b"".join(parts))
                    await adapter.probe(5)
                else:
                    with pytest.raises(BackendError) as failure:
                        await adapter.call(openai.decode_chat(chat()), within())
                    assert failure.value.code == "upstream_credential"
            finally:
                await adapter.aclose()
        assert server.headers["host"] == server.url.removeprefix("http://")


async def _with_client(work: Any, model: str = CLAUDE) -> Any:
    """The result of `work(client)` in a thread: botocore's client waits."""

    def run(url: str) -> Any:
        session = botocore.session.get_session()
        session.set_credentials(KEY_ID, SECRET)
        own = Config(retries={"total_max_attempts": 1}, read_timeout=20)
        return work(session.create_client("bedrock-runtime", region_name=REGION, endpoint_url=url, config=own))

    async with bedrock(authorized=is_signed) as server:
        return await asyncio.to_thread(run, server.url)


def chat_with(text: str) -> dict[str, Any]:
    return {"modelId": CLAUDE, "messages": [{"role": "user", "content": [{"text": text}]}]}


@pytest.mark.realtime
async def test_botocore_reads_the_stand_in() -> None:
    """What the stand-in answers is what AWS's library expects; its signatures are right, too."""

    def work(client: Any) -> None:
        answer = client.converse(**chat_with("hi there"))
        assert answer["output"]["message"]["content"] == [{"text": "hi there"}]
        events = list(client.converse_stream(**chat_with("hi there"))["stream"])
        assert [next(iter(event)) for event in events] == [
            "messageStart", "contentBlockDelta", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata",
        ]  # fmt: skip
        assert events[-1]["metadata"]["usage"] == answer["usage"]
        assert client.count_tokens(modelId=CLAUDE, input={"converse": {"messages": chat_with("hi there")["messages"]}})
        with pytest.raises(client.exceptions.ThrottlingException):
            client.converse(**chat_with("!ThrottlingException"))
        with pytest.raises(ClientError, match="ServiceQuotaExceededException"):
            client.converse(**chat_with("!ServiceQuotaExceededException"))
        with pytest.raises(EventStreamError, match="modelStreamErrorException"):
            list(client.converse_stream(**chat_with("!mid ModelStreamErrorException b c"))["stream"])

    await _with_client(work)
