"""Our pipelines over the single models of a real Triton, beside that Triton's own ensembles of the same models.

The gateway stands before each listener of Triton and of our runtime, so each graph runs over HTTP and over gRPC.
"""

import os
import time
from collections.abc import Iterator, Sequence
from queue import Queue
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from loadtests.tensors.headrace import running_gateway
from loadtests.tensors.targets import Door, Target
from tests.servers.headrace import Headrace, headrace
from tests.servers.repositories import OF_ENSEMBLES, for_headrace, for_triton, with_ensembles
from tests.servers.triton import Triton, triton

pytestmark = pytest.mark.timeout(1800)
PATIENCE = 300.0

Arrays = dict[str, np.ndarray[Any, Any]]
Server = Triton | Headrace


def step(name: str, model: str, **inputs: str) -> dict[str, Any]:
    return {"name": name, "model": model, "in": inputs}


def slept(name: str, source: str) -> dict[str, Any]:
    return step(name, "slow", MILLISECONDS=source)


SLOW = [slept("first", "request.MS"), slept("second", "first.SLEPT"), slept("third", "second.SLEPT")]
SUM = step("sum", "add_sub", INPUT0="request.A", INPUT1="request.B")
PIPELINES: dict[str, Any] = {
    "p_chain": {
        "steps": [SUM, step("twice", "add_sub", INPUT0="sum.OUTPUT0", INPUT1="sum.OUTPUT1")],
        "out": {"TWICE_A": "twice.OUTPUT0", "TWICE_B": "twice.OUTPUT1"},
    },
    "p_diamond": {
        "steps": [
            SUM,
            step("left", "add_sub", INPUT0="sum.OUTPUT0", INPUT1="request.B"),
            step("right", "add_sub", INPUT0="sum.OUTPUT1", INPUT1="request.B"),
            step("joined", "add_sub", INPUT0="left.OUTPUT0", INPUT1="right.OUTPUT0"),
        ],
        "out": {"JOINED": "joined.OUTPUT0", "LEFT": "left.OUTPUT1", "RIGHT": "right.OUTPUT1"},
    },
    "p_failing_middle": {
        "steps": [
            step("minus", "negate", X="request.X"),
            step("root", "picky", X="minus.Y"),
            step("last", "negate", X="root.ROOT"),
        ],
        "out": {"Y": "last.Y"},
    },
    "p_branches": {
        "steps": [
            slept("sleep", "request.MS"),
            step("root", "picky", X="request.X"),
            step("fourth", "picky", X="root.ROOT"),
        ],
        "out": {"SLEPT": "sleep.SLEPT", "FOURTH": "fourth.ROOT"},
    },
    "p_slow_chain": {"steps": SLOW, "out": {"LAST": "third.SLEPT"}},
    "p_hurried": {"deadline": "1s", "steps": SLOW, "out": {"LAST": "third.SLEPT"}},
    "p_texts": {
        "steps": [step("one", "text", TEXT="request.TEXT"), step("two", "text", TEXT="one.SAME")],
        "out": {"SAME": "two.SAME"},
    },
    "p_sums_of_sums": {"steps": [step("sum", "accumulate", INPUT="request.INPUT")], "out": {"SUM": "sum.SUM"}},
    "p_repeat": {"steps": [{"name": "each", "model": "repeat"}]},
    "p_repeat_first": {
        "steps": [step("each", "repeat", IN="request.IN"), step("sum", "accumulate", INPUT="each.OUT")],
        "out": {"SUM": "sum.SUM"},
    },
    "p_repeat_with_inputs": {"steps": [step("each", "repeat", IN="request.IN")]},
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    with triton(with_ensembles(for_triton(tmp_path_factory.mktemp("triton"), OF_ENSEMBLES))) as server:
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace(for_headrace(tmp_path_factory.mktemp("headrace"), OF_ENSEMBLES)) as server:
        yield server


@pytest.fixture(scope="module", params=["triton", "headrace"])
def behind(request: pytest.FixtureRequest) -> Server:
    """The server of the single models."""
    server: Server = request.getfixturevalue("theirs" if request.param == "triton" else "ours")
    return server


@pytest.fixture(scope="module")
def gateway(behind: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("gateway")
    doors = {"http": Door(behind.ports.http, behind.pid), "grpc": Door(behind.ports.grpc, behind.pid)}
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    target = Target("singles", doors, folder)
    with running_gateway("gateway", target, cores, folder, OF_ENSEMBLES, PIPELINES) as running:
        yield running


def inputs(module: Any, arrays: Arrays) -> list[Any]:
    made = []
    for name, array in arrays.items():
        one = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        made.append(one)
    return made


def infer(
    address: str, wire: str, model: str, arrays: Arrays, names: Sequence[str], key: str = "", **options: Any
) -> list[tuple[bytes | list[bytes], tuple[int, ...]]]:
    """The outputs with their bytes and shapes. Raises `InferenceServerException`."""
    module: Any = grpc if wire == "grpc" else http
    headers = {"authorization": f"Bearer {key}"} if key else {}
    more = {} if wire == "grpc" else {"network_timeout": PATIENCE, "connection_timeout": PATIENCE}
    with module.InferenceServerClient(address, **more) as client:
        outputs = [module.InferRequestedOutput(name) for name in names]
        result = client.infer(model, inputs(module, arrays), outputs=outputs, headers=headers, **options)
        arrays_of = [result.as_numpy(name) for name in names]
        return [(each.ravel().tolist() if each.dtype == object else each.tobytes(), each.shape) for each in arrays_of]


def through(gateway: Target, wire: str, model: str, arrays: Arrays, *names: str, **options: Any) -> Any:
    address = f"127.0.0.1:{gateway.doors[wire].port}"
    return infer(address, wire, f"p_{model}", arrays, names, gateway.keys[wire], **options)


def direct(server: Triton, wire: str, model: str, arrays: Arrays, *names: str, **options: Any) -> Any:
    return infer(getattr(server, wire), wire, model, arrays, names, **options)


A = np.array([list(range(16)), [2**30] * 16], np.int32)
B = np.array([[3] * 16, [-(2**30)] * 16], np.int32)
WIRES = pytest.mark.parametrize("wire", ["http", "grpc"])


@WIRES
@pytest.mark.parametrize(
    ("model", "arrays", "names"),
    [
        ("chain", {"A": A, "B": B}, ["TWICE_A", "TWICE_B"]),
        ("diamond", {"A": A, "B": B}, ["JOINED", "LEFT", "RIGHT"]),
        ("diamond", {"A": A, "B": B}, ["RIGHT"]),
        ("diamond", {"A": A, "B": B}, ["LEFT", "JOINED"]),
        ("failing_middle", {"X": np.array([[-4.0], [-2.0]], np.float32)}, ["Y"]),
        ("branches", {"MS": np.array([[1]], np.int32), "X": np.array([[3.0]], np.float32)}, ["SLEPT", "FOURTH"]),
        ("slow_chain", {"MS": np.array([[1], [2]], np.int32)}, ["LAST"]),
        ("texts", {"TEXT": np.array([[b"a", "bé".encode(), b"", b"x" * 5000]], object)}, ["SAME"]),
    ],
)
def test_the_outputs_are_bit_equal(
    gateway: Target, theirs: Triton, wire: str, model: str, arrays: Arrays, names: list[str]
) -> None:
    assert through(gateway, wire, model, arrays, *names) == direct(theirs, wire, model, arrays, *names)


@WIRES
def test_a_sequence_passes_with_its_id(gateway: Target, theirs: Triton, behind: Server, wire: str) -> None:
    ids = {("http", "Triton"): 11, ("grpc", "Triton"): 13, ("http", "Headrace"): 15, ("grpc", "Headrace"): 17}
    first = ids[wire, type(behind).__name__]
    place = [(first, 1, 0), (first + 1, 1, 0), (first, 0, 0), (first + 1, 0, 1), (first, 0, 1)]
    sums: dict[str, list[Any]] = {"ours": [], "theirs": []}
    for number, (sequence, start, end) in enumerate(place):
        flags: dict[str, Any] = {"sequence_start": bool(start), "sequence_end": bool(end)}
        arrays = {"INPUT": np.array([[number + 1]], np.int32)}
        ours = through(gateway, wire, "sums_of_sums", arrays, "SUM", sequence_id=sequence, **flags)
        sums["ours"].append(ours)
        sums["theirs"].append(direct(theirs, wire, "sums_of_sums", arrays, "SUM", sequence_id=sequence + 100, **flags))
    assert sums["ours"] == sums["theirs"]
    assert [np.frombuffer(each[0][0], np.int32).tolist() for each in sums["ours"]] == [[1], [2], [4], [6], [9]]


@WIRES
def test_a_failing_step_is_named(gateway: Target, theirs: Triton, wire: str) -> None:
    four = {"X": np.array([[4.0]], np.float32)}
    with pytest.raises(InferenceServerException) as ours:
        through(gateway, wire, "failing_middle", four, "Y")
    assert "The step `root` failed" in ours.value.message()
    assert ours.value.status() in ("502", "StatusCode.INTERNAL")
    with pytest.raises(InferenceServerException):
        direct(theirs, wire, "failing_middle", four, "Y")


@WIRES
def test_three_steps_share_one_deadline(gateway: Target, theirs: Triton, wire: str) -> None:
    """Triton gives each step the whole timeout."""
    step = {"MS": np.array([[600]], np.int32)}
    with pytest.raises(InferenceServerException) as ours:
        through(gateway, wire, "hurried", step, "LAST")
    assert ours.value.status() in ("504", "StatusCode.DEADLINE_EXCEEDED")
    assert "`second`" in ours.value.message()
    assert direct(theirs, wire, "slow_chain", step, "LAST", timeout=1_000_000) == [(step["MS"].tobytes(), (1, 1))]


def executions(server: Server, model: str) -> int:
    with http.InferenceServerClient(server.http) as client:
        (entry,) = client.get_inference_statistics(model)["model_stats"]
        return int(entry["execution_count"])


def test_a_client_that_leaves_ends_the_steps(gateway: Target, behind: Server) -> None:
    """Neither the second nor the third step runs."""
    before = executions(behind, "slow")
    arrays = {"MS": np.array([[2000]], np.int32)}  # a busy gateway has that long to notice
    with pytest.raises(InferenceServerException, match=r"[Dd]eadline|DEADLINE"):
        through(gateway, "grpc", "slow_chain", arrays, "LAST", client_timeout=0.1)
    assert through(gateway, "grpc", "slow_chain", {"MS": np.array([[1]], np.int32)}, "LAST")
    end = time.monotonic() + 2.5
    while time.monotonic() < end:  # a second step would have run in this time
        assert executions(behind, "slow") - before <= 4
        time.sleep(0.1)


def stream(gateway: Target, model: str, numbers: Sequence[int], *, pause: float = 0.0) -> Iterator[int]:
    """The responses of a decoupled pipeline, of which the first is read after a pause."""
    results: Queue[tuple[Any, Any]] = Queue(maxsize=1)
    address = f"127.0.0.1:{gateway.doors['grpc'].port}"
    with grpc.InferenceServerClient(address) as client:
        headers = {"authorization": f"Bearer {gateway.keys['grpc']}"}
        client.start_stream(lambda result, error: results.put((result, error)), headers=headers)
        given = inputs(grpc, {"IN": np.array(numbers, np.int32)})
        client.async_stream_infer(model, given, enable_empty_final_response=True)
        time.sleep(pause)
        while True:
            result, error = results.get(timeout=PATIENCE)
            if error is not None:
                raise error
            if (array := result.as_numpy("OUT")) is not None:
                yield int(array.ravel()[0])
            if result.get_response().parameters["triton_final_response"].bool_param:
                return


@pytest.mark.parametrize("model", ["p_repeat", "p_repeat_with_inputs"])
@pytest.mark.parametrize("numbers", [[], [5], [3, 1, 2, 0, 4, 1, 2, 3, 1, 9]], ids=len)
def test_each_response_of_a_decoupled_last_step_comes_once(gateway: Target, model: str, numbers: list[int]) -> None:
    assert list(stream(gateway, model, numbers)) == numbers


@WIRES
def test_a_decoupled_step_before_others_is_an_error_of_the_pipeline(gateway: Target, wire: str) -> None:
    with pytest.raises(InferenceServerException) as refused:
        through(gateway, wire, "repeat_first", {"IN": np.array([2, 1], np.int32)}, "SUM")
    assert "The step `each` failed: the model `repeat` answers with any number of responses" in refused.value.message()
    assert refused.value.status() in ("502", "StatusCode.INTERNAL")


def test_many_responses_take_no_memory(gateway: Target) -> None:
    """The client reads none of the first responses for a while."""
    process = psutil.Process(gateway.doors["grpc"].pid)
    assert list(stream(gateway, "p_repeat", range(1000))) == list(range(1000))
    before = process.memory_info().rss
    assert sum(1 for _ in stream(gateway, "p_repeat", range(20_000), pause=1.0)) == 20_000
    assert process.memory_info().rss - before < 32 * 1024 * 1024


@WIRES
def test_a_failure_does_not_wait_for_a_slow_branch(gateway: Target, wire: str) -> None:
    """The last test: the server cannot end what the branch computes."""
    arrays = {"MS": np.array([[15_000]], np.int32), "X": np.array([[-1.0]], np.float32)}
    began = time.monotonic()
    with pytest.raises(InferenceServerException, match="The step `root` failed"):
        through(gateway, wire, "branches", arrays, "FOURTH", "SLEPT")
    assert time.monotonic() - began < 15
