"""Models written for Triton in real processes: batches, senders, cancellation, calls and what goes wrong with them."""

import asyncio
import contextlib
import os
import signal
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.errors import BackendError, CapacityError, DeadlineError, InferenceError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    ResponseCache,
    SequenceBatching,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.instances import placement
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.interfaces import RequestInstance
from runtimes.tensor.models.served_model import Computed, ModelScheduler
from runtimes.tensor.models.warmup import warm_up
from runtimes.tensor.requests.scheduler import RequestScheduler
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling.cached import ResponseStore
from runtimes.tensor.sequences.sequencer import Sequencer
from tests.runtimes.tensor.instances.support import one_to_one, write

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
HEAD = """
import os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def value(request):
    return pb_utils.get_input_tensor_by_name(request, "x").as_numpy()

def response(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.asarray(array, np.float32))])

class TritonPythonModel:
"""


class Server:
    """The only model of a server, which its own process can call."""

    def __init__(self) -> None:
        self.services = ModelServices()
        self.services.bind(self, None)  # type: ignore[arg-type]
        self.scheduler: ModelScheduler
        self.instances: list[Any] = []
        self.config = ModelConfig("model")

    async def infer(self, inference: Inference, deadline: float) -> Computed:
        outputs = await self.scheduler.infer(inference, deadline)
        return Computed("model", "1", outputs=outputs)

    async def stream(self, inference: Inference, deadline: float) -> AsyncIterator[Computed]:
        responses = self.scheduler.stream(inference, deadline)
        try:
            async for outputs in responses:
                yield Computed("model", "1", outputs=outputs, final=getattr(outputs, "final", False))
        finally:
            responses.cancel()


@contextlib.asynccontextmanager
async def serving(folder: Path, body: str, *, copies: int = 1, **more: Any) -> AsyncIterator[Server]:
    write(folder / "1", HEAD + textwrap.indent(textwrap.dedent(body), "    "))
    config = replace(one_to_one("process", **more), instance_groups=(InstanceGroup(count=copies),))
    server = Server()
    server.config = config
    server.instances = list(await placement.start(config, folder / "1", server.services))
    assert all(isinstance(instance, RequestInstance) for instance in server.instances)
    server.scheduler = make_scheduler(config, server.instances)
    assert isinstance(server.scheduler, Sequencer if config.sequence_batching else RequestScheduler)
    try:
        for instance in server.instances:
            await warm_up(config, instance, folder)
        yield server
    finally:
        await server.scheduler.aclose()
        for instance in server.instances:
            await instance.aclose()


def request(*values: float, **parameters: Any) -> Inference:
    array = np.array([values], np.float32)
    return Inference("model", parameters=parameters, inputs=[Tensor("x", "FP32", array.shape, array.tobytes())])


def numbers(outputs: list[Tensor]) -> list[float]:
    return [float(number) for number in np.frombuffer(outputs[0].data, np.float32)]


async def test_a_batch_is_a_list_in_order_and_each_request_fails_alone(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        out = []
        for request in requests:
            array = value(request)
            if array[0, 0] < 0:
                out.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("negative", 3)))
            else:
                out.append(response([[array[0, 0], len(requests)]]))
        return out
    """
    async with serving(tmp_path, body, dynamic_batching=DynamicBatching()) as server:
        futures = [server.scheduler.infer(request(n, 0)) for n in (1, -2, 3, 4)]
        results = await asyncio.gather(*futures, return_exceptions=True)
    assert [numbers(r) for r in results if isinstance(r, list)] == [[1, 4], [3, 4], [4, 4]]
    assert isinstance(results[1], InferenceError)
    assert (results[1].message, results[1].kind) == ("negative", "caller")


async def test_texts_that_are_no_unicode_end_neither_a_request_nor_the_copy(tmp_path: Path) -> None:
    """An error, a parameter and an exception with a file's name; each client has an answer."""
    body = """
    def execute(self, requests):
        kind, name = value(requests[0])[0, 0], "caf\\udce9.txt"
        if kind == 1:
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError(name))]
        if kind == 2:
            return [pb_utils.InferenceResponse([pb_utils.Tensor("y", value(requests[0]))], parameters={"p": name})]
        if kind == 3:
            raise ValueError(name)
        return [response([[os.getpid(), 0]])]
    """
    async with serving(tmp_path, body) as server:
        (pid, _) = numbers(await server.scheduler.infer(request(0, 0)))
        for kind in (1, 3):
            with pytest.raises(InferenceError, match=r"caf\?\.txt"):
                await server.scheduler.infer(request(kind, 0))
        assert numbers(await server.scheduler.infer(request(2, 0))) == [2, 0]
        assert numbers(await server.scheduler.infer(request(0, 0))) == [pid, 0]


