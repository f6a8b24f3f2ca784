"""Encoded files of prompts behind guards: texts are examined within, and binary files stay as they are."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.fake import Script
from adapters.requests import GenerateRequest
from gateway.features.guards.files import masked_file
from tests.support.gateways import Rig
from tests.support.guarding import WORDS, guarded, received

FINE = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}], "usage": {}})
MASKING = {**WORDS, "action": "mask"}
GEMINI = "/v1beta/models/chat:generateContent"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) + b"the zebra"
PDF = b"%PDF-1.7\n" + b"the zebra\n" * 9


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def bodies(data: str, kind: str) -> dict[str, dict[str, Any]]:
    """A request with a file at each door."""
    url = f"data:{kind};base64,{data}"
    return {
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "a", "file_data": url}}]}],
        },
        "/v1/responses": {
            "input": [{"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": url}]}],
            "store": False,
        },
        "/v1/messages": {
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [
                {"type": "document", "source": {"type": "base64", "media_type": kind, "data": data}},
            ]}],
        },
        GEMINI: {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": kind, "data": data}}]}]},
    }  # fmt: skip


def answering(guard: dict[str, Any]) -> Rig:
    return guarded(Script(chunks=(FINE.encode(),)), guards=[guard])


@pytest.mark.parametrize("path", bodies("", ""))
@pytest.mark.parametrize("kind", ["text/csv", "application/octet-stream"])
async def test_a_word_in_an_encoded_text_is_blocked_at_every_door(path: str, kind: str) -> None:
    one = answering(WORDS)
    ((status, body, _),) = await received(one, path, **bodies(encoded("ä,b\nthe zebra,1\n".encode()), kind)[path])
    assert (status, "A guard blocked the content" in body) == (400, True)
    assert one.adapters["main"][0].calls == []


@pytest.mark.parametrize("content", [PNG, PDF])
async def test_binary_files_are_not_examined(content: bytes) -> None:
    one = answering(WORDS)
    body = bodies(encoded(content), "application/pdf")["/v1/chat/completions"]
    ((status, text, _),) = await received(one, "/v1/chat/completions", **body)
    assert status == 200, text


async def test_the_server_receives_the_file_with_its_mask() -> None:
    one = answering(MASKING)
    body = bodies(encoded(b"name,animal\nAnn,zebra\n"), "text/csv")["/v1/chat/completions"]
    await received(one, "/v1/chat/completions", **body)
    (call,) = one.adapters["main"][0].calls
    assert isinstance(call.request, GenerateRequest)
    (message,) = json.loads(bytes(call.request.fields["messages"]))
    head, _, data = message["content"][0]["file"]["file_data"].partition(",")
    assert (head, base64.b64decode(data).decode()) == ("data:text/csv;base64", "name,animal\nAnn,[…]\n")


def mask(text: str) -> str:
    return text.replace("zebra", "[…]")


FORMS = {
    "comma": f"data:text/plain;base64,{encoded(b'the zebra!')},",
    "capitals": f"DATA:text/plain;BASE64 ,{encoded(b'the zebra!')}",
    "no base64": "the zebra",
    "a word": "zebra",
    "one control character": encoded(b"\x01 the zebra, and so on and so on and so on"),
    "odd and wide": encoded("\ufeffthe zebra".encode("utf-16-le") + b"x"),
    "other codec": encoded("Müller, zebra".encode("latin-1")),
    "plain": encoded(b"the zebra!"),
    "unpadded": encoded(b"the zebra!").rstrip("="),
    "lines": "\n".join(encoded(b"the zebra!")),
    "junk": "!".join(encoded(b"the zebra!")),
    "other alphabet": base64.urlsafe_b64encode("ÿÿ?>zebra".encode("latin-1")).decode(),
    "wide": encoded("\ufeffthe zebra".encode("utf-16-le")),
    "wide and big": encoded("\ufeffthe zebra".encode("utf-16-be")),
    "address": "data:text/plain,the%20zebra",
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_an_encoded_text_is_read(form: str) -> None:
    assert masked_file(FORMS[form], mask) != FORMS[form]


def test_a_declared_text_is_read_with_control_characters_too() -> None:
    content = encoded(bytes(range(32)) * 9 + b"the zebra")
    assert masked_file(content, mask) == content
    assert b"the [\xe2\x80\xa6]" in base64.b64decode(masked_file(content, mask, declared=True))


@given(st.binary(max_size=200), st.booleans())
@example(b"\xff\xfe\x00", True)
@example(b"\xff\xfe\x00\xd8", True)
def test_a_file_in_which_nothing_is_masked_stays_equal(content: bytes, declared: bool) -> None:
    assert masked_file(encoded(content), lambda text: text, declared=declared) == encoded(content)


@given(st.text(max_size=50), st.text(max_size=50))
def test_only_the_masked_span_of_a_text_changes(before: str, after: str) -> None:
    text = f"{before}zebra{after}"
    given_bytes = text.encode("utf-8", "surrogatepass")
    changed = base64.b64decode(masked_file(encoded(given_bytes), mask, declared=True))
    assert changed == given_bytes.replace(b"zebra", "[…]".encode())


@given(st.text(max_size=300))
def test_any_text_in_the_place_of_a_file_is_taken(data: str) -> None:
    assert isinstance(masked_file(data, mask), str)
    assert isinstance(masked_file(f"data:{data}", mask), str)


@pytest.mark.parametrize("guard", [WORDS, MASKING])
@pytest.mark.parametrize("url", ["data:text/plain;base64,{}", "DATA:;base64,{}", "data:,the%20zebra"])
async def test_a_text_as_the_address_of_a_picture_is_examined(guard: dict[str, Any], url: str) -> None:
    one = answering(guard)
    part = {"type": "image_url", "image_url": {"url": url.format(encoded(b"the zebra"))}}
    ((status, _, _),) = await received(one, "/v1/chat/completions", messages=[{"role": "user", "content": [part]}])
    assert status == (200 if guard is MASKING else 400)
    assert encoded(b"the zebra") not in str([call.request for call in one.adapters["main"][0].calls])
