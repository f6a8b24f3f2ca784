"""Ensembles with processes of their own, beside the same ensembles step by step: real models in real processes."""

import asyncio
import contextlib
import json
import os
import random
import signal
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from adapters.errors import BackendError, CallerError, CapacityError, DeadlineError, InferenceError
from adapters.spans import SpanLog, TraceContext
from adapters.tensors import Inference, RequestedOutput, Tensor, join_bytes, split_bytes
from runtimes import spans
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.ensembles.processes.placement import ProcessScheduler
from runtimes.tensor.ensembles.scheduler import EnsembleScheduler
from runtimes.tensor.models.served_model import Computed
from tests.runtimes.tensor.backends.onnx_models import identity
from tests.support.conditions import until
from tests.support.process_ensembles import DOUBLE, PATIENCE, PLAIN, UTILS, Server, floats, request, rows, serving
from tests.support.random_ensembles import random_ensemble

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


ADD_ONE = "def execute(self, requests):\n    return [response(value(one) + 1) for one in requests]"


# ── outcomes ──────────────────────────────────────────────────────────────────────────────────────────


async def test_members_of_all_kinds_share_a_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("one_more", ADD_ONE, UTILS)
        identity(tmp_path / "same" / "1", TensorProto.FLOAT, ("batch", 2))
        server.add_ensemble("fused", ["double", "same", "one_more", "double"])
        server.add_ensemble("steps", ["double", "same", "one_more", "double"], processes=0)
        (tmp_path / "same" / "model.yaml").write_text("backend: onnx\nmax_batch_size: 8\n")
        await server.load("fused", "steps")
        assert isinstance(server.scheduler("fused"), ProcessScheduler)
        assert isinstance(server.scheduler("steps"), EnsembleScheduler)
        batch = [[1, 2], [3, 4], [-5, 0.5]]
        assert (await server.infer("fused", batch)).tolist() == ((np.array(batch) * 2 + 1) * 2).tolist()
        before = [server.counts(name) for name in ("double", "same", "one_more")]
        assert before == [(6, 2, 2, 0), (3, 1, 1, 0), (3, 1, 1, 0)]
        assert (await server.infer("steps", batch)).tolist() == (await server.infer("fused", batch)).tolist()


ANY = """
def infer(self, inputs):
    whole = sum((number + 1) * array for number, (_, array) in enumerate(sorted(inputs.items())))
    inputs["I0"][:] = -1  # a model may write to its inputs
    if not hasattr(self, "made"):
        self.made = {}
    outputs = {}
    for number, name in enumerate(NAMES):  # and use the memory of its outputs again
        made = self.made.setdefault((name, len(whole)), np.empty_like(whole))
        made[:] = np.sin(whole + number)
        outputs[name] = made
    return outputs
"""
ANY_OF_TRITON = """
def execute(self, requests):
    responses = []
    for request in requests:
        arrays = [tensor.as_numpy() for tensor in sorted(request.inputs(), key=lambda one: one.name())]
        whole = sum((number + 1) * array for number, array in enumerate(arrays))
        arrays[0][:] = -1
        made = [pb_utils.Tensor(name, np.sin(whole + number)) for number, name in enumerate(NAMES)]
        responses.append(pb_utils.InferenceResponse(made))
    return responses
"""


@pytest.mark.parametrize("seed", range(4))
async def test_any_graph_computes_the_same_in_one_process(tmp_path: Path, seed: int) -> None:
    """Random graphs of models that write to their inputs and use their outputs' memory again."""
    rng = random.Random(seed)
    config = random_ensemble(rng)
    async with serving(tmp_path) as server:
        add_members(server, config, rng)
        for name, processes in (("fused", 1), ("steps", 0)):
            write_ensemble(tmp_path, name, config, processes)
        await server.load("fused", "steps")
        for _ in range(12):
            batch = [a_request(config, rng) for _ in range(rng.randint(1, 6))]
            answers = []
            for name in ("fused", "steps"):
                computed = await asyncio.gather(
                    *(server.service.infer(Inference(name, inputs=one.inputs, outputs=one.outputs)) for one in batch)
                )
                answers.append([plain(one) for one in computed])
            assert answers[0] == answers[1]
        members = {step.model for step in config.ensemble.steps} if config.ensemble else set()
        for member in members:
            inferences, _, successes, failures = server.counts(member)
            assert inferences % 2 == successes % 2 == failures == 0, "both ways count the same requests"


