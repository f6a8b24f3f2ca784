"""Credentials that the gateway makes, at the servers of a pool: every request over HTTP has them."""

import asyncio
import sys
import time
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.credentials import renewed
from adapters.credentials.aws import AwsCredential
from adapters.credentials.renewed import Issued, Renewed
from adapters.credentials.sigv4 import AccessKey, SigningScope
from adapters.errors import Unavailable
from adapters.http1.client import Client
from adapters.http1.message import Headers, Request, Response
from adapters.http1.server import Server
from adapters.http1.signing import OutgoingRequest
from adapters.registry import Address, make
from adapters.types import Deadline
from adapters.upstreams.dial import http1_client
from adapters.wire import failure_text
from adapters.wire.failure_text import Scrubber
from config.schema.config import PoolConfig
from tests.support.gateways import config
from tests.support.providers import oauth
from tests.support.providers.aws import KEY, POD_TOKEN, REGION, SECRETS, AwsStub, aws_stub, botocores

pytestmark = pytest.mark.realtime
PATIENCE = 10.0


def pool(**fields: Any) -> PoolConfig:
    (made,) = config(pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], **fields}]).pools
    return made


class Service:
    """A server that accepts the tokens in `accepts`, or all of them."""

    def __init__(self) -> None:
        self.received: list[Request] = []
        self.accepts: set[str] | None = None

    @property
    def tokens(self) -> list[str | None]:
        return [each.headers.get("authorization") for each in self.received]

    async def __call__(self, http: Request) -> Response:
        self.received.append(http)
        token = (http.headers.get("authorization") or "").removeprefix("Bearer ")
        refused = self.accepts is not None and token not in self.accepts
        return Response(401 if refused else 200, [], b"no" if refused else b"ok")

    async def listen(self) -> Server:
        server = Server(self)
        host, port = await server.listen_tcp("127.0.0.1", 0)
        self.url = f"http://{host}:{port}"
        return server


async def status_of(client: Client, target: bytes = b"/v1/x") -> int:
    response = await client.request(b"POST", target, b"", b"{}", Deadline(client.now() + PATIENCE, PATIENCE, PATIENCE))
    await response.read()
    return response.status


def of_issuer(issuer: oauth.Issuer, **more: Any) -> dict[str, Any]:
    return {"oauth": {"url": issuer.url, "client_id": oauth.CLIENT, "secret": oauth.SECRET, **more}}


async def test_probes_and_requests_share_one_token() -> None:
    service = Service()
    server = await service.listen()
    async with oauth.issuer() as issuer:
        made = pool(credentials=of_issuer(issuer, scope="a b", audience="https://models"))
        adapter, client = make(made, Address(service.url)), http1_client(made, Address(service.url))
        await adapter.probe(PATIENCE)
        assert await asyncio.gather(*(status_of(client) for _ in range(20))) == [200] * 20
        await adapter.aclose()
        await client.aclose()
    await server.aclose()
    assert set(service.tokens) == {"Bearer token-1"}
    (form,) = issuer.forms
    assert form == {"grant_type": "client_credentials", "scope": "a b", "audience": "https://models"}


async def test_a_token_that_was_revoked_is_replaced_once() -> None:
    service = Service()
    server = await service.listen()
    async with oauth.issuer() as issuer:
        made = pool(credentials=of_issuer(issuer, in_body=True), key_header="x-token")
        client = http1_client(made, Address(service.url))
        assert await status_of(client) == 200
        service.accepts = set()
        assert await status_of(client) == 401  # the token is too young to be revoked: the server accepts none
        await client.aclose()
    await server.aclose()
    assert issuer.issued == 1
    assert [each.headers.get("x-token") for each in service.received] == ["token-1", "token-1"]


async def test_an_issuer_that_refuses_gives_503_without_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    async with oauth.issuer() as issuer:
        issuer.down = oauth.answer(400, {"error": "invalid_scope", "error_description": f"secret {oauth.SECRET}"})
        client = http1_client(pool(credentials=of_issuer(issuer)), Address("http://127.0.0.1:9"))
        for _ in range(3):
            with pytest.raises(Unavailable, match="pool `main`") as raised:
                await status_of(client)
        assert "answered 400 invalid_scope" in raised.value.detail
        assert oauth.SECRET not in f"{raised.value.message}{raised.value.detail}{caplog.text}{issuer.url!r}"
        assert caplog.text.count("could not") <= 1
        assert len(caplog.records) == 1  # the next attempt has its time, and requests do not hasten it
        await client.aclose()


@pytest.mark.processes
async def test_a_program_prints_the_token() -> None:
    service = Service()
    server = await service.listen()
    program = (
        "import json,sys;print(json.dumps({'status': {'token': sys.argv[1], 'expirationTimestamp': sys.argv[2]}}))"
    )
    run = [sys.executable, "-c", program, "$HOME;`x`", "2099-01-01T00:00Z"]
    made = pool(credentials={"command": {"run": run}})
    client = http1_client(made, Address(service.url))
    assert await status_of(client) == 200
    await client.aclose()
    await server.aclose()
    assert service.tokens == ["Bearer $HOME;`x`"]


