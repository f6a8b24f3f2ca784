"""OpenAI's wire: what is understood, what is refused, and that the rest stays as it was."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import BackendError, CallerError
from adapters.ignored_fields import is_misspelled
from adapters.requests import ChatRequest, CompletionRequest
from adapters.wire.openai import chat as wire
from adapters.wire.openai.providers import HOSTED
from adapters.wire.openai.request_codec import CODEC, LENGTHS, MAX_TOKENS

MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> ChatRequest:
    return wire.decode_chat(json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode())


def sent(request: ChatRequest | CompletionRequest, model: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(wire.upstream_body(request, model))
    return body


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


def test_fields_that_routing_needs_are_decoded() -> None:
    options = {"include_usage": True}
    request = chat(stream=True, stream_options=options, n=2, max_tokens=5, user="u")
    assert (request.model, request.stream, request.include_usage) == ("m", True, True)
    assert (request.n, request.max_tokens, request.user) == (2, 5, "u")


def test_absent_fields_have_the_standards_default() -> None:
    request = chat()
    assert (request.stream, request.include_usage, request.n) == (False, False, 1)
    assert (request.max_tokens, request.user) == (None, None)


def test_null_is_absence() -> None:
    request = chat(stream=None, stream_options=None, n=None, max_tokens=None, max_completion_tokens=None, user=None)
    assert (request.stream, request.include_usage, request.n, request.max_tokens) == (False, False, 1, None)
    assert not chat(stream=True, stream_options={"include_usage": None}).include_usage


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": 0}, 0),
        ({"max_completion_tokens": 0, "max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 9}, 9),
        ({"n_predict": 7}, 7),
        ({"n_predict": 8, "max_tokens": 2}, 8),
        ({"max_tokens": 2, "max_new_tokens": 8, "num_predict": 3}, 8),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 5, "n_predict": -1}, None),
        ({"max_tokens": MAX_TOKENS}, MAX_TOKENS),
    ],
)
def test_of_an_answers_length_under_several_names_the_largest_counts(fields: dict[str, Any], expected: int) -> None:
    assert chat(**fields).max_tokens == expected


@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_without_limit_is_for_local_servers_only(name: str) -> None:
    request = chat(**{name: -1})
    assert sent(request)[name] == -1
    for dialect in HOSTED.values():
        assert -1 not in json.loads(wire.upstream_body(request, None, dialect)).values()


def test_a_translated_chat_remains_one_when_it_is_rewritten() -> None:
    messages = [*MESSAGES, {"role": "system", "content": "be terse"}]
    request = wire.decode_chat(msgspec.json.encode({"model": "m", "messages": messages}))
    request.payload.is_translated = True
    rewritten = CODEC.rewrite(request, {**request.fields, "seed": Raw(b"7")})
    assert sent(rewritten) == {**sent(request), "seed": 7}
    assert sent(rewritten)["messages"][-1]["role"] == "user"


def test_a_prompt_is_estimated_from_its_bytes() -> None:
    short, long = chat(), chat(messages=[{"role": "user", "content": "x" * 4000}])
    assert 1 <= short.prompt_tokens < 20
    assert 1000 <= long.prompt_tokens <= 1020


@pytest.mark.parametrize("prompt", ["hi", "", ["a", "b"], [1, 2], [[1, 2], [3]], [], "\u00e9\U0001f600"])
def test_every_form_of_a_prompt(prompt: Any) -> None:
    request = wire.decode_completion(json.dumps({"model": "m", "prompt": prompt}).encode())
    assert sent(request)["prompt"] == prompt


NOT_JSON = {
    "nothing": b"",
    "blank": b"  \n",
    "half": b'{"model": "m", "messages": [',
    "two": b'{"model": "m"} {}',
    "single quotes": b"{'model': 'm'}",
    "trailing comma": b'{"model": "m",}',
    "comment": b'{"model": "m" /* */}',
    "NaN": b'{"model": "m", "messages": [1], "temperature": NaN}',
    "BOM": b'\xef\xbb\xbf{"model": "m"}',
    "UTF-16": '{"model": "m"}'.encode("utf-16"),
    "a broken key": b'{"\xff": 1}',
    "not an object": b"[]",
    "a string": b'"model"',
    "null": b"null",
    "a number": b"1",
    "arrays without end": b'{"messages":' + b"[" * 200_000,
    "arrays very deep": b'{"messages":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "objects very deep": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    for decode in (wire.decode_chat, wire.decode_completion):
        with pytest.raises(CallerError) as caught:
            decode(body)
        assert (caught.value.code, caught.value.param) == ("invalid_json", None)
        assert len(caught.value.message) < 200


WRONG: dict[str, list[Any]] = {
    "model": [1, None, ["m"], {}, True],
    "messages": ["hi", {}, None, 1, []],
    "stream": ["true", 1, []],
    "stream_options": ["on", [], 1, True],
    "n": [0, -1, 129, 1.5, "2", True, 10**30],
    "max_tokens": [-2, 2**31, 1.5, "5", True, 10**30, -(10**30)],
    "max_completion_tokens": [-2, 2**31, "5"],
    "n_predict": [-2, 2**31, "5"],
    "user": [1, [], {}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(CallerError) as caught:
        chat(**{name: value})
    assert caught.value.param == name
    assert f"`{name}`" in caught.value.message


@pytest.mark.parametrize("value", [1, "yes", []])
def test_a_wrong_include_usage(value: Any) -> None:
    with pytest.raises(CallerError) as caught:
        chat(stream_options={"include_usage": value})
    assert caught.value.param == "include_usage"


@pytest.mark.parametrize("value", [None, 1, {}, [None], [[1.5]], [[["a"]]], True])
def test_a_wrong_prompt(value: Any) -> None:
    with pytest.raises(CallerError) as caught:
        wire.decode_completion(json.dumps({"model": "m", "prompt": value}).encode())
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(("decode", "name"), [(wire.decode_chat, "messages"), (wire.decode_completion, "prompt")])
def test_the_error_of_a_missing_field_names_it(decode: Any, name: str) -> None:
    with pytest.raises(CallerError) as caught:
        decode(b'{"model": "m"}')
    assert caught.value.param == name
    with pytest.raises(CallerError) as caught:
        decode(json.dumps({name: ["a"]}).encode())
    assert caught.value.param == "model"


def test_of_a_repeated_key_only_the_last_counts_and_is_forwarded() -> None:
    body = b'{"model":"cheap","messages":["a"],"n":1,"mod\\u0065l":"dear","messages":["b"],"n":3}'
    request = wire.decode_chat(body)
    assert (request.model, request.n) == ("dear", 3)
    out = wire.upstream_body(request, None)
    assert json.loads(out, object_pairs_hook=list) == [("messages", ["b"]), ("n", 3), ("model", "dear")]


def test_the_model_that_was_authorised_is_the_last_that_a_server_reads() -> None:
    body = b'{"model": "chat", "messages": [{}], "stream": true}'
    request = wire.decode_chat(body)
    assert list(json.loads(wire.upstream_body(request, "own")))[-2:] == ["model", "stream_options"]
    request = request.codec.rename(request, "other")
    assert [name for name in json.loads(wire.upstream_body(request, None)) if name.lower() == "model"] == ["model"]


def test_of_a_repeated_option_only_the_last_counts_and_is_forwarded() -> None:
    options = b'{"include_usage":true,"a":1,"include_usage":false}'
    request = wire.decode_chat(b'{"model":"m","messages":["a"],"stream":true,"stream_options":%b}' % options)
    assert not request.include_usage
    out = wire.upstream_body(request, None)
    pairs: Any = json.loads(out, object_pairs_hook=list)
    assert dict(pairs)["stream_options"] == [("include_usage", True), ("a", 1)]


@pytest.mark.parametrize("model", ["other", 'a"b\\c', "\u00e9\U0001f600", ""])
def test_the_upstream_gets_its_own_name_of_the_model(model: str) -> None:
    request = chat(temperature=0.5)
    assert sent(request, model) == {"model": model, "messages": MESSAGES, "temperature": 0.5}
    assert sent(request) == {"model": "m", "messages": MESSAGES, "temperature": 0.5}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": False}, {"include_usage": True}),
        ({"include_usage": None, "a": [1]}, {"include_usage": True, "a": [1]}),
        ({"include_obfuscation": False}, {"include_usage": True, "include_obfuscation": False}),
        ({"include_usage": True, "a": 1}, {"include_usage": True, "a": 1}),
    ],
)
def test_a_stream_always_includes_usage(options: Any, expected: Any) -> None:
    assert sent(chat(stream=True, stream_options=options))["stream_options"] == expected
    assert sent(chat(stream=False, stream_options=options))["stream_options"] == options


def test_decoding_and_encoding_change_no_number_and_no_text() -> None:
    exact = b'{"messages":["\\u00e9\xc3\xa9"],"seed":123456789012345678901234567890,"top_p":0.10,"model":"m"}'
    assert wire.upstream_body(wire.decode_chat(exact), None) == exact


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
OTHER_NAMES = st.text(max_size=10).filter(lambda name: name not in WRONG and not is_misspelled(name))


@given(st.dictionaries(OTHER_NAMES, JSON, max_size=6), st.booleans(), st.none() | st.text(max_size=5))
def test_every_other_field_reaches_the_upstream_unchanged(others: dict[str, Any], stream: bool, model: Any) -> None:
    out = sent(chat(**others, stream=stream), model)
    expected = {"model": "m" if model is None else model, "messages": MESSAGES, "stream": stream, **others}
    assert out == expected | ({"stream_options": {"include_usage": True}} if stream else {})


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_of_a_client_raise_anything_else(body: bytes) -> None:
    for decode in (wire.decode_chat, wire.decode_completion):
        try:
            request = decode(body)
        except CallerError:
            continue
        wire.upstream_body(request, None)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


UNREADABLE = {
    "nothing": b"",
    "text": b"<html>",
    "half": b'{"choices": [',
    "array": b"[]",
    "string": b'"ok"',
    "very deep": b'{"choices":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "bytes": b"\xff\xfe",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_answer_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(BackendError) as caught:
        wire.usage_of_body(body)
    assert caught.value.code == "upstream_bad_response"
    with pytest.raises(BackendError):
        wire.read_event(body)


SECRET = "api_key=sk-0123456789abcdef"


@pytest.mark.parametrize("error", [{"message": SECRET}, SECRET, [SECRET], True, {}])
def test_an_error_in_place_of_a_response_holds_no_secret(error: Any) -> None:
    body = json.dumps({"error": error, "choices": []}).encode()
    for read in (wire.usage_of_body, wire.read_event):
        with pytest.raises(BackendError) as caught:
            read(body)
        assert "0123456789" not in caught.value.message


def test_an_error_of_null_is_none() -> None:
    assert wire.usage_of_body(b'{"error": null, "choices": []}') is None
    assert wire.read_event(b'{"error": null, "choices": []}').reported is None


def test_an_answer_without_choices_is_none() -> None:
    with pytest.raises(BackendError):
        wire.usage_of_body(b'{"object": "list"}')


@pytest.mark.parametrize(
    ("chunk", "only_usage"),
    [
        ({"choices": [], "usage": {"prompt_tokens": 1}}, True),
        ({"choices": None, "usage": {"prompt_tokens": 1}}, True),
        ({"usage": {"prompt_tokens": 1}}, True),
        ({"choices": [{"index": 0}], "usage": {"prompt_tokens": 1}}, False),
        ({"choices": [], "usage": {"prompt_tokens": -1}}, True),
        ({"choices": [], "usage": None}, False),
        ({"choices": []}, False),
    ],
)
def test_the_chunk_that_holds_only_usage(chunk: Any, only_usage: bool) -> None:
    assert wire.read_event(json.dumps(chunk).encode()).only_usage is only_usage


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_of_an_upstream_raise_anything_else(body: bytes) -> None:
    for read in (wire.usage_of_body, wire.read_event):
        with suppress(BackendError):
            read(body)
    wire.decode_error(body)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────


EXTRA = {"type": "extra_forbidden", "loc": ["body", "n"], "msg": "Extra inputs are not permitted", "input": 1}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"error": {"message": "m", "type": "t", "param": "p", "code": "c"}},
            wire.ErrorBody("m", "t", "p", "c"),
        ),
        ({"error": {"message": "m", "code": 400}}, wire.ErrorBody("m", code=400)),
        ({"error": {"message": "m", "param": None, "code": None}}, wire.ErrorBody("m")),
        ({"error": {"message": "m", "n_ctx": 5}}, wire.ErrorBody("m")),
        ({"error": "m"}, wire.ErrorBody("m")),
        ({"error": "m", "error_type": "validation"}, wire.ErrorBody("m")),
        (
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            wire.ErrorBody("m", "BadRequestError", code=400),
        ),
        ({"error": {"message": "m", "param": 5, "code": 1.5}}, wire.ErrorBody("m")),
        ({"detail": "Not Found"}, wire.ErrorBody("Not Found")),
        (
            {"detail": [{"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "Field required"}]},
            wire.ErrorBody("messages.0.role: Field required", param="messages.0.role"),
        ),
        ({"detail": [{"loc": "body"}, 3, {"msg": "m"}]}, wire.ErrorBody("m")),
        ({"detail": []}, wire.ErrorBody()),
        (
            {"object": "error", "message": {"detail": [EXTRA]}, "type": "invalid_request_error", "code": None},
            wire.ErrorBody("n: Extra inputs are not permitted", "invalid_request_error", "n"),
        ),
        (
            {"object": "error", "message": json.dumps({"detail": [EXTRA]}), "type": "t", "code": "1000"},
            wire.ErrorBody("n: Extra inputs are not permitted", "t", "n", "1000"),
        ),
        ({"message": "{oops"}, wire.ErrorBody("{oops")),
        ({"message": '{"a": 1}'}, wire.ErrorBody('{"a": 1}')),
        ({"error": None, "message": "m"}, wire.ErrorBody("m")),
        ({}, wire.ErrorBody()),
        ({"error": {}}, wire.ErrorBody()),
        ({"error": 5}, wire.ErrorBody()),
        ([], wire.ErrorBody()),
        ("m", wire.ErrorBody("m")),
        (
            [{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}],
            wire.ErrorBody("m", "RESOURCE_EXHAUSTED", None, 429),
        ),
        ({"__type": "a.b#ThrottlingException", "Message": "m"}, wire.ErrorBody("m", "ThrottlingException")),
        ({"errors": [{"code": 7, "message": "m"}]}, wire.ErrorBody("m", None, None, 7)),
        (
            {
                "error": {
                    "code": 429,
                    "message": "Provider returned error",
                    "metadata": {"raw": json.dumps({"error": {"message": "m"}})},
                }
            },
            wire.ErrorBody("Provider returned error: m", None, None, 429),
        ),
        ({"message": json.dumps({"error": {"message": "m"}})}, wire.ErrorBody("m")),
        ({"code": "c", "error": "m"}, wire.ErrorBody("m", None, None, "c")),
        (None, wire.ErrorBody()),
    ],
)
def test_decode_error(body: Any, expected: wire.ErrorBody) -> None:
    assert wire.decode_error(json.dumps(body).encode()) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 200_000, b'{"error":' * 200_000])
def test_decode_error_of_no_json(body: bytes) -> None:
    assert wire.decode_error(body) == wire.ErrorBody()


def test_an_error_has_all_four_keys() -> None:
    error = CallerError('a "quoted" text', param="model")
    expected = {"message": 'a "quoted" text', "type": "t", "param": "model", "code": "invalid_request"}
    assert json.loads(wire.encode_error(error, "t")) == {"error": expected}
    assert wire.decode_error(wire.encode_error(error, "t")).message == error.message


def test_models() -> None:
    model = wire.model("m", 5, "llm")
    assert model == {"id": "m", "object": "model", "created": 5, "owned_by": "headrace", "kind": "llm"}
    assert json.loads(wire.encode_models([model])) == {"object": "list", "data": [model]}
    assert json.loads(wire.encode_models([])) == {"object": "list", "data": []}