def add_members(server: Server, config: ModelConfig, rng: random.Random) -> None:
    assert config.ensemble is not None
    for step in config.ensemble.steps:
        is_triton = rng.random() < 0.5
        names = f"NAMES = {sorted(step.outputs)!r}\n"
        tensors = [
            f"{field}: [{', '.join(f'{{name: {name}, datatype: FP32, dims: [2]}}' for name in sorted(mapped))}]"
            for field, mapped in (("inputs", step.inputs), ("outputs", step.outputs))
        ]
        batching = "dynamic_batching: true\n" if rng.random() < 0.7 else ""
        text = "\n".join(["backend: python", "max_batch_size: 8", *tensors, batching])
        server.add(step.model, ANY_OF_TRITON if is_triton else ANY, names + (UTILS if is_triton else PLAIN), text)


def write_ensemble(folder: Path, name: str, config: ModelConfig, processes: int) -> None:
    assert config.ensemble is not None
    lines = [f"max_batch_size: 8\nprocesses: {processes}"]
    for field, specs in (("inputs", config.inputs), ("outputs", config.outputs)):
        lines.append(f"{field}: [{', '.join(f'{{name: {one.name}, datatype: FP32, dims: [2]}}' for one in specs)}]")
    lines.append("ensemble:\n  steps:")
    for step in config.ensemble.steps:
        mapped = [
            f"{field}: {{{', '.join(f'{name}: {tensor}' for name, tensor in names.items())}}}"
            for field, names in (("inputs", step.inputs), ("outputs", step.outputs))
        ]
        lines.append(f"    - {{model: {step.model}, {', '.join(mapped)}}}")
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "model.yaml").write_text("\n".join(lines))


def a_request(config: ModelConfig, rng: random.Random) -> Inference:
    count = rng.choice([1, 1, 1, 2, 3, 8])
    array = np.random.default_rng(rng.getrandbits(32)).normal(size=(count, 2)).astype(np.float32)
    inputs = [Tensor(spec.name, "FP32", array.shape, (array + at).tobytes()) for at, spec in enumerate(config.inputs)]
    names = [spec.name for spec in config.outputs]
    chosen = rng.sample(names, rng.randint(0, len(names)))
    return Inference("", inputs=inputs, outputs=[RequestedOutput(name) for name in chosen])


def plain(computed: Computed) -> list[tuple[str, tuple[int, ...], bytes]]:
    return [(one.name, one.shape, bytes(one.data)) for one in computed.outputs]


