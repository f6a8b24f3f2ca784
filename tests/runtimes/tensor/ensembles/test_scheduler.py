"""Requests of ensembles, in virtual time, against models that are functions here."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import pytest

from adapters.errors import BackendError, CallerError, CapacityError, DeadlineError, InferenceError
from adapters.tensors import Inference, Parameters, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import (
    Ensemble,
    EnsembleStep,
    ModelConfig,
    ResponseCache,
    TensorSpec,
)
from runtimes.tensor.ensembles.scheduler import WINDOW, EnsembleScheduler, EnsembleSchedulers
from runtimes.tensor.models.members import completed
from runtimes.tensor.models.served_model import Computed, ServedModel
from runtimes.tensor.requests.messages import MemberRun
from runtimes.tensor.scheduling.cached import ResponseStore
from runtimes.tensor.scheduling.responses import MOST
from runtimes.tensor.statistics import ModelStatistics
from tests.support.random_ensembles import random_ensemble

pytestmark = [pytest.mark.plain, pytest.mark.looptime]
Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def spec(name: str, dims: tuple[int, ...] = (1,), datatype: str = "FP32", **more: Any) -> TensorSpec:
    return TensorSpec(name, datatype, dims, **more)


def model(
    name: str, inputs: str = "X", outputs: str = "Y", batch: int = 8, dims: tuple[int, ...] = (1,), **more: Any
) -> ModelConfig:
    tensors = [tuple(spec(one, dims) for one in names.split()) for names in (inputs, outputs)]
    return ModelConfig(name, "python", tensors[0], tensors[1], batch, **more)


@dataclass
class Models:
    """The models of a server; each runs for its time in `seconds`."""

    configs: dict[str, ModelConfig]
    compute: Callable[[str, Arrays], Arrays | list[Arrays]]
    seconds: dict[str, float] = field(default_factory=dict)
    requests: list[Inference] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    sent: int = 0
    """Responses of decoupled models."""
    most_sent_ahead: int = 0
    read: int = 0
    most_running: int = 0

    is_observed = False

    def describe(self, name: str, version: str) -> tuple[str, ModelConfig]:
        return "1", self.configs[name]

    def executed(self, model: str, version: str, run: MemberRun) -> None:
        raise NotImplementedError  # none of them has a process of its own

    def lease(self, model: str, version: str, parameters: Parameters) -> ServedModel | None:
        return None

    async def infer(self, inference: Inference, deadline: float = inf, served: ServedModel | None = None) -> Computed:
        self.requests.append(inference)
        name = inference.model_name
        self.running.append(name)
        self.most_running = max(self.most_running, self.running.count(name))
        try:
            async with asyncio.timeout_at(None if deadline == inf else deadline):
                await asyncio.sleep(self.seconds.get(name, 0.1))
        except TimeoutError:
            raise DeadlineError("too late") from None
        finally:
            self.running.remove(name)
        outputs = self.compute(name, arrays(inference.inputs))
        assert isinstance(outputs, dict)
        named = [output.name for output in inference.outputs] or [one.name for one in self.configs[name].outputs]
        tensors = [tensor(one, outputs[one]) for one in named if one in outputs]
        return Computed(name, "1", outputs=tensors, device_seconds=self.seconds.get(name, 0.1))

    async def stream(
        self, inference: Inference, deadline: float = inf, served: ServedModel | None = None
    ) -> AsyncGenerator[Computed, None]:
        self.requests.append(inference)
        name = inference.model_name
        self.running.append(name)
        try:
            responses = self.compute(name, arrays(inference.inputs))
            assert isinstance(responses, list)
            for outputs in responses:
                await asyncio.sleep(self.seconds.get(name, 0.1))
                if not outputs:
                    raise BackendError("no more")
                self.sent += 1
                self.most_sent_ahead = max(self.most_sent_ahead, self.sent - self.read)
                yield Computed(name, "1", outputs=[tensor(one, array) for one, array in outputs.items()])
        finally:
            self.running.remove(name)


def arrays(tensors: list[Tensor]) -> Arrays:
    return {one.name: np.frombuffer(one.data, np.float32).reshape(one.shape) for one in tensors}


def tensor(name: str, array: Array) -> Tensor:
    return Tensor(name, "FP32", array.shape, np.ascontiguousarray(array, np.float32).tobytes())


def request(outputs: tuple[str, ...] = (), parameters: Mapping[str, Any] | None = None, **inputs: Any) -> Inference:
    tensors = [tensor(name, np.array(values, np.float32)) for name, values in inputs.items()]
    named = [RequestedOutput(name) for name in outputs]
    return Inference("e", "", "id-1", parameters or {}, tensors, named)


def scheduler_of(
    models: Models, inputs: str, outputs: str, *steps: EnsembleStep, batch: int = 8, limit: int = 0,
    statistics: ModelStatistics | None = None, dims: tuple[int, ...] = (1,),
) -> EnsembleScheduler:  # fmt: skip
    config = replace(model("e", inputs, outputs, batch, dims), ensemble=Ensemble(steps, limit), backend="ensemble")
    return EnsembleScheduler(completed(config, models.describe), models.describe, models, statistics)


def doubled(name: str, inputs: Arrays) -> Arrays:
    return {"Y": inputs["X"] * 2}


CHAIN = (
    EnsembleStep("a", {"X": "IN"}, {"Y": "one"}),
    EnsembleStep("b", {"X": "one"}, {"Y": "two"}),
    EnsembleStep("c", {"X": "two"}, {"Y": "OUT"}),
)


def chain(models: Models | None = None, **options: Any) -> tuple[Models, EnsembleScheduler]:
    models = models or Models({name: model(name) for name in "abc"}, doubled)
    return models, scheduler_of(models, "IN", "OUT", *CHAIN, **options)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────


async def test_random_ensembles_equal_their_steps() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        config = random_ensemble(rng)
        assert config.ensemble is not None
        configs: dict[str, ModelConfig] = {}
        for step in config.ensemble.steps:
            configs[step.model] = model(step.model, " ".join(step.inputs), " ".join(step.outputs), dims=(2,))
        models = Models(configs, mixed)
        models.seconds = {name: rng.uniform(0.01, 1) for name in configs}
        scheduler = EnsembleScheduler(completed(config, models.describe), models.describe, models)
        inputs: dict[str, Any] = {one.name: rng.random() * np.ones((3, 2), np.float32) for one in config.inputs}
        names = [one.name for one in config.outputs]
        for outputs in ((), tuple(rng.sample(names, rng.randint(1, len(names))))):
            models.requests.clear()
            answer = await scheduler.infer(request(outputs, **inputs))
            expected = reference(config.ensemble, inputs)
            assert [one.name for one in answer] == list(outputs or names)
            for one in answer:
                assert np.array_equal(arrays([one])[one.name], expected[one.name]), seed
            ran = [one.model_name for one in models.requests]
            assert len(set(ran)) == len(ran)
            assert set(ran) == needed_models(config.ensemble, set(outputs or names))
        assert scheduler.is_idle


def mixed(name: str, inputs: Arrays) -> Arrays:
    total: Array = np.zeros((1, 1), np.float32)
    for weight, array in enumerate((inputs[one] for one in sorted(inputs)), 2):
        total = total + array * np.float32(weight)
    return {f"O{i}": total + np.float32(len(name) + i) for i in range(2)}


def reference(ensemble: Ensemble, inputs: Arrays) -> Arrays:
    values = dict(inputs)
    for step in ensemble.steps:
        made = mixed(step.model, {name: values[one] for name, one in step.inputs.items()})
        values |= {one: made[name] for name, one in step.outputs.items()}
    return values


def needed_models(ensemble: Ensemble, tensors: set[str]) -> set[str]:
    names = set()
    for step in reversed(ensemble.steps):
        if tensors & set(step.outputs.values()):
            names.add(step.model)
            tensors |= set(step.inputs.values())
    return names


async def test_bytes_pass_from_step_to_step_without_a_copy() -> None:
    made: list[bytes] = []
    received: list[object] = []

    class Same(Models):
        async def infer(self, inference: Inference, *_: object) -> Computed:
            received.append(inference.inputs[0].data)
            made.append(bytes(4))
            return Computed("", "1", outputs=[Tensor("Y", "FP32", (1, 1), made[-1])])

    _, scheduler = chain(Same({name: model(name) for name in "abc"}, doubled))
    (answer,) = await scheduler.infer(request(IN=[[1]]))
    assert received[1] is made[0]
    assert received[2] is made[1]
    assert answer.data is made[2]


async def test_batched_and_unbatched_models_mix_as_in_triton() -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    def compute(name: str, inputs: Arrays) -> Arrays:
        seen.append((name, inputs["X"].shape))
        return {"Y": inputs["X"]}

    whole = model("b", batch=0, dims=(-1, 1))
    models = Models({"a": model("a"), "b": whole, "c": model("c")}, compute)
    (answer,) = await scheduler_of(models, "IN", "OUT", *CHAIN).infer(request(IN=[[1], [2]]))
    assert answer.shape == (2, 1)
    assert seen == [("a", (2, 1)), ("b", (2, 1)), ("c", (2, 1))]

    seen.clear()
    row = model("b", batch=0)
    models = Models({"a": row, "b": model("b"), "c": row}, compute)
    (answer,) = await scheduler_of(models, "IN", "OUT", *CHAIN, batch=0).infer(request(IN=[1]))
    assert seen == [("a", (1,)), ("b", (1, 1)), ("c", (1,))]
    assert answer.shape == (1,)


async def test_an_optional_input_may_be_left_out() -> None:
    config = ModelConfig("a", "python", (spec("X"), spec("Z", optional=True)), (spec("Y"),), 8)
    models = Models({"a": config}, lambda name, inputs: {"Y": np.sum(list(inputs.values()), axis=0)})
    step = EnsembleStep("a", {"X": "IN", "Z": "MORE"}, {"Y": "OUT"})
    whole = ModelConfig(
        "e", "ensemble", (spec("IN"), spec("MORE", optional=True)), (spec("OUT"),), 8, ensemble=Ensemble((step,))
    )
    scheduler = EnsembleScheduler(whole, models.describe, models)
    assert arrays(await scheduler.infer(request(IN=[[1]])))["OUT"] == 1
    assert arrays(await scheduler.infer(request(IN=[[1]], MORE=[[2]])))["OUT"] == 3


async def test_an_output_that_no_model_returned_is_an_error_of_the_step_that_needs_it() -> None:
    models = Models({name: model(name) for name in "abc"}, lambda name, inputs: {} if name == "a" else dict(inputs))
    _, scheduler = chain(models)
    with pytest.raises(BackendError, match=r"in ensemble 'e', step 1 \(`b`\) could not run: no step returned `one`"):
        await scheduler.infer(request(IN=[[1]]))


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────


async def test_id_priority_and_sequence_reach_every_step() -> None:
    models, scheduler = chain()
    parameters = {"priority": 2, "sequence_id": 7, "sequence_start": True, "mine": "x"}
    await scheduler.infer(request(parameters=parameters, IN=[[1]]))
    assert [one.parameters for one in models.requests] == [parameters] * 3
    assert {one.id for one in models.requests} == {"id-1"}


async def test_one_timeout_is_for_all_steps_together() -> None:
    models, scheduler = chain()
    loop = asyncio.get_running_loop()
    with pytest.raises(DeadlineError, match=r"in ensemble 'e', step 1 \(`b`\): too late"):
        await scheduler.infer(request(parameters={"timeout": 150_000}, IN=[[1]]))
    assert loop.time() == pytest.approx(0.15, abs=0.001)
    left = [one.parameters["timeout"] for one in models.requests]
    assert left == pytest.approx([150_000, 50_000], abs=100)
    with pytest.raises(DeadlineError, match="step 2"):
        await scheduler.infer(request(IN=[[1]]), loop.time() + 0.25)
    assert models.running == []


async def test_a_failing_step_is_named_and_ends_the_others() -> None:
    def compute(name: str, inputs: Arrays) -> Arrays:
        if name == "b":
            raise BackendError("no root", code="model_failed")
        return doubled(name, inputs)

    models = Models({name: model(name) for name in "ab"}, compute, {"a": 100})
    steps = (EnsembleStep("a", {"X": "IN"}, {"Y": "OUT"}), EnsembleStep("b", {"X": "IN"}, {"Y": "OTHER"}))
    scheduler = scheduler_of(models, "IN", "OUT OTHER", *steps)
    with pytest.raises(BackendError, match=r"^in ensemble 'e', step 1 \(`b`\): no root$") as caught:
        await scheduler.infer(request(IN=[[1]]))
    assert caught.value.message == str(caught.value)
    assert caught.value.code == "model_failed"
    assert asyncio.get_running_loop().time() == pytest.approx(0.1, abs=0.01)
    assert models.running == []


async def test_a_mistake_of_the_caller_stays_one_and_that_of_a_step_does_not() -> None:
    def compute(name: str, inputs: Arrays) -> Arrays:
        if inputs["X"][0, 0] == ord(name):
            raise CallerError("wrong", param="X")
        return {"Y": np.array([[ord("b")]], np.float32)}

    _, scheduler = chain(Models({name: model(name) for name in "abc"}, compute))
    with pytest.raises(CallerError, match="step 0") as caught:
        await scheduler.infer(request(IN=[[ord("a")]]))
    assert caught.value.param == "IN"
    with pytest.raises(BackendError, match="step 1"):
        await scheduler.infer(request(IN=[[0]]))


async def test_a_wrong_request_is_refused_before_any_step() -> None:
    models, scheduler = chain()
    for wrong in (request(), request(IN=[[1, 2]]), request(OTHER=[[1]]), request(("NONE",), IN=[[1]])):
        with pytest.raises(CallerError, match="'e'"):
            scheduler.infer(wrong)
    with pytest.raises(DeadlineError):
        scheduler.infer(request(IN=[[1]]), 0.0)
    assert models.requests == []
    assert scheduler.is_idle


async def test_a_cancelled_request_cancels_its_steps() -> None:
    models, scheduler = chain()
    future = scheduler.infer(request(IN=[[1]]))
    await asyncio.sleep(0.15)
    assert models.running == ["b"]
    future.cancel()
    await scheduler.drain()
    assert models.running == []
    assert future.cancelled()


async def test_unloading_refuses_new_requests_and_ends_running_ones() -> None:
    models, scheduler = chain()
    future = scheduler.infer(request(IN=[[1]]))
    await asyncio.sleep(0.15)
    await scheduler.aclose()
    assert models.running == []
    with pytest.raises(CapacityError, match="unloaded"):
        await future
    with pytest.raises(CapacityError):
        scheduler.infer(request(IN=[[1]]))


async def test_a_step_computes_no_more_requests_than_its_limit() -> None:
    models, scheduler = chain(limit=2)
    answers = await asyncio.gather(*(scheduler.infer(request(IN=[[i]])) for i in range(7)))
    assert [float(arrays(one)["OUT"][0, 0]) for one in answers] == [8 * i for i in range(7)]
    assert models.most_running == 2
    waiting = [scheduler.infer(request(parameters={"timeout": 50_000}, IN=[[i]])) for i in range(3)]
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, DeadlineError) and "step 0" in str(end) for end in ends)
    assert (await scheduler.infer(request(IN=[[1]])))[0].name == "OUT", "all room was given back"


async def test_a_request_counts_once_with_its_rows_and_its_time() -> None:
    statistics = ModelStatistics()
    models, scheduler = chain(statistics=statistics)
    running = scheduler.infer(request(IN=[[1], [2]]))
    await running
    models.seconds["b"] = 10
    with pytest.raises(InferenceError):
        await scheduler.infer(request(parameters={"timeout": 1_000_000}, IN=[[1]]))
    report = statistics.report("e", "1")
    assert (report["inference_count"], report["execution_count"]) == (2, 1)
    assert [one["batch_size"] for one in report["batch_stats"]] == [2]
    assert report["inference_stats"]["compute_infer"]["ns"] == pytest.approx(0.3e9)
    assert running.device_seconds == pytest.approx(0.3)  # type: ignore[attr-defined]


async def test_equal_requests_of_a_cached_ensemble_run_once() -> None:
    models = Models({name: model(name) for name in "abc"}, doubled)
    config = replace(
        model("e", "IN", "OUT"), ensemble=Ensemble(CHAIN), response_cache=ResponseCache(enable=True), backend="ensemble"
    )
    factory = EnsembleSchedulers(models.describe, ResponseStore(1 << 20))
    factory.calls = models
    scheduler = factory(config, ModelStatistics())
    first = await scheduler.infer(request(IN=[[1]]))
    again = await scheduler.infer(request(IN=[[1]]))
    assert bytes(first[0].data) == bytes(again[0].data)
    assert len(models.requests) == 3


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────


def streaming(count: int, *, after: bool = True, **seconds: float) -> tuple[Models, EnsembleScheduler]:
    """A step, a decoupled step with `count` responses, and optionally a step that doubles each."""

    def compute(name: str, inputs: Arrays) -> Arrays | list[Arrays]:
        if name == "b":
            return [{"Y": inputs["X"] + i} for i in range(count)]
        return doubled(name, inputs)

    configs = {"a": model("a"), "b": model("b", decoupled=True), "c": model("c")}
    models = Models(configs, compute, {"a": 0.1, "b": 0.01, "c": 0.05, **seconds})
    steps = CHAIN if after else (CHAIN[0], replace(CHAIN[1], outputs={"Y": "OUT"}))
    return models, scheduler_of(models, "IN", "OUT", *steps)


async def read(scheduler: EnsembleScheduler, number: int, values: list[float]) -> None:
    """Read all responses to a number."""
    async for outputs in scheduler.stream(request(IN=[[number]])):
        values.extend(arrays(outputs)["OUT"].ravel().tolist())


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("count", [0, 1, 10, 100])
async def test_each_response_passes_once_and_in_order(count: int, after: bool) -> None:
    models, scheduler = streaming(count, after=after)
    values = []
    async for outputs in scheduler.stream(request(IN=[[1]])):
        models.read += 1
        values.append(float(arrays(outputs)["OUT"][0, 0]))
    assert values == [(2 + i) * (2 if after else 1) for i in range(count)]
    await scheduler.drain()
    assert models.running == []
    with pytest.raises(CallerError, match="use a stream"):
        scheduler.infer(request(IN=[[1]]))


async def test_responses_pass_the_steps_behind_at_the_same_time() -> None:
    models, scheduler = streaming(40)
    async for _ in scheduler.stream(request(IN=[[1]])):
        models.read += 1
    assert 2 <= models.most_running <= WINDOW
    assert asyncio.get_running_loop().time() < 40 * 0.05


async def test_a_slow_reader_stops_the_model() -> None:
    models, scheduler = streaming(1000)
    async for _ in scheduler.stream(request(IN=[[1]])):
        models.read += 1
        if models.read == 30:
            break
        await asyncio.sleep(1)
    assert models.most_sent_ahead <= MOST + WINDOW + 2


async def test_a_reader_that_leaves_ends_all_steps() -> None:
    models, scheduler = streaming(1000)
    responses = scheduler.stream(request(IN=[[1]]))
    await anext(responses)
    responses.cancel()
    await scheduler.drain()
    assert models.running == []


async def test_a_failure_behind_a_stream_ends_it_with_the_step_named() -> None:
    models, scheduler = streaming(100)
    plain = models.compute

    def compute(name: str, inputs: Arrays) -> Arrays | list[Arrays]:
        if name == "c" and inputs["X"][0, 0] == 7:
            raise BackendError("seven")
        return plain(name, inputs)

    models.compute = compute
    values: list[float] = []
    with pytest.raises(BackendError, match=r"in ensemble 'e', step 2 \(`c`\): seven"):
        await read(scheduler, 1, values)
    assert values == [4, 6, 8, 10, 12]
    await scheduler.drain()
    assert models.running == []


@pytest.mark.parametrize("after", [True, False])
async def test_the_responses_before_a_failure_of_the_source_are_delivered(after: bool) -> None:
    models, scheduler = streaming(5, after=after, c=3.0)
    plain = models.compute

    def compute(name: str, inputs: Arrays) -> Arrays | list[Arrays]:
        outputs = plain(name, inputs)
        return [*outputs, {}] if isinstance(outputs, list) else outputs

    models.compute = compute
    values: list[float] = []
    with pytest.raises(BackendError, match=r"in ensemble 'e', step 1 \(`b`\): no more"):
        await read(scheduler, 1, values)
    assert len(values) == 5
    assert models.running == []


async def test_decoupled_models_behind_decoupled_models_keep_the_order() -> None:
    def compute(name: str, inputs: Arrays) -> Arrays | list[Arrays]:
        return [{"Y": inputs["X"] * 10 + i} for i in range(int(inputs["X"][0, 0]) % 4)] if name != "b" else dict(inputs)

    configs = {"a": model("a", decoupled=True), "b": model("b", outputs="X"), "c": model("c", decoupled=True)}
    steps = (
        EnsembleStep("a", {"X": "IN"}, {"Y": "one"}),
        EnsembleStep("b", {"X": "one"}, {"X": "two"}),
        EnsembleStep("c", {"X": "two"}, {"Y": "OUT"}),
    )
    models = Models(configs, compute, {"a": 0.01, "b": 0.2, "c": 0.03})
    scheduler = scheduler_of(models, "IN", "OUT", *steps)
    values: list[float] = []
    await read(scheduler, 3, values)
    # 3 gives 30, 31 and 32; these give 2, 3 and 0 responses.
    assert values == [300, 301, 310, 311, 312]
    assert models.running == []