async def test_every_request_is_signed_for_aws() -> None:
    service = Service()
    server = await service.listen()
    keys = {"region": "eu-central-1", "service": "bedrock", "key_id": "AKID", "secret": KEY, "session_token": "FwoG"}
    client = http1_client(pool(credentials={"aws": keys}), Address(service.url))
    assert await status_of(client, b"/model/a%3Ab/converse?x=1") == 200
    await client.aclose()
    await server.aclose()
    (received,) = service.received
    stamp = datetime.strptime(received.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    fields = {"host": received.headers["host"]}
    expected = botocores(
        "bedrock", AccessKey("AKID", KEY, "FwoG"), "POST", "/model/a%3Ab/converse?x=1", fields, b"{}", stamp
    )
    assert received.headers["authorization"] == expected["authorization"]


class Amazon(Service):
    """Verifies signatures by a clock that is `ahead` seconds before this machine's, and refuses the keys in `ended`."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.ended: set[str] = set()

    async def __call__(self, http: Request) -> Response:
        self.received.append(http)
        now = time.time() + self.ahead
        fields = [("date", formatdate(now, usegmt=True))]
        if not AwsStub().verifies(http, "bedrock", await http.read(), now):
            return Response(403, [*fields, ("x-amzn-errortype", "InvalidSignatureException:http://x")], b"{}")
        if http.headers.get("x-amz-security-token") in self.ended:
            return Response(403, [*fields, ("x-amzn-errortype", "ExpiredTokenException")], b"{}")
        return Response(200, fields, b"ok")


def of_amazon(service: Amazon, **keys: str) -> Client:
    static = {"key_id": "AKIDSTATIC", "secret": SECRETS["AKIDSTATIC"]}
    aws = {"region": REGION, "service": "bedrock", **(keys or static)}
    return http1_client(pool(credentials={"aws": aws}), Address(service.url))


@pytest.mark.parametrize("ahead", [-86400.0, -301.0, 0.0, 250.0, 3600.0])
async def test_a_wrong_clock_is_corrected_by_the_server_s_own(ahead: float) -> None:
    service = Amazon()
    service.ahead = ahead
    server = await service.listen()
    client = of_amazon(service)
    assert [await status_of(client) for _ in range(3)] == [200, 200, 200]
    await client.aclose()
    await server.aclose()
    assert len(service.received) == 3 + (abs(ahead) > 300)


async def test_each_of_several_requests_is_signed_again_with_the_corrected_clock() -> None:
    service = Amazon()
    service.ahead = 3600.0
    server = await service.listen()
    client = of_amazon(service)
    assert await asyncio.gather(*[status_of(client) for _ in range(4)]) == [200] * 4
    assert len(service.received) == 8
    service.ahead = -3600.0
    assert await asyncio.gather(*[status_of(client) for _ in range(4)]) == [200] * 4
    await client.aclose()
    await server.aclose()
    assert len(service.received) == 16


async def test_a_wrong_secret_is_refused_once() -> None:
    service = Amazon()
    server = await service.listen()
    client = of_amazon(service, key_id="AKIDSTATIC", secret="other")
    assert await status_of(client) == 403
    await client.aclose()
    await server.aclose()
    assert len(service.received) == 1


async def test_a_key_that_ended_early_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewed, "DISCARD_AFTER", 0.0)
    service = Amazon()
    server = await service.listen()
    async with aws_stub() as stub:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{stub.url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", POD_TOKEN)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/nonexistent")
        client = of_amazon(service, session_name="gateway")
        assert await status_of(client) == 200
        service.ended, stub.session = {stub.session}, "another-session"
        assert await status_of(client) == 200
        await client.aclose()
    await server.aclose()
    assert [each.headers["x-amz-security-token"] for each in service.received] == [
        "a-session", "a-session", "another-session",
    ]  # fmt: skip


async def test_a_refusal_of_an_older_key_spares_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewed, "DISCARD_AFTER", 0.0)
    keys = [AccessKey("AKID", "s", f"token-{number}") for number in range(3)]
    made = iter(keys)

    async def make() -> Issued[AccessKey]:
        return Issued(next(made), 3600.0)

    source = Renewed("a test", make, lambda key: ())
    credential = AwsCredential("main", source, SigningScope(REGION, "bedrock"))
    request = OutgoingRequest(b"POST", "h", b"/", b"", b"")
    ended = Headers({b"x-amzn-errortype": b"ExpiredTokenException"})
    older = [await credential.apply(request), await credential.apply(request)]
    for applied in older:  # two requests under way: the second refusal comes when the next key is there
        assert credential.corrects(applied, 403, ended)
        present = await credential.apply(request)
        assert source.valid == keys[1]
    assert credential.corrects(present, 403, ended)
    await credential.apply(request)
    assert source.valid == keys[2]


def test_texts_of_servers_lose_credentials_that_were_made() -> None:
    failure_text.MADE.add("opaque/token+of=an-issuer")
    assert Scrubber().text("the token opaque/token+of=an-issuer is revoked") == "the token [secret] is revoked"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"credentials": {}}, "one kind"),
        ({"credentials": {"aws": {}, "command": "x"}}, "one kind"),
        ({"credentials": {"command": "x"}, "key": "k"}, "one credential"),
        ({"credentials": {"aws": {}}, "key_header": "x-key"}, "no effect"),
        ({"credentials": {"command": "x"}, "protocol": "oip-grpc"}, "over HTTP"),
        ({"credentials": {"aws": {"key_id": "k"}}}, "two parts"),
        ({"credentials": {"aws": {"token_file": "f"}}}, "go with `role`"),
        ({"credentials": {"aws": {"profile": "p", "key_id": "k", "secret": "s"}}}, "one source"),
        ({"credentials": {"google": {"file": "f", "key": "k"}}}, "`file` or `key`"),
        ({"credentials": {"azure": {"managed": True, "secret": "s"}}}, "one source"),
        ({"credentials": {"command": {"run": []}}}, "at least 1 item"),
    ],
)
def test_credentials_that_contradict_themselves(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        pool(**fields)
