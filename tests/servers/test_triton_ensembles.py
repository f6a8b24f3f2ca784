"""The same ensembles in a real Triton and in our runtime, of the same models."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc

from loadtests.tensors.ensemble_targets import ONE_PROCESS
from tests.servers.headrace import Headrace, headrace
from tests.servers.repositories import ENSEMBLES, OF_ENSEMBLES, for_headrace, with_ensembles
from tests.servers.triton import Triton

PATIENCE = 300.0


IN_ONE_PROCESS = ("chain", "diamond", "failing_middle", "slow_chain", "texts")
"""Ensembles that can have processes of their own, and whose steps need not run at the same time."""


@pytest.fixture(scope="module", params=["step by step", "in one process"])
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    repository = with_ensembles(for_headrace(tmp_path_factory.mktemp("headrace"), OF_ENSEMBLES))
    for name in IN_ONE_PROCESS if request.param == "in one process" else ():
        with (repository / name / "config.pbtxt").open("a") as config:
            config.write(ONE_PROCESS)
    with headrace(repository) as server:
        yield server


Server = Triton | Headrace


def call(server: Server, path: str, body: object = None) -> tuple[int, Any]:
    connection = HTTPConnection(server.http, timeout=PATIENCE)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
        return response.status, json.loads(content) if content else None
    finally:
        connection.close()


def tensor(name: str, datatype: str, rows: Sequence[Any]) -> dict[str, Any]:
    array = np.array(rows)
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()}


def infer(server: Server, model: str, *inputs: dict[str, Any], outputs: Sequence[str] = (), **parameters: Any) -> Any:
    """The outputs by name, or the status and the text of the error."""
    body: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
    if outputs:
        body["outputs"] = [{"name": name} for name in outputs]
    status, answer = call(server, f"/v2/models/{model}/infer", body)
    if status != 200:
        return status, answer["error"]
    return {one["name"]: (one["datatype"], one["shape"], one["data"]) for one in answer["outputs"]}


A = tensor("A", "INT32", [list(range(16)), [2**30] * 16])
B = tensor("B", "INT32", [[3] * 16, [-(2**30)] * 16])


@pytest.mark.parametrize("model", ["chain", "diamond", "nested"])
def test_the_outputs_are_equal(ours: Headrace, theirs: Triton, model: str) -> None:
    answer = infer(ours, model, A, B)
    assert isinstance(answer, dict)
    assert answer == infer(theirs, model, A, B)


@pytest.mark.parametrize(
    "outputs", [names for count in (1, 2, 3) for names in itertools.permutations(("JOINED", "LEFT", "RIGHT"), count)]
)
def test_any_of_the_outputs_can_be_requested(ours: Headrace, theirs: Triton, outputs: tuple[str, ...]) -> None:
    answer = infer(ours, "diamond", A, B, outputs=outputs)
    assert list(answer) == list(outputs)
    assert answer == infer(theirs, "diamond", A, B, outputs=outputs)


def test_texts_pass_unchanged(ours: Headrace, theirs: Triton) -> None:
    texts = tensor("TEXT", "BYTES", [["a", "bé", "", "x" * 5000]])
    answer = infer(ours, "texts", texts)
    assert answer["SAME"][2] == ["a", "bé", "", "x" * 5000]
    assert answer == infer(theirs, "texts", texts)


def test_a_sequence_passes_with_its_id(ours: Headrace, theirs: Triton) -> None:
    sums = []
    for server in (ours, theirs):
        for number, (sequence, start, end) in enumerate([(7, 1, 0), (8, 1, 0), (7, 0, 0), (8, 0, 1), (7, 0, 1)]):
            place: dict[str, Any] = {"sequence_id": sequence, "sequence_start": bool(start), "sequence_end": bool(end)}
            sums.append(infer(server, "sums_of_sums", tensor("INPUT", "INT32", [[number + 1]]), **place))
    assert sums[:5] == sums[5:]
    assert [one["SUM"][2] for one in sums[:5]] == [[1], [2], [4], [6], [9]]


def test_a_failing_step_fails_both_and_ours_names_it(ours: Headrace, theirs: Triton) -> None:
    four = tensor("X", "FP32", [[4.0]])
    status, message = infer(ours, "failing_middle", four)
    assert status == 500
    assert message.startswith("in ensemble 'failing_middle', step 1 (`picky`): ")
    assert infer(theirs, "failing_middle", four) == (500, "in ensemble 'failing_middle', no root of -4")
    assert infer(ours, "failing_middle", tensor("X", "FP32", [[-4.0]])) == {"Y": ("FP32", [1, 1], [-2.0])}


def test_a_wrong_request_is_a_mistake_of_the_caller(ours: Headrace, theirs: Triton) -> None:
    wrong = [
        [tensor("X", "FP32", [[1.0, 2.0]])],
        [tensor("X", "INT32", [[1]])],
        [],
        [tensor("Z", "FP32", [[1.0]])],
    ]
    for inputs in wrong:
        assert infer(ours, "failing_middle", *inputs)[0] == infer(theirs, "failing_middle", *inputs)[0] == 400


# ── decoupled ─────────────────────────────────────────────────────────────────────────────────────────


def stream(server: Server, numbers: Sequence[int]) -> tuple[list[int], str]:
    """The responses of `repeated`, and the error that ended them."""
    results: Queue[tuple[Any, Any]] = Queue()
    values: list[int] = []
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        given = grpc.InferInput("NUMBERS", [len(numbers)], "INT32")
        given.set_data_from_numpy(np.array(numbers, np.int32))
        client.async_stream_infer("repeated", [given], enable_empty_final_response=True)
        while True:
            result, error = results.get(timeout=PATIENCE)
            if error is not None:
                return values, str(error)
            array = result.as_numpy("EACH")
            if array is not None:
                assert array.shape == (1, 1)
                values.append(int(array[0, 0]))
            if result.get_response().parameters["triton_final_response"].bool_param:
                return values, ""


@pytest.mark.parametrize("numbers", [[], [5], [3, 1, 2, 0, 4, 1, 2, 3, 1, 9], list(range(10)) * 10], ids=len)
def test_each_response_of_a_decoupled_step_comes_once(ours: Headrace, theirs: Triton, numbers: list[int]) -> None:
    assert stream(ours, numbers) == (numbers, "")
    assert stream(theirs, numbers)[0] == numbers


def test_a_decoupled_ensemble_has_no_single_response(ours: Headrace, theirs: Triton) -> None:
    numbers = tensor("NUMBERS", "INT32", [1, 2])
    assert infer(ours, "repeated", numbers)[0] == infer(theirs, "repeated", numbers)[0] == 501


# ── what they report ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", sorted(path.name for path in ENSEMBLES.iterdir() if path.name != "negate"))
def test_metadata_and_configuration_are_equal(ours: Headrace, theirs: Triton, model: str) -> None:
    path = f"/v2/models/{model}"
    (status, described), expected = call(ours, path), call(theirs, path)
    assert described.pop("parameters")  # the card
    assert (status, described) == expected
    (status, mine), (_, other) = call(ours, f"{path}/config"), call(theirs, f"{path}/config")
    assert status == 200
    assert mine["ensemble_scheduling"].pop("max_inflight_requests") == 0  # younger than this Triton
    for one in (mine, other):  # another test may have loaded the model with it
        one["parameters"].pop("headrace.processes", None)
    assert mine == other


def test_statistics_count_the_steps_and_the_ensemble(ours: Headrace, theirs: Triton) -> None:
    differences = []
    for server in (ours, theirs):
        before = counts(server)
        for _ in range(3):
            assert isinstance(infer(server, "diamond", A, B), dict)
        after = counts(server)
        differences.append({key: after[key] - before.get(key, 0) for key in after})
    mine, other = differences
    assert mine["diamond", "inference_count"] == other["diamond", "inference_count"] == 6
    assert mine["diamond", "execution_count"] == other["diamond", "execution_count"] == 3
    for key in (("add_sub", "inference_count"), ("add_sub", "success"), ("diamond", "success"), ("diamond", "queue")):
        assert mine[key] == other[key], key


def counts(server: Server) -> dict[tuple[str, str], int]:
    numbers: dict[tuple[str, str], int] = {}
    for model in ("diamond", "add_sub"):
        (entry,) = call(server, f"/v2/models/{model}/stats")[1]["model_stats"]
        numbers |= {(model, name): int(entry[name]) for name in ("inference_count", "execution_count")}
        numbers |= {(model, name): int(part["count"]) for name, part in entry["inference_stats"].items()}
    return numbers


def states(server: Server, *names: str) -> dict[str, str]:
    entries = call(server, "/v2/repository/index", {})[1]
    return {entry["name"]: entry.get("state", "") for entry in entries if entry["name"] in names}


def order(server: Server, model: str, operation: str, **parameters: Any) -> None:
    status, answer = call(server, f"/v2/repository/models/{model}/{operation}", {"parameters": parameters})
    assert status == 200, answer


FOLLOWED: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("text", "unload", {}, "UNAVAILABLE", "UNAVAILABLE"),
    ("text", "load", {}, "READY", "READY"),
    ("texts", "unload", {}, "READY", "UNAVAILABLE"),
    ("text", "unload", {}, "UNAVAILABLE", "UNAVAILABLE"),
    ("texts", "load", {}, "READY", "READY"),
    ("texts", "unload", {"unload_dependents": True}, "UNAVAILABLE", "UNAVAILABLE"),
    ("texts", "load", {}, "READY", "READY"),
]
"""Orders, and the states of `text` and `texts` after each, as Triton 2.51.0 reports them."""


def test_ensembles_follow_their_models(ours: Headrace) -> None:
    """Triton itself is not asked: it sometimes dies of these orders."""
    for model, operation, parameters, text, texts in FOLLOWED:
        order(ours, model, operation, **parameters)
        assert settled(ours, "text", "texts") == {"text": text, "texts": texts}


def settled(server: Server, *names: str) -> dict[str, str]:
    """The states, when no model is on its way."""
    end = time.monotonic() + PATIENCE
    while {"LOADING", "UNLOADING"} & set((now := states(server, *names)).values()):
        assert time.monotonic() < end, now
        time.sleep(0.05)
    return now


def test_a_step_that_does_not_fit_is_refused_by_both(ours: Headrace, theirs: Triton) -> None:
    good = call(ours, "/v2/models/chain/config")[1]
    del good["ensemble_scheduling"]["max_inflight_requests"]
    for change in CHANGES:
        config = json.loads(json.dumps(good))
        change(config)
        answers = [
            call(server, "/v2/repository/models/chain/load", {"parameters": {"config": json.dumps(config)}})
            for server in (ours, theirs)
        ]
        assert answers[0][0] == 400, (change, answers)
        assert answers[1][0] in (400, 500), (change, answers)
        assert isinstance(infer(ours, "chain", A, B), dict), "the ensemble in service stays"
        order(theirs, "chain", "load", config=json.dumps(good))


def _step(config: Any, at: int) -> Any:
    return config["ensemble_scheduling"]["step"][at]


CHANGES: tuple[Callable[[Any], object], ...] = (
    lambda config: config["input"][0].update(data_type="TYPE_FP32"),
    lambda config: config.update(max_batch_size=9),
    lambda config: _step(config, 1).update(model_name="none"),
    lambda config: _step(config, 1)["input_map"].update(INPUT0="stray"),
    lambda config: _step(config, 0)["input_map"].update(INPUT0="TWICE_A"),
    lambda config: config["ensemble_scheduling"]["step"].clear(),
)
