import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from adapters.errors import CredentialError
from config.schema.identity import JwtConfig
from gateway.auth.jwks import MAX_BYTES, MAX_KEYS, UNKNOWN_KEY_SECONDS, Jwks, JwksError, parse
from gateway.auth.tokens import Tokens
from gateway.traffic.metrics.gauges import IdentityGauges
from tests.support.bad_answers import bad_json
from tests.support.issuers import AUDIENCE, ISSUER, SigningKey, jwk_set, jwks_server
from tests.support.waiting import until

OLD, NEW, EC = SigningKey("RS256", "old"), SigningKey("RS256", "new"), SigningKey("ES256")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def config(source: str, **changes: Any) -> JwtConfig:
    base = {
        "name": "login", "issuer": ISSUER, "audience": AUDIENCE, "algorithms": ("RS256",), "jwks": source,
        "claims": {"tenant": "tenant"},
    }  # fmt: skip
    return JwtConfig.model_validate({**base, **changes})


def accepted(tokens: Tokens, key: SigningKey) -> bool:
    try:
        return tokens.authenticate(key.token(), time.time(), {"acme"}).tenant == "acme"
    except CredentialError:
        return False


async def until_accepted(tokens: Tokens, key: SigningKey) -> None:
    await until(lambda: accepted(tokens, key))


@asynccontextmanager
async def running(tokens: Tokens) -> AsyncIterator[None]:
    await tokens.load()
    task = asyncio.create_task(tokens.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_rotated_key_counts_after_the_first_token_that_names_it() -> None:
    clock = Clock()
    async with jwks_server(OLD) as server:
        tokens = Tokens([config(server.url)], clock)
        async with running(tokens):
            assert accepted(tokens, OLD)
            server.body = jwk_set(OLD, NEW)
            assert not accepted(tokens, NEW)  # it does not wait
            await until_accepted(tokens, NEW)
            assert server.fetches == 2
            clock.now += UNKNOWN_KEY_SECONDS
            token = OLD.token()
            assert tokens.authenticate(token, time.time(), {"acme"}).tenant == "acme"
            server.body = jwk_set(NEW)
            assert not accepted(tokens, SigningKey("RS256", "third"))
            await until(lambda: not accepted(tokens, OLD))
            with pytest.raises(CredentialError):  # a verified token ends with its key
                tokens.authenticate(token, time.time(), {"acme"})


async def test_a_flood_of_unknown_keys_causes_one_fetch_in_thirty_seconds() -> None:
    clock = Clock()
    strangers = [OLD.token({"kid": f"k{i}"}) for i in range(200)]
    async with jwks_server(OLD) as server:
        tokens = Tokens([config(server.url)], clock)
        async with running(tokens):
            for minute in range(3):
                for token in strangers:
                    with pytest.raises(CredentialError):
                        tokens.authenticate(token, time.time(), {"acme"})
                    await asyncio.sleep(0)
                await until(lambda minute=minute: server.fetches >= 2 + minute)
                clock.now += UNKNOWN_KEY_SECONDS - 0.1
                assert not accepted(tokens, NEW)
                clock.now += 0.1
            # A token of another issuer, or with an algorithm that is not allowed here, triggers no fetch.
            for wrong in (NEW.token(iss="https://other.example.org/"), EC.token()):
                with pytest.raises(CredentialError):
                    tokens.authenticate(wrong, time.time(), {"acme"})
            await tokens.load()
            assert server.fetches == 5


async def test_keys_are_fetched_again_when_it_is_time() -> None:
    async with jwks_server(OLD) as server:
        tokens = Tokens([config(server.url, refresh="20ms")], time.monotonic)
        async with running(tokens):
            server.body = jwk_set(NEW)
            await until(lambda: server.fetches >= 3)
            await until_accepted(tokens, NEW)
            assert not accepted(tokens, OLD)


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"status": 500}, "was answered with status 500"),
    ({"status": 302, "headers": {"location": "/elsewhere"}}, "was answered with status 302"),
    ({"body": b"<html>"}, "is not a JWK set"),
    ({"body": b"[" * 100_000}, "is not a JWK set"),
    ({"body": b"[]"}, "is not a JWK set"),
    ({"body": b'{"keys": {}}'}, "is not a list of at most 64 keys"),
    ({"body": b'{"keys": []}'}, "has no key for RS256"),
    ({"body": json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode()}, "is not a list of at most 64 keys"),
    ({"body": b" " * (MAX_BYTES + 1) + jwk_set(NEW)}, "is larger than 256 KiB"),
]


