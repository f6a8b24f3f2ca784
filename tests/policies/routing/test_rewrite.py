import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import CallerError
from adapters.wire.body import open_body
from config.schema.config import RewriteConfig
from config.schema.rewrite import twins
from policies.routing.rewrite import NotANumber, Rewrite


def sent(rule: dict[str, Any], body: dict[str, Any] | bytes) -> dict[str, Any]:
    """The fields of a client's body that reach the upstream."""
    written = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = Rewrite(RewriteConfig.model_validate(rule))(open_body(written))
    return {name: json.loads(bytes(value)) for name, value in fields.items()}


CAP = {"caps": {"max_tokens": 100}}


@pytest.mark.parametrize(
    ("rule", "body", "expected"),
    [
        ({"strip": "openai/"}, {"model": "openai/gpt-4o", "n": 1}, {"model": "gpt-4o", "n": 1}),
        ({"strip": "openai/"}, {"model": "gpt-4o"}, {"model": "gpt-4o"}),
        ({"defaults": {"temperature": 0.2}}, {}, {"temperature": 0.2}),
        ({"defaults": {"temperature": 0.2}}, {"temperature": None}, {"temperature": 0.2}),
        ({"defaults": {"temperature": 0.2}}, {"temperature": 1}, {"temperature": 1}),
        ({"defaults": {"max_tokens": 9}}, {"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ({"defaults": {"stop": ["a", {"b": None}]}}, {}, {"stop": ["a", {"b": None}]}),
        (CAP, {"max_tokens": 5000}, {"max_tokens": 100}),
        (CAP, {"max_tokens": 99}, {"max_tokens": 99}),
        (CAP, {}, {"max_tokens": 100}),
        (CAP, {"max_tokens": None}, {"max_tokens": 100}),
        (CAP, {"max_completion_tokens": 5000}, {"max_completion_tokens": 100}),
        (CAP, {"max_tokens": 5, "n_predict": 5000}, {"max_tokens": 5, "n_predict": 100}),
        (CAP, b'{"max_tokens": 5, "max\\u005ftokens": 5000}', {"max_tokens": 100}),
        ({**CAP, "defaults": {"max_tokens": 7}}, {}, {"max_tokens": 7}),
        (CAP, {"max_tokens": -1}, {"max_tokens": 100}),
        (CAP, {"max_tokens": 5, "num_predict": -2}, {"max_tokens": 5, "num_predict": 100}),
        (CAP, {"max_tokens": 5, "max_new_tokens": 5000}, {"max_tokens": 5, "max_new_tokens": 100}),
        ({"caps": {"num_predict": 100}}, {}, {"max_tokens": 100}),
        ({"caps": {"temperature": 1}}, {"temperature": -1}, {"temperature": -1}),
        ({"caps": {"repetition_penalty": 2}}, {"repeat_penalty": 3}, {"repeat_penalty": 2}),
        ({"caps": {"repetition_penalty": 2}}, {}, {}),
        ({"force": {"seed": 7}}, {"random_seed": 8}, {"seed": 7}),
        ({"force": {"enable_thinking": False}}, {"think": True}, {"enable_thinking": False}),
        ({"drop": ["guided_json"]}, {"json_schema": {}, "grammar": "g"}, {"grammar": "g"}),
        ({"drop": ["grammar"]}, {"guided_grammar": "g"}, {}),
        ({"drop": ["top_k"], "force": {"seed": 7}}, {"options": {"seed": 8, "top_k": 1, "min_p": 0.1}},
         {"seed": 7, "options": {"min_p": 0.1}}),
        ({"drop": ["top_k"]}, {"options": {"Top_K": 1}}, {"options": {}}),
        (CAP, {"options": {"num_predict": -1}}, {"max_tokens": 100, "options": {"num_predict": 100}}),
        (CAP, {"Options": {"num_predict": 9}, "max_tokens": 1}, {"max_tokens": 1}),
        (CAP, {"options": 5, "max_tokens": 1}, {"options": 5, "max_tokens": 1}),
        ({"caps": {"temperature": 1}}, {}, {}),
        ({"caps": {"temperature": 1}}, {"temperature": 1.5}, {"temperature": 1}),
        ({"caps": {"temperature": 0.5}}, {"temperature": 10**30}, {"temperature": 0.5}),
        ({"force": {"seed": 7}}, {"seed": 8}, {"seed": 7}),
        ({"force": {"max_tokens": 7}}, {"max_completion_tokens": 9, "max_tokens": 8}, {"max_tokens": 7}),
        ({"force": {"logprobs": None}}, {"logprobs": True}, {"logprobs": None}),
        ({"drop": ["tools"]}, {"tools": [1], "tool_choice": "auto"}, {"tool_choice": "auto"}),
        ({"drop": ["max_completion_tokens"]}, {"max_tokens": 9}, {}),
        ({"model": "llama"}, {"model": "chat"}, {"model": "llama"}),
        ({"drop": ["sort"]}, {"\u017fort": 1, "sort": 2}, {}),
    ],
)  # fmt: skip
def test_the_rewritten_fields(rule: dict[str, Any], body: Any, expected: dict[str, Any]) -> None:
    assert sent(rule, body) == expected


@pytest.mark.parametrize("name", ["MAX_TOKENS", "Seed", "TOOLS", "MODEL"])
def test_a_field_in_another_case_reaches_no_rule(name: str) -> None:
    with pytest.raises(CallerError, match=f"`{name}` is not a field"):
        sent({**CAP, "force": {"seed": 7}, "drop": ["tools"], "model": "llama"}, {name: 5000})


@pytest.mark.parametrize("value", ['"5000"', "true", "[1]", "{}", "1e999"])
def test_a_capped_field_must_be_a_number(value: str) -> None:
    """A server may take a text or a truth for one."""
    with pytest.raises(NotANumber) as caught:
        sent(CAP, b'{"max_tokens": %s}' % value.encode())
    assert caught.value.field == "max_tokens"


names = st.sampled_from([*sorted(twins("max_tokens")), "Max_Tokens", "x", "stop"])
bodies = st.lists(st.tuples(names, st.none() | st.integers(-2, 10**6)), max_size=6)


@given(bodies)
def test_no_body_gets_around_a_cap(pairs: list[tuple[str, int | None]]) -> None:
    """Given twice, by another name or in another case: whatever a server reads, it reads no more than the cap."""
    written = b"{" + b",".join(b'"%s": %s' % (n.encode(), json.dumps(v).encode()) for n, v in pairs) + b"}"
    if any(name == "Max_Tokens" for name, _ in pairs):
        with pytest.raises(CallerError, match="Write `max_tokens`"):
            sent(CAP, written)
        return
    body = sent(CAP, written)
    lengths = [value for name, value in body.items() if name.lower() in twins("max_tokens")]
    assert all(value is None or 0 <= value <= 100 for value in lengths)
    assert any(value is not None for value in lengths)
    assert body.get("x") == dict(pairs).get("x")


def test_fields_without_a_rule_are_unchanged() -> None:
    given = {"a": Raw(b'{ "b" : 1.50 }'), "max_tokens": Raw(b"1e1")}
    fields = Rewrite(RewriteConfig.model_validate(CAP))(given)
    assert fields["a"] is given["a"]
    assert fields["max_tokens"] is given["max_tokens"]
