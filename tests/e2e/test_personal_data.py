"""Personal data through a real gateway: clients have it, and nothing else has."""

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest

from adapters.http1.message import Response
from gateway.features.recording.segments import RecordKey, SegmentReader, segments
from tests.support.batches import answers, chat_line, client, results, submitted, until_ended
from tests.support.collectors import Received, http_collector
from tests.support.personal import PERSONAL, documents
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, stream, upstream, whole

pytestmark = pytest.mark.timeout(900)

SECRET = "the key of this record"
COUNT = 12


def configuration(folder: Path, up: dict[str, Upstream], collector: Received) -> dict[str, Any]:
    (folder / "record.key").write_text(SECRET)
    shadow = {"name": "s", "to": "copy", "share": "100%"}
    content = {"trace_content": {"max": "64KiB"}}
    names = ("main", "copy", "broken")
    return {
        "guards": [PERSONAL, {"name": "words", "kind": "words", "words": ["forbidden"]}],
        "traces": {"to": collector.url, "sample": "100%"},
        "requests": {"flush": "100ms"},
        "record": {
            "to": str(folder / "traffic"), "key": "file:record.key", "share": "100%", "answers": True, "redact": [],
        },
        "batches": {"storage": f"file:{folder}/files", "commit": "100ms"},
        "stored_responses": {"store": "default"},
        "pools": [{"name": name, "endpoints": [up[name].url], "probe": None} for name in names],
        "models": [
            {"name": "chat", "routes": [{"to": "main", "shadow": shadow, **content}]},
            {"name": "broken", "routes": [{"to": "broken", **content}]},
            {"name": "piped", "pipeline": {"steps": [{"name": "a", "model": "chat"}]}},
        ],
        "tenants": [{"name": "acme", "models": ["*"], "guards": ["people", "words"]}],
    }  # fmt: skip


async def echo(body: dict[str, Any]) -> Response:
    """Answer with the last message."""
    text = body["messages"][-1]["content"]
    return stream(text) if body.get("stream") else whole(text)


async def refuse(body: dict[str, Any]) -> Response:
    """Fail, and repeat the prompt in the error."""
    error = {"error": {"message": f"Cannot read {body['messages'][-1]['content']}", "type": "invalid_request_error"}}
    return Response(400, [("content-type", "application/json")], json.dumps(error).encode())


def spoken(body: str) -> str:
    """The text of a streamed chat."""
    events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for each in events for choice in each["choices"])


