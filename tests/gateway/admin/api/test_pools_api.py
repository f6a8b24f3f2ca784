"""Pools at the operators' door: permissions, required fields and the audit record."""

import time

import pytest
from msgspec.structs import replace

from adapters.errors import CallerError, InferenceError, NotFound, Unavailable
from adapters.requests import ModelOrder
from gateway.traffic.fleet.operations import Operation
from tests.gateway.admin.conftest import OpenDoor
from tests.gateway.fronts.oip import TensorFake, tensor_door
from tests.support.gateways import config

pytestmark = pytest.mark.realtime  # the database has threads

PATH = "/admin/pools/main/endpoints"
URL = "http://10.0.0.7:8000"
LOAD = "/v2/repository/models/chat/load"
UNLOAD = "/v2/repository/models/chat/unload"


async def test_each_request_is_one_operation(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        operator = door.backend.key(role="operator")
        operations: list[tuple[str, str, object]] = [
            ("POST", PATH, {"url": URL, "weight": 2, "zone": "eu-1a"}),
            ("POST", PATH, {"url": URL}),
            ("PATCH", f"{PATH}/ab12", {"weight": 0.5}),
            ("POST", f"{PATH}/ab12/drain", None),
            ("POST", f"{PATH}/ab12/undrain", None),
            ("DELETE", f"{PATH}/ab12?force=true", None),
        ]
        for method, path, body in operations:
            assert (await door.send(method, path, operator, body))[0] == 200
        one = Operation(verb="drain", pool="main", endpoint="main/ab12")
        assert door.backend.operations == [
            Operation(verb="add", pool="main", url=URL, weight=2.0, zone="eu-1a"),
            Operation(verb="add", pool="main", url=URL),
            replace(one, verb="weigh", weight=0.5),
            one,
            replace(one, verb="undrain"),
            replace(one, verb="remove", force=True),
        ]
        assert [(act.action, act.target, act.outcome) for act in door.backend.acts][2:4] == [
            ("endpoint.weigh", "main/ab12", "done"), ("endpoint.drain", "main/ab12", "done"),
        ]  # fmt: skip
        assert door.backend.acts[0].detail == {"url": URL, "weight": 2.0}


async def test_a_duration_is_reported_as_its_end_time(admin_door: OpenDoor) -> None:
    """The end time is the same for every worker, whenever the worker applies the operation."""
    async with admin_door(required=True) as door:
        before = time.time()
        await door.send("POST", PATH, door.backend.key(role="operator"), {"url": URL, "ttl": "10m"})
        (operation,) = door.backend.operations
        assert operation.expires is not None
        assert before + 600 <= operation.expires <= time.time() + 600


async def test_refused_operations_are_in_the_log_too(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        operator = door.backend.key(role="operator")
        status, answer = await door.send("POST", "/admin/pools/other/endpoints/ab12/drain", operator)
        assert (status, answer["error"]["code"]) == (404, "no_such_pool")
        (act,) = door.backend.acts
        assert (act.action, act.target, act.outcome) == ("endpoint.drain", "other/ab12", "refused")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"url": "10.0.0.1"}, "invalid_request", "url"),
        ({"url": "ftp://10.0.0.1"}, "invalid_request", "url"),
        ({"url": URL, "wait": 1}, "invalid_request", "wait"),
        ({"url": URL, "ttl": "60d"}, "invalid_request", "ttl"),
        ({"url": URL, "ttl": 5}, "invalid_request", "ttl"),
        ({"url": URL, "weight": 0}, "invalid_request", "weight"),
        ({"url": URL, "weight": "2"}, "invalid_request", "weight"),
        ({}, "invalid_request", "url"),
        ([], "invalid_request", None),
        (b"{", "invalid_json", None),
        (b"\xff", "invalid_json", None),
        (b"[" * 100_000, "invalid_json", None),
    ],
)
async def test_a_wrong_body_is_refused(admin_door: OpenDoor, body: object, code: str, param: str | None) -> None:
    async with admin_door(required=True) as door:
        status, answer = await door.send("POST", PATH, door.backend.key(role="operator"), body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, code, param)
        assert door.backend.operations == []


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
