"""The tensor benchmark: the files for its servers, and the parsing of their output and the load's."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from adapters.wire.oip import requests as oip
from loadtests.bench_tensor import PEERS, serves
from loadtests.figures.rounds import Rounds
from loadtests.peers import triton
from loadtests.peers.torchserve import properties
from loadtests.tensors import waits
from loadtests.tensors.measure import DIRECT
from loadtests.tensors.peer import DIFFERENCE, OIP, SUM, http_request, is_right, post
from loadtests.tensors.perf_analyzer import Report
from loadtests.tensors.perf_analyzer import parse as parse_table
from loadtests.tensors.report import BEST, DELAYED, TRITON, document, markdown, measured
from loadtests.tensors.targets import Counts, Door, Target, counts
from loadtests.tensors.workloads import LENGTHS, WORKLOADS, figures, write_requests
from tests.loadtests.answering import answering

pytestmark = pytest.mark.plain

TABLE = """Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
8,5998,87,786,183,19,209,33,0,956,2107,2506,5701
"""


def test_the_table_of_perf_analyzer_is_read_by_its_headings() -> None:
    assert parse_table(TABLE) == Report(5998, 0.956, 5.701)


def test_figures_are_named_for_their_workload() -> None:
    workload = WORKLOADS["add_sub_json_8"]
    named = figures(workload, Report(10, 2, 3), cpu_s=0.5, requests=1000, mean_batch=4)
    assert named == {
        "rps_add_sub_json_8": 10,
        "p50_ms_add_sub_json_8": 2,
        "p99_ms_add_sub_json_8": 3,
        "cpu_ms_per_request_add_sub_json_8": 0.5,
        "mean_batch_add_sub_json_8": 4,
    }
    assert "mean_batch_add_sub_json_8" not in figures(workload, Report(10, 2, 3), 0.5, 0, None)


def test_the_better_setting_of_triton_is_chosen_round_by_round() -> None:
    workload = WORKLOADS["add_sub_grpc_8"]

    def one(at_once: float, delayed: float, ours: float) -> dict[str, dict[str, float]]:
        rps = "rps_add_sub_grpc_8"
        return {TRITON: {rps: at_once}, DELAYED: {rps: delayed}, "headrace": {rps: ours}}

    result = measured(workload, Rounds([one(100, 200, 400), one(300, 100, 450), one(100, 50, 500)], dropped=2))
    assert [seen[BEST]["rps_add_sub_grpc_8"] for seen in result.rounds] == [200, 300, 100]
    report = json.loads(document([result], {"kserve": "no network"}))
    assert report["ratios"][f"rps_add_sub_grpc_8/{BEST}"] == 2  # of 2, 1.5 and 5
    assert report["spread"][f"rps_add_sub_grpc_8/{BEST}"] == [1.5, 5]
    assert report["medians"][TRITON] == {"rps_add_sub_grpc_8": 100}
    assert report["rounds"] == {"add_sub_grpc_8": {"kept": 3, "dropped": 2}}
    assert report["missing"] == {"kserve": "no network"}


def test_the_table_of_a_page_has_a_row_for_each_workload_and_no_target_twice() -> None:
    workload = WORKLOADS["add_sub_grpc_8"]
    seen = figures(workload, Report(12345, 0.5, 2), cpu_s=0.1, requests=1000, mean_batch=4)
    result = measured(workload, Rounds([{TRITON: seen, "kserve": {}}]))
    assert markdown([result]) == (
        "| | triton | kserve |\n|---|---|---|\n| add_sub_grpc_8 | 12,345 · 0.5 / 2 · 0.1 · 4 |  |\n"
    )


def test_a_round_without_triton_has_no_better_setting() -> None:
    result = measured(WORKLOADS["magika_grpc_1"], Rounds([{DIRECT: {"rps_magika_grpc_1": 1.0}}]))
    assert result.targets == [DIRECT]


def test_a_target_receives_the_workloads_that_it_serves(tmp_path: Path) -> None:
    door = Door(1, 2)
    oip = Target("headrace", {"http": door, "grpc": door}, tmp_path, statistics=1)
    peer = Target("kserve", {"http": door}, tmp_path)
    direct = Target(DIRECT, {}, tmp_path)
    served = {
        target.name: {name for name, one in WORKLOADS.items() if serves(target, one)} for target in (oip, peer, direct)
    }
    assert served["headrace"] == set(WORKLOADS)
    assert served["kserve"] == {"add_sub_plain_1", "add_sub_plain_8", "add_sub_plain_32"}
    assert served[DIRECT] == {name for name in WORKLOADS if name.startswith("magika")}


def test_all_targets_receive_the_same_requests(tmp_path: Path) -> None:
    files = write_requests(tmp_path)
    first = {model: path.read_bytes() for model, path in files.items()}
    assert {model: path.read_bytes() for model, path in write_requests(tmp_path).items()} == first
    assert set(first) == {workload.model for workload in WORKLOADS.values() if workload.wire != "waits"}
    mixed = json.loads(first["mixed"])["data"]
    assert {one["X"]["shape"][0] for one in mixed} == set(LENGTHS)
    assert all(len(one["X"]["content"]) == one["X"]["shape"][0] for one in mixed)


@pytest.mark.parametrize(
    "right",
    [
        {"outputs": [{"name": "OUTPUT0", "shape": [1, 16], "data": SUM}, {"name": "OUTPUT1", "data": DIFFERENCE}]},
        [[SUM, DIFFERENCE]],
        {"OUTPUT0": SUM, "OUTPUT1": DIFFERENCE},
    ],
)
def test_an_answer_is_right_in_any_form(right: Any) -> None:
    assert is_right(json.dumps(right).encode())
    assert not is_right(json.dumps(right).replace("18", "19").encode())


def test_servers_stay_on_loopback(tmp_path: Path) -> None:
    written = properties(tmp_path, 18080)
    assert written.count("127.0.0.1") == 5
    assert "0.0.0.0" not in written
    (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
    command = triton.launch(tmp_path, tmp_path / "models", triton.Ports(1, 2, 3)).command
    assert [part for part in command if "address" in part] == [
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
    ]
    assert {peer.name for peer in PEERS.values() if peer.apart} == {"ray-serve"}


@pytest.mark.parametrize(("kind", "datatype"), [("texts", "BYTES"), ("floats", "FP32")])
def test_a_large_request_is_one_of_its_model(kind: str, datatype: str) -> None:
    body, fields = waits.large_request(kind, 5)
    length = fields.get("Inference-Header-Content-Length")
    (tensor,) = oip.decode_request(body, None if length is None else int(length), "m").inputs
    assert (tensor.datatype, tensor.shape) == (datatype, (5,))
    assert len(tensor.data) == 5 * len(tensor.data[:5] if kind == "texts" else tensor.data[:4])


@pytest.mark.benchmarks
def test_waits_are_those_of_small_requests_while_a_large_one_is_under_way() -> None:
    def slow(_: str, body: bytes) -> tuple[int, Any]:
        if body:
            threading.Event().wait(0.05)
        return 200, b""

    with answering(slow) as port:
        measured_waits = waits.measure(port, "floats", 0.2, "key", count=10)
    assert measured_waits["p50_ms"] >= 50
    assert 0 < measured_waits["wait_p50_ms"] <= measured_waits["wait_p99_ms"]
    name = "echo_floats_waits_1"
    result = measured(WORKLOADS[name], Rounds([{TRITON: {f"{key}_{name}": 1.0 for key in measured_waits}}]))
    assert "| echo_floats_waits_1 | 1 / 1 / 1 · 1 |" in markdown([result])


def add_sub(path: str, body: bytes) -> tuple[int, Any]:
    """Adds and subtracts, and reports its statistics."""
    if not path.startswith("/v2"):
        return 404, b""
    if not body:
        done = {"inference_stats": {"success": {"count": 5}}, "inference_count": 9, "execution_count": 3}
        return 200, {"model_stats": [done]}
    one, other = (tensor["data"] for tensor in json.loads(body)["inputs"])
    pairs = list(zip(one, other, strict=True))
    return 200, {"outputs": [[x + y for x, y in pairs], [x - y for x, y in pairs]]}


@pytest.mark.benchmarks
def test_a_server_receives_requests_of_a_program_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "request.http"
    file.write_bytes(http_request("/v2/models/add_sub/infer", OIP, {"x-key": "k"}))
    assert b"x-key: k\r\n" in file.read_bytes()
    with answering(add_sub) as port:
        body = post(port, file, [])
        assert counts(port, "add_sub") == Counts(5, 9, 3)
        file.write_bytes(http_request("/elsewhere", OIP))
        refused = post(port, file, [])
    assert body is not None
    assert is_right(body)
    assert refused is None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert post(unused.getsockname()[1], file, []) is None