async def test_a_warm_up_reaches_the_model(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += 1
        return [response([[self.count, 0]]) for _ in requests]
    """
    warmup = Warmup("first", 1, 3, inputs=(WarmupInput("x", "FP32", (2,)),))
    async with serving(tmp_path, body, warmup=(warmup,)) as server:
        assert numbers(await server.scheduler.infer(request(0, 0))) == [4, 0]


async def test_a_request_that_is_dropped_ends(tmp_path: Path) -> None:
    body = "def execute(self, requests):\n    return None"
    async with serving(tmp_path, body) as server:
        with pytest.raises(BackendError, match="sent no response"):
            await server.scheduler.infer(request(0, 0))
    async with serving(tmp_path, body, decoupled=True) as server:
        assert [outputs async for outputs in server.scheduler.stream(request(0, 0))] == []
        await server.scheduler.drain()


SENDER = """
def execute(self, requests):
    for request in requests:
        threading.Thread(target=self.answer, args=(request.get_response_sender(), value(request))).start()

def answer(self, sender, array):
    sent = 0
    for i in range(int(array[0, 0])):
        if sender.is_cancelled():
            break
        sender.send(response([[i, array[0, 1]]]))
        sent += 1
        with open(os.path.join(pb_utils.get_model_dir(), "sent"), "w") as file:
            file.write(str(sent))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with open(os.path.join(pb_utils.get_model_dir(), "ended"), "a") as file:
        file.write("x")
"""


async def test_senders_outlive_execute_and_streams_run_beside_each_other(tmp_path: Path) -> None:
    async with serving(tmp_path, SENDER, decoupled=True) as server:
        streams = [server.scheduler.stream(request(5, n)) for n in range(8)]
        for n, responses in reversed(list(enumerate(streams))):  # the last one first: none waits for another
            assert [numbers(outputs) async for outputs in responses] == [[i, n] for i in range(5)]
        await server.scheduler.drain()


async def test_a_reader_that_stops_makes_the_model_wait(tmp_path: Path) -> None:
    async with serving(tmp_path, SENDER, decoupled=True) as server:
        responses = server.scheduler.stream(request(200, 0))
        sent = tmp_path / "1/sent"
        while not sent.exists() or not sent.read_text() or int(sent.read_text()) < 8:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert int(sent.read_text()) < 30
        assert len([outputs async for outputs in responses]) == 200


async def test_a_client_that_leaves_is_reported_to_the_model(tmp_path: Path) -> None:
    async with serving(tmp_path, SENDER, decoupled=True) as server:
        responses = server.scheduler.stream(request(1e6, 0))
        async for _ in responses:
            break
        responses.cancel()
        await asyncio.wait_for(server.scheduler.drain(), 300)
        while not (tmp_path / "1/ended").exists():
            await asyncio.sleep(0.01)


CALLS = """
def execute(self, requests):
    out = []
    for request in requests:
        array = value(request)
        if array[0, 0] <= 0:
            out.append(response(array))
            continue
        inner = pb_utils.InferenceRequest(model_name="model", requested_output_names=["y"],
                                          inputs=[pb_utils.Tensor("x", array - np.float32([[1, 0]]))])
        answer = inner.exec()
        if answer.has_error():
            out.append(pb_utils.InferenceResponse(error=answer.error()))
        else:
            out.append(response(answer.output_tensors()[0].as_numpy() + np.float32([[0, 1]])))
    return out
"""


async def test_a_model_calls_itself_on_free_copies(tmp_path: Path) -> None:
    async with serving(tmp_path, CALLS, copies=3) as server:
        assert numbers(await server.scheduler.infer(request(2, 0))) == [0, 2]


@pytest.mark.parametrize("copies", [1, 2])
async def test_a_call_to_itself_without_a_free_copy_ends(tmp_path: Path, copies: int) -> None:
    async with serving(tmp_path, CALLS, copies=copies) as server:
        depth = copies  # each level takes a copy, and the last one has none
        with pytest.raises(CapacityError, match="every copy of it waits"):
            await server.scheduler.infer(request(depth, 0))
        assert numbers(await server.scheduler.infer(request(depth - 1, 0))) == [0, depth - 1]
        await asyncio.wait_for(server.scheduler.drain(), 300)


async def test_a_call_that_waits_too_long_ends_at_the_deadline_of_its_request(tmp_path: Path) -> None:
    body = CALLS.replace("if array[0, 0] <= 0:", "if array[0, 0] <= 0:\n            time.sleep(1)")
    async with serving(tmp_path, body, copies=2) as server:
        loop = asyncio.get_running_loop()
        with pytest.raises(DeadlineError):
            await server.scheduler.infer(request(1, 0), loop.time() + 0.3)
        await asyncio.wait_for(server.scheduler.drain(), 300)


async def test_a_process_that_dies_fails_every_open_request(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.senders = []

    def execute(self, requests):
        for request in requests:
            if value(request)[0, 0] < 0:
                os.kill(os.getpid(), 9)
            self.senders.append(request.get_response_sender())
    """
    async with serving(tmp_path, body, decoupled=True) as server:
        streams = [server.scheduler.stream(request(n, 0)) for n in (1, 2, -1)]
        for responses in streams:
            with pytest.raises(CapacityError):
                await anext(responses)
        assert server.scheduler.computing == 0
        await asyncio.wait_for(server.scheduler.drain(), 300)


async def test_a_fork_of_a_model_cannot_reach_the_server(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        read, write = os.pipe()
        if not os.fork():
            try:
                pb_utils.Logger.log_info("hello")
            except pb_utils.TritonModelException:
                os.write(write, b"x")
            os._exit(0)
        os.wait()
        os.close(write)
        return [response([[len(os.read(read, 1)), 0]]) for _ in requests]
    """
    async with serving(tmp_path, body) as server:
        assert numbers(await server.scheduler.infer(request(0, 0))) == [1, 0]


async def test_a_killed_copy_is_replaced(tmp_path: Path) -> None:
    body = "def execute(self, requests):\n    return [response([[os.getpid(), 0]]) for _ in requests]"
    async with serving(tmp_path, body) as server:
        await server.scheduler.infer(request(0, 0))
        os.kill(server.instances[0].report.pid, signal.SIGKILL)
        while not server.instances[0].restarts:
            await asyncio.sleep(0.01)
        assert len(await server.scheduler.infer(request(0, 0), inf)) == 1


SUMS = """
def initialize(self, args):
    self.sums = {}

def execute(self, requests):
    out = []
    for request in requests:
        name, flags = request.correlation_id(), request.flags()
        if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[name] = 0
        self.sums[name] += value(request)[0, 0]
        out.append(response([[self.sums[name], len(requests)]]))
    return out
"""


async def test_sequences_have_flags_and_ids_and_share_executions(tmp_path: Path) -> None:
    async with serving(tmp_path, SUMS, sequence_batching=SequenceBatching("oldest")) as server:
        turns = [(1, 1, "s"), (2, 10, "s"), (1, 2, ""), (2, 20, "e"), (1, 100, "s"), (1, 200, "e")]
        futures = [
            server.scheduler.infer(
                request(value, 0, sequence_id=name, sequence_start="s" in flags, sequence_end="e" in flags)
            )
            for name, value, flags in turns
        ]
        results = [numbers(await future) for future in futures]
        await asyncio.wait_for(server.scheduler.drain(), 300)
    assert [sum for sum, _ in results] == [1, 10, 3, 30, 100, 300]
    assert max(count for _, count in results) == 2


ITERATIVE = """
def initialize(self, args):
    self.left = {}

def execute(self, requests):
    out = []
    for request in requests:
        name = request.correlation_id()
        if request.flags() == pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.left[name] = [value(request)[0, 0], 0]
        self.left[name][0] -= 1
        self.left[name][1] = max(self.left[name][1], len(requests))
        if self.left[name][0] < 0:
            raise ValueError("negative")
        if self.left[name][0] > 0:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            out.append(None)
        else:
            out.append(response([self.left.pop(name)]))
    return out
"""


async def test_an_iterative_sequence_is_executed_until_it_is_released(tmp_path: Path) -> None:
    rules = SequenceBatching("oldest", iterative_sequence=True)
    async with serving(tmp_path, ITERATIVE, sequence_batching=rules) as server:
        futures = [server.scheduler.infer(request(n, 0)) for n in (1, 5, 3)]
        assert [numbers(await future)[0] for future in futures] == [0, 0, 0]
        assert max(numbers(future.result())[1] for future in futures) > 1, "iterations of requests share executions"
        with pytest.raises(BackendError, match="negative"):
            await server.scheduler.infer(request(0, 0))
        gone = server.scheduler.infer(request(1e9, 0))
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.wait_for(server.scheduler.drain(), 300)
        assert not server.instances[0]._requests, "a request that was withdrawn is still open"


async def test_a_rescheduled_request_of_a_model_without_iterations_fails(tmp_path: Path) -> None:
    async with serving(tmp_path, ITERATIVE) as server:
        with pytest.raises(BackendError):
            await server.scheduler.infer(request(3, 0, sequence_id=1, sequence_start=True))
        await asyncio.wait_for(server.scheduler.drain(), 300)


async def test_an_iterative_stream_and_a_copy_that_dies_within_it(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            self.left = getattr(self, "left", value(request)[0, 0]) - 1
            if self.left == 7:
                os.kill(os.getpid(), 9)
            if self.left > 0:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                sender.send(response([[self.left, 0]]))
            else:
                del self.left
                sender.send(response([[0, 0]]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    rules = SequenceBatching(iterative_sequence=True)
    async with serving(tmp_path, body, decoupled=True, sequence_batching=rules) as server:
        for count in (3, 1, 2):
            answers = [numbers(outputs)[0] async for outputs in server.scheduler.stream(request(count, 0))]
            assert answers == list(reversed(range(count)))
        with pytest.raises(CapacityError):
            _ = [outputs async for outputs in server.scheduler.stream(request(9, 0))]
        await asyncio.wait_for(server.scheduler.drain(), 300)


async def test_responses_are_stored_and_identical_requests_computed_once(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += len(requests)
        return [response([[value(request)[0, 0], self.count]]) for request in requests]
    """
    async with serving(tmp_path, body, response_cache=ResponseCache(enable=True)) as server:
        scheduler = make_scheduler(server.config, server.instances, store=ResponseStore(1 << 20))
        results = [numbers(await scheduler.infer(request(n, 0))) for n in (1, 2, 1, 2, 3)]
        await scheduler.aclose()
    assert results == [[1, 1], [2, 2], [1, 1], [2, 2], [3, 3]]


async def test_parameters_and_ids_of_any_length_reach_the_model(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        return [response([[len(request.parameters()), len(request.request_id())]]) for request in requests]
    """
    async with serving(tmp_path, body) as server:
        long = request(0, 0, text="x" * 200_000)
        long.id = "y" * 100_000
        assert numbers(await server.scheduler.infer(long)) == [200_000 + len('{"text": ""}'), 100_000]


async def test_a_process_that_dies_ends_its_calls(tmp_path: Path) -> None:
    body = CALLS.replace("if array[0, 0] <= 0:", "if array[0, 0] <= 0:\n            time.sleep(30)")
    async with serving(tmp_path, body, copies=2, execution_timeout=25) as server:
        outer = server.scheduler.infer(request(1, 0))
        while server.scheduler.computing < 2:
            await asyncio.sleep(0.01)
        [caller] = [copy for copy in server.instances if outer in [r for r, _ in copy._requests.values()]]
        os.kill(caller.report.pid, signal.SIGKILL)
        with pytest.raises(CapacityError):
            await outer
        [callee] = [copy for copy in server.instances if copy is not caller]
        [(inner, _)] = callee._requests.values()
        assert inner.cancelled(), "the call of a dead process still computes for it"
        assert not server.services.blocked._waits_for
        os.kill(callee.report.pid, signal.SIGKILL)  # it sleeps


async def test_an_iterator_that_is_dropped_cancels_its_call(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request.get_response_sender(), value(request))).start()

    def answer(self, sender, array):
        if array[0, 0] == 0:  # the outer request reads three responses of the inner one
            inner = pb_utils.InferenceRequest(model_name="model", requested_output_names=["y"],
                                              inputs=[pb_utils.Tensor("x", np.float32([[1, 0]]))])
            answers = inner.exec(decoupled=True)
            numbers = [next(answers).output_tensors()[0].as_numpy()[0, 0] for _ in range(3)]
            del answers
            sender.send(response([[sum(numbers), 0]]))
        else:
            count = 0
            while not sender.is_cancelled():
                sender.send(response([[count, 0]]))
                count += 1
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    async with serving(tmp_path, body, decoupled=True) as server:
        answers = [numbers(outputs) async for outputs in server.scheduler.stream(request(0, 0))]
        assert answers == [[0 + 1 + 2, 0]]
        await asyncio.wait_for(server.scheduler.drain(), 300)
