"""Personal data of requests that a guard sends to another model."""

import json
from typing import Any

import pytest

from tests.support.gateways import Rig, config
from tests.support.guarding import received
from tests.support.judging import prompt_of
from tests.support.personal import PERSONAL, written
from tests.support.recognising import Echo

ROUTE: dict[str, Any] = {
    "name": "hard", "kind": "words", "words": ["hard"], "action": "route", "to": "large", "on": ["prompt"],
}  # fmt: skip
ENDS = {"endpoints": ["http://127.0.0.1:9"]}


@pytest.mark.parametrize(
    ("tenant", "first", "second"),
    [(True, False, False), (False, True, True), (False, True, False), (False, False, True)],
    ids=["tenant", "both models", "first model", "second model"],
)
async def test_a_moved_request_receives_its_values(*, tenant: bool, first: bool, second: bool) -> None:
    large, people = Echo(), ["people"]
    configuration = config(
        guards=[PERSONAL, ROUTE],
        pools=[{"name": "main", **ENDS}, {"name": "large", **ENDS}],
        models=[
            {"name": "chat", "guards": ["hard", *(people if first else ())], "routes": [{"to": "main"}]},
            {"name": "large", "guards": people if second else [], "routes": [{"to": "large"}]},
        ],
        tenants=[{"name": "acme", "models": ["*"], "guards": people if tenant else []}],
    )
    one = Rig(configuration, {"main": [Echo()], "large": [large]})
    text = f"a hard one for bob@example.com, not {written('email', 'eve@example.com')}"
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of(text))
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, text)
    (sent,) = large.received
    assert "bob@" not in sent
    assert written("email", "bob@example.com") in sent
    one.assert_idle()
