"""The server of names and places: its paths and its errors, before an analyzer of a few names."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.http1.server import Server
from runtimes.access import keyed
from runtimes.recogniser import __main__ as command
from runtimes.recogniser.analyzers import NamedEntity
from runtimes.recogniser.server import MOST_TEXT, RecogniserHandler

pytestmark = [pytest.mark.plain, pytest.mark.realtime]  # texts are analyzed in a thread


class Names:
    """Finds Anna. Texts with `broken` fail."""

    def entities(
        self, text: str, language: str, kinds: Sequence[str] | None, threshold: float | None
    ) -> list[NamedEntity]:
        if language != "en":
            raise ValueError(f"no pipeline has the language {language!r}")
        if "broken" in text:
            raise RuntimeError("secret reason")
        if kinds == [] or (threshold or 0) > 0.85:
            return []
        return [NamedEntity(each.start(), each.end(), "PERSON", 0.85) for each in re.finditer("Anna", text)]


@asynccontextmanager
async def serving(key: str = "") -> AsyncIterator[aiohttp.ClientSession]:
    handler = RecogniserHandler(Names())
    server = Server(keyed(handler, key))
    host, port = await server.listen_tcp("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://{host}:{port}") as http:
        yield http
    await server.aclose()
    handler.close()


async def analyzed(http: aiohttp.ClientSession, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with http.post("/analyze", data=data) as response:
        return response.status, await response.json()


async def test_entities_have_the_form_of_presidio() -> None:
    async with serving() as http:
        fields = {"text": "\U0001f600 Anna", "language": "en", "entities": ["PERSON"], "score_threshold": 0.5}
        entity = {"start": 2, "end": 6, "entity_type": "PERSON", "score": 0.85}
        assert await analyzed(http, {**fields, "correlation_id": "x"}) == (200, [entity])
        assert await analyzed(http, {**fields, "score_threshold": 0.9}) == (200, [])
        async with http.get("/health") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "no request"),
        (b"\xff", 400, "no request"),
        ({"text": "Anna"}, 400, "language"),
        ({"text": 1, "language": "en"}, 400, "text"),
        ({"text": ["Anna"], "language": "en"}, 400, "text"),
        ({"text": "Anna", "language": "xx"}, 400, "'xx'"),
        ({"text": "x" * (MOST_TEXT + 1), "language": "en"}, 413, "characters"),
        ({"text": "broken", "language": "en"}, 500, "log"),
    ],
)
async def test_a_bad_request_has_an_error(body: Any, status: int, message: str) -> None:
    async with serving() as http:
        given_status, answer = await analyzed(http, body)
        assert given_status == status
        assert message in answer["error"]
        assert "secret reason" not in answer["error"]
        assert await analyzed(http, {"text": "fine", "language": "en"}) == (200, [])


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["text", "language", "entities", "x"]), inner),
))  # fmt: skip
def test_no_body_breaks_the_server(body: Any) -> None:
    async def sent() -> None:
        async with serving() as http:
            assert (await analyzed(http, body))[0] in (200, 400)

    asyncio.run(sent())


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/analyze", 405), ("POST", "/other", 404)])
async def test_other_paths_have_an_error(method: str, path: str, status: int) -> None:
    async with serving() as http, http.request(method, path, data=b"{}") as response:
        assert response.status == status
        assert (await response.json())["error"]


async def test_a_key_is_demanded() -> None:
    async with serving(key="k") as http:
        assert (await analyzed(http, {"text": "Anna", "language": "en"}))[0] == 401


@pytest.mark.parametrize(
    "arguments", [[], ["--pipeline", "en=x"], ["--pipeline", "en", "--port", "0"], ["--pipeline", "=x", "--port", "0"]]
)
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        command.main(arguments)
    assert refusal.value.code == 2
