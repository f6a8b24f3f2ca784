"""The lines of requests that a batch did not finish, in the form of each API."""

import json

import pytest
from hypothesis import given

from gateway.features.batches.calls import one_line
from gateway.features.batches.outputs import unfinished
from tests.support.bad_answers import bad_json


@pytest.mark.parametrize(("code", "result"), [("batch_expired", "expired"), ("batch_cancelled", "canceled")])
def test_an_unfinished_request_has_the_result_of_its_api(code: str, result: str) -> None:
    assert json.loads(unfinished("anthropic", "a", code)) == {"custom_id": "a", "result": {"type": result}}
    line = json.loads(unfinished("openai", "a", code))
    assert (line["custom_id"], line["response"], line["error"]["code"]) == ("a", None, code)


@given(bad_json({"a": [1, {"b": "c\u00e9"}]}))
async def test_an_answer_is_one_line_of_json_or_none(body: bytes) -> None:
    for text in (body, body.replace(b",", b",\r\n")):
        if (line := await one_line(text)) is not None:
            assert not {0x0A, 0x0D} & set(bytes(line))
            bytes(line).decode()
