"""Properties of a pipeline that every model has: hidden errors, its own price."""

import pytest

from adapters.errors import ModelFailed
from adapters.fake import FakeAdapter, Script
from gateway.traffic.endpoint import Endpoint
from policies.breaker import Breaker
from tests.gateway.features.pipelines.rigs import TWO, chat_fake, chat_script, rig
from tests.support.gateways import Rig, chat


def priced(last: FakeAdapter) -> Rig:
    return rig(TWO, {"a": chat_fake("d"), "b": last}, prices={"a": "1 usd", "b": "1 usd"}, price={"request": "3 usd"})


async def test_a_pipeline_s_own_price_is_that_of_an_answer() -> None:
    one = priced(chat_fake("f"))
    await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert str(record.cost) == "3 usd"
    broken = priced(FakeAdapter(Script(fault=ModelFailed("no", detail=""))))
    with pytest.raises(ModelFailed):
        await broken.core.handle(broken.principal, chat("whole"), {}, record := broken.record())
    assert record.cost is None
    assert record.usage is not None  # the draft counts against the limits of tokens


async def test_a_route_that_hides_its_model_s_errors_hides_them_in_a_pipeline_too() -> None:
    hidden = {"name": "hidden", "routes": [{"to": "a", "hide_model_errors": True}]}
    fake = FakeAdapter(Script(fault=ModelFailed("secret weights", detail="secret")))
    one = rig({"steps": [{"name": "only", "model": "hidden"}]}, {"a": fake}, models=[hidden])
    with pytest.raises(ModelFailed) as caught:
        await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert caught.value.message == "The step `only` failed: The model failed."


@pytest.mark.parametrize(("effects", "calls"), [(True, 1), (False, 2)])
async def test_a_step_with_effects_is_not_sent_again(effects: bool, calls: int) -> None:
    fake = FakeAdapter(Script(fault=ModelFailed("no", detail="")), chat_script("yes"))
    step = {"name": "book", "model": "a", "effects": effects}
    one = rig({"steps": [step]}, {"a": fake})
    one.endpoints["a"].append(Endpoint("a/1", fake, Breaker(5, 1.0)))
    if effects:
        with pytest.raises(ModelFailed):
            await one.core.handle(one.principal, chat("whole"), {}, one.record())
    else:
        await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert len(fake.calls) == calls
