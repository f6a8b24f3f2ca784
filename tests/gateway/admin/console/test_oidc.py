"""Sign-in by an OpenID provider that lies."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import jwt
import pytest

from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.bad_answers import BODIES, VALUES
from tests.support.sign_ins import LyingProvider, Redirected, lying_provider, signing_in


async def test_a_sign_in_uses_pkce_and_opens_a_session_once(admin_door: OpenDoor) -> None:
    async with signing_in(admin_door) as (b, p):
        assert b.query["code_challenge_method"] == "S256"
        assert b.query["redirect_uri"] == f"{b.door.url}/console/oidc/callback"
        assert await b.come_back() == "/console/"
        assert len(p.forms[0]["code_verifier"]) >= 43
        assert p.forms[0]["redirect_uri"] == b.query["redirect_uri"]
        shown = await b.session()
        assert (shown["role"], shown["name"]) == ("operator", "ana")
        assert await b.come_back() == "/console/#failed=expired", "a code is used once"


LIES: dict[str, dict[str, Any]] = {
    "nonce": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "issuer": {"iss": "http://127.0.0.1:1"},
    "audience": {"aud": "other"},
    "audiences without azp": {"aud": ["console", "other"]},
    "azp": {"azp": "other"},
    "expired": {"exp": time.time() - 600},
    "text as time": {"exp": str(time.time() + 600)},
    "no subject": {"sub": None},
    "empty subject": {"sub": ""},
    "no time": {"iat": None},
    "groups of a wrong type": {"groups": [1, {}]},
    "not yet": {"nbf": time.time() + 3600},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_a_token_with_wrong_claims_opens_no_session(admin_door: OpenDoor, lie: dict[str, Any]) -> None:
    async with signing_in(admin_door) as (b, p):
        p.claims = lie
        assert await b.come_back() == "/console/#failed=provider"
        assert not (await b.session())["signed_in"]


async def test_a_token_with_a_wrong_signature_opens_no_session(admin_door: OpenDoor) -> None:
    def unsigned(claims: dict[str, Any]) -> str:
        return jwt.encode({k: v for k, v in claims.items() if v is not None}, "", "none")

    forgeries: list[Callable[[LyingProvider, dict[str, Any]], str]] = [
        lambda _, claims: unsigned(claims),
        lambda provider, claims: provider.other.token(**claims),
        lambda provider, claims: provider.key.token({"crit": ["x"]}, **claims),
        lambda *_: "x" * 100,
        lambda *_: "",
        lambda *_: "a.b.c",
    ]
    for forge in forgeries:
        async with signing_in(admin_door) as (b, p):
            p.sign = partial(forge, p)
            assert await b.come_back() == "/console/#failed=provider"
            assert not (await b.session())["signed_in"]


async def test_a_provider_that_fails_opens_no_session(admin_door: OpenDoor) -> None:
    answers: list[tuple[int, dict[str, Any]]] = [(200, {}), (200, {"id_token": 1}), (500, {}), (400, {"error": "x"})]
    for status, body in [*answers, (302, {}), (200, {"x": "y" * 300_000})]:
        async with signing_in(admin_door) as (b, p):
            p.status, p.exchange = status, body
            assert await b.come_back() == "/console/#failed=provider"
    async with signing_in(admin_door) as (b, p):
        assert await b.come_back(iss="http://127.0.0.1:1") == "/console/#failed=provider"
    async with admin_door(required=True) as door, lying_provider(door) as p, aiohttp.ClientSession() as http:
        b = Redirected(door, http)
        for described in (
            {"issuer": "http://127.0.0.1:1"},
            {"token_endpoint": "http://example.org/"},
            {"jwks_uri": "file:///etc/passwd"},
            {"authorization_endpoint": "javascript:alert(1)"},
        ):
            p.described = described
            assert await b.start() == 303
            assert b.query == {}


@pytest.mark.parametrize("path", ["token", "keys", "openid-configuration"])
async def test_any_body_of_a_provider_is_a_failed_sign_in(
    admin_door: OpenDoor, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"token": "id_token", "keys": "keys", "openid-configuration": "jwks_uri"}
    wrong = [b'{"%b":%b}' % (fields[path].encode(), value) for value in VALUES]
    async with signing_in(admin_door) as (b, p):
        for body in [*BODIES, *wrong]:
            p.raw = {path: body}
            if path != "openid-configuration":
                assert await b.start() == 303
                assert await b.come_back() == "/console/#failed=provider", body[:100]
        p.raw = {}
        await b.start()
        p.nonce = b.query["nonce"]
        assert await b.come_back() == "/console/"
    for body in BODIES if path == "openid-configuration" else ():
        async with admin_door(required=True) as door, lying_provider(door) as p, aiohttp.ClientSession() as http:
            p.raw = {path: body}
            b = Redirected(door, http)
            assert await b.start() == 303
            assert b.query == {}
    assert "Traceback" not in caplog.text


async def test_of_a_refused_code_only_the_error_is_logged(
    admin_door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    """The body may repeat the request: the code, and the client's secret."""
    async with signing_in(admin_door) as (b, p):
        p.status = 400
        for error, logged in (("invalid_grant", "invalid_grant"), ("SECRET x", "status 400")):
            await b.start()
            p.exchange = {"error": error, "error_description": "SECRET"}
            assert await b.come_back() == "/console/#failed=provider"
            assert logged in caplog.text
            p.exchange, p.raw = {}, {"token": b"SECRET"}
            await b.start()
            assert await b.come_back() == "/console/#failed=provider"
            p.raw = {}
        assert "SECRET" not in caplog.text


