"""Operations on a running gateway: edits of the file, keys issued and revoked, stops, and mistakes."""

import asyncio
import json
import re
import signal
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import yaml

from tests.support.processes import GatewayProcess, command, gateway, issue
from tests.support.tls import make_certificate
from tests.support.upstreams import Upstream, stream, upstream


def configuration(up: Upstream, **changes: Any) -> dict[str, Any]:
    return {
        "pools": [{"name": "up", "endpoints": [up.url], "probe": {"interval": "100ms"}}],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **changes,
    }


async def chat(g: GatewayProcess, key: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def until_status(g: GatewayProcess, key: str, status: int, **fields: Any) -> None:
    """Repeat the request until the answer has that status."""
    async with asyncio.timeout(300):
        while (await chat(g, key, **fields))[0] != status:
            await asyncio.sleep(0.02)


async def test_keys_are_issued_rotated_and_revoked_while_it_runs(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up)) as g:
        key = await issue(g)
        await until_status(g, key, 200)
        key_id = key.split("-")[1]
        status, new, _ = await command("keys", "rotate", key_id, "--overlap", "1h", "--config", str(g.config))
        assert status == 0
        await until_status(g, new.strip(), 200)
        assert (await chat(g, key))[0] == 200
        assert (await command("keys", "revoke", key_id, "--config", str(g.config)))[0] == 0
        await until_status(g, key, 401)
        assert (await chat(g, new.strip()))[0] == 200
        log = (tmp_path / "access.log").read_text()
        assert key not in log + g.output
        assert all("authorization" not in line for line in log.splitlines())


async def test_the_file_is_followed_whole_or_not_at_all(tmp_path: Path) -> None:
    async with upstream("from one") as one, upstream("from two") as two, gateway(tmp_path, configuration(one)) as g:
        key = await issue(g)
        await until_status(g, key, 200)
        written = yaml.safe_load(g.config.read_text())

        written["pools"].append({"name": "two", "endpoints": [two.url]})
        written["models"] = [{"name": "chat", "routes": [{"to": "two"}]}]
        g.config.write_text(yaml.safe_dump(written, sort_keys=False))
        await g.printed("configuration reloaded")
        assert (await chat(g, key))[1]["choices"][0]["message"]["content"] == "from two"

        written["models"][0]["routes"][0]["to"] = "twoo"
        written["tenants"][0]["limit"] = {}
        g.config.write_text(yaml.safe_dump(written, sort_keys=False))
        await g.printed("not reloaded")
        state = await g.until("s['configuration']['last_error']")
        assert "twoo" in state["configuration"]["last_error"]
        assert "limits" in state["configuration"]["last_error"]  # every error, each with its suggestion
        assert (await chat(g, key))[1]["choices"][0]["message"]["content"] == "from two"

        written["models"][0]["routes"][0]["to"] = "up"
        del written["tenants"][0]["limit"]
        g.config.write_text(yaml.safe_dump(written, sort_keys=False))
        g.process.send_signal(signal.SIGHUP)
        await g.until("s['configuration']['last_error'] == ''")
        assert (await chat(g, key))[1]["choices"][0]["message"]["content"] == "from one"

        written["listen"]["http"] = "127.0.0.1:1"
        g.config.write_text(yaml.safe_dump(written, sort_keys=False))
        await g.printed("listen: a change needs a restart")
        assert (await chat(g, key))[0] == 200


async def test_a_stream_outlives_the_reload_that_drops_its_pool(tmp_path: Path) -> None:
    async with upstream() as one, upstream("from two") as two, gateway(tmp_path, configuration(one)) as g:
        words = " ".join(f"w{i}" for i in range(60))
        one.behaviour = lambda body: asyncio.sleep(0, stream(words, gap=0.05))
        client = openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=await issue(g), max_retries=0)
        await until_status(g, client.api_key, 404, model="none")  # the key is known
        chunks = await client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        await chunks.__anext__()
        written = yaml.safe_load(g.config.read_text())
        written["pools"] = [{"name": "two", "endpoints": [two.url]}]
        written["models"] = [{"name": "chat", "routes": [{"to": "two"}]}]
        g.config.write_text(yaml.safe_dump(written, sort_keys=False))
        await g.printed("configuration reloaded")
        text = "".join([c.choices[0].delta.content or "" async for c in chunks])
        assert text.split() == words.split()[1:]
        assert (await chat(g, client.api_key))[1]["choices"][0]["message"]["content"] == "from two"
        await client.close()
        await g.until("[e['pool'] for e in s['endpoints']] == ['two']")
        await g.until_idle()


async def test_sigterm_lets_streams_end(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up)) as g:
        up.behaviour = lambda body: asyncio.sleep(0, stream(" ".join(["w"] * 20), gap=0.05))
        client = openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=await issue(g), max_retries=0)
        await g.until("len(s['endpoints']) == 1")
        await until_status(g, client.api_key, 404, model="none")  # the key is known

        async def one() -> str:
            chunks = await client.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            return "".join([c.choices[0].delta.content or "" async for c in chunks])

        streams = [asyncio.create_task(one()) for _ in range(8)]
        await g.until("s['in_flight'] == 8")
        g.process.send_signal(signal.SIGTERM)
        assert [text.split() for text in await asyncio.gather(*streams)] == [["w"] * 20] * 8
        assert await g.stop() == 0
        await client.close()
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert [line["status"] for line in lines if line["stream"] and line["status"] != 404] == [200] * 8


