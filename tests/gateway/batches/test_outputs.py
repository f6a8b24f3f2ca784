"""The lines of requests that a batch did not finish, in the form of each API."""

import json

import pytest

from gateway.batches.outputs import unfinished


@pytest.mark.parametrize(("code", "result"), [("batch_expired", "expired"), ("batch_cancelled", "canceled")])
def test_an_unfinished_request_has_the_result_of_its_api(code: str, result: str) -> None:
    assert json.loads(unfinished("anthropic", "a", code)) == {"custom_id": "a", "result": {"type": result}}
    line = json.loads(unfinished("openai", "a", code))
    assert (line["custom_id"], line["response"], line["error"]["code"]) == ("a", None, code)
