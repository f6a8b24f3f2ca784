"""The distribution of test files over pytest's worker processes.

A file stays in one process, so its module fixtures are built once. Files that share a server stay together. Files that
measure time run last, in one process, after the other processes have ended.
"""

from collections.abc import Mapping
from itertools import chain

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SHARED: Mapping[str, frozenset[str]] = {
    "Python servers": frozenset(
        {
            "tests/conformance/test_bentoml.py",
            "tests/conformance/test_kserve.py",
            "tests/conformance/test_mlserver.py",
            "tests/e2e/test_python_servers.py",
            "tests/servers/test_bentoml.py",
            "tests/servers/test_kserve.py",
            "tests/servers/test_mlserver.py",
        }
    ),
    "Ray Serve": frozenset(
        {
            "tests/conformance/test_ray_serve.py",
            "tests/servers/test_ray_serve.py",
        }
    ),
    "TensorFlow Serving": frozenset(
        {
            "tests/conformance/test_tfserving.py",
            "tests/servers/test_tfserving.py",
        }
    ),
    "Triton, tensors": frozenset(
        {
            "tests/conformance/test_triton.py",
            "tests/servers/test_triton.py",
            "tests/servers/test_triton_adapters.py",
            "tests/servers/test_triton_differential.py",
        }
    ),
    "Triton, texts": frozenset(
        {
            "tests/conformance/test_triton_text.py",
            "tests/servers/test_triton_text.py",
        }
    ),
    "OpenVINO Model Server": frozenset(
        {
            "tests/conformance/test_ovms.py",
            "tests/servers/test_ovms.py",
        }
    ),
    "vLLM and llama.cpp": frozenset(
        {
            "tests/conformance/test_llama_cpp.py",
            "tests/conformance/test_llama_cpp_messages.py",
            "tests/conformance/test_vllm.py",
            "tests/servers/test_llama_cpp_messages.py",
            "tests/servers/test_text_servers.py",
        }
    ),
}
"""Files that use the same servers of `tests.servers.shared`, by a name for those servers."""

ALONE = frozenset(
    {
        "tests/adapters/http1/test_turns.py",
        "tests/adapters/http2/test_turns.py",
        "tests/adapters/wire/test_failure_text.py",
        "tests/e2e/test_memory_bounds.py",
        "tests/gateway/fronts/test_large_bodies.py",
        "tests/loadtests/test_cpu_accounting.py",
        "tests/runtimes/llm/native/test_team_size.py",
        "tests/runtimes/llm/test_long_prompts.py",
        "tests/runtimes/llm/text/test_special_spellings.py",
        "tests/runtimes/llm/text/test_stop_strings.py",
        "tests/runtimes/tensor/instances/test_threads.py",
    }
)
"""Files with a test that measures time or CPU seconds, or whose clients give up on a busy machine."""

LONG = ("tests/conformance/", "tests/e2e/", "tests/servers/", "tests/loadtests/", "tests/runtimes/")
"""Folders of files that take long. A long file that starts last leaves the other processes idle."""

_UNITS = {path: name for name, paths in SHARED.items() for path in paths}


def unit(nodeid: str) -> str:
    """The name of the group of tests that runs in one process: a file, or the files that share servers."""
    path = nodeid.partition("::")[0]
    return _UNITS.get(path, path)


def sort(items: list[pytest.Item]) -> None:
    """Place the tests of a unit side by side, long units first and measuring files last."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(unit(item.nodeid), []).append(item)
    items[:] = chain.from_iterable(units[name] for name in sorted(units, key=_rank))


def _rank(name: str) -> int:
    if name in ALONE:
        return 2
    return 0 if name in SHARED or name.startswith(LONG) else 1


class Schedule(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Assigns whole units to processes in the order of `sort`, and measuring files to the last process only."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove an ended process. The test that it crashed in is returned and not repeated; its other tests are."""
        units = self.assigned_work.pop(node)
        pending = [nodeid for tests in units.values() for nodeid, done in tests.items() if not done]
        returned: dict[str, dict[str, bool]] = {}
        for nodeid in pending[1:]:
            returned.setdefault(unit(nodeid), {})[nodeid] = False
        for name in reversed(returned):
            self.workqueue[name] = returned[name]
            self.workqueue.move_to_end(name, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return pending[0] if pending else None

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Assign units until the process has more than two tests: it starts one only when it has the next one."""
        if node not in self.registered_collections:
            return
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
            others = [other for other in self.nodes if other is not node]
            measures = bool(self.workqueue) and next(iter(self.workqueue)) in ALONE
            if measures and others and all(other.shutting_down for other in others):
                return  # until the others have ended
            if self.workqueue and not (measures and others):
                self._assign_work_unit(node)
            else:
                node.shutdown()  # after the tests that it has
