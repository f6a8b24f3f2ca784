"""The same bytes to a real Triton and to ours. What Triton says is kept in a file, so that each side has its test.

Where ours means to differ, `differences.py` says how and why.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.cases import CASES
from tests.servers.comparison import disagreements
from tests.servers.differences import DIFFERENCES
from tests.servers.headrace import Headrace, headrace
from tests.servers.record import recorded, say
from tests.servers.repositories import for_headrace
from tests.servers.triton import Triton

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
RECORDED = recorded()
PAGE = Path(__file__).parents[2] / "docs/tensor-runtime.md"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with headrace(for_headrace(tmp_path_factory.mktemp("headrace"))) as server:
        yield server


@pytest.mark.parametrize("name", [name for name in CASES if "sequence" not in name.replace("with sequences", "")])
def test_ours_says_the_same(ours: Headrace, name: str) -> None:
    told = say(name, ours.http, ours.grpc)
    found = disagreements(name, RECORDED[name], told, DIFFERENCES)
    assert not found, "\n".join(found)
    for one in DIFFERENCES:
        if name in {*one.cases, *one.free, *one.leaves_out}:
            others = [other for other in DIFFERENCES if other is not one]
            assert disagreements(name, RECORDED[name], told, others), f"no longer differs: {one.what}"


@pytest.mark.parametrize("name", CASES)
def test_a_real_triton_says_what_is_recorded(real_triton: Triton, name: str) -> None:
    assert say(name, real_triton.http, real_triton.grpc) == RECORDED[name]


def test_nothing_is_recorded_that_nobody_asks() -> None:
    assert list(RECORDED) == list(CASES)


def test_every_difference_is_one_of_a_case_and_of_what_triton_says() -> None:
    for one in DIFFERENCES:
        assert one.cases or one.free or one.leaves_out, one.what
        assert {*one.cases, *one.free, *one.leaves_out} <= set(CASES), one.what
        for name, statuses in one.cases.items():
            differ = [wanted for wanted, told in zip(statuses, RECORDED[name], strict=True) if wanted is not None]
            assert differ, f"{name}: no answer differs"
            theirs = [told.status or told.kind for told in RECORDED[name]]
            assert any(wanted not in (None, their) for wanted, their in zip(statuses, theirs, strict=True)), name


def test_the_page_has_every_difference() -> None:
    rows = [f"| {one.what} | {one.triton} | {one.ours} | {one.why} |" for one in DIFFERENCES]
    text = PAGE.read_text()
    missing = [row for row in rows if row not in text]
    assert not missing, "docs/tensor-runtime.md lacks:\n" + "\n".join(missing)
