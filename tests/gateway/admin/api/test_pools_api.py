"""Pools at the operators' door: permissions, required fields and the audit record."""

import time

import pytest
from msgspec.structs import replace

from gateway.traffic.fleet.operations import Operation
from tests.gateway.admin.conftest import OpenDoor

pytestmark = pytest.mark.realtime  # the database has threads

PATH = "/admin/pools/main/endpoints"
URL = "http://10.0.0.7:8000"


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
