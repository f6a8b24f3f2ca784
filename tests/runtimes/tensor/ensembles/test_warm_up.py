"""The warm-up of the members of an ensemble with processes: in each process, before it takes traffic."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from adapters.errors import CallerError, InferenceError
from tests.support.process_ensembles import BATCHED, DOUBLE, PATIENCE, PLAIN, UTILS, Server, serving

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
CONFIG = (
    BATCHED
    + """
warmup:
  - {name: small, count: 2, inputs: [{name: x, datatype: FP32, dims: [2]}]}
  - {name: full, batch_size: 8, inputs: [{name: x, datatype: FP32, dims: [2], data: random}]}
"""
)
OF_ARRAYS = """
def __init__(self):
    self.rows = []

def infer(self, inputs):
    self.rows.append(len(inputs["x"]))
    return {"y": inputs["x"] * 0 + np.float32([[len(self.rows), sum(self.rows)]])}
"""
OF_TRITON = """
def initialize(self, args):
    self.rows = []

def execute(self, requests):
    self.rows += [len(value(one)) for one in requests]
    return [response(value(one) * 0 + [[len(self.rows), sum(self.rows)]]) for one in requests]
"""
CALLS = """
def execute(self, requests):
    answers = []
    for one in requests:
        made = pb_utils.InferenceRequest(model_name="double", requested_output_names=["y"],
                                         inputs=[pb_utils.Tensor("x", value(one))])
        answer = made.exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        answers.append(response(pb_utils.get_output_tensor_by_name(answer, "y").as_numpy()))
    return answers
"""


def add(server: Server, interface: str, name: str = "member", config: str = CONFIG) -> None:
    body, head = (OF_ARRAYS, PLAIN) if interface == "arrays" else (OF_TRITON, UTILS)
    server.add(name, body, head, config)


@pytest.mark.parametrize("interface", ["arrays", "triton"])
async def test_each_process_has_warmed_its_members_up_before_its_first_request(tmp_path: Path, interface: str) -> None:
    """Each model counts its requests and their rows: three of 1, 1 and 8 rows are the warm-up."""
    async with serving(tmp_path) as server:
        add(server, interface)
        server.add_ensemble("fused", ["member"], processes=2)
        await server.load("fused")
        seen = set()
        for _ in range(2):
            answers = await asyncio.gather(*(server.infer("fused", [[0, 0]] * 8) for _ in range(2)))
            seen |= {tuple(answer[0].tolist()) for answer in answers}
        assert min(seen) == (4, 18), "three executions of ten rows precede the first request"
        assert server.counts("member")[2:] == (4, 0), "a warm-up is no request"


@pytest.mark.parametrize("interface", ["arrays", "triton"])
async def test_a_replaced_process_warms_its_members_up_again(tmp_path: Path, interface: str) -> None:
    async with serving(tmp_path) as server:
        add(server, interface)
        server.add_ensemble("fused", ["member"])
        await server.load("fused")
        (instance,) = server.manager.table.leases["fused", ""].instances
        os.kill(instance.report.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await server.infer("fused", [0, 0])
                except InferenceError:
                    continue
                if instance.restarts:
                    break
        assert answer.tolist()[0][0] >= 4


async def test_a_model_of_several_steps_is_warmed_up_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        add(server, "arrays")
        server.add_ensemble("fused", ["member", "member"])
        await server.load("fused")
        assert (await server.infer("fused", [0, 0])).tolist() == [[5, 12]]


async def test_a_member_may_call_models_while_it_is_warmed_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.add("double", DOUBLE)
        server.add("caller", CALLS, UTILS, CONFIG)
        server.add_ensemble("fused", ["caller"])
        await server.load("double", "caller")
        before = server.counts("double")[0]
        await server.load("fused")
        assert server.counts("double")[0] == before + 10
        assert (await server.infer("fused", [1, 2])).tolist() == [[2, 4]]


@pytest.mark.parametrize("interface", ["arrays", "triton"])
async def test_a_failing_warm_up_refuses_the_ensemble_and_names_the_model(tmp_path: Path, interface: str) -> None:
    """The member itself is in service: only its copy in the ensemble's process fails."""
    broken = tmp_path / "broken"
    check = f"    if os.path.exists({str(broken)!r}) and len(self.rows) == 2:\n        raise ValueError('not today')\n"
    (tmp_path / "models").mkdir()
    async with serving(tmp_path / "models") as server:
        body, head = (OF_ARRAYS, PLAIN) if interface == "arrays" else (OF_TRITON, UTILS)
        first, separator, rest = body.partition("inputs):\n" if interface == "arrays" else "requests):\n")
        server.add("member", first + separator + check + rest, head, CONFIG)
        await server.load("member")
        server.add_ensemble("fused", ["member"])
        broken.touch()
        with pytest.raises(CallerError, match=r"its model `member`: warm-up `full` failed: .*not today"):
            await server.load("fused")
        broken.unlink()
        await server.load("fused")
        assert (await server.infer("fused", [0, 0])).tolist() == [[4, 11]]


async def test_a_warm_up_without_its_file_refuses_the_ensemble(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        add(server, "arrays", config=CONFIG.replace("data: random", "data: file:rows"))
        (tmp_path / "member" / "warmup").mkdir()
        (tmp_path / "member" / "warmup" / "rows").write_bytes(bytes(8))
        await server.load("member")
        (tmp_path / "member" / "warmup" / "rows").unlink()
        server.add_ensemble("fused", ["member"])
        with pytest.raises(CallerError, match="its model `member`: warm-up `full` failed"):
            await server.load("fused")
