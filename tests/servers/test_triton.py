"""The real Triton computes the models of this folder correctly, which is the basis of the comparisons."""

import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as grpc

from loadtests.figures.cpu import processes, tree
from tests.servers.repositories import NAMES, for_triton
from tests.servers.triton import Triton, triton

pytestmark = pytest.mark.timeout(1800)
PATIENCE = 300.0


@pytest.fixture(scope="module")
def client(real_triton: Triton) -> Iterator[Any]:
    with grpc.InferenceServerClient(real_triton.grpc) as made:
        yield made


def given(name: str, datatype: str, values: npt.NDArray[Any]) -> Any:
    tensor = grpc.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    return tensor


def test_every_model_is_ready(client: Any) -> None:
    index = client.get_model_repository_index(as_json=True)["models"]
    assert {one["name"]: one["state"] for one in index} == dict.fromkeys(NAMES, "READY")


@pytest.mark.parametrize(
    ("model", "datatype", "dtype"), [("add_sub", "INT32", np.int32), ("add_sub_any", "FP32", np.float32)]
)
def test_sums_and_differences(client: Any, model: str, datatype: str, dtype: type) -> None:
    one: npt.NDArray[Any] = np.arange(32, dtype=dtype).reshape(2, 16)
    other: npt.NDArray[Any] = np.full((2, 16), 3, dtype=dtype)
    answer = client.infer(model, [given("INPUT0", datatype, one), given("INPUT1", datatype, other)])
    assert (answer.as_numpy("OUTPUT0") == one + other).all()
    assert (answer.as_numpy("OUTPUT1") == one - other).all()


def test_one_bad_row_is_an_error_of_its_request(client: Any) -> None:
    with pytest.raises(Exception, match="no root of -1"):
        client.infer("picky", [given("X", "FP32", np.array([[-1]], dtype=np.float32))])
    assert client.infer("picky", [given("X", "FP32", np.array([[9]], dtype=np.float32))]).as_numpy("ROOT") == 3


def test_a_decoupled_model_answers_once_for_each_element(client: Any) -> None:
    answers: Queue[Any] = Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer("repeat", [given("IN", "INT32", np.array([4, 5, 6], dtype=np.int32))])
    values = [int(answers.get(timeout=PATIENCE).as_numpy("OUT")[0]) for _ in range(3)]
    client.stop_stream()
    assert values == [4, 5, 6]


def test_sequences_are_summed_apart(client: Any) -> None:
    sums: dict[int, list[int]] = {7: [], 8: []}
    for turn in range(3):
        for sequence, values in sums.items():
            number = given("INPUT", "INT32", np.array([[sequence * (turn + 1)]], dtype=np.int32))
            flags = {"sequence_start": turn == 0, "sequence_end": turn == 2}
            answer = client.infer("accumulate", [number], sequence_id=sequence, **flags)
            values.append(int(answer.as_numpy("SUM")[0, 0]))
    assert sums == {7: [7, 21, 42], 8: [8, 24, 48]}


def test_nothing_of_it_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    with triton(for_triton(tmp_path, ["add_sub"])) as server:
        family = tree(server.pid, processes())
        assert len(family) > 1, "the python backend runs a process of its own"
    end = time.monotonic() + PATIENCE
    while (left := family & set(processes())) and time.monotonic() < end:
        time.sleep(0.05)  # the process that inherits them has yet to notice that they ended
    assert not left
    assert not list(Path("/dev/shm").glob(f"headrace_{server.ports.http}_*"))
