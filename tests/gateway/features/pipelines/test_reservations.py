"""The amounts that are reserved for a request to a pipeline before its first step: those of its most expensive path."""

from typing import Any

import pytest

from adapters.answer import Answer
from adapters.call import Call
from adapters.errors import LimitExceeded
from adapters.fake import FakeAdapter
from adapters.requests import ModelRequest
from tests.gateway.features.pipelines.rigs import chat_script, rig
from tests.support.gateways import Rig, chat

STEPS = [{"name": "x", "model": "a"}, {"name": "y", "model": "b", "in": {"prompt": "x.text"}}]
LIMIT = {"tokens": "100k/min"}


class Observing(FakeAdapter):
    """Records what is left of the limit while it answers."""

    def __init__(self) -> None:
        super().__init__(chat_script("yes", latency=0.1))
        self.rig: Rig
        self.left: list[float] = []

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        self.left.append(self.rig.left("tokens"))
        return await super().call(request, call)


def made(limits: Any, *models: dict[str, Any], **whole: Any) -> Rig:
    fakes: dict[str, FakeAdapter] = {"a": Observing(), "b": Observing()}
    one = rig({"steps": STEPS}, fakes, models=models, limits=limits, **whole)
    for fake in fakes.values():
        assert isinstance(fake, Observing)
        fake.rig = one
    return one


async def reserved(one: Rig, model: str) -> list[float]:
    """The tokens that are reserved while each step runs."""
    before = one.left("tokens")
    await one.core.handle(one.principal, chat(model, max_tokens=50), {}, one.record())
    first: Any = one.adapters["a"][0]
    return [round(before - left) for left in first.left]


def arms(first: str, second: str) -> dict[str, Any]:
    rollout = {"name": "r", "from": {"model": first}, "to": {"model": second}, "steps": [{"weight": "100%"}]}
    return {"name": "moved", "routes": [{"rollout": {**rollout, "back_if": [{"metric": "failures", "above": "2x"}]}}]}


async def test_an_arm_that_is_a_pipeline_reserves_its_own_path() -> None:
    (of_pipeline,) = await reserved(made(LIMIT), "whole")
    (of_model,) = await reserved(made(LIMIT), "a")
    (of_first_arm,) = await reserved(made(LIMIT, arms("whole", "a")), "moved")
    assert of_first_arm == of_pipeline > of_model
    (of_other_arm,) = await reserved(made(LIMIT, arms("a", "whole")), "moved")
    assert of_other_arm == of_model


async def test_an_alias_reserves_the_path_of_its_model() -> None:
    outer = {"name": "outer", "pipeline": {"steps": [{"name": "z", "model": "other"}]}}
    (of_outer,) = await reserved(made(LIMIT, outer, aliases=["other"]), "outer")
    assert [of_outer] == await reserved(made(LIMIT), "whole")


async def test_the_limit_of_an_inner_pipeline_reserves_its_own_path() -> None:
    both = {"steps": [{"name": "l", "model": "whole"}, {"name": "r", "model": "whole"}]}
    outer = {"name": "outer", "pipeline": {**both, "out": {"text": "r.text", "other": "l.text"}}}
    (path,) = await reserved(made(LIMIT), "whole")
    for tokens, admitted in ((2 * path, True), (2 * path - 1, False)):
        one = made([LIMIT, {"tokens": f"{tokens}/min", "models": ["whole"]}], outer)
        if admitted:
            await reserved(one, "outer")
        else:
            with pytest.raises(LimitExceeded):
                await reserved(one, "outer")
