"""Tokens and client certificates through a real gateway, its real listener and a real issuer."""

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.issuers import SigningKey, issuer, jwk_set, jwks_server
from tests.support.processes import GatewayProcess, command, gateway, minimal
from tests.support.upstreams import upstream

REFUSED = "the API key or token is not valid: it is unknown, revoked or expired"
TENANTS = [{"name": name, "models": ["*"]} for name in ("acme", "beta")]
MISSING = "no API key given: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"


async def chat(g: GatewayProcess, *, tls: ssl.SSLContext | None = None, **headers: str) -> tuple[int, str]:
    """Status, and the error's message."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    url = f"{g.url}/v1/chat/completions"
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=body, headers=sent, ssl=tls if tls is not None else True) as response,
    ):
        return response.status, (await response.json()).get("error", {}).get("message", "")


async def bearer(g: GatewayProcess, token: str, **more: Any) -> tuple[int, str]:
    return await chat(g, authorization=f"Bearer {token}", **more)


def logged(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "access.log").read_text().splitlines()]


async def test_a_token_is_a_way_in_and_its_keys_rotate_and_survive_an_outage(tmp_path: Path) -> None:
    old, new = SigningKey("RS256", "old"), SigningKey("RS256", "new")
    async with upstream() as up, jwks_server(old) as server:
        server.status = 503  # an issuer that is away does not keep the gateway from starting
        async with gateway(tmp_path, minimal(up.url, auth={"jwt": [issuer(server.url)]}, tenants=TENANTS)) as g:
            assert await bearer(g, old.token()) == (401, REFUSED)
            assert (await g.state())["issuers"][0]["age_seconds"] is None
            assert "was answered with status 503" in g.output
            server.status = 200
            await g.until_status(old.token(), 200)
            assert await bearer(g, old.token(roles=["ops"])) == (200, "")
            assert await chat(g, x_api_key=old.token(tenant="beta", sub="Jo <jo@b>")) == (200, "")
            for wrong in (old.token(tenant="nobody"), old.token(exp=time.time() - 3600), "a.b.c", "abc", "hr-a.b.c"):
                assert await bearer(g, wrong) == (401, REFUSED)
            assert await chat(g) == (401, MISSING)
            server.body = jwk_set(new)
            assert await bearer(g, new.token()) == (401, REFUSED)
            await g.until_status(new.token(), 200)
            assert await bearer(g, old.token()) == (401, REFUSED)

            server.status = 500
            assert await bearer(g, new.token()) == (200, "")
            state = await g.state()
            assert [(i["issuer"], i["keys"], i["error"]) for i in state["issuers"]] == [("login", 1, "")]
            metrics = await g.metrics()
            assert 'headrace_jwks_keys{issuer="login"} 1.0' in metrics
            assert 'headrace_jwks_age_seconds{issuer="login"}' in metrics

            g.rewrite(tenants=TENANTS[1:])  # a tenant that leaves takes its tokens along
            await g.printed("configuration reloaded")
            assert await bearer(g, new.token()) == (401, REFUSED)
            assert await bearer(g, new.token(tenant="beta")) == (200, "")
    lines = [line for line in logged(tmp_path) if line["status"] == 200]
    lines = lines[lines.index(next(line for line in lines if line.get("roles") == ["operator", "user"])) :]
    assert (lines[0]["tenant"], lines[0]["key"], lines[0]["roles"]) == ("acme", "jwt:login:app-1", ["operator", "user"])
    assert lines[1]["key"].startswith("jwt:login:Jo__jo@b_~")
    assert "roles" not in lines[1]
    assert old.token().split(".")[0] not in (tmp_path / "access.log").read_text() + g.output


# ── client certificates ───────────────────────────────────────────────────────────────────────────────────


async def openssl(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("openssl", *arguments, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


async def authority(folder: Path, name: str) -> Path:
    """A root of its own."""
    cert = folder / f"{name}.pem"
    await openssl(
        "req", "-x509", *NEW_KEY, "-keyout", str(cert.with_suffix(".key")), "-out", str(cert), "-subj", f"/CN={name}",
        "-addext", "keyUsage=keyCertSign",
    )  # fmt: skip
    return cert


async def signed(ca: Path, name: str, extensions: Sequence[str], cn: str = "") -> tuple[Path, Path]:
    """A certificate of that root, and its key."""
    cert = ca.with_name(f"{name}.pem")
    request, config = cert.with_suffix(".csr"), cert.with_suffix(".ext")
    config.write_text("\n".join(extensions) + "\n")
    await openssl(
        "req", *NEW_KEY, "-keyout", str(cert.with_suffix(".key")), "-out", str(request), "-subj", f"/CN={cn or name}"
    )
    await openssl(
        "x509", "-req", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")), "-CAcreateserial",
        "-days", "2", "-extfile", str(config), "-out", str(cert),
    )  # fmt: skip
    return cert, cert.with_suffix(".key")


CLIENT = "extendedKeyUsage=clientAuth"


def client(ca: Path, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


async def test_a_client_certificate_is_a_tenants_where_no_key_is_given(tmp_path: Path) -> None:
    ca, other_ca = await asyncio.gather(authority(tmp_path, "ca"), authority(tmp_path, "other"))
    cert, key = await signed(ca, "server", ["subjectAltName=IP:127.0.0.1"])
    acme = await signed(ca, "acme", [CLIENT], cn="app.acme")
    beta = await signed(ca, "beta", [CLIENT, "subjectAltName=URI:spiffe://example.org/beta"])
    unknown = await signed(ca, "nobody", [CLIENT])
    server_only = await signed(ca, "server-only", ["extendedKeyUsage=serverAuth"], cn="app.acme")
    forged = await signed(other_ca, "forged", [CLIENT], cn="app.acme")
    listen = {
        "http": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "tls": {"cert": str(cert), "key": str(key), "client_ca": str(ca)},
    }
    tenants = [
        {"name": "acme", "models": ["*"], "certificates": [{"subject_cn": "app.acme"}]},
        {"name": "beta", "models": ["*"], "certificates": [{"san_uri": "spiffe://example.org/beta"}]},
    ]
    async with (
        upstream() as up,
        gateway(tmp_path, minimal(up.url, listen=listen, tenants=tenants)) as g,
    ):
        assert await chat(g, tls=client(ca, acme)) == (200, "")
        assert await chat(g, tls=client(ca, beta)) == (200, "")
        assert await chat(g, tls=client(ca, unknown)) == (401, REFUSED)
        assert await chat(g, tls=client(ca)) == (401, MISSING)
        assert await bearer(g, "wrong", tls=client(ca, acme)) == (401, REFUSED)  # it does not help a wrong key
        for bad in (forged, server_only):
            with pytest.raises(aiohttp.ClientError):
                await chat(g, tls=client(ca, bad))
        status, issued, _ = await command("keys", "create", "--config", str(g.config), "--tenant", "beta")
        assert status == 0
        async with asyncio.timeout(300):
            while (await bearer(g, issued.strip(), tls=client(ca, acme)))[0] != 200:
                await asyncio.sleep(0.02)
        g.rewrite(tenants=[{"name": "acme", "models": ["*"]}, tenants[1]])
        await g.printed("configuration reloaded")
        assert await chat(g, tls=client(ca, acme)) == (401, REFUSED)
        assert await chat(g, tls=client(ca, beta)) == (200, "")

        trusted = client(ca), client(ca, beta), client(ca, forged)
        ca.write_bytes(other_ca.read_bytes())
        await g.printed("(?s)configuration reloaded.*configuration reloaded")
        assert await chat(g, tls=trusted[0]) == (401, MISSING)
        with pytest.raises(aiohttp.ClientError):
            await chat(g, tls=trusted[1])
        assert await chat(g, tls=trusted[2]) == (401, REFUSED)  # its root is trusted now, and its name has no tenant
    principals = [(line["tenant"], line["key"]) for line in logged(tmp_path) if line["status"] == 200]
    assert principals[:2] == [("acme", "cert:app.acme"), ("beta", "cert:spiffe://example.org/beta")]
    assert principals[2] == ("beta", issued.split("-")[1])  # a key counts before a certificate


async def test_a_required_certificate_is_needed_to_connect_at_all(tmp_path: Path) -> None:
    ca = await authority(tmp_path, "ca")
    cert, key = await signed(ca, "server", ["subjectAltName=IP:127.0.0.1"])
    app = await signed(ca, "app", [CLIENT])
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(ca), "client_auth": "required"}
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "tls": tls}
    async with upstream() as up, gateway(tmp_path, minimal(up.url, listen=listen)) as g:
        with pytest.raises(aiohttp.ClientError):
            await chat(g, tls=client(ca))
        assert (await chat(g, tls=client(ca, app)))[0] == 401


async def test_a_certificate_identifies_an_operator(tmp_path: Path) -> None:
    ca = await authority(tmp_path, "ca")
    cert, key = await signed(ca, "server", ["subjectAltName=IP:127.0.0.1"])
    ops, app = await signed(ca, "ops", [CLIENT]), await signed(ca, "app", [CLIENT])
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(ca)}
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "tls": tls, "admin_tls": True}
    certificates = [{"subject_cn": "ops", "role": "operator"}, {"subject_cn": "app"}]
    settings = minimal(
        "http://127.0.0.1:9",
        listen=listen,
        auth={"admin": {"required": True}},
        tenants=[{"name": "acme", "models": ["*"], "certificates": certificates}],
    )
    async with gateway(tmp_path, settings) as g:
        assert g.admin.startswith("https://")

        async def status(context: ssl.SSLContext, path: str = "/admin/state") -> int:
            async with aiohttp.ClientSession() as http, http.get(g.admin + path, ssl=context) as response:
                return response.status

        assert await status(client(ca, ops)) == 200
        assert await status(client(ca, app)) == 403
        assert await status(client(ca)) == 401
        assert await status(client(ca), "/livez") == 200
