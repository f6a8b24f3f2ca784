"""Fields of requests in another case: refused at every wire, since servers differ in how they read them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.ignored_fields import CHAT, COMPLETION, EMBEDDING, RESPONSE
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.openai import chat as openai
from adapters.wire.openai import model_field as named
from adapters.wire.responses import requests as responses

BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x", "max_tokens": 1}
DECODERS: dict[str, tuple[Callable[[bytes], Any], frozenset[str]]] = {
    "chat": (openai.decode_chat, CHAT),
    "completion": (openai.decode_completion, COMPLETION),
    "embedding": (openai.decode_embedding, EMBEDDING),
    "responses": (responses.decode_native, RESPONSE),
    "messages": (anthropic.decode_message, frozenset({"model", "stream", "max_tokens", "messages", "tools"})),
    "passed": (lambda body: named.read("application/json", body), frozenset({"model", "stream", "user"})),
}
FOLDS = {"s": "Sſ", "k": "K\u212a"}
"""Letters that fold to ASCII ones: the long s, and Kelvin's sign."""


@pytest.mark.parametrize("wire", DECODERS)
@given(data=st.data())
def test_no_field_passes_in_another_case(wire: str, data: st.DataObject) -> None:
    decode, fields = DECODERS[wire]
    name = data.draw(st.sampled_from(sorted(fields)))
    other = "".join(data.draw(st.sampled_from(sorted({c, *FOLDS.get(c, c.upper())}))) for c in name)
    body = {**BODY, other: data.draw(st.sampled_from([True, "x", None, 1]))}
    if other == name:
        return
    with pytest.raises(CallerError) as refused:
        decode(json.dumps(body).encode())
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", other)


@pytest.mark.parametrize("name", ["maxTokens", "X-Own", "Übung", "customField", "MODEL_ID", "ſ"])
def test_a_server_s_own_field_is_its_own_in_any_case(name: str) -> None:
    request = openai.decode_chat(json.dumps({"model": "m", "messages": [{}], name: 1}).encode())
    assert json.loads(openai.upstream_body(request, None))[name] == 1


@pytest.mark.parametrize("name", ["Model", "MODEL", "mOdel"])
def test_a_form_s_model_in_another_case_is_refused(name: str) -> None:
    parts = [f'--b\r\nContent-Disposition: form-data; name="{one}"\r\n\r\nm\r\n' for one in ("model", name)]
    with pytest.raises(CallerError, match="another case"):
        named.read("multipart/form-data; boundary=b", ("".join(parts) + "--b--\r\n").encode())
