"""A route's `drop` on the tensor doors: a parameter is not forwarded, and its type is validated before."""

import json
from typing import Any

import pytest

from tests.gateway.fronts.oip import ASKED, TensorFake, tensor_door

MODELS = [{"name": "chat", "routes": [{"to": "main", "rewrite": {"drop": ["timeout", "custom"]}}]}]


@pytest.mark.parametrize(
    ("parameters", "status"),
    [({"timeout": 5, "custom": [1], "other": 1}, 200), ({"timeout": "soon"}, 400), ({"custom": "x"}, 200)],
)
async def test_a_dropped_parameter_is_validated_and_not_forwarded(parameters: dict[str, Any], status: int) -> None:
    fake = TensorFake()
    async with tensor_door(fake, models=MODELS) as door:
        response = await door.post("/v2/models/chat/infer", {**ASKED, "parameters": parameters})
        assert response.status == status, await response.text()
    if status == 200:
        (sent_request,) = fake.asked
        sent = json.loads(sent_request.body).get("parameters", {})
        assert set(sent) == set(parameters) - {"timeout", "custom"}
    else:
        assert not fake.calls
