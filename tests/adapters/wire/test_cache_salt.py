"""The tenant's salt on its way to a server with a prefix cache, over the wire that the server reads."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.requests import GenerateRequest
from adapters.wire.openai import chat as wire
from adapters.wire.openai.providers import DIALECTS

OWN = st.none() | st.text(max_size=5) | st.integers() | st.lists(st.text(max_size=2), max_size=2)
VLLM = DIALECTS["vllm"]


def sent(own: Any, salt: str) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | ({} if own is None else {"cache_salt": own})
    decoded: dict[str, Any] = json.loads(
        wire.upstream_body(wire.decode_chat(json.dumps(body).encode()), None, VLLM, salt)
    )
    return decoded


@given(OWN, OWN)
def test_no_salt_of_a_client_leads_to_another_tenant_s_prompts(one: Any, other: Any) -> None:
    """Requests of tenants a and b never have the same salt, for any two requests."""
    first, second = sent(one, "a" * 32)["cache_salt"], sent(other, "b" * 32)["cache_salt"]
    assert first != second
    assert first == sent(one, "a" * 32)["cache_salt"]
    assert (first == sent(other, "a" * 32)["cache_salt"]) == (json.dumps(one) == json.dumps(other))


@given(st.text(min_size=1, max_size=40))
def test_a_tenant_s_own_salts_divide_its_prompts(own: str) -> None:
    assert sent(own, "a" * 32)["cache_salt"] != sent(None, "a" * 32)["cache_salt"] == "a" * 32


def test_without_a_salt_the_clients_own_is_forwarded() -> None:
    assert sent("mine", "")["cache_salt"] == "mine"
    assert "cache_salt" not in sent(None, "")


@pytest.mark.parametrize("decode", [wire.decode_chat, wire.decode_completion, wire.decode_embedding])
def test_requests_without_a_prefix_cache_have_no_salt(decode: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}
    request: GenerateRequest = decode(json.dumps(body).encode())
    salted = "cache_salt" in json.loads(wire.upstream_body(request, None, VLLM, "a" * 32))
    assert salted == (decode is not wire.decode_embedding)
