"""Sequences of requests through pipelines: each step's requests of one sequence reach one endpoint."""

from typing import Any

import pytest
from msgspec.structs import replace

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import Unavailable, Unsupported
from adapters.fake import FakeAdapter
from adapters.requests import InferRequest, ModelRequest
from adapters.upstreams.inferred import takes_plain_inference
from adapters.wire.oip.request_view import sequence_name
from tests.gateway.features.pipelines.rigs import floats, infer, infers
from tests.support.gateways import Rig, config

CHAIN = {"steps": [{"name": "first", "model": "a"}, {"name": "second", "model": "b", "in": {"x": "first.y"}}]}
NESTED = {"steps": [{"name": "inner", "model": "whole"}]}
BY_ROW = {"steps": [{"name": "rows", "model": "a", "in": {"x": "request.x"}, "each": True}]}


class Stateless(FakeAdapter):
    """A server without state between requests, such as TensorFlow Serving."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assert isinstance(request, InferRequest)
        takes_plain_inference(request)
        return await infers(floats("z", 1)).call(request, call)


def rig(endpoints: int = 3, *tenants: str, second: Any = None) -> Rig:
    """Two pools with several endpoints each, a pipeline over both, and a pipeline over that."""
    fakes = {
        "a": [infers(floats("y", 1)) for _ in range(endpoints)],
        "b": [second() if second else infers(floats("z", 1)) for _ in range(endpoints)],
    }
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"], "protocol": "oip-http"} for name in fakes]
    models: list[dict[str, Any]] = [{"name": name, "routes": [{"to": name}]} for name in fakes]
    models += [
        {"name": "whole", "pipeline": CHAIN},
        {"name": "other", "pipeline": CHAIN},
        {"name": "nested", "pipeline": NESTED},
        {"name": "rows", "pipeline": {"steps": [{"name": "in", "steps": BY_ROW["steps"]}]}},
    ]
    entries = [{"name": name, "models": [model]} for name, _, model in (each.partition(":") for each in tenants)]
    return Rig(config(pools=pools, models=models, tenants=entries or [{"name": "acme", "models": ["*"]}]), fakes)


async def send(one: Rig, sequence: int | str, model: str = "whole", *, starts: bool = False, ends: bool = False) -> Any:
    """Send a request of a sequence; return the endpoints that computed its steps."""
    parameters: dict[str, Any] = {"sequence_id": sequence, "sequence_start": starts, "sequence_end": ends}
    request = infer(floats("x", 1), model=model, parameters=parameters)
    record = one.record()
    await one.core.handle(
        one.principal, replace(request, sequence=sequence_name(sequence), starts=starts, ends=ends), {}, record
    )
    return tuple(step.endpoint for step in record.trace.steps if step.endpoint)


def received(one: Rig, pool: str) -> list[InferRequest]:
    requests = [call.request for fake in one.adapters[pool] for call in fake.calls]
    return [request for request in requests if isinstance(request, InferRequest)]


@pytest.mark.parametrize("model", ["whole", "nested"])
async def test_each_step_s_requests_of_a_sequence_reach_one_endpoint(model: str) -> None:
    one, homes = rig(), set()
    for number in range(1, 31):
        endpoints = {await send(one, number, model, starts=i == 0, ends=i == 4) for i in range(5)}
        assert len(endpoints) == 1
        homes |= endpoints
    assert {endpoint for each in homes for endpoint in each if endpoint[0] in "ab"} == {
        f"{pool}/{i}" for pool in "ab" for i in range(3)
    }
    one.assert_idle()


async def test_a_step_with_inputs_receives_the_id_and_the_flags_of_the_sequence() -> None:
    one = rig(1)
    for sequence, starts, ends in ((7, True, False), (7, False, True), ("text", True, True)):
        await send(one, sequence, starts=starts, ends=ends)
        for pool in "ab":
            last = received(one, pool)[-1]
            assert (last.sequence, last.starts, last.ends) == (received(one, "a")[-1].sequence, starts, ends)
            parameters = last.inference.parameters
            assert parameters["sequence_id"] == sequence
            assert (parameters["sequence_start"], parameters["sequence_end"]) == (starts, ends)
    await send(one, 0)
    assert received(one, "b")[-1].sequence == ""


async def test_a_lost_endpoint_ends_the_sequence() -> None:
    one = rig()
    first, second = await send(one, 7, starts=True)
    pool = one.core.snapshot.pools["b"]
    pool.endpoints = [endpoint for endpoint in pool.endpoints if endpoint.id != second]
    with pytest.raises(Unavailable) as caught:
        await send(one, 7)
    assert caught.value.code == "sequence_lost"
    assert caught.value.message.startswith("The step `second` failed: b: the endpoint that held this sequence")
    again = await send(one, 7, starts=True)
    assert again[0] == first
    assert again[1] != second
    one.assert_idle()


async def test_no_tenant_reaches_the_sequence_of_another() -> None:
    """Two pipelines, each of one tenant, over the same models."""
    one = rig(1, "acme:whole", "other:other")
    await send(one, 7, "whole", starts=True)
    one.hold(tenant="other")
    await send(one, 7, "other", starts=True)
    for pool in "ab":
        ids = [request.codec.fields(request)["sequence_id"] for request in received(one, pool)]
        assert len({bytes(each) for each in ids}) == 2
        assert b"7" not in {bytes(each) for each in ids}
    one.assert_idle()


async def test_servers_without_state_receive_single_requests() -> None:
    one = rig(2, second=Stateless)
    first = {await send(one, 7, starts=i == 0) for i in range(4)}
    assert len({home for home, _ in first}) == 1
    assert all(request.sequence for request in received(one, "a"))
    one.assert_idle()


async def test_a_pipeline_that_computes_rows_one_by_one_takes_no_sequence() -> None:
    one = rig()
    with pytest.raises(Unsupported, match="The step `rows` of the model `rows` computes rows one by one") as caught:
        await send(one, 7, "rows", starts=True)
    assert caught.value.param == "sequence_id"
    assert received(one, "a") == []
    one.assert_idle()
