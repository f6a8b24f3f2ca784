"""OpenAI's own client before a gateway before several services that speak like it, each in its way."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from aiohttp import ClientSession, FormData

from tests.servers.stand_ins import hosted
from tests.servers.stand_ins.hosted import KEY, MODEL, SOUND, Hosted
from tests.support.processes import GatewayProcess, gateway

SERVICES: dict[str, tuple[hosted.Service, dict[str, Any]]] = {
    "openai": (hosted.OPENAI, {"dialect": "openai"}),
    "azure": (hosted.AZURE, {"dialect": "azure", "api_version": "2024-10-21"}),
    "mistral": (hosted.MISTRAL, {"dialect": "mistral"}),
    "groq": (hosted.GROQ, {"dialect": "groq"}),
}
HI: Any = [{"role": "user", "content": "hi"}]
TEXT = "".join(hosted.WORDS)


class Family(NamedTuple):
    """All of it."""

    gateway: GatewayProcess
    servers: dict[str, Hosted]
    sdk: openai.AsyncOpenAI
    key: str


@asynccontextmanager
async def family(folder: Path) -> AsyncIterator[Family]:
    """One gateway, a model for each service, and a model over two servers, one of them absent."""
    (folder / "secret.txt").write_text(f"{KEY}\n")
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(hosted.hosted(service)) for name, (service, _) in SERVICES.items()
        }
        pools: list[dict[str, Any]] = [
            {
                "name": name,
                "protocol": {"name": "openai", "passes": ["audio", "images", "moderations"], **SERVICES[name][1]},
                "endpoints": [server.url],
                "model": MODEL,
                "key": "file:secret.txt",
                "probe": {"interval": "200ms"},
            }
            for name, server in servers.items()
        ]
        gone = {**pools[0], "name": "gone", "endpoints": ["http://127.0.0.1:9"], "probe": None}
        models: list[dict[str, Any]] = [{"name": name, "routes": [{"to": name}]} for name in servers]
        models.append({"name": "spread", "routes": [{"to": "gone", "fallback": ["openai"]}]})
        models.append({"name": MODEL, "routes": [{"to": "groq"}]})
        configuration = {
            "pools": [*pools, gone],
            "models": models,
            "tenants": [{"name": "acme", "models": ["*"]}],
        }
        running = await stack.enter_async_context(gateway(folder, configuration))
        key = await running.key()
        sdk = openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)
        stack.push_async_callback(sdk.close)
        yield Family(running, servers, sdk, key)
        await running.until_idle()


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # the client's, of calls that servers still have
@pytest.mark.timeout(1800)
async def test_the_official_client_over_every_service(tmp_path: Path) -> None:
    async with family(tmp_path) as f:
        for name in SERVICES:
            whole = await f.sdk.chat.completions.create(model=name, messages=HI, max_tokens=4)
            assert whole.choices[0].message.content == "".join(hosted.WORDS[:4])
            stream = await f.sdk.chat.completions.create(
                model=name, messages=HI, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
            assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [len(hosted.WORDS)]
            vectors = await f.sdk.embeddings.create(model=name, input=["a", "bcd"], encoding_format="float")
            assert [one.embedding for one in vectors.data] == [[1.0, 0.5], [3.0, 0.5]]
            await _passed(f, name)
            with pytest.raises(openai.BadRequestError) as refused:
                await f.sdk.chat.completions.create(model=name, messages=[{"role": "user", "content": "x" * 5000}])
            assert refused.value.code == "context_length_exceeded"
            with pytest.raises(openai.BadRequestError) as wrong:
                await f.sdk.chat.completions.create(model=name, messages=HI, temperature="warm")  # type: ignore[call-overload]
            assert "temperature" in str(wrong.value.param)
        assert {model.id for model in (await f.sdk.models.list()).data} == {*SERVICES, "spread", MODEL}


async def _passed(f: Family, model: str) -> None:
    transcription = await f.sdk.audio.transcriptions.create(model=model, file=("a.wav", SOUND), language="en")
    assert transcription.text == f"{len(SOUND)} bytes"
    form = f.servers[model].received[-1]
    assert (form["model"], form["file"], form["language"]) == (MODEL, SOUND, "en")
    translated = await f.sdk.audio.translations.create(model=model, file=("a.wav", SOUND))
    assert translated.text == transcription.text
    spoken = await f.sdk.audio.speech.create(model=model, voice="alloy", input="hi")
    assert spoken.content == SOUND
    drawn = await f.sdk.images.generate(model=model, prompt="a bird")
    assert drawn.data is not None
    assert drawn.data[0].b64_json == "aGk="
    await f.sdk.images.edit(model=model, image=("a.png", SOUND), prompt="a bird")
    assert f.servers[model].received[-1]["image"] == SOUND
    await f.sdk.images.create_variation(model=model, image=("a.png", SOUND))
    judged = await f.sdk.moderations.create(model=model, input="hi")
    assert judged.results == []


@pytest.mark.timeout(1800)
async def test_calls_beside_text_have_keys_fallbacks_and_counts_like_chats(tmp_path: Path) -> None:
    async with family(tmp_path) as f:
        transcription = await f.sdk.audio.transcriptions.create(model="spread", file=("a.wav", SOUND))
        assert transcription.text == f"{len(SOUND)} bytes"
        with pytest.raises(openai.NotFoundError):
            await f.sdk.audio.transcriptions.create(model="nobody", file=("a.wav", SOUND))
        with pytest.raises(openai.AuthenticationError):
            await f.sdk.with_options(api_key="wrong").audio.speech.create(model="openai", voice="alloy", input="hi")
        with pytest.raises(openai.BadRequestError) as missing:
            await f.sdk.images.generate(model="openai", prompt=3)  # type: ignore[call-overload]
        assert missing.value.param == "prompt"
        async with ClientSession(headers={"authorization": f"Bearer {f.key}"}) as http:
            form = FormData({"language": "en"})
            form.add_field("file", SOUND, filename="a.wav")
            async with http.post(f"{f.gateway.url}/v1/audio/transcriptions", data=form) as answer:
                assert (answer.status, (await answer.json())["error"]["param"]) == (400, "model")
            body = {"model": "openai", "query": "q", "documents": ["a"]}
            async with http.post(f"{f.gateway.url}/v1/rerank", json=body) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (400, "unsupported_operation")
    log = (tmp_path / "access.log").read_text()  # written behind, and whole once the gateway has stopped
    assert '"operation":"app"' in log
    assert KEY not in log + f.gateway.output