@pytest.mark.parametrize("state", ["", "x", "\N{SNOWMAN}"])
async def test_a_return_with_another_state_opens_no_session(admin_door: OpenDoor, state: str) -> None:
    async with signing_in(admin_door) as (b, _):
        assert await b.come_back(state=state) == "/console/#failed=expired"
        assert await b.come_back() == "/console/#failed=expired", "the attempt ended the sign-in"


async def test_a_return_in_another_browser_opens_no_session(admin_door: OpenDoor) -> None:
    async with signing_in(admin_door) as (b, _), aiohttp.ClientSession() as http:
        victim = Redirected(b.door, http)
        victim.query = b.query
        assert await victim.come_back() == "/console/#failed=expired"
        assert not (await victim.session())["signed_in"]


async def test_no_parameter_changes_the_address_after_a_sign_in(admin_door: OpenDoor) -> None:
    async with signing_in(admin_door) as (b, _):
        assert await b.come_back(next="//evil.example", redirect="http://evil.example", url="x") == "/console/"
    async with signing_in(admin_door) as (b, _):
        lie = {"error": "<script>", "error_description": "http://evil.example"}
        assert await b.come_back(**lie, code="") == "/console/"


async def test_roles_and_tenants_come_from_the_mapping_alone(admin_door: OpenDoor) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"groups": "llm-admins"}, "/console/", "operator"),
        ({"groups": ["operator", "tenant-admin"]}, "/console/#failed=role", ""),
        ({"groups": None}, "/console/#failed=role", ""),
        ({"groups": ["acme-leads"], "team": "acme"}, "/console/", "tenant-admin"),
        ({"groups": ["acme-leads"], "team": "nobody"}, "/console/#failed=role", ""),
        ({"groups": ["acme-leads"], "team": ["acme"]}, "/console/#failed=role", ""),
        ({"groups": ["acme-leads"]}, "/console/#failed=role", ""),
    ]
    for claims, location, role in cases:
        async with signing_in(admin_door, claims={"tenant": "team"}) as (b, p):
            p.claims = claims
            assert await b.come_back() == location, claims
            assert (await b.session()).get("role", "") == role, claims


async def test_a_session_ends_when_the_provider_changes(admin_door: OpenDoor) -> None:
    async with signing_in(admin_door) as (b, _):
        assert await b.come_back() == "/console/"
        config = b.door.backend.config
        b.door.backend.config = config.model_copy(update={"console": config.console.model_copy(update={"oidc": None})})
        assert not (await b.session())["signed_in"]


async def test_a_confidential_client_sends_its_secret(admin_door: OpenDoor) -> None:
    async with signing_in(admin_door, client_secret="s:e c") as (b, p):
        assert await b.come_back() == "/console/"
        assert "client_id" not in p.forms[0]
    async with admin_door(required=True) as door, lying_provider(door, client_secret="s:e c") as p:
        p.described = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            b = Redirected(door, http)
            await b.start()
            p.nonce = b.query["nonce"]
            assert await b.come_back() == "/console/"
            assert p.forms[0]["client_secret"] == "s:e c"


async def test_a_flood_of_sign_ins_ends_no_other_one(admin_door: OpenDoor) -> None:
    async with signing_in(admin_door) as (b, _), aiohttp.ClientSession() as http:
        flood = Redirected(b.door, http)
        for _ in range(300):
            assert await flood.start() == 303
        assert await b.come_back() == "/console/"


async def test_the_provider_may_return_a_browser_to_another_replica(admin_door: OpenDoor) -> None:
    """A state opens one session, on whichever replica: also for a thief of cookie and address."""
    async with admin_door(required=True) as one, admin_door(required=True) as two, lying_provider(one) as provider:
        url = {"url": "https://headrace.example.org"}
        console = one.backend.config.console.model_copy(update=url)
        for door in (one, two):
            door.backend.config = door.backend.config.model_copy(update={"console": console})

        async def send(door: AdminDoor, path: str, cookie: str = "") -> tuple[str, str]:
            """Where the door sends the browser, and the cookie that it sets."""
            headers = {"cookie": cookie}
            async with http.get(door.url + path, headers=headers, allow_redirects=False) as response:
                cookies = response.headers.getall("set-cookie", [])
                return response.headers.get("location", ""), cookies[0].partition(";")[0] if cookies else ""

        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
            location, started = await send(one, "/console/oidc/start")
            query = parse_qs(urlsplit(location).query)
            provider.nonce = query["nonce"][0]
            path = f"/console/oidc/callback?code=c&state={query['state'][0]}"
            location, session = await send(two, path, started)
            assert location == "/console/"
            for door in (one, two):
                async with http.get(f"{door.url}/admin/state", headers={"cookie": session}) as response:
                    assert response.status == 200
                assert (await send(door, path, started))[0] == "/console/#failed=expired", "a replay"
            for place in range(25, len(started), 40):
                changed = started[:place] + ("A" if started[place] != "A" else "B") + started[place + 1 :]
                assert (await send(one, path, changed))[0] == "/console/#failed=expired"
