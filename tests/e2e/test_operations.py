"""Operations on a running gateway: edits of the file, keys issued and revoked, stops, and mistakes."""

import asyncio
import json
import re
import signal
import ssl
from pathlib import Path

import aiohttp
import openai
import psutil
import pytest

from tests.support.processes import command, gateway, minimal
from tests.support.tls import make_certificate
from tests.support.upstreams import stream, upstream


async def test_a_stream_outlives_the_reload_that_drops_its_pool(tmp_path: Path) -> None:
    async with upstream() as one, upstream("from two") as two, gateway(tmp_path, minimal(one.url)) as g:
        words = " ".join(f"w{i}" for i in range(60))
        one.behaviour = lambda body: asyncio.sleep(0, stream(words, gap=0.05))
        client = openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=await g.key(), max_retries=0)
        chunks = await client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        await chunks.__anext__()
        g.rewrite(pools=[{"name": "two", "endpoints": [two.url]}], models=[{"name": "chat", "routes": [{"to": "two"}]}])
        await g.printed("configuration reloaded")
        text = "".join([c.choices[0].delta.content or "" async for c in chunks])
        assert text.split() == words.split()[1:]
        assert (await g.chat(client.api_key))[1]["choices"][0]["message"]["content"] == "from two"
        await client.close()
        await g.until("[e['pool'] for e in s['endpoints']] == ['two']")
        await g.until_idle()


async def test_sigterm_lets_streams_end(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url)) as g:
        up.behaviour = lambda body: asyncio.sleep(0, stream(" ".join(["w"] * 20), gap=0.05))
        client = openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=await g.key(), max_retries=0)
        await g.until("len(s['endpoints']) == 1")

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


async def test_probes_report_readiness_and_a_503_has_a_retry_after(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url)) as g:
        key = await g.key()
        up.healthy = False
        await g.until("s['endpoints'][0]['health'] == 'unhealthy'")
        assert (await g.chat(key))[0] == 503
        status, ready = await g.administer("GET", "/readyz")
        assert (status, ready["models_without_endpoint"]) == (503, ["chat"])
        for path in ("/livez", "/readyz?models=ignored"):
            assert (await g.administer("GET", path))[0] == 200, path
        assert re.search(r'headrace_endpoint_healthy\{endpoint="up/[0-9a-f]+",pool="up"\} 0.0', await g.metrics())
        up.healthy = True


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_signal_does_not_wait(tmp_path: Path, workers: int) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=workers)) as g:
        up.behaviour = lambda body: asyncio.sleep(3600, stream("never"))
        key = await g.key()
        below = psutil.Process(g.process.pid).children(recursive=True)
        waiting = asyncio.create_task(g.chat(key))
        await g.until("s['in_flight'] == 1")
        g.process.send_signal(signal.SIGTERM)
        await g.printed("draining")
        assert await g.stop() == 0
        status, body = await waiting
        assert (status, body["error"]["code"]) == (503, "gateway_draining")
        assert "requests cut, because they did not end within `drain`: 1" in g.output
        line = json.loads((tmp_path / "access.log").read_text().splitlines()[-1])
        assert (line["status"], line["reason"]["cause"]) == (503, "drained")
        assert not any(process.is_running() for process in below)
        assert "does not stop" not in g.output


@pytest.mark.parametrize("workers", [1, 2])
async def test_tls_in_front_and_a_renewed_certificate_without_a_restart(tmp_path: Path, workers: int) -> None:
    made = make_certificate(tmp_path / "first")
    cert, key_file = made / "cert.pem", made / "key.pem"
    tls = {"cert": str(cert), "key": str(key_file)}
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "tls": tls, "admin_tls": True}

    async def served_by(name: str, url: str) -> bool:
        trusted = ssl.create_default_context(cafile=str(tmp_path / name))
        async with aiohttp.ClientSession() as http:
            try:
                async with http.get(f"{url}/v1/models", ssl=trusted) as response:
                    return response.status in (401, 404)
            except aiohttp.ClientSSLError:
                return False

    async with (
        upstream() as up,
        gateway(tmp_path, minimal(up.url, listen=listen, workers=workers)) as g,
    ):
        assert g.url.startswith("https://")
        (tmp_path / "known.pem").write_bytes(cert.read_bytes())
        assert await served_by("known.pem", g.url)
        second = make_certificate(tmp_path / "second")
        cert.write_bytes((second / "cert.pem").read_bytes())
        await g.printed("listen.tls: the key does not belong to the certificate")
        for url in (g.url, g.admin):
            assert [await served_by("known.pem", url) for _ in range(8)] == [True] * 8
        key_file.write_bytes((second / "key.pem").read_bytes())
        await g.printed("configuration reloaded")
        for url in (g.url, g.admin):
            assert [await served_by("second/cert.pem", url) for _ in range(8)] == [True] * 8
            assert not await served_by("known.pem", url)


async def test_a_wrong_file_is_refused_at_start_with_every_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "version: 1\n"
        "pools: [{name: a, endpoints: [http://127.0.0.1:9], balanse: {by: round_robin}}]\n"
        "models: [{name: chat, routes: [{to: b}]}]\n"
        "tenants: [{name: acme, models: ['*'], limits: {requests: 10}}]\n"
    )
    status, _, err = await command("serve", "--config", str(path))
    assert (status, "Traceback" in err) == (2, False)
    for expected in ("balanse", "balance", "wrong.yaml:2", "wrong.yaml:3", "wrong.yaml:4"):
        assert expected in err