@pytest.mark.parametrize(("changes", "why"), BROKEN)
async def test_the_last_good_keys_survive_an_outage(
    changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    clock = Clock()
    async with jwks_server(OLD) as server:
        tokens = Tokens([config(server.url)], clock)
        await tokens.load()
        (keys,) = tokens.key_sets
        good = server.body
        for name, value in changes.items():
            setattr(server, name, value)
        for _ in range(3):
            clock.now += 600
            await tokens.load()
            assert accepted(tokens, OLD)
            assert why in keys.error
        assert (keys.age, len(keys)) == (1800, 1)
        assert [why in record.message for record in caplog.records] == [True]  # logged once
        server.status, server.headers, server.body = 200, {}, good
        await tokens.load()
        assert (keys.age, keys.error) == (0, "")
        assert "can be read again" in caplog.records[-1].message
    await tokens.load()  # the server no longer listens
    assert accepted(tokens, OLD)
    assert "cannot be fetched" in keys.error


async def test_an_issuer_that_is_down_at_the_start_is_polled_again(caplog: pytest.LogCaptureFixture) -> None:
    async with jwks_server(OLD) as server:
        server.status = 503
        tokens = Tokens([config(server.url)], Clock())
        async with running(tokens):
            (keys,) = tokens.key_sets
            assert not accepted(tokens, OLD)
            gauges = IdentityGauges(lambda: False, lambda: 7.0, tokens.key_sets)
            samples = {s.name: s.value for metric in gauges.collect() for s in metric.samples}
            assert samples == {
                "headrace_key_database_available": 0,
                "headrace_keys_age_seconds": 7,
                "headrace_jwks_age_seconds": float("inf"),
                "headrace_jwks_keys": 0,
            }
            server.status = 200
            await until_accepted(tokens, OLD)
            assert keys.age == 0


async def test_a_redirect_is_not_followed() -> None:
    async with jwks_server(OLD) as evil, jwks_server() as server:
        server.status, server.headers = 302, {"location": evil.url}
        tokens = Tokens([config(server.url)], time.monotonic)
        await tokens.load()
        assert (server.fetches, evil.fetches) == (1, 0)
        assert not accepted(tokens, OLD)


async def test_keys_in_a_file_are_read_again_when_it_may_have_changed(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(jwk_set(OLD))
    clock = Clock()
    tokens = Tokens([config(f"file:{file}")], clock)
    async with running(tokens):
        assert accepted(tokens, OLD)
        file.write_bytes(jwk_set(NEW))
        tokens.files_may_have_changed()
        await until_accepted(tokens, NEW)
        file.unlink()
        await tokens.load()
        assert accepted(tokens, NEW)
        assert tokens.key_sets[0].error == "cannot be read: No such file or directory"


SHORT = SigningKey("RS256", "short", bits=1024)


@pytest.mark.parametrize(
    "entry",
    [
        OLD.jwk(use="enc"),
        OLD.jwk(key_ops=["encrypt"]),
        OLD.jwk(key_ops="verify"),
        OLD.jwk(alg="RS512"),
        OLD.jwk(private=True),
        OLD.jwk(kid=5),
        OLD.jwk(n="!"),
        OLD.jwk(n=5),
        OLD.jwk(kty="oct", k="c2VjcmV0"),
        {"kty": "oct", "kid": "a", "alg": "RS256", "k": "c2VjcmV0"},
        {"kty": "oct", "kid": "a", "alg": "HS256", "k": "c2VjcmV0"},
        {"kty": ["RSA"], "kid": "a"},
        EC.jwk(),
        EC.jwk(kty="RSA"),
        SHORT.jwk(),
        5,
        None,
        "RSA",
    ],
)
def test_keys_for_other_uses_are_ignored(entry: object) -> None:
    with pytest.raises(JwksError, match="has no key for RS256"):
        parse(json.dumps({"keys": [entry]}).encode(), ["RS256"])
    both = parse(json.dumps({"keys": [entry, NEW.jwk(use="sig", alg="RS256")]}).encode(), ["RS256"])
    assert (len(both), both.find("new", "RS256") is not None, both.find(None, "RS256") is not None) == (1, True, True)


@given(bad_json({"keys": [OLD.jwk(use="sig", alg="RS256"), EC.jwk()]}))
@example(b'{"keys": "\xff"}')
def test_any_key_set_is_read_or_refused(body: bytes) -> None:
    try:
        assert len(parse(body, ["RS256", "ES256"])) > 0
    except JwksError:
        return


def test_a_curve_is_for_its_own_algorithm() -> None:
    keys = parse(jwk_set(EC), ["ES256", "ES384"])
    assert keys.find(EC.kid, "ES256") is not None
    assert keys.find(EC.kid, "ES384") is None


def test_without_an_id_two_keys_that_fit_are_none() -> None:
    assert parse(jwk_set(OLD, NEW), ["RS256"]).find(None, "RS256") is None


async def test_a_key_set_that_cannot_be_reached_in_time_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    monkeypatch.setattr("gateway.auth.jwks.FETCH_SECONDS", 0.05)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        keys = Jwks(config(f"http://127.0.0.1:{port}/jwks"), time.monotonic, lambda: None)
        await keys.refresh()
        assert "cannot be fetched" in keys.error
        release.set()