async def test_an_upstream_that_dies_before_the_first_byte_is_covered_by_another(tmp_path: Path) -> None:
    died = 0

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal died
        await reader.readuntil(b"\r\n\r\n")
        died += 1
        writer.close()

    bad = await asyncio.start_server(dies, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{bad.sockets[0].getsockname()[1]}"
    async with bad, upstream("good") as good:
        pool = {
            "name": "up",
            "endpoints": [address, good.url],
            "balance": {"by": "round_robin"},
            "probe": None,
            "breaker": {"failures": 3},
        }
        async with gateway(tmp_path, configuration(good, pools=[pool])) as g:
            key = await issue(g)
            await until_status(g, key, 200)
            for _ in range(20):
                status, answer = await chat(g, key)
                assert (status, answer["choices"][0]["message"]["content"]) == (200, "good")
            state = await g.until_idle()
            assert [e["breaker"] for e in state["endpoints"]] == ["open", "closed"]
    assert died == 3  # then the breaker was open


async def test_probes_report_readiness_and_a_503_has_a_retry_after(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up)) as g:
        key = await issue(g)
        await until_status(g, key, 200)
        up.healthy = False
        await g.until("s['endpoints'][0]['health'] == 'unhealthy'")
        assert (await chat(g, key))[0] == 503
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{g.admin}/readyz") as response:
                assert (response.status, (await response.json())["models_without_endpoint"]) == (503, ["chat"])
            for path in ("/livez", "/readyz?models=ignored"):
                async with http.get(f"{g.admin}{path}") as response:
                    assert response.status == 200, path
            async with http.get(f"{g.admin}/metrics") as response:
                text = await response.text()
                assert re.search(r'headrace_endpoint_healthy\{endpoint="up/[0-9a-f]+",pool="up"\} 0.0', text)
        up.healthy = True
        await until_status(g, key, 200)


async def test_a_wrong_file_is_refused_at_start_with_every_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "version: 1\n"
        "pools: [{name: a, endpoints: [http://127.0.0.1:9], balanse: {by: round_robin}}]\n"
        "models: [{name: chat, routes: [{to: b}]}]\n"
        "tenants: [{name: acme, models: ['*'], limits: {requests: 10}}]\n"
    )
    status, _, err = await command("serve", "--config", str(path))
    assert status == 2
    for expected in ("balanse", "balance", "wrong.yaml:2", "wrong.yaml:3", "wrong.yaml:4"):
        assert expected in err
    assert "Traceback" not in err
    assert (await command("check", str(path)))[0] == 1
    assert (await command("check", "config/headrace.yaml"))[0] == 0


async def test_the_demo_key_is_for_loopback_only(tmp_path: Path) -> None:
    path = tmp_path / "open.yaml"
    path.write_text(
        "version: 1\nlisten: {http: '0.0.0.0:0', admin: '127.0.0.1:0'}\nauth: {demo_key: true}\n"
        "pools: [{name: a, endpoints: [http://127.0.0.1:9]}]\n"
        "models: [{name: chat, routes: [{to: a}]}]\ntenants: [{name: acme, models: ['*']}]\n"
    )
    status, _, err = await command("serve", "--config", str(path))
    assert status == 2
    assert "loopback" in err


async def test_the_error_of_an_address_in_use_names_the_address(tmp_path: Path) -> None:
    async with upstream() as up:
        taken = up.url.removeprefix("http://")
        path = tmp_path / "taken.yaml"
        listen = {"http": taken, "admin": "127.0.0.1:0"}
        state = {"database": f"sqlite:///{tmp_path}/state.db"}
        path.write_text(yaml.safe_dump({"version": 1, "listen": listen, "state": state, **configuration(up)}))
        status, _, err = await command("serve", "--config", str(path))
        assert status == 2
        assert "in use" in err
        assert "Traceback" not in err


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up)) as g:
        up.behaviour = lambda body: asyncio.sleep(3600, stream("never"))
        key = await issue(g)
        async with aiohttp.ClientSession() as http:
            body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
            await g.until("s['endpoints'][0]['health'] == 'healthy'")
            await until_status(g, key, 404, model="none")
            waiting = asyncio.create_task(
                http.post(f"{g.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
            )
            await g.until("s['in_flight'] == 1")
            g.process.send_signal(signal.SIGTERM)
            await g.printed("draining")
            assert await g.stop() == 0
            with pytest.raises(aiohttp.ClientError):
                await waiting


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed one for this machine."""
    made = make_certificate(folder / name)
    return made / "cert.pem", made / "key.pem"


async def test_tls_in_front_and_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    cert, key_file = certificate(tmp_path, "first")
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "tls": {"cert": str(cert), "key": str(key_file)}}

    async def served_by(name: str, url: str) -> bool:
        trusted = ssl.create_default_context(cafile=str(tmp_path / name))
        async with aiohttp.ClientSession() as http:
            try:
                async with http.get(f"{url}/v1/models", ssl=trusted) as response:
                    return response.status == 401
            except aiohttp.ClientSSLError:
                return False

    async with upstream() as up, gateway(tmp_path, configuration(up, listen=listen)) as g:
        assert g.url.startswith("https://")
        (tmp_path / "known.pem").write_bytes(cert.read_bytes())
        assert await served_by("known.pem", g.url)
        second, second_key = certificate(tmp_path, "second")
        key_file.write_bytes(second_key.read_bytes())
        cert.write_bytes(second.read_bytes())
        await g.printed("configuration reloaded")
        assert await served_by("second/cert.pem", g.url)
        assert not await served_by("known.pem", g.url)
