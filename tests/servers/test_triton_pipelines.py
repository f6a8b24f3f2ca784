"""Our pipelines over the single models of a real Triton, beside that Triton's own ensembles of the same models.

The gateway stands before each listener of Triton and of our runtime, so each graph runs over HTTP and over gRPC.
"""

import time
from collections.abc import Iterator, Sequence
from queue import Queue
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import np_to_triton_dtype

from loadtests.tensors.targets import Target
from tests.servers.gateways import address, credential, in_front
from tests.servers.headrace import Headrace, headrace
from tests.servers.repositories import OF_ENSEMBLES, for_headrace, pipelines
from tests.servers.triton import Triton

PATIENCE = 300.0

Arrays = dict[str, np.ndarray[Any, Any]]
Server = Triton | Headrace


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
    with in_front(behind, tmp_path_factory.mktemp("gateway"), OF_ENSEMBLES, pipelines()) as running:
        yield running


def inputs(module: Any, arrays: Arrays) -> list[Any]:
    made = []
    for name, array in arrays.items():
        one = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        made.append(one)
    return made


def infer(
    address: str, wire: str, model: str, arrays: Arrays, names: Sequence[str], **options: Any
) -> list[tuple[bytes | list[bytes], tuple[int, ...]]]:
    """The outputs with their bytes and shapes."""
    module: Any = grpc if wire == "grpc" else http
    more = {} if wire == "grpc" else {"network_timeout": PATIENCE, "connection_timeout": PATIENCE}
    with module.InferenceServerClient(address, **more) as client:
        outputs = [module.InferRequestedOutput(name) for name in names]
        result = client.infer(model, inputs(module, arrays), outputs=outputs, **options)
        arrays_of = [result.as_numpy(name) for name in names]
        return [(each.ravel().tolist() if each.dtype == object else each.tobytes(), each.shape) for each in arrays_of]


def through(gateway: Target, wire: str, model: str, arrays: Arrays, *names: str, **options: Any) -> Any:
    headers = credential(gateway, wire)
    return infer(address(gateway, wire), wire, f"p_{model}", arrays, names, headers=headers, **options)


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


def stream(gateway: Target, model: str, numbers: Sequence[int], *, pause: float = 0.0) -> Iterator[int]:
    """The responses of a decoupled pipeline, of which the first is read after a pause."""
    results: Queue[tuple[Any, Any]] = Queue(maxsize=1)
    with grpc.InferenceServerClient(address(gateway, "grpc")) as client:
        client.start_stream(lambda result, error: results.put((result, error)), headers=credential(gateway, "grpc"))
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


def test_many_responses_take_no_memory(gateway: Target) -> None:
    """The client reads none of the first responses for a while."""
    process = psutil.Process(gateway.doors["grpc"].pid)
    assert list(stream(gateway, "p_repeat", range(1000))) == list(range(1000))
    before = process.memory_info().rss
    assert sum(1 for _ in stream(gateway, "p_repeat", range(20_000), pause=1.0)) == 20_000
    assert process.memory_info().rss - before < 32 * 1024 * 1024
