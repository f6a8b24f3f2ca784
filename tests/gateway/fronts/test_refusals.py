"""A refusal at each door: the reason is the same in the access log, the record and the metric, and its code in the
body."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import pytest

from adapters.errors import AccountRefused, CapacityError, InferenceError, ModelNotReady
from adapters.fake import FakeAdapter, Script
from adapters.wire import error_table
from adapters.wire.error_table import ErrorBody
from gateway.auth.keys import KeyRecord, digest, new_key
from gateway.auth.scope import Scope
from gateway.auth.table import KeyTable
from gateway.features.journal.reasons import Reasons
from gateway.features.journal.sink import line_of
from gateway.limits.mutexes import LimitsUnavailable
from gateway.request.snapshot import with_keys
from gateway.telemetry.access_log import Line
from tests.gateway.fronts.oip import TensorFake
from tests.support.doors import CHATS, REQUESTS, door
from tests.support.gateways import PEPPER, Rig
from tests.support.grpc_doors import grpc_door, message

DOORS = {path: body for path, body in REQUESTS.items() if body is not None and path != "/v1/feedback"}
MODEL = "no-such-model"


class Case(NamedTuple):
    """A refusal: how a gateway comes to it, and its reason."""

    status: int
    cause: str
    prepare: Callable[[Rig], None]
    facts: dict[str, Any]
    tenant: Mapping[str, Any] = MappingProxyType({})
    fault: InferenceError | None = None
    model: str = "chat"


def nothing(rig: Rig) -> None:
    """The configuration suffices."""


def unhealthy(rig: Rig) -> None:
    rig.endpoints["main"][0].probed("No answer.", healthy_after=1, unhealthy_after=1)


def narrowed(rig: Rig) -> None:
    rig.hold(scope=Scope(fronts=["models"]))


def other_model(rig: Rig) -> None:
    rig.hold(scope=Scope(models=["other"]))


def ended(**fields: Any) -> Callable[[Rig], None]:
    def prepare(rig: Rig) -> None:
        record = KeyRecord(rig.principal, digest(PEPPER, rig.key.plaintext), **fields)
        table = KeyTable(PEPPER, {}, (), {rig.key.id: record}, {"acme"})
        rig.core.snapshot = with_keys(rig.core.snapshot, table)

    return prepare


def wrong_secret(rig: Rig) -> None:
    record = KeyRecord(rig.principal, digest(PEPPER, new_key().plaintext))
    rig.core.snapshot = with_keys(rig.core.snapshot, KeyTable(PEPPER, {rig.key.id: record}))


def other_keys(rig: Rig) -> None:
    rig.core.snapshot = with_keys(rig.core.snapshot, KeyTable(PEPPER, {}))


QUOTA = error_table.judged(429, ErrorBody("Slow down, please."))
CASES = {
    "limit": Case(
        429, "limit", nothing, {"unit": "requests", "limit": "1/h", "per": "key", "subject": "KEY"},
        {"limits": {"per": "key", "requests": "1/h"}},
    ),
    "revoked": Case(401, "revoked", ended(revoked=True), {"key": "KEY", "tenant": "acme"}),
    "blocked": Case(401, "blocked", ended(blocked=True), {"key": "KEY", "tenant": "acme"}),
    "rotated": Case(401, "rotated", ended(expires_at=1.0, successor="b" * 12), {"key": "KEY", "rotated_to": "b" * 12}),
    "expired": Case(401, "expired", ended(expires_at=1.0), {"key": "KEY"}),
    "tenant_removed": Case(401, "tenant_removed", ended(), {"key": "KEY"}),
    "wrong_secret": Case(401, "wrong_secret", wrong_secret, {"key": "KEY"}),
    "unknown": Case(401, "unknown", other_keys, {"key": "KEY"}),
    "scope": Case(403, "operation_out_of_scope", narrowed, {}),
    "model": Case(404, "model_unknown", nothing, {"model": MODEL}, model=MODEL),
    "not allowed": Case(404, "model_not_allowed", nothing, {"model": "chat"}, {"models": ["other"]}),
    "model of scope": Case(404, "model_out_of_scope", other_model, {"model": "chat"}),
    "unhealthy": Case(503, "no_healthy_endpoint", unhealthy, {"pool": "main", "endpoints": 1, "probe": "No answer."}),
    "quota": Case(503, "upstream_quota", nothing, {"pool": "main"}, fault=QUOTA),
    "overloaded": Case(503, "upstream_overloaded", nothing, {"pool": "main"}, fault=CapacityError("Full.")),
    "account": Case(503, "upstream_account", nothing, {"pool": "main"}, fault=AccountRefused("Empty.")),
    "not ready": Case(503, "model_not_ready", nothing, {"pool": "main"}, fault=ModelNotReady("Not yet.")),
    "redis": Case(503, "limits_unavailable", nothing, {"pool": "main"}, fault=LimitsUnavailable()),
}  # fmt: skip


def check(rig: Rig, line: Line, case: Case) -> None:
    """The reason in the log is the record's, the metric's and the expected one."""
    assert line.reason is not None
    expected = {name: rig.key.id if fact == "KEY" else fact for name, fact in case.facts.items()}
    assert line.reason["cause"] == case.cause
    assert expected.items() <= line.reason.items()
    record = rig.log.records[-1]
    stored = line_of(record, Reasons(rig.core.snapshot.config), counted=False, draws=False)
    assert json.loads(stored.detail)["reason"] == line.reason
    assert stored.code == line.code
    labels = {"cause": case.cause, "unit": line.reason.get("unit", ""), "per": line.reason.get("per", "")}
    samples = [one for family in rig.metrics.collect() if family.name == "headrace_refusals" for one in family.samples]
    assert [one.labels | {"tenant": ""} for one in samples if one.value] == [{"tenant": "", **labels}]
    assert rig.key.plaintext not in str(line)


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("name", CASES)
async def test_the_reason_of_a_refusal_is_everywhere_the_same(name: str, path: str) -> None:
    case = CASES[name]
    fake = FakeAdapter(Script(fault=case.fault)) if case.fault is not None else TensorFake()
    async with door(fake, tenant=dict(case.tenant)) as opened:
        case.prepare(opened.rig)
        body = json.loads(json.dumps(DOORS[path]).replace('"model": "chat"', f'"model": "{case.model}"'))
        target = path.replace("/chat/predict", f"/{case.model}/predict").replace("chat:", f"{case.model}:")
        target = target.replace("models/chat/infer", f"models/{case.model}/infer")
        answer = await opened.send("POST", target, body)
        if case.status == 429:
            answer = await opened.send("POST", target, body)
        line = opened.rig.log.lines[-1]
        assert answer.status == line.status
        assert answer.status in (case.status, 529 if case.status == 503 else case.status)
        assert code_of(answer.headers, json.loads(await answer.read())) == line.code
        check(opened.rig, line, case)


@pytest.mark.parametrize("headers", [{}, {"anthropic_version": "2023-06-01"}])
async def test_a_description_of_a_model_out_of_scope_has_its_reason(headers: dict[str, str]) -> None:
    async with door(FakeAdapter()) as opened:
        other_model(opened.rig)
        answer = await opened.send("GET", "/v1/models/chat", **headers)
        line = opened.rig.log.lines[-1]
    assert (answer.status, line.status) == (404, 404)
    assert line.reason is not None
    assert (line.reason["cause"], line.reason["model"]) == ("model_out_of_scope", "chat")


def code_of(headers: Any, body: Any) -> str:
    """The code of an error, where the door has it."""
    if "x-headrace-error" in headers:
        return str(headers["x-headrace-error"])
    error = body["error"]
    return str(error["details"]["error_code"] if "details" in error else error["code"])


@pytest.mark.realtime
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.fault is None])
async def test_grpc_too(name: str) -> None:
    case = CASES[name]
    async with grpc_door(TensorFake(), **tenants(case)) as opened:
        case.prepare(opened.rig)
        if case.status == 429:
            await opened.infer()
        with pytest.raises(grpc.aio.AioRpcError):
            await opened.infer(message(model_name=case.model))
        check(opened.rig, opened.rig.log.lines[-1], case)


def tenants(case: Case) -> dict[str, Any]:
    return {"tenants": [{"name": "acme", "models": ["*"], **case.tenant}]}


async def test_a_secret_in_place_of_a_model_is_not_logged() -> None:
    async with door(FakeAdapter()) as opened:
        key = new_key().plaintext
        await opened.send("POST", CHATS, {"model": key, "messages": [{"role": "user", "content": "hi"}]})
        assert opened.rig.log.lines[-1].reason == {"cause": "model_unknown", "model": "[secret]"}


async def test_only_a_right_secret_names_its_holder() -> None:
    """Anyone can send an id: such requests have no tenant, so that no series and no record is made of them."""
    for prepare, tenant in ((ended(revoked=True), "acme"), (wrong_secret, ""), (other_keys, "")):
        async with door(FakeAdapter()) as opened:
            prepare(opened.rig)
            answer = await opened.send("POST", CHATS, DOORS[CHATS])
            line = opened.rig.log.lines[-1]
            assert (line.tenant, line.key) == (tenant, opened.rig.key.id if tenant else "")
            assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
