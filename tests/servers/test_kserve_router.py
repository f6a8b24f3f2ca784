"""Imported InferenceGraphs answer as KServe's router does: its recorded answers, and the router itself if there is one.

`HEADRACE_KSERVE_ROUTER=BINARY` compares graphs that are not recorded, with the router beside our gateway.
"""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadtests.peers.inference_graphs import imported
from loadtests.tensors.headrace import serving
from tests.servers.graphs import models
from tests.servers.graphs.cases import PLAIN, GraphCase, graph, random_case, step, then
from tests.servers.graphs.router import RECORD, GraphAnswer, answers, read, recorded_cases, send

pytestmark = pytest.mark.processes
BINARY = "HEADRACE_KSERVE_ROUTER"
REQUESTS = 600
SHARE = 0.3
CORES = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
SPLIT = GraphCase(graph("Splitter", step("double", weight=30), step("negate", weight=70)), [PLAIN])
SOFT = GraphCase(graph("Sequence", step("failing"), then("double", dependency="Soft")), [PLAIN])


Cases = Mapping[str, GraphCase]


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    running = models.server()
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield running.server_address[1]
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def ours(cases: Mapping[str, GraphCase], server: int, folder: Path) -> dict[str, list[GraphAnswer]]:
    """Our gateway's answers, with all graphs imported."""
    configuration = imported({name: case.at(server) for name, case in cases.items()}).configuration
    with serving("gateway", CORES, folder, configuration) as (http, _, key):
        credential = {"Authorization": f"Bearer {key}"}
        return {
            name: [send(http.port, f"/v1/models/{name}:predict", body, server, credential) for body in case.bodies]
            for name, case in cases.items()
        }


def comparable(answer: GraphAnswer, case: GraphCase, *, imported: bool) -> Any:
    """What both must have in common: the predictions of each step of an ensemble, or of the graph; or a failure.

    An ensemble without any predictions is a failure here.
    """
    if answer.status >= 400:
        return "failure"
    if not case.is_ensemble:
        return answer.document["predictions"]
    names = [each["name"] for each in case.spec["nodes"]["root"]["steps"]]
    if not imported:
        return {name: one["predictions"] for name, one in answer.document.items() if "predictions" in one} or "failure"
    rows = answer.document["predictions"]
    return {names[0]: rows} if len(names) == 1 else {name: [row[name] for row in rows] for name in rows[0]}


def compare(theirs: Mapping[str, list[GraphAnswer]], made: Mapping[str, list[GraphAnswer]], cases: Cases) -> None:
    """All cases in the order of their requests.

    A failure cancels the calls of other branches: one that was sent may arrive during a later request.
    """
    failed = ""
    for name, case in cases.items():
        for body, expected, answer in zip(case.bodies, theirs[name], made[name], strict=True):
            where = f"{name} {json.dumps(body)}: {expected} {answer}"
            assert comparable(answer, case, imported=True) == comparable(expected, case, imported=False), where
            if answer.status < 400:
                assert not Counter(expected.calls) - Counter(answer.calls), where
                assert all(model in failed for model in Counter(answer.calls) - Counter(expected.calls)), where
            else:
                failed += json.dumps(case.spec)


def test_imported_graphs_answer_as_the_router_has_answered(server: int, tmp_path: Path) -> None:
    cases, theirs = recorded_cases(), read(RECORD.read_text())
    made = ours(cases, server, tmp_path)
    assert theirs.keys() == cases.keys()
    compare(theirs, made, cases)
    assert sum(one.status < 400 for each in theirs.values() for one in each) > 100


def test_a_splitter_has_the_weights_of_the_graph(server: int, tmp_path: Path) -> None:
    case = GraphCase(SPLIT.spec, [PLAIN] * REQUESTS)
    shares = [sum(one.calls.get("double", 0) for one in ours({"split": case}, server, tmp_path)["split"]) / REQUESTS]
    if binary := os.environ.get(BINARY):
        shares.append(sum(one.calls.get("double", 0) for one in answers(Path(binary), {"s": case})["s"]) / REQUESTS)
    for share in shares:  # six standard deviations
        assert abs(share - SHARE) < 6 * (SHARE * (1 - SHARE) / REQUESTS) ** 0.5


def test_a_soft_failure_in_a_sequence_ends_ours(server: int, tmp_path: Path) -> None:
    """The intended difference: KServe's next step receives the body of the failure."""
    (answer,) = ours({"soft": SOFT}, server, tmp_path)["soft"]
    assert (answer.status, answer.calls) == (502, {"failing": 1})
    assert "the model is out of order" in json.dumps(answer.document)
    if binary := os.environ.get(BINARY):
        (theirs,) = answers(Path(binary), {"soft": SOFT})["soft"]
        assert theirs.calls == {"failing": 1, "double": 1}


@pytest.mark.skipif(BINARY not in os.environ, reason=f"needs {BINARY}, the binary of KServe's router")
def test_random_graphs_answer_as_the_router_does(server: int, tmp_path: Path) -> None:
    first = int(os.environ.get("HEADRACE_SEED", "1000"))
    cases = {f"seed_{seed}": random_case(seed) for seed in range(first, first + 150)}
    theirs = answers(Path(os.environ[BINARY]), cases)
    made = ours(cases, server, tmp_path)
    compare(theirs, made, cases)