async def test_requests_of_one_turn_take_each_step_together(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("one_more", ADD_ONE, UTILS)
        server.add_ensemble("fused", ["double", "one_more"])
        await server.load("fused")
        answers = await asyncio.gather(*(server.infer("fused", [at, -at]) for at in range(8)))
        assert [answer.tolist() for answer in answers] == [[[2 * at + 1, 1 - 2 * at]] for at in range(8)]
        assert server.counts("fused") == (8, 1, 8, 0)
        assert server.counts("double") == (8, 1, 8, 0)
        assert server.counts("one_more") == (8, 1, 8, 0)


async def test_a_model_without_batching_gets_requests_one_by_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("count", "def infer(self, inputs):\n    return {'y': inputs['x'] * len(inputs['x'])}", config=rows())
        server.add_ensemble("fused", ["double", "count"])
        await server.load("fused")
        answers = await asyncio.gather(*(server.infer("fused", [at, at]) for at in range(4)))
        assert [answer.tolist() for answer in answers] == [[[2 * at, 2 * at]] for at in range(4)]
        assert server.counts("double")[1] == 1
        assert server.counts("count")[1] == 4


async def test_more_rows_than_a_batch_run_step_by_step(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add_ensemble("fused", ["double", "double"])
        await server.load("fused")
        batch = np.arange(40, dtype=np.float32).reshape(20, 2)
        assert (await server.infer("fused", batch)).tolist() == (batch * 4).tolist()


async def test_texts_pass_unchanged(tmp_path: Path) -> None:
    config = rows("BYTES, dims: [-1]", more="dynamic_batching: true")
    async with serving(tmp_path) as server:
        server.add("same", "def infer(self, inputs):\n    return {'y': inputs['x']}", config=config)
        server.add(
            "as_is",
            "def execute(self, requests):\n"
            "    return [pb_utils.InferenceResponse([pb_utils.Tensor('y', value(one))]) for one in requests]",
            UTILS,
            config,
        )
        (tmp_path / "fused" / "1").mkdir(parents=True)
        (tmp_path / "fused" / "model.yaml").write_text(
            "max_batch_size: 4\nprocesses: 1\ninputs: [{name: a, datatype: BYTES, dims: [-1]}]\n"
            "outputs: [{name: c, datatype: BYTES, dims: [-1]}]\nensemble: {steps: ["
            "{model: same, inputs: {x: a}, outputs: {y: b}}, {model: as_is, inputs: {x: b}, outputs: {y: c}}]}\n"
        )
        await server.load("fused")
        texts = [b"", b"a", "bé".encode(), b"x" * 100_000]
        inference = Inference("fused", inputs=[Tensor("a", "BYTES", (1, 4), join_bytes(texts))])
        (output,) = (await server.service.infer(inference)).outputs
        assert (output.shape, bytes(output.data)) == ((1, 4), join_bytes(texts))


# ── the interface of models ───────────────────────────────────────────────────────────────────────────


async def test_models_see_their_own_folder_name_and_request(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.names = args["model_name"], args["model_version"], os.path.basename(args["model_repository"])
        assert args["model_instance_name"].startswith(args["model_name"] + "_"), args

    def execute(self, requests):
        name = os.path.basename(os.path.dirname(pb_utils.get_model_dir()))
        assert self.names == (name, "1", name), (self.names, name)
        assert all(one.request_id() == "id-7" and '"own": 3' in one.parameters() for one in requests)
        return [response(value(one) + 1) for one in requests]
    """
    async with serving(tmp_path) as server:
        server.add("first", body, UTILS)
        server.add("second", body, UTILS)
        server.add_ensemble("fused", ["first", "second", "first"])
        await server.load("fused")
        inference = request("fused", [1, 1], own=3)
        inference.id = "id-7"
        assert floats((await server.service.infer(inference)).outputs[0]).tolist() == [[4, 4]]


async def test_responses_by_sender_and_by_a_thread(tmp_path: Path) -> None:
    by_thread = """
    def execute(self, requests):
        for one in requests:
            threading.Thread(target=self.send, args=(one.get_response_sender(), value(one))).start()
        return [None] * len(requests)

    def send(self, sender, array):
        time.sleep(0.01)
        sender.send(response(array * 3), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    async with serving(tmp_path) as server:
        server.add("thread", by_thread, UTILS)
        server.add("none", "def execute(self, requests):\n    return [None] * len(requests)", UTILS)
        server.add("late", f"async {ADD_ONE}".replace("+ 1", "+ 0"), UTILS)
        server.add_ensemble("fused", ["thread", "late", "thread"])
        server.add_ensemble("silent", ["thread", "none"])
        await server.load("fused", "silent")
        answers = await asyncio.gather(*(server.infer("fused", [at, 1]) for at in range(5)))
        assert [answer.tolist() for answer in answers] == [[[9 * at, 9]] for at in range(5)]
        with pytest.raises(BackendError, match=r"step 1 \(`none`\): the model has sent no response"):
            await server.infer("silent", [1, 1])


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_response_names_the_sequence_of_the_steps_behind_it(tmp_path: Path, processes: int) -> None:
    """As in Triton, the flags of the request do not stay beside an override. Each step returns its id and flags."""
    choose = """
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", np.float32([[one.correlation_id(), one.flags()]]))],
                parameters={"sequence_id": 7, "sequence_end": True} if one.correlation_id() == 3 else {},
            )
            for one in requests
        ]
    """
    async with serving(tmp_path) as server:
        server.add("choose", choose, UTILS)
        server.add("see", choose.replace("== 3", "is None"), UTILS)
        server.add_ensemble("ensemble", ["choose", "see", "see"], processes)
        server.add_ensemble("first", ["choose"], processes)
        await server.load("ensemble", "first")
        place = {"sequence_id": 3, "sequence_start": True}
        assert (await server.infer("first", [0, 0], **place)).tolist() == [[3, 1]]
        assert (await server.infer("ensemble", [0, 0], **place)).tolist() == [[7, 2]]
        assert (await server.infer("ensemble", [0, 0], sequence_id=5)).tolist() == [[5, 0]]


SEQUENCES = """
def execute(self, requests):
    for one in requests:
        sender = one.get_response_sender()
        for named in {named!r}:
            made = pb_utils.Tensor("y", np.float32([[0, 0]]))
            sender.send(pb_utils.InferenceResponse([made], parameters=named))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
SEES = """
def execute(self, requests):
    return [response([[one.correlation_id(), one.flags()]]) for one in requests]
"""
NAMED: tuple[tuple[dict[str, Any], list[int]], ...] = (
    ({}, [3, 1]),
    ({"sequence_id": 7}, [7, 0]),
    ({"sequence_end": True}, [3, 2]),
    ({"sequence_id": 9, "sequence_start": True, "sequence_end": True}, [9, 3]),
    ({"sequence_start": False}, [3, 0]),
    ({"other": 1}, [3, 1]),
)
"""Parameters of responses, and the id and flags that the next step then has for a request with 3 and `start`."""


async def test_each_response_of_a_decoupled_model_names_its_own_sequence(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        decoupled = rows(more="decoupled: true")
        server.add("many", SEQUENCES.format(named=[named for named, _ in NAMED] * 3), UTILS, decoupled)
        server.add("same", "def infer(self, inputs):\n    return {'y': inputs['x']}")
        server.add("see", SEES, UTILS)
        server.add("wrong", SEQUENCES.format(named=[{}, {"sequence_id": True}]), UTILS, decoupled)
        for name, steps in (("near", ["many", "see"]), ("far", ["many", "same", "see"]), ("bad", ["wrong", "see"])):
            server.add_ensemble(name, steps, processes=0)
        await server.load("near", "far", "bad")
        place = {"sequence_id": 3, "sequence_start": True}
        for name in ("near", "far"):
            stream = server.service.stream(request(name, [0, 0], **place))
            seen = [floats(one.outputs[0]).tolist() async for one in stream]
            assert seen == [[expected] for _, expected in NAMED] * 3
        stream = server.service.stream(request("bad", [0, 0], **place))
        assert floats((await anext(stream)).outputs[0]).tolist() == [[3, 1]], "it precedes the mistake"
        with pytest.raises(BackendError, match=r"step 0 \(`wrong`\): the response parameter `sequence_id` is of"):
            await anext(stream)


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("named", [{"sequence_id": 1.5}, {"sequence_id": True}, {"sequence_end": "yes"}])
async def test_a_sequence_of_another_type_fails_the_step(tmp_path: Path, processes: int, named: Any) -> None:
    body = f"""
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", value(one))], parameters={named!r}) for one in requests
        ]
    """
    async with serving(tmp_path) as server:
        server.add("wrong", body, UTILS)
        server.add("see", SEES, UTILS)
        server.add_ensemble("ensemble", ["wrong", "see"], processes)
        await server.load("ensemble")
        with pytest.raises(BackendError, match=r"step 0 \(`wrong`\): the response parameter `sequence_"):
            await server.infer("ensemble", [0, 0])


async def test_a_member_calls_another_model(tmp_path: Path) -> None:
    call = """
    def execute(self, requests):
        made = []
        for one in requests:
            ask = pb_utils.InferenceRequest(model_name="double", requested_output_names=["y"],
                                            inputs=[pb_utils.Tensor("x", value(one))])
            answer = ask.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            made.append(response(pb_utils.get_output_tensor_by_name(answer, "y").as_numpy()))
        return made
    """
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("caller", call, UTILS)
        server.add_ensemble("fused", ["caller", "double", "caller"])
        await server.load("fused")
        assert (await server.infer("fused", [1, 2])).tolist() == [[8, 16]]


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("interface", ["plain", "triton"])
async def test_only_the_request_that_a_step_fails_fails(tmp_path: Path, interface: str) -> None:
    plain_body = """
    def infer(self, inputs):
        if (inputs["x"] < 0).any():
            raise ValueError("no root")
        return {"y": inputs["x"] ** 0.5}
    """
    triton_body = """
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(error=pb_utils.TritonError("ValueError: no root"))
            if (value(one) < 0).any() else response(value(one) ** 0.5) for one in requests
        ]
    """
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        body, head = (plain_body, PLAIN) if interface == "plain" else (triton_body, UTILS)
        server.add("root", body, head)
        server.add_ensemble("fused", ["double", "root", "double"])
        server.add_ensemble("steps", ["double", "root", "double"], processes=0)
        await server.load("fused", "steps")
        for name in ("fused", "steps"):
            tasks = [asyncio.ensure_future(server.infer(name, [at, at])) for at in (2, -2, 8, -8, 18)]
            await asyncio.wait(tasks)
            assert [task.result().tolist() for task in tasks[::2]] == [[[4, 4]], [[8, 8]], [[12, 12]]]
            for task in tasks[1::2]:
                error = task.exception()
                assert isinstance(error, BackendError)
                assert error.code == "model_failed"
                assert error.message == f"in ensemble '{name}', step 1 (`root`): ValueError: no root"
            assert server.counts(name)[2:] == (3, 2)
        assert server.counts("root")[2:] == (6, 4)
        assert server.counts("double")[0] == 16, "the third step ran for three requests of each five"


async def test_a_member_that_dies_is_named_and_replaced(tmp_path: Path) -> None:
    body = "def infer(self, inputs):\n    os._exit(3) if inputs['x'][0, 0] < 0 else None\n    return {'y': inputs['x']}"
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("fragile", body)
        server.add_ensemble("fused", ["double", "fragile", "double"])
        await server.load("fused")
        assert (await server.infer("fused", [1, 1])).tolist() == [[4, 4]]
        with pytest.raises(CapacityError, match=r"^in ensemble 'fused', step 1 \(`fragile`\): The copy of the model"):
            await server.infer("fused", [-1, 1])
        async with asyncio.timeout(PATIENCE):
            assert (await server.infer("fused", [2, 2])).tolist() == [[8, 8]]
        assert server.manager.table.leases["fused", ""].instances[0].restarts == 1
        assert server.manager.table.leases["fragile", ""].instances[0].restarts == 0, "it has a process of its own"


async def test_a_process_that_is_killed_between_requests_is_replaced(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add_ensemble("fused", ["double", "double"], processes=2)
        await server.load("fused")
        instances = server.manager.table.leases["fused", ""].instances
        assert len(instances) == 2
        for instance in instances:
            os.kill(instance.report.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(InferenceError):
                    answers = await asyncio.gather(*(server.infer("fused", [at, at]) for at in range(20)))
                    break
        assert [answer.tolist() for answer in answers] == [[[4 * at, 4 * at]] for at in range(20)]


@pytest.mark.parametrize("how", ["cancelled", "late", "timeout"])
async def test_steps_after_the_end_of_a_request_do_not_run(tmp_path: Path, how: str) -> None:
    begun, may_end = tmp_path / "begun", tmp_path / "may_end"
    wait = f"""
    def infer(self, inputs):
        if inputs["x"][0, 0] == 1:
            open({str(begun)!r}, "w").close()
            while not os.path.exists({str(may_end)!r}):
                time.sleep(0.01)
        return {{"y": inputs["x"]}}
    """
    (tmp_path / "models").mkdir()
    async with serving(tmp_path / "models") as server:
        server.add("wait", wait)
        server.add("double", DOUBLE)
        server.add_ensemble("fused", ["wait", "double", "double"])
        await server.load("fused")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.3 if how == "late" else inf
        parameters = {"timeout": 300_000} if how == "timeout" else {}
        task = asyncio.ensure_future(server.infer("fused", [1, 1], deadline, **parameters))
        await until(lambda: begun.exists())
        if how == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(DeadlineError, match=r"^in ensemble 'fused', step 0 \(`wait`\): The request's deadline"):
                await task
        may_end.touch()
        assert (await server.infer("fused", [3, 3])).tolist() == [[12, 12]]
        assert server.counts("wait")[0] == 2
        assert server.counts("double")[0] == 2, "only the second request took the steps behind the first"


async def test_a_client_mistake_stays_one_at_the_first_step_only(tmp_path: Path) -> None:
    """The second model has fixed dimensions, which the first one's output has not."""
    loose = rows("FP32, dims: [-1]")
    async with serving(tmp_path) as server:
        server.add("loose", "def infer(self, inputs):\n    return {'y': inputs['x']}", config=loose)
        server.add("double", DOUBLE)
        for name, processes in (("fused", 1), ("steps", 0)):
            for order, steps in (("own", ["double", "loose"]), ("between", ["loose", "double"])):
                server.add_ensemble(f"{name}_{order}", steps, processes)
                path = tmp_path / f"{name}_{order}" / "model.yaml"
                path.write_text(path.read_text().replace("dims: [2]", "dims: [-1]"))
        messages = []
        for name in ("fused", "steps"):
            await server.load(f"{name}_own", f"{name}_between")
            array = np.ones((1, 3), np.float32)
            for order, kind in (("own", CallerError), ("between", BackendError)):
                inference = Inference(f"{name}_{order}", inputs=[Tensor("t0", "FP32", (1, 3), array.tobytes())])
                with pytest.raises(kind) as caught:
                    await server.service.infer(inference)
                messages.append(str(caught.value).replace("steps_", "fused_"))
                if kind is CallerError:
                    assert caught.value.param == "t0"
        assert messages[:2] == messages[2:]


async def test_a_traced_request_runs_step_by_step(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("pid", "def infer(self, inputs):\n    return {'y': inputs['x'] * 0 + os.getpid() % 65536}")
        server.add_ensemble("fused", ["pid"])
        await server.load("fused")
        own = server.manager.table.leases["pid", ""].instances[0].report.pid % 65536
        assert (await server.infer("fused", [1, 1]))[0, 0] != own
        server.tracer.update({"trace_level": ["TIMESTAMPS"], "trace_rate": "1"})
        assert (await server.infer("fused", [1, 1]))[0, 0] == own
        await server.tracer.aclose()


def traces(folder: Path) -> list[dict[str, Any]]:
    """The heads of the written traces."""
    return [entry for entry in json.loads((folder / "traces.json").read_text()) if "model_name" in entry]


def parents(heads: list[dict[str, Any]]) -> set[tuple[int, str, int]]:
    """The number and model of each, and the number of its cause."""
    return {(one["id"], one["model_name"], one.get("parent_id", 0)) for one in heads}


async def test_traces_of_steps_name_the_trace_of_their_ensemble(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add_ensemble("inner", ["double"], processes=0)
        server.add_ensemble("outer", ["inner", "double"])
        file = tmp_path / "outer" / "model.yaml"
        text = file.read_text().replace("processes: 1", "processes: 0")
        file.write_text(
            text.replace("inner, inputs: {x: t0}, outputs: {y: t1}", "inner, inputs: {t0: t0}, outputs: {t1: t1}")
        )
        await server.load("outer")
        server.tracer.update({"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, "outer")
        await server.infer("outer", [1, 1])
        await server.infer("inner", [1, 1])
        await server.tracer.aclose()
        assert parents(traces(tmp_path)) == {(1, "outer", 0), (2, "inner", 1), (3, "double", 2), (4, "double", 1)}


CALLER = """
def execute(self, requests):
    return [response([[0, 0]]) for one in requests if not self.calls(one).has_error()]

def calls(self, one):
    x = [pb_utils.Tensor("x", value(one))]
    return pb_utils.InferenceRequest(model_name="double", requested_output_names=["y"], inputs=x{more}).exec()
"""
CALLERS = {
    "without its trace": "",
    "with its trace": ", trace=one.trace()",
    "with an id": ", trace=one.trace(), request_id='of ' + one.request_id()",
}


@pytest.mark.parametrize("more", CALLERS.values(), ids=CALLERS)
async def test_the_trace_of_a_call_names_the_trace_of_its_cause(tmp_path: Path, more: str) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("caller", CALLER.format(more=more), UTILS)
        server.add_ensemble("outer", ["caller", "double"], processes=0)
        await server.load("outer")
        server.tracer.update({"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}, "outer")
        inference = request("outer", [1, 1])
        inference.id = "id-7"
        await server.service.infer(inference)
        await server.tracer.aclose()
        heads = traces(tmp_path)
        assert parents(heads) == {(1, "outer", 0), (2, "caller", 1), (3, "double", 2), (4, "double", 1)}
        ids = {one["id"]: one.get("request_id", "") for one in heads}
        assert ids == {1: "id-7", 2: "id-7", 3: "of id-7" if "request_id" in more else "", 4: "id-7"}


async def test_the_trace_of_a_call_selects_its_request_in_a_batch(tmp_path: Path) -> None:
    """Two requests are executed at once: a call without a trace then belongs to neither."""
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        for name, more in (("named", CALLERS["with an id"]), ("unnamed", "")):
            server.add(name, CALLER.format(more=more), UTILS)
        await server.load("double", "named", "unnamed")
        logs = [SpanLog(TraceContext(bytes([at]) * 16, b"p" * 8, True, ""), 1.0, lambda: 2.0) for at in (1, 2)]

        async def call(name: str, log: SpanLog) -> None:
            array = np.ones((1, 2), np.float32)
            inference = Inference(name, id=f"{log.trace_id[0]}", inputs=[Tensor("x", "FP32", (1, 2), array.tobytes())])
            with spans.within(log.root):
                await server.service.infer(inference)

        for name in ("named", "unnamed"):
            await asyncio.gather(*(call(name, log) for log in logs))
        assert server.counts("named")[1] == server.counts("unnamed")[1] == 1, "both requests are one batch"
        for number, log in enumerate(logs, 1):
            names = {span.id: span.name for span in log.spans}
            calls = [span for span in log.spans if span.name == "infer double"]
            assert [names[span.parent] for span in calls] == ["infer named"]
            assert calls[0].attributes["headrace.inference_id"] == f"of {number}"


async def test_a_model_reads_the_context_of_its_span(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        return [response([[len(one.trace().get_context() or ""), 0]]) for one in requests]
    """
    returns = """
    def execute(self, requests):
        text = [(one.trace().get_context() or "") for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.array([[each]], object))]) for each in text]
    """
    config = rows(y="BYTES, dims: [1]")
    async with serving(tmp_path) as server:
        server.add("length", body, UTILS)
        server.add("context", returns, UTILS, config)
        await server.load("length", "context")
        x = Tensor("x", "FP32", (1, 2), bytes(8))
        untraced = await server.service.infer(Inference("length", inputs=[x]))
        assert floats(untraced.outputs[0])[0, 0] == 0
        log = SpanLog(TraceContext(b"t" * 16, b"p" * 8, True, "vendor=1"), 1.0, lambda: 2.0)
        with spans.within(log.root):
            traced = await server.service.infer(Inference("context", inputs=[x]))
        (own,) = [span for span in log.spans if span.name == "infer context"]
        context = json.loads(split_bytes(bytes(traced.outputs[0].data), 1, "y")[0])
        assert context == {"traceparent": f"00-{log.trace_id.hex()}-{own.id.hex()}-01", "tracestate": "vendor=1"}


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────


async def test_models_that_do_not_fit_one_process_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add(
            "many", "def infer(self, inputs):\n    yield {'y': inputs['x']}", config=rows(more="decoupled: true")
        )
        server.add("open", DOUBLE, config=rows(more="sequence_batching: {}"))
        server.add("bounded", DOUBLE, config=rows(more="parameters: {memory_limit: 4GB}"))
        server.add("broken", "def __init__(self):\n    raise OSError('no weights')\n" + DOUBLE)
        server.add_ensemble("inner", ["double"], processes=0)
        expected = {
            "many": "step 1 (`many`) sends any number of responses",
            "open": "step 1 (`open`) has sequences",
            "bounded": "step 1 (`bounded`) has the parameter `memory_limit`",
        }
        for name, message in expected.items():
            server.add_ensemble("fused", ["double", name])
            with pytest.raises(CallerError) as caught:
                await server.load("fused")
            assert message in str(caught.value)


async def test_modules_of_one_name_are_refused_and_other_modules_are_imported(tmp_path: Path) -> None:
    body = "def infer(self, inputs):\n    import {0}\n    return {{'y': {0}.changed(inputs['x'])}}"
    async with serving(tmp_path) as server:
        for name, module, change in (("a", "first", "* 3"), ("b", "second", "+ 4"), ("c", "first", "- 1")):
            server.add(name, body.format(module))
            (tmp_path / name / "1" / f"{module}.py").write_text(f"def changed(x):\n    return x {change}\n")
        server.add_ensemble("fused", ["a", "b"])
        server.add_ensemble("refused", ["a", "c"])
        await server.load("fused")
        assert (await server.infer("fused", [1, 2])).tolist() == [[7, 10]]
        with pytest.raises(CallerError, match="`a` and `c` both have a module `first`"):
            await server.load("refused")


async def test_the_ensemble_follows_its_models(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add_ensemble("fused", ["double", "double"])
        await server.load("fused")
        assert (await server.infer("fused", [1, 1])).tolist() == [[4, 4]]
        # Of another size: Python's cache of compiled modules compares size and whole seconds.
        server.add("double", DOUBLE.replace("2", "5.0"))
        await server.load("double")
        assert (await server.infer("fused", [1, 1])).tolist() == [[25, 25]]
        await server.manager.unload("double")
        with pytest.raises(InferenceError, match="not in service"):
            await server.infer("fused", [1, 1])


async def test_models_that_load_others_while_they_load_share_two_places(tmp_path: Path) -> None:
    """Three at once, each of which waits for a load of its own, with two places among all loads."""
    loading = """
    def initialize(self, args):
        pb_utils.load_model(args["model_name"] + "_part")
        assert pb_utils.is_model_ready(args["model_name"] + "_part")

    def execute(self, requests):
        return [response(value(one) + 1) for one in requests]
    """
    async with serving(tmp_path) as server:
        for name in ("a", "b", "c"):
            server.add(name, loading, UTILS)
            server.add(f"{name}_part", DOUBLE)
        await server.manager.look()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(server.load(name) for name in ("a", "b", "c")))
        assert all(server.manager.is_ready(name) for name in ("a", "b", "c", "a_part", "b_part", "c_part"))