async def talk(g: GatewayProcess, key: str, texts: Sequence[str]) -> None:
    """Send each text to each door and model, and check what comes back."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:

        async def post(path: str, **body: Any) -> tuple[int, str]:
            async with http.post(f"{g.url}{path}", json=body) as response:
                return response.status, await response.text()

        for text in texts:
            messages = [{"role": "user", "content": text}]
            for model in ("chat", "piped"):
                status, body = await post("/v1/chat/completions", model=model, messages=messages, user=text[-60:])
                assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, text)
            _, body = await post("/v1/chat/completions", model="chat", messages=messages, stream=True)
            assert spoken(body).removesuffix(" ") == text
            _, body = await post("/v1/messages", model="chat", messages=messages, max_tokens=99)
            assert json.loads(body)["content"][0]["text"] == text
            _, body = await post("/v1/responses", model="chat", input=text)
            first = json.loads(body)
            assert first["output"][0]["content"][0]["text"] == text
            _, body = await post("/v1/responses", model="chat", input=text, previous_response_id=first["id"])
            assert json.loads(body)["output"][0]["content"][0]["text"] == text
            blocked = [*messages, {"role": "user", "content": "forbidden"}]
            assert (await post("/v1/chat/completions", model="chat", messages=blocked))[0] == 400
            status, body = await post("/v1/chat/completions", model="broken", messages=messages)
            assert status == 400
            assert "<" not in body.replace("<b>", "")


async def test_nothing_but_the_client_has_the_values(tmp_path: Path) -> None:
    # Words of a document are parts of streams, which the stand-in of the upstream cuts at spaces.
    made = [(" ".join(text.split(" ")), values) for text, values in documents(seed=5, count=COUNT)]
    values = sorted({value for _, each in made for value in each})
    async with (
        upstream() as main,
        upstream() as copy,
        upstream() as bad,
        http_collector() as collector,
    ):
        main.behaviour = copy.behaviour = echo
        bad.behaviour = refuse
        written = configuration(tmp_path, {"main": main, "copy": copy, "broken": bad}, collector)
        async with gateway(tmp_path, written) as g:
            key = await g.key()
            await talk(g, key, [text for text, _ in made])
            await g.until_idle()
            await collector.until(lambda spans: len({span.trace for span in spans}) >= 7 * COUNT)
            async with aiohttp.ClientSession() as http:
                seen = [await (await http.get(f"{g.admin}{path}")).text() for path in ("/metrics", "/admin/state")]
            assert 'guard="people"' in seen[0]
            assert await g.stop(signal.SIGTERM) == 0
        for each in (main, copy, bad):
            assert each.received
            seen += [json.dumps(body, ensure_ascii=False) for body in each.received] + [str(each.headers)]
        seen += [g.output, str(collector.spans)]
        assert "<IBAN_" in seen[-1], "traces have placeholders"
        seen += contents_of(tmp_path)
        key_of_record = RecordKey(SECRET)
        recorded = segments(tmp_path / "traffic")
        assert recorded
        for path in recorded:
            frames = [bytes(frame.content) for frame in SegmentReader(path, key_of_record).frames()]
            assert frames
            seen += [frame.decode(errors="replace") for frame in frames]
        for text in seen:
            forms = {text, text.replace("\\u0040", "@")}
            assert not [value for value in values if any(value in form for form in forms)], text[:300]
            assert not [value for value in values if json.dumps(value)[1:-1] in text], text[:300]


def contents_of(folder: Path) -> list[str]:
    """The contents of all files: logs, the database, requests, recordings."""
    return [path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()]


async def test_results_of_batches_have_the_values_and_no_file_of_results_does(tmp_path: Path) -> None:
    async with upstream() as main, http_collector() as collector:
        main.behaviour = echo
        written = configuration(tmp_path, dict.fromkeys(("main", "copy", "broken"), main), collector)
        async with gateway(tmp_path, written) as g, client(g, await g.key()) as sdk:
            texts = {f"mail-{n}": f"to bob{n}@example.com, {'x' * n * 100}" for n in range(40)}
            texts |= {f"plain-{n}": f"text {n}" for n in range(40)}
            batch = await until_ended(
                sdk, await submitted(sdk, [chat_line(custom_id, text) for custom_id, text in texts.items()])
            )
            assert batch.output_file_id is not None
            assert batch.input_file_id is not None
            assert answers(await results(sdk, batch.output_file_id)) == texts
            content = (await sdk.files.content(batch.output_file_id)).content
            assert len(content) == (await sdk.files.retrieve(batch.output_file_id)).bytes
            assert content.count(b"@example.com") == 40
            await sdk.files.delete(batch.input_file_id)
            assert "@example.com" not in "".join(contents_of(tmp_path))
            assert "text 7" in "".join(contents_of(tmp_path))
            await sdk.files.delete(batch.output_file_id)
        assert "@example.com" not in json.dumps(main.received)


async def test_results_of_batches_of_messages_have_the_values(tmp_path: Path) -> None:
    async with upstream() as main, http_collector() as collector:
        main.behaviour = echo
        written = configuration(tmp_path, dict.fromkeys(("main", "copy", "broken"), main), collector)
        async with gateway(tmp_path, written) as g:
            sdk = anthropic.AsyncAnthropic(base_url=g.url, auth_token=await g.key(), api_key=None, max_retries=0)
            async with sdk:
                messages: Any = [{"role": "user", "content": "to bob@example.com"}]
                params: Any = {"model": "chat", "max_tokens": 99, "messages": messages}
                bad: Any = {"model": "unknown", "max_tokens": 99, "messages": messages}
                batch = await sdk.messages.batches.create(
                    requests=[{"custom_id": "one", "params": params}, {"custom_id": "two", "params": bad}]
                )
                async with asyncio.timeout(300):
                    while (batch := await sdk.messages.batches.retrieve(batch.id)).processing_status != "ended":
                        await asyncio.sleep(0.05)
                results = {each.custom_id: each.result async for each in await sdk.messages.batches.results(batch.id)}
                assert results["one"].type == "succeeded"
                assert results["one"].message.content[0].text == "to bob@example.com"  # type: ignore[union-attr]
                assert results["two"].type == "errored"
