"""The playground: chats, embeddings and tensors side by side, with their outcomes."""

import base64
import io
import json
import math
import struct
import wave
from typing import Any

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.gateway.admin.console.conftest import ConsoleRig, OpenConsole, settings
from tests.support.browsing.axe import check_accessibility
from tests.support.upstreams import Upstream, stream, upstream, whole
from tests.support.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script><style>*{display:none}</style>"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg=="
)


def sound() -> bytes:
    """A tenth of a second of sound."""
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(struct.pack("<1600h", *([1000] * 1600)))
    return data.getvalue()


async def answers(body: dict[str, Any]) -> Response:
    """Chats, embeddings and tools of a hostile server."""
    if "input" in body:
        vectors = [
            {"object": "embedding", "index": at, "embedding": [1.0, float(at), 0.5, 0.25, 0.1]}
            for at in range(len(body["input"]))
        ]
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        reply = {"object": "list", "model": "m", "data": vectors, "usage": usage}
        return Response(200, [("content-type", "application/json")], json.dumps(reply).encode())
    return stream(HOSTILE) if body.get("stream") else whole(HOSTILE)


class TensorServer(Upstream):
    """A server of the Open Inference Protocol with one model."""

    async def __call__(self, http: Request) -> Response:
        if http.method == "GET":
            tensor = {"name": "pixels", "datatype": "FP32", "shape": self.shape}
            body: dict[str, Any] = {"name": "m", "versions": ["1"], "platform": "p", "inputs": [tensor], "outputs": []}
        else:
            self.received.append(json.loads(await http.read()))
            output = {"name": HOSTILE, "datatype": "FP32", "shape": [1], "data": [1.5]}
            body = {"model_name": "m", "model_version": "1", "outputs": [output]}
        return Response(200, [("content-type", "application/json")], json.dumps(body).encode())

    shape = (-1, 3, 4, 5)


async def choose_file(c: ConsoleRig, label: str, name: str, kind: str, data: bytes) -> None:
    """Give a file to a field, as a person does in the dialog of the system."""
    await c.page.until(
        """(label, name, kind, data) => {
          const inputs = [...document.querySelectorAll("input[type=file]")];
          const input = inputs.find((e) => e.labels[0].textContent === label);
          if (!input) return false;
          const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
          const files = new DataTransfer();
          files.items.add(new File([bytes], name, {type: kind}));
          input.files = files.files;
          return true;
        }""",
        label, name, kind, base64.b64encode(data).decode(),
    )  # fmt: skip


async def test_two_models_answer_side_by_side(console: OpenConsole) -> None:
    async with upstream() as up:
        up.behaviour = answers
        price = {"request": "0.25 usd"}
        models = [{"name": name, "routes": [{"to": "main"}], "price": price} for name in ("chat", "other")]
        async with console(settings(up.url, models=models)) as c:
            await c.open("/playground")
            await c.sign_in(await c.issue(role="operator"))
            await c.page.click("Add a model")
            await check_accessibility(c.page)
            await c.page.fill("Prompt", HOSTILE)
            await c.page.click("More")
            await c.page.fill("Tools as JSON", '[{"type": "function", "function": {"name": "f"}}]')
            await choose_file(c, "Image", "a.png", "image/png", PNG)
            await c.page.click("Send")
            done = (
                "[...document.querySelectorAll('.facts')].filter((e) => e.innerText.includes('0.25 usd')).length === 2"
            )
            await c.page.until(done)
            text = await c.page.text()
            assert text.count(HOSTILE) >= 2
            assert text.count("Why it went there") == 2
            await c.page.click("Why it went there")
            await c.page.shows('"pools"')
            await check_accessibility(c.page)
            sent = up.received[-1]
            assert sent["messages"][-1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
            assert sent["tools"][0]["function"]["name"] == "f"
            assert await c.page.evaluate("document.querySelectorAll('main img, main script, main style').length") == 0
            await c.page.choose("Kind", "Embeddings")
            await c.page.fill("Texts", "one\ntwo")
            await c.page.click("Send")
            await c.page.shows("similar to the first by")
            await check_accessibility(c.page)


async def test_errors_of_endpoints_are_text(console: OpenConsole) -> None:
    async def refuses(body: dict[str, Any]) -> Response:
        error = {"error": {"message": HOSTILE, "type": "invalid_request_error", "code": "bad", "param": None}}
        return Response(400, [("content-type", "application/json")], json.dumps(error).encode())

    async with upstream() as up:
        up.behaviour = refuses
        async with console(settings(up.url, auth={})) as c:
            await c.open("/playground")
            await c.page.fill("Prompt", HOSTILE)
            await c.page.click("Send")
            await c.page.until("!!document.querySelector('section .notice.bad')")
            await check_accessibility(c.page)
            await c.page.click("More")
            await c.page.fill("Tools as JSON", "{")
            await c.page.click("Send")
            await c.page.shows("Tools:")
            assert await c.page.evaluate("document.querySelectorAll('main img, main script, main style').length") == 0


async def test_limits_of_the_tenant_apply_and_are_shown(console: OpenConsole) -> None:
    async with upstream() as up:
        tenants = [
            {"name": "acme", "models": ["*"], "limits": {"requests": "1/d"}},
            {"name": "beta", "models": ["chat"]},
        ]
        async with console(settings(up.url, tenants=tenants)) as c:
            await c.open("/playground")
            await c.sign_in(await c.issue(role="tenant-admin"))
            for shown in ("hello there", "Limit"):
                await c.page.fill("Prompt", "hi")
                await c.page.click("Send")
                await c.page.shows(shown if shown != "Limit" else "limit")
            assert "beta" not in await c.page.text()


async def test_tensors_come_from_json_an_image_and_a_sound(console: OpenConsole) -> None:
    made = TensorServer("")
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    pools = [{"name": "main", "protocol": "oip-http", "endpoints": [f"http://{host}:{port}"], "model": "m"}]
    try:
        async with console(settings(auth={}, pools=pools)) as c:
            await c.open("/playground")
            await c.page.choose("Kind", "Tensors")
            await c.page.click("Send")
            await c.page.shows("1.5")
            assert made.received[-1]["inputs"][0]["data"] == [1, 2]
            assert HOSTILE in await c.page.text()
            for name, kind, data, shape in (
                ("a.png", "image/png", PNG, [1, 3, 4, 5]),
                ("a.wav", "audio/wav", sound(), [1, 1, 1, 1600]),
            ):
                before = len(made.received)
                await choose_file(c, "Or an image or audio file", name, kind, data)
                await c.page.click("Send")
                await until(lambda before=before: len(made.received) > before)
                (tensor,) = made.received[-1]["inputs"]
                assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("pixels", "FP32", shape)
                assert len(tensor["data"]) == math.prod(shape)
                await c.page.until("!document.querySelector('form .primary').disabled")
            await check_accessibility(c.page)
    finally:
        await server.aclose()
