"""Files and tensors that are no UTF-8, before guards that call models: these read the letters of Windows-1252."""

import base64
import json
from typing import Any

import pytest

from adapters.errors import ContentFiltered
from adapters.fake import FakeAdapter, Script
from adapters.tensors import Inference, Inferred, Tensor, join_bytes
from adapters.types import OIP_JSON
from adapters.wire.oip import request_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from gateway.features.guards.personal import PersonalKeys
from policies.guards.personal.placeholders import RequestPlaceholders
from tests.support.guarding import received
from tests.support.judging import BY_CHAT, GUARDS, Judging, answer, judged, prompt_of
from tests.support.personal import PEPPER, written
from tests.support.recognising import RECOGNISER, Echo, Recognising, recognising

PATH = "/v1/chat/completions"
MODES = pytest.mark.parametrize("change", [{}, {"mode": "monitor"}, {"on_error": "pass"}], ids=str)


def file_of(content: bytes) -> dict[str, Any]:
    url = f"data:text/plain;base64,{base64.b64encode(content).decode()}"
    return {"messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "a", "file_data": url}}]}]}


@MODES
@pytest.mark.parametrize("kind", [*GUARDS, "language"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
async def test_a_file_of_another_encoding_is_judged(encoding: str, kind: str, change: dict[str, Any]) -> None:
    guard, protocol = GUARDS.get(kind, ({"name": "g", "kind": "language", "allow": ["de"], "on": ["prompt"]}, "openai"))
    judge, model = Judging(), answer("fine")
    one = judged(model, judge, {**guard, **change, "on": ["prompt"]}, protocol=protocol)
    content = ("Müller fährt früh mit der Bahn nach Görlitz" + "\ud800" * (encoding == "utf-16")).encode(
        encoding, "surrogatepass"
    )
    ((status, body, _),) = await received(one, PATH, **file_of(content))
    assert status == 200, body
    assert not one.log.records[0].guards
    assert any("Müller fährt" in text for text in judge.texts) == (kind != "language")
    one.assert_idle()


@pytest.mark.parametrize("kind", GUARDS)
async def test_a_text_is_blocked_in_a_file_of_another_encoding(kind: str) -> None:
    guard, protocol = GUARDS[kind]
    model = answer("fine")
    one = judged(model, Judging(), {**guard, "on": ["prompt"]}, protocol=protocol)
    ((status, _, _),) = await received(one, PATH, **file_of("ä zebra".encode("latin-1")))
    assert (status, model.calls) == (400, [])


@pytest.mark.parametrize("text", ["ein schöner Tag", "ein schönes zebra"])
async def test_tensors_of_another_encoding_are_judged(text: str) -> None:
    tensor = Tensor("text", "BYTES", (1,), join_bytes([text.encode("latin-1")]))
    body, length = oip_responses.encode_response(Inferred("chat", outputs=[tensor]), True)
    judge = Judging()
    one = judged(FakeAdapter(Script(chunks=(body,), form=OIP_JSON._replace(header_length=length))), judge, BY_CHAT)
    sent, length = oip.encode_request(Inference("chat", inputs=[tensor]), binary=True)
    request = request_view.request_of(sent, model="chat", version="", kind="infer", header_length=length)
    if "zebra" in text:
        with pytest.raises(ContentFiltered):
            await one.core.handle(one.principal, request, {}, one.record())
    else:
        await one.core.handle(one.principal, request, {}, one.record())
        assert judge.texts == [text, text]
    one.assert_idle()


@MODES
async def test_names_in_a_file_of_another_encoding_are_masked(change: dict[str, Any]) -> None:
    recogniser = {"model": "names", **({"on_error": "pass"} if "on_error" in change else {})}
    guard = {**RECOGNISER, "recogniser": recogniser, **({"mode": "monitor"} if "mode" in change else {})}
    server, model = Recognising({"Jörg Müller": "PERSON"}), Echo()
    one = recognising(server, model, guard)
    messages = [*file_of("¡Jörg Müller!".encode("latin-1"))["messages"], *prompt_of("who?")["messages"]]
    ((status, body, _),) = await received(one, PATH, messages=messages)
    assert status == 200, body
    assert server.texts == ["a\n\n¡Jörg Müller!\n\nwho?"]
    sent = json.loads(bytes(model.calls[0].request.fields["messages"]))  # type: ignore[attr-defined]
    data = sent[0]["content"][0]["file"]["file_data"].partition(",")[2]
    mask = written("PERSON", "J\udcf6rg M\udcfcller")
    expected = (
        "¡Jörg Müller!".encode("latin-1") if "mode" in change else f"\udca1{mask}!".encode(errors="surrogateescape")
    )
    assert base64.b64decode(data) == expected
    one.assert_idle()


def test_a_value_of_another_encoding_comes_back_readable() -> None:
    keys = PersonalKeys(lambda: PEPPER)
    placeholders = RequestPlaceholders(keys.of("acme"))
    placeholders.of("PERSON", "J\udcf6rg")
    assert list(placeholders.values.values()) == ["Jörg"]
    sealed = keys.sealed("acme", "id", placeholders.values)
    assert keys.opened("acme", "id", sealed) == placeholders.values
