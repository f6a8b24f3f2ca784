"""The same bytes to a real Triton and to ours.

Triton's responses are recorded in a file, so that each side has its test. `differences.py` lists our intended
differences, with the reasons.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from loadtests.tensors.headrace import running_gateway
from loadtests.tensors.targets import Door, Target
from tests.servers.calls import Call
from tests.servers.cases import CASES
from tests.servers.comparison import Difference, disagreements
from tests.servers.differences import DIFFERENCES
from tests.servers.exchange import HttpRequest, Reply
from tests.servers.gateway_differences import AT_THE_GATEWAY, REFUSED
from tests.servers.headrace import Headrace, headrace
from tests.servers.record import recorded, replies_to
from tests.servers.repositories import NAMES, for_headrace
from tests.servers.triton import Triton

pytestmark = pytest.mark.timeout(1800)
RECORDED = recorded()
PAGE = Path(__file__).parents[2] / "docs/tensor-runtime.md"


THROUGH = [name for name in CASES if not name.startswith("control: ") and name not in REFUSED]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace(for_headrace(tmp_path_factory.mktemp("headrace"))) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(ours: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A gateway in front of our runtime: HTTP is forwarded as HTTP, gRPC as gRPC."""
    folder = tmp_path_factory.mktemp("gateway")
    doors = {"http": Door(ours.ports.http, ours.pid), "grpc": Door(ours.ports.grpc, ours.pid)}
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    with running_gateway("gateway", Target("headrace", doors, folder), cores, folder, NAMES) as target:
        yield target


def judge(name: str, ours: Sequence[Reply], table: Sequence[Difference]) -> None:
    """All results are equal but those that must differ, and these differ."""
    problems = disagreements(name, RECORDED[name], ours, table)
    assert not problems, "\n".join(problems)
    own = next((one for one in table if name in {*one.cases, *one.free, *one.leaves_out}), None)
    if own is not None:
        others = [other for other in table if other is not own and name not in other.cases]
        assert disagreements(name, RECORDED[name], ours, others), f"no longer differs: {own.topic}"


@pytest.mark.parametrize("name", CASES)
def test_ours_answers_alike(ours: Headrace, name: str) -> None:
    judge(name, replies_to(name, ours.http, ours.grpc), DIFFERENCES)


@pytest.mark.parametrize("name", THROUGH)
def test_ours_answers_alike_through_the_gateway(gateway: Target, name: str) -> None:
    judge(name, through(gateway, name), (*AT_THE_GATEWAY, *DIFFERENCES))


@pytest.mark.parametrize("name", [*REFUSED, *(name for name in CASES if name.startswith("control: load"))])
def test_the_gateway_leaves_its_servers_models_alone(gateway: Target, name: str) -> None:
    orders = zip(CASES[name], through(gateway, name), strict=True)
    refused = [reply for one, reply in orders if is_an_order(one)]
    assert refused
    assert all(reply.status == 403 or reply.kind == "PERMISSION_DENIED" for reply in refused), refused


def is_an_order(one: HttpRequest | Call) -> bool:
    """Whether it is not a question about a model."""
    return one.method not in ("ModelReady",) if isinstance(one, Call) else one.path.startswith("/v2/repository/models")


def through(gateway: Target, name: str) -> list[Reply]:
    http, grpc = (f"127.0.0.1:{gateway.doors[kind].port}" for kind in ("http", "grpc"))
    return replies_to(name, http, grpc, gateway.keys)


@pytest.mark.parametrize("name", CASES)
def test_a_real_triton_answers_as_recorded(real_triton: Triton, name: str) -> None:
    assert replies_to(name, real_triton.http, real_triton.grpc) == RECORDED[name]


def test_every_recorded_answer_has_a_case() -> None:
    assert list(RECORDED) == list(CASES)


def test_every_difference_belongs_to_a_case_and_differs_from_triton() -> None:
    for one in (*DIFFERENCES, *AT_THE_GATEWAY):
        assert one.cases or one.free or one.leaves_out, one.topic
        assert {*one.cases, *one.free, *one.leaves_out} <= set(CASES), one.topic
        for name, statuses in one.cases.items():
            differ = [
                expected for expected, reply in zip(statuses, RECORDED[name], strict=True) if expected is not None
            ]
            assert differ, f"{name}: no answer differs"
            theirs = [reply.status or reply.kind for reply in RECORDED[name]]
            assert any(expected not in (None, their) for expected, their in zip(statuses, theirs, strict=True)), name


def test_the_page_has_every_difference() -> None:
    every = (*DIFFERENCES, *AT_THE_GATEWAY)
    rows = [f"| {one.topic} | {one.triton} | {one.ours} | {one.why} |" for one in every]
    text = PAGE.read_text()
    missing = [row for row in rows if row not in text]
    assert not missing, "docs/tensor-runtime.md lacks:\n" + "\n".join(missing)
