"""`POST /admin/explain`."""

from typing import Any

import pytest

from gateway.auth.keys import id_of
from tests.gateway.admin.conftest import AdminDoor, OpenDoor

pytestmark = pytest.mark.realtime  # the database has threads

WHY = "/admin/explain"


async def explain(d: AdminDoor, **question: Any) -> dict[str, Any]:
    status, explanation = await d.send("POST", WHY, None, {"tenant": "acme", "model": "chat", **question})
    assert status == 200, explanation
    return dict(explanation)


async def test_operators_get_an_explanation(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        explanation = await explain(d, max_tokens=5, header={"x-a": "b"}, body={"temperature": 1.5}, roles=["dev"])
        assert (explanation["model"], explanation["routes"]) == ("chat", [{"route": 0, "matches": True}])
        assert explanation["to"] == {"pool": "main", "share": 1.0}
        assert (await explain(d, model="chta"))["because"] == 'no model has the name "chta" (did you mean "chat"?)'
        assert not d.backend.acts  # nothing was changed


async def test_an_issued_key_counts_with_its_scopes(admin_door: OpenDoor) -> None:
    async with admin_door() as d:
        key = id_of(d.backend.key(scopes={"models": ["other"]}))
        assert (await explain(d, key=key))["because"] == 'the scopes of its key do not include the model "chat"'
        beta = id_of(d.backend.key("beta/eu", scopes={"models": ["other"]}))
        assert "refused" not in await explain(d, key=beta)  # the key of another tenant has no effect here
        assert "refused" not in await explain(d, key="nobodys")


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"tenant": "acme"}, "model", "is required"),
        ({"tenant": "acme", "model": "chat", "prompt_token": 5}, "prompt_token", "unknown field: did you mean"),
        ({"tenant": "acme", "model": "chat", "max_tokens": "5"}, "max_tokens", "expected a whole number"),
        ({"tenant": "acme", "model": "chat", "at": 5}, "at", "expected a moment such as"),
        (b"[]", None, "the body is not a JSON object"),
    ],
)
async def test_a_question_that_is_wrong(admin_door: OpenDoor, body: Any, param: str | None, message: str) -> None:
    async with admin_door() as d:
        status, answer = await d.send("POST", WHY, None, body)
        assert (status, answer["error"]["param"]) == (400, param)
        assert answer["error"]["message"].startswith(message)
