"""Forms: the model's name is read, and everything else stays unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import CallerError
from adapters.requests import AppRequest
from adapters.upstreams.apps.calls import body_of
from adapters.wire import form
from adapters.wire.openai import model_field as named

TYPE = "multipart/form-data; boundary=XX"
AUDIO = bytes(range(256)) * 4


def part(head: str, body: bytes) -> bytes:
    return b"--XX\r\n" + head.encode() + b"\r\n\r\n" + body + b"\r\n"


def model(name: bytes = b"whisper") -> bytes:
    return part('Content-Disposition: form-data; name="model"', name)


FILE = part('Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav', AUDIO)
END = b"--XX--\r\n"


def test_the_model_is_read_from_any_place() -> None:
    for body in (model() + FILE + END, FILE + model() + END):
        assert named.read(TYPE, body) == ("whisper", False, None)
    streams = part("content-disposition: form-data; name=stream", b"true")
    assert named.read(TYPE, FILE + streams + model() + END) == ("whisper", True, None)


def test_only_the_name_is_replaced() -> None:
    body = FILE + model() + FILE.replace(b"file", b"other") + END
    assert named.with_model(TYPE, body, "theirs") == body.replace(b"whisper", b"theirs")
    assert named.with_model(TYPE, body, "whisper") is body


async def test_a_renamed_form_is_copied_only_when_it_is_sent() -> None:
    body = FILE + model() + END
    request = AppRequest(model="whisper", content_type=TYPE, body=body, codec=named.CODEC)
    renamed = request.codec.rename(request, "theirs")
    assert renamed.body is body
    assert await body_of(renamed) == body.replace(b"whisper", b"theirs")
    assert await body_of(request) is body
    assert request.codec.rename(request, "whisper") is request


async def test_a_renamed_json_body_has_the_name_in_its_fields() -> None:
    request = AppRequest(model="m", path="/v1/rerank", body=b'{"model":"m","query":"q"}', codec=named.CODEC)
    renamed = request.codec.rename(request, "theirs")
    fields = renamed.codec.fields(renamed)
    assert json.loads(bytes(fields["model"])) == "theirs"
    assert json.loads(await body_of(renamed)) == {"model": "theirs", "query": "q"}
    rewritten = renamed.codec.rewrite(renamed, {**fields, "top_n": Raw(b"3")})
    assert json.loads(await body_of(rewritten)) == {"model": "theirs", "query": "q", "top_n": 3}


@given(st.binary(max_size=200).filter(lambda data: b"--XX" not in data), st.text(min_size=1, max_size=20))
def test_any_file_stays_as_it_is(data: bytes, name: str) -> None:
    body = part('Content-Disposition: form-data; name="file"; filename="x"', data) + model() + END
    if "\r" in name or "\n" in name:
        return
    renamed = named.with_model(TYPE, body, name)
    field = form.field_of(TYPE, renamed, "model")
    assert field is not None
    assert field.value == name
    assert renamed.replace(name.encode(), b"whisper", 1) == body or data in renamed


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (TYPE, model() + model(b"other") + END),
        (TYPE, model() + part('Content-Disposition: form-data; name="model"; filename="m"', b"x") + END),
        (TYPE, part('Content-Disposition: form-data; name="file"; name="model"', b"x") + END),
        (TYPE, part("Content-Disposition: form-data; name*=utf-8''model", b"x") + model() + END),
        (TYPE, part("\r\n".join(['Content-Disposition: form-data; name="model"'] * 2), b"x") + END),
        (TYPE, part('Content-Disposition: attachment; name="model"', b"x") + END),
        (TYPE, part('Content-Type: text/plain', b"x") + END),
        (TYPE, part('Content-Disposition : form-data; name="model"', b"x") + END),
        (TYPE, part('Content-Disposition: form-data;\r\n name="model"', b"x") + END),
        (TYPE, part('Content-Disposition: form-data; name="model" trailing', b"x") + END),
        (TYPE, model(b"\xff") + END),
        (TYPE, model(b"m" * 2000) + END),
        (TYPE, part("X: " + "a" * 9000, b"x") + model() + END),
        (TYPE, model()),
        (TYPE, b""),
        (TYPE, b"preamble\r\n" + model() + END),
        (TYPE, model() + END + model(b"other") + END),
        (TYPE, model() + b"--XX-\r\n"),
        (TYPE, part('Content-Disposition: form-data; name="file"', b"\n--XX\nhidden") + model() + END),
        (TYPE, b"--XX\r\nno head\r\n" + END),
        (TYPE, FILE * 1001 + model() + END),
        ("multipart/form-data", model() + END),
        ("multipart/form-data; boundary=XX; boundary=YY", model() + END),
        ('multipart/form-data; boundary=""', model() + END),
        ("multipart/form-data; boundary=" + "X" * 71, model() + END),
    ],
)  # fmt: skip
def test_ambiguous_forms_are_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(CallerError):
        named.read(content_type, body)
    with pytest.raises(CallerError):
        named.with_model(content_type, body, "theirs")


def test_a_form_without_a_model_gets_one() -> None:
    body = FILE + END
    with pytest.raises(CallerError):
        named.read(TYPE, body)
    named_now = named.with_model(TYPE, body, "ours")
    assert named_now.endswith(body)
    assert named.read(TYPE, named_now)[0] == "ours"


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    for body in (data, b"--XX\r\n" + data, model() + data + END):
        try:
            named.read(TYPE, body)
        except CallerError:
            continue


def test_json() -> None:
    body = b'{"model":"a","documents":[1.50,"x"],"model":"b","stream":true,"user":"u"}'
    assert named.read("application/json", body) == ("b", True, "u")
    assert named.with_model("", body, "c") == b'{"documents":[1.50,"x"],"stream":true,"user":"u","model":"c"}'
    for content_type, wrong in (("text/plain", body), ("", b"{"), ("", b'{"model":3}'), ("", b"{}")):
        with pytest.raises(CallerError):
            named.read(content_type, wrong)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"usage":{"total_tokens":7}}', (7, 0)),
        (b'{"usage":{"prompt_tokens":3,"total_tokens":3}}', (3, 0)),
        (b'{"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}', (3, 4)),
        (b'{"usage":{"type":"duration","seconds":3}}', None),
        (b'{"usage":{"total_tokens":-7}}', None),
        (b'{"usage":{"total_tokens":99999999999}}', None),
        (b'{"usage":3}', None),
        (b"RIFF", None),
    ],
)
def test_tokens_by_any_name(body: bytes, tokens: tuple[int, int] | None) -> None:
    usage = named.usage_of(body)
    assert (usage and (usage.prompt_tokens, usage.completion_tokens)) == tokens
