"""Every door of the data listener over HTTP/2, as clients that speak nothing else use it."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.adapters.http1.http2_client import http2_client
from tests.support.processes import gateway, minimal
from tests.support.tls import client_side, make_certificate
from tests.support.upstreams import stream, upstream

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize(("workers", "tls"), [(1, True), (2, False)])
async def test_chats_whole_and_streamed(workers: int, tls: bool, tmp_path: Path) -> None:
    listen: dict[str, Any] = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"}
    trusting = None
    if tls:
        made = make_certificate(tmp_path / "own")
        listen["tls"] = {"cert": str(made / "cert.pem"), "key": str(made / "key.pem")}
        trusting = client_side(made)
        trusting.set_alpn_protocols(["h2"])
    async with upstream() as up:
        written = minimal(up.url, workers=workers, auth={"demo_key": True}, listen=listen)
        async with gateway(tmp_path, written) as g:
            key = await g.demo_key()
            parts = urlsplit(g.url)
            assert parts.hostname is not None
            assert parts.port is not None
            fields = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
            body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
            async with http2_client((parts.hostname, parts.port), tls=trusting) as client:
                refused = await client.request("POST", "/v1/chat/completions", json.dumps(body).encode())
                assert refused.status == 401
                whole = await client.request("POST", "/v1/chat/completions", json.dumps(body).encode(), fields)
                assert (whole.status, json.loads(whole.body)["object"]) == (200, "chat.completion")
                streamed = json.dumps({**body, "stream": True}).encode()
                up.behaviour = lambda _: asyncio.sleep(0, stream("a b c d", gap=0.01))
                replies = await asyncio.gather(
                    *(client.request("POST", "/v1/chat/completions", streamed, fields) for _ in range(20))
                )
                assert all(bytes(reply.body).endswith(b"data: [DONE]\n\n") for reply in replies)
                models = await client.request("GET", "/v1/models", fields=fields)
                assert [model["id"] for model in json.loads(models.body)["data"]] == ["chat"]
            await g.until_idle()
