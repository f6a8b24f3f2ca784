"""The command lines of benchmarks and soaks: what they select, and what they refuse."""

import re
from typing import Any

import pytest

from loadtests import bench_gateway, bench_idle, bench_llm, bench_pipelines, bench_tensor, bench_workers
from loadtests.peers import PEERS
from loadtests.soaks import fleet, llm, tensor

pytestmark = pytest.mark.plain


def test_peers_and_workloads_are_chosen_by_name_or_pattern() -> None:
    options = bench_gateway.parse(["--peers", "none", "--only", "closed32,stream8", "--quick"])
    assert (options.peers, options.only, options.rounds, options.seconds) == ([], ["closed32", "stream8"], 2, 1.0)
    assert bench_gateway.parse([]).peers == list(PEERS)
    only = bench_gateway.parse(["--providers", "only"])
    assert (only.peers, only.only, only.arms, only.providers) == ([], [], "no", "yes")
    named = bench_tensor.parse(["--peers", "none", "--only", "mixed_*_32,add_sub_json_1"])
    assert (named.peers, named.only) == ([], ["add_sub_json_1", "mixed_binary_32", "mixed_grpc_32"])
    assert bench_llm.parse(["--peers", "none", "--weights", "bf16"]).peers == []
    assert bench_llm.parse(["--workloads", "w2,w1"]).workloads == ["w2", "w1"]
    assert "moe" not in bench_llm.parse([]).workloads
    assert bench_llm.parse(["--mixture"]).workloads == ["moe", "moe-8"]
    assert bench_pipelines.parse(["--callers", "1,4"]).callers == [1, 4]
    assert bench_workers.parse(["--workers", "4,1,4"]).workers == [1, 4]
    assert bench_idle.parse(["--against", "."]).runs == 5
    assert (tensor.parse([]).minutes, llm.parse([]).minutes) == (20, 20)


@pytest.mark.parametrize(
    ("program", "wrong", "reason"),
    [
        (bench_gateway, ["--peers apache", "--only closed33", "--rounds 0"], "not one of|at least 1"),
        (bench_tensor, ["--peers nobody", "--only nothing*", "--rounds 0", "--seconds 0"], "error: "),
        (bench_llm, ["--peers nobody", "--weights int3", "--workloads w9", "--rounds 0", "--requests 0"], "error: "),
        (fleet, ["--minutes 0", "--users 0", "--kill-every 0"], "are above 0"),
        (tensor, ["--minutes 0", "--clients 0", "--kill-every 0"], "error: "),
        (llm, ["--minutes 0", "--clients 0", "--without rain"], "error: "),
    ],
)
def test_unknown_names_and_runs_of_nothing_are_refused(
    program: Any, wrong: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in wrong:
        with pytest.raises(SystemExit) as ended:
            program.parse(each.split())
        assert ended.value.code == 2
        assert re.search(reason, capsys.readouterr().err)


def test_the_help_text_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_gateway.parse(["--help"])
    assert "--foreign-limit" in capsys.readouterr().out
