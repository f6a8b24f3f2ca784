"""Signed ids of requests through the whole core: chats, tensors, arms that are models, and steps of pipelines."""

from typing import Any

import pytest

from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from gateway.telemetry import Record
from policies.rollouts.tally import MEASURING, ShareOrder
from tests.support.gateways import Rig, chat, config, infer

ARMS: list[Any] = ["v1", {"pool": "v2", "name": "next"}]


def rig(*adapters: FakeAdapter, **experiment: Any) -> Rig:
    written = {"name": "e", "arms": ARMS, "metric": "solved", **experiment}
    models = [
        {"name": "chat", "routes": [{"experiment": written, "fallback": ["v1"], "retry": {"attempts": 1}}]},
        {"name": "other", "routes": [{"to": "v2"}]},
        {"name": "pipe", "pipeline": {"steps": [{"name": "one", "model": "chat"}]}},
    ]
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"], "breaker": {"failures": 99}} for name in ("v1", "v2")]
    one = Rig(
        config(pools=pools, models=models, feedback=[{"name": "solved"}]),
        dict(zip(("v1", "v2"), [[a] for a in adapters], strict=True)),
    )
    put(one, 0.5)
    return one


def put(one: Rig, share: float, stratum: int | None = 2) -> None:
    live = one.rollouts.by_name["e"]
    one.rollouts.apply([ShareOrder("e", live.fingerprint, 1, (1 - share, share), stratum)])


async def handled(one: Rig, request: ModelRequest, headers: dict[str, str] | None = None) -> Record:
    record = one.record()
    if headers:
        record.request_id = headers["x-request-id"]
    answer = await one.core.handle(one.principal, request, headers or {}, record)
    async for _ in answer:
        pass
    return record


@pytest.mark.parametrize("request_", [chat(), chat(stream=True), infer()], ids=["chat", "stream", "tensors"])
@pytest.mark.parametrize("arm", [0, 1])
async def test_the_id_of_a_request_has_its_arm(request_: ModelRequest, arm: int) -> None:
    one = rig(FakeAdapter(), FakeAdapter())
    put(one, float(arm))
    record = await handled(one, request_)
    signed = one.rollouts.signed(record.request_id, "acme")
    assert signed is not None
    live, id = signed
    assert (live.name, id.arm, id.stratum, id.generation) == ("e", arm, 2, 1)
    assert record.arm == live.arms[arm][0]
    assert one.rollouts.signed(record.request_id, "other") is None
    assert (await handled(one, request_)).request_id != record.request_id


async def test_the_id_of_a_client_stays_its_request_s_id() -> None:
    one = rig(FakeAdapter(), FakeAdapter())
    record = await handled(one, chat(), {"x-request-id": "mine"})
    assert record.request_id == "mine"
    assert one.rollouts.signed(record.feedback_id, "acme") is not None


async def test_a_fallback_s_answer_has_the_id_of_the_assigned_arm() -> None:
    one = rig(FakeAdapter(), FakeAdapter(Script(fault=BackendError("x"))))
    put(one, 1.0)
    record = await handled(one, chat())
    signed = one.rollouts.signed(record.request_id, "acme")
    assert record.pool == "v1"
    assert signed is not None
    assert signed[1].arm == 1


async def test_an_arm_that_is_a_model_has_signed_ids() -> None:
    one = rig(FakeAdapter(), FakeAdapter(), arms=["v1", {"model": "other"}])
    put(one, 1.0)
    record = await handled(one, chat())
    signed = one.rollouts.signed(record.request_id, "acme")
    assert signed is not None
    assert signed[1].arm == 1


@pytest.mark.parametrize("stratum", [None, MEASURING])
async def test_a_request_that_does_not_count_has_a_plain_id(stratum: int | None) -> None:
    one = rig(FakeAdapter(), FakeAdapter())
    put(one, 0.5, stratum)
    assert (await handled(one, chat())).request_id == "req-1"


async def test_a_step_of_a_pipeline_counts_without_an_id() -> None:
    one = rig(FakeAdapter(), FakeAdapter())
    record = await handled(one, chat("pipe"))
    assert (record.request_id, record.feedback_id) == ("req-1", "")
    (taken,) = one.rollouts.take()
    assert sum(taken.tally.assigned) == 1


async def test_the_ids_of_a_subject_have_one_unit() -> None:
    one = rig(FakeAdapter(), FakeAdapter(), sticky="user")
    units: dict[str, set[int]] = {}
    for user in ("ann", "bob", "eve") * 10:
        record = await handled(one, chat(user=user))
        signed = one.rollouts.signed(record.request_id, "acme")
        assert signed is not None
        units.setdefault(user, set()).add(signed[1].subject)
        assert signed[1].subject == signed[0].subject_of(f"acme\0{user}")
    assert all(len(unit) == 1 for unit in units.values())


async def test_a_reload_that_adds_values_to_a_rollout_signs_its_ids() -> None:
    """Its strata exist already, without the heads of ids."""
    steps = [{"weight": "50%", "for": "10m"}]
    rollout: dict[str, Any] = {"name": "e", "from": "v1", "to": "v2", "steps": steps}
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("v1", "v2")]

    def written(**changes: Any) -> Any:
        models = [{"name": "chat", "routes": [{"rollout": {**rollout, **changes}}]}]
        return config(pools=pools, models=models, feedback=[{"name": "solved"}])

    one = Rig(written(), {"v1": [FakeAdapter()], "v2": [FakeAdapter()]})
    put(one, 0.5, 0)
    assert (await handled(one, chat())).request_id == "req-1"
    one.rollouts.configure(written(back_if=[{"metric": "feedback", "of": "solved"}]))
    signed = one.rollouts.signed((await handled(one, chat())).request_id, "acme")
    assert signed is not None
    assert signed[1].stratum == 0
