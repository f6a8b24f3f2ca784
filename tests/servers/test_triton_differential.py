"""The same bytes to a real Triton and to ours.

Triton's responses are recorded in a file, so that each side has its test. `differences.yaml` lists our intended
differences, with the reasons.
"""

from collections.abc import Iterator, Sequence

import pytest

from loadtests.tensors.targets import Target
from tests.servers.calls import Call
from tests.servers.cases import CASES
from tests.servers.comparison import Difference, disagreements
from tests.servers.differences import AT_THE_GATEWAY, DIFFERENCES, REFUSED
from tests.servers.exchange import HttpRequest, Reply
from tests.servers.gateways import address, in_front
from tests.servers.headrace import Headrace, headrace
from tests.servers.record import recorded, replies_to
from tests.servers.repositories import NAMES, for_headrace
from tests.servers.triton import Triton

RECORDED = recorded()
THROUGH = [name for name in CASES if not name.startswith("control: ") and name not in REFUSED]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace(for_headrace(tmp_path_factory.mktemp("headrace"))) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(ours: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with in_front(ours, tmp_path_factory.mktemp("gateway"), NAMES) as target:
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
    return replies_to(name, address(gateway, "http"), address(gateway, "grpc"), gateway.keys)


@pytest.mark.parametrize("name", CASES)
def test_a_real_triton_answers_as_recorded(real_triton: Triton, name: str) -> None:
    assert replies_to(name, real_triton.http, real_triton.grpc) == RECORDED[name]
