"""`response_format` and `structured_outputs`, through the server, with a model that generates random text."""

import json
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from adapters.errors import CallerError
from runtimes.llm.api.request_decoding import decode_chat
from tests.runtimes.llm.babbler import Babbler
from tests.runtimes.llm.server_fixtures import MODEL, post, serving, until_idle
from tests.support.cases import cases

pytestmark = pytest.mark.processes
JSON_SCHEMA = "response_format.json_schema"
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,3}$"}, "maxItems": 2},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def format_of_schema(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema, **more}}}


def named(name: str) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": {}}}}


async def test_many_at_once_all_follow_their_schema_or_end_with_length() -> None:
    """Few pages, so that some are preempted; greedy and drawn; several answers to one request."""
    async with serving(runner=Babbler(1), num_blocks=17, max_num_seqs=8) as running:
        for temperature in (0, 1):
            body = CHAT | format_of_schema(SCHEMA) | {"n": 12, "temperature": temperature}
            status, _, answer = await post(running, "/v1/chat/completions", body)
            assert status == 200
            ended = [one["message"]["content"] for one in answer["choices"] if one["finish_reason"] == "stop"]
            assert len(ended) >= 6
            for text in ended:
                jsonschema.validate(json.loads(text), SCHEMA)
        assert running.engine.stats().preemptions > 0
        await until_idle(running.engine)


async def test_an_answer_cut_by_its_length_has_that_reason() -> None:
    async with serving(runner=Babbler()) as running:
        _, _, answer = await post(running, "/v1/chat/completions", CHAT | format_of_schema(SCHEMA) | {"max_tokens": 3})
        assert answer["choices"][0]["finish_reason"] == "length"


class Pet(BaseModel):
    name: Annotated[str, Field(max_length=8)]
    kind: Literal["cat", "dog"]
    lives: int


async def test_the_official_client_parses_its_format() -> None:
    async with serving(runner=Babbler(2)) as running:
        for _ in range(3):
            answer = await running.client.chat.completions.parse(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], response_format=Pet, temperature=0.5
            )
            if answer.choices[0].finish_reason == "stop":
                assert isinstance(answer.choices[0].message.parsed, Pet)
        assert answer.choices[0].message.parsed is not None


@pytest.mark.parametrize(
    ("structured", "allowed"),
    [
        ({"choice": ["red", "green"]}, {"red", "green"}),
        ({"regex": "(ab|cd)"}, {"ab", "cd"}),
        ({"grammar": 'root ::= "x" | "yz"'}, {"x", "yz"}),
        ({"grammar": 'start: "x" | "yz"'}, {"x", "yz"}),
        ({"json": {"enum": [1, True]}}, {"1", "true"}),
        ({"json": '{"enum": [1, true]}'}, {"1", "true"}),
    ],
)
async def test_vllms_formats_beside_json(structured: Any, allowed: set[str]) -> None:
    async with serving(runner=Babbler()) as running:
        body = {"model": MODEL, "prompt": "a", "max_tokens": 50, "n": 4, "structured_outputs": structured}
        _, _, answer = await post(running, "/v1/completions", body)
        assert {choice["text"] for choice in answer["choices"]} <= allowed
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"stop"}


async def test_any_json_object_and_no_white_space_at_all() -> None:
    async with serving(runner=Babbler(3)) as running:
        body = CHAT | {"n": 6, "response_format": {"type": "json_object"}}
        _, _, answer = await post(running, "/v1/chat/completions", body)
        for choice in answer["choices"]:
            if choice["finish_reason"] == "stop":
                assert isinstance(json.loads(choice["message"]["content"]), dict)
        schema = {
            "type": "array",
            "items": {"type": "integer", "maximum": 9, "minimum": 0},
            "minItems": 3,
            "maxItems": 3,
        }
        body = CHAT | {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
        _, _, answer = await post(running, "/v1/chat/completions", body)
        assert len(answer["choices"][0]["message"]["content"]) == len("[1,2,3]")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        (format_of_schema({"type": "strnig"}), "response_format.json_schema.schema"),
        (format_of_schema({"type": "array", "uniqueItems": True}, strict=True), "response_format.json_schema.schema"),
        (format_of_schema({"$ref": "#/x"}), "response_format.json_schema.schema"),
        (format_of_schema({"enum": ["x" * 300_000]}), "response_format.json_schema.schema"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "nothing"}}, "structured_outputs.grammar"),
    ],
)
async def test_a_format_that_does_not_compile_is_refused_alone(change: Any, param: str) -> None:
    async with serving(runner=Babbler()) as running:
        status, _, answer = await post(running, "/v1/chat/completions", CHAT | change)
        assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, param, "invalid_grammar")
        assert f"`{param}`" in answer["error"]["message"]
        status, _, _ = await post(running, "/v1/chat/completions", CHAT | format_of_schema(SCHEMA))
        assert status == 200


async def test_a_grammar_that_fails_on_the_way_ends_its_own_answer_only() -> None:
    dear = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^(.{1,1000}){50,1000}$"}},
        "required": ["a"],
    }
    async with serving(runner=Babbler()) as running:
        status, _, answer = await post(
            running, "/v1/chat/completions", CHAT | format_of_schema(dear) | {"temperature": 0}
        )
        assert (status, answer["error"]["code"]) == (400, "invalid_grammar")
        status, _, answer = await post(running, "/v1/chat/completions", CHAT | {"max_tokens": 5})
        assert status == 200
        assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize(
    ("change", "param"),
    [
        *cases(__file__, "contradictory formats"),
        (format_of_schema(SCHEMA) | {"ignore_eos": True}, "ignore_eos"),
        (format_of_schema(SCHEMA) | {"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        (named("a b"), f"{JSON_SCHEMA}.name"),
    ],
)
def test_contradictory_formats_are_refused(change: Any, param: str) -> None:
    with pytest.raises(CallerError) as refused:
        decode_chat(json.dumps(CHAT | change).encode()).grammar()
    assert refused.value.param == param


async def test_an_answer_is_continued_by_its_grammar() -> None:
    """The first half of one answer; the whole is of the schema, or it would not have been taken up."""
    async with serving(runner=Babbler(4)) as running:
        tokenizer = running.app.model.tokenizer  # type: ignore[union-attr]
        begun = '{"name": "Tom", "age": 1'
        body = CHAT | format_of_schema(SCHEMA) | {"stream": True, "continue_token_ids": tokenizer.encode(begun)}
        rest, reason = "", None
        async for chunk in await running.client.chat.completions.create(
            model=MODEL, messages=CHAT["messages"], stream=True, max_tokens=200,
            extra_body={name: body[name] for name in ("response_format", "continue_token_ids")},
        ):  # fmt: skip
            rest += chunk.choices[0].delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
        if reason == "stop":
            jsonschema.validate(json.loads(begun + rest), SCHEMA)
        wrong = body | {"continue_token_ids": tokenizer.encode('{"nome"')}
        status, _, answer = await post(running, "/v1/chat/completions", wrong)
        assert (status, answer["error"]["code"]) == (400, "invalid_grammar")
