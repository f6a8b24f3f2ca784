"""Orders to models on the admin listener: each credential, each model, each answer of the servers."""

import pytest

from adapters.errors import CallerError, InferenceError, NotFound, Unavailable
from adapters.requests import ModelOrder
from tests.gateway.admin.conftest import OpenDoor
from tests.gateway.fronts.oip import TensorFake, tensor_door
from tests.support.gateways import config

pytestmark = pytest.mark.realtime  # the database has threads

LOAD = "/v2/repository/models/chat/load"
UNLOAD = "/v2/repository/models/chat/unload"


async def test_an_operator_gives_orders_and_they_are_in_the_audit_log(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        operator = door.backend.key(role="operator")
        body = {"parameters": {"config": "{}"}}
        assert await door.send("POST", LOAD, operator, body) == (200, {"name": "chat", "load": True})
        assert await door.send("POST", UNLOAD, operator) == (200, {"name": "chat", "unload": True})
        status, answer = await door.send("POST", "/v2/repository/models/nobody/load", operator)
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert door.backend.orders == [("load", "chat", b'{"parameters": {"config": "{}"}}'), ("unload", "chat", b"")]
        assert [(act.action, act.target, act.outcome, act.actor.role) for act in door.backend.acts] == [
            ("model.load", "chat", "done", "operator"),
            ("model.unload", "chat", "done", "operator"),
            ("model.load", "nobody", "refused", "operator"),
        ]


async def test_a_page_gives_no_orders(admin_door: OpenDoor) -> None:
    """Without credentials on loopback, the form of a foreign page is the attack."""
    async with admin_door() as door:
        for headers in ({"content_type": "text/plain"}, {"origin": "https://evil.example.org"}, {"host": "evil.test"}):
            assert (await door.send("POST", LOAD, **headers))[0] in (403, 415)
        assert not door.backend.orders
        assert (await door.send("POST", LOAD))[0] == 200


async def test_a_large_model_fits_and_its_size_is_bounded(admin_door: OpenDoor) -> None:
    async with admin_door() as door:
        door.backend.config = config(http={"max_body": "4MB"})
        assert (await door.send("POST", LOAD, body=b"x" * 2 * 1024**2))[0] == 200
        assert (await door.send("POST", LOAD, body=b"x" * (door.backend.config.http.max_body + 1)))[0] == 413
        assert len(door.backend.orders) == 1


async def test_every_endpoint_of_every_route_gets_the_order() -> None:
    fakes = [TensorFake(), TensorFake()]
    async with tensor_door(*fakes) as d:
        await d.rig.core.order(ModelOrder(model="chat", order="load", body=b"{}"))
        for fake in fakes:
            assert [(order.order, order.model, order.body) for order in fake.orders] == [("load", "chat", b"{}")]
        with pytest.raises(NotFound):
            await d.rig.core.order(ModelOrder(model="nobody", order="load"))
        failures: list[InferenceError] = [CallerError("the file is broken"), Unavailable("not yet")]
        for failure in failures:
            fakes[1].failing = failure
            with pytest.raises(type(failure)):
                await d.rig.core.order(ModelOrder(model="chat", order="load"))
        assert [len(fake.orders) for fake in fakes] == [3, 3]
