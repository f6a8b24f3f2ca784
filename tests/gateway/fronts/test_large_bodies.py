"""Large bodies of every door: no turn of the event loop takes long, for every condition of a route."""

import json
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from adapters.fake import FakeAdapter, Script
from tests.adapters.http1.raw import until
from tests.support.gateways import Rig, config, listening
from tests.support.turns import Turns, flood, most_seconds

pytestmark = pytest.mark.processes  # threads send, and the CPU time of each turn is bounded

MiB = 1024 * 1024
SIZE = 24 * MiB
MODELS = [{"name": "chat", "routes": [{"when": {"vision": True}, "to": "main"}, {"to": "main", "cache": {}}]}]
ANSWER = b'{"data": [], "choices": [{"message": {"content": "x"}}], "object": "list", "model": "chat", "id": "1"}'
BOUNDARY = b"--B"


def form(text: bytes) -> bytes:
    head = b'\r\nContent-Disposition: form-data; name="%b"\r\n\r\n'
    parts = BOUNDARY, head % b"model", b"chat\r\n", BOUNDARY, head % b"file", text, b"\r\n", BOUNDARY, b"--\r\n"
    return b"".join(parts)


def chat(content: bytes) -> bytes:
    body = json.dumps(
        {"model": "chat", "max_tokens": 5, "temperature": 0, "messages": [{"role": "user", "content": "@"}]}
    )
    return body.encode().replace(b'"@"', content)


IMAGE = b'[{"type": "image_url", "image_url": {"url": "data:image/png;base64,%b"}}]'
JSON = "application/json"
TENSOR = b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["%b"]}]}'
CASES: dict[str, tuple[str, str, Callable[[bytes], bytes]]] = {
    "form": ("/v1/audio/transcriptions", "multipart/form-data; boundary=B", form),
    "passed JSON": ("/v1/moderations", JSON, lambda text: b'{"model": "chat", "input": "%b"}' % text),
    "chat of text": ("/v1/chat/completions", JSON, lambda text: chat(b'"%b"' % text)),
    "chat with an image": ("/v1/chat/completions", JSON, lambda text: chat(IMAGE % text)),
    "message": ("/v1/messages", JSON, lambda text: chat(b'"%b"' % text)),
    "tensor": ("/v2/models/chat/infer", JSON, lambda text: TENSOR % text),
}


@pytest.mark.parametrize(("path", "content_type", "written"), CASES.values(), ids=list(CASES))
async def test_a_large_body_delays_no_other_request(
    path: str, content_type: str, written: Callable[[bytes], bytes]
) -> None:
    body = written(b"a" * SIZE)
    rig = Rig(config(models=MODELS), {"main": [FakeAdapter(Script(chunks=(ANSWER,)))]})
    fake = rig.adapters["main"][0]
    assert isinstance(fake, FakeAdapter)
    async with listening(rig, max_body=2 * SIZE) as url:
        port = urlsplit(url).port
        assert port is not None
        head = (
            f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {rig.key.plaintext}\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with Turns() as turns, flood(port, head.encode() + body):
            await until(lambda: any(record.ended for record in rig.log.records))
    assert len(fake.calls) == 1, rig.log.records[-1].error
    assert turns.longest < most_seconds()
