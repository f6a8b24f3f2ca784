"""A second try for tests with real processes: a failed test runs once more, alone, and both outcomes are reported.

A test that then passes is `flaky`. It does not fail the run, but it is printed with its first failure, and
`flaky.txt` lists the known ones with their causes. A test of the plain shelf or of the runtimes has no second try.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import shelves

TRIED_AGAIN = frozenset({"processes", "servers"})
MOST = 10
"""If more tests fail, the change is to blame and not chance."""

SHOWN = 60
"""Lines of the first failure that are printed."""

LIST = Path(__file__).parents[1] / "flaky.txt"
_INNER = "HEADRACE_SECOND_TRY"


def listed_causes() -> dict[str, str]:
    """The tests of `flaky.txt` and the cause of each."""
    lines = (line.split("#", 1) for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {name.strip(): cause[0].strip() if cause else "" for name, *cause in lines}


class SecondTry:
    """The hooks of the process that reports. `flaky` has the tests that passed alone, with their first failure."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.flaky: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or session.shouldstop:
            return
        failed = [report for kind in ("failed", "error") for report in reporter.stats.get(kind, [])]
        reports = [report for report in failed if isinstance(report, pytest.TestReport)]
        names = dict.fromkeys(report.nodeid for report in reports)
        if not names or len(reports) < len(failed) or len(names) > MOST:
            return
        if any(not TRIED_AGAIN.intersection(report.keywords) for report in reports):
            return
        for name in names:
            reporter.write_line(f"once more, alone: {name}")
            if _passes_alone(session.config.rootpath, name):
                self.flaky[name] = next(_reason(report) for report in reports if report.nodeid == name)
        for kind in ("failed", "error"):
            others = [report for report in reporter.stats.pop(kind, []) if report.nodeid not in self.flaky]
            if others:
                reporter.stats[kind] = others
        if self.flaky:
            reporter.stats["flaky"] = [report for report in reports if report.nodeid in self.flaky]
        if len(self.flaky) == len(names):
            session.exitstatus = pytest.ExitCode.OK
            session.testsfailed = 0

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        causes = listed_causes()
        for report in terminalreporter.stats.get("flaky", []):
            terminalreporter.write_sep("_", f"first try of {report.nodeid}")
            terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-SHOWN:]))
        for name, reason in self.flaky.items():
            note = "listed" if name in causes else "new: find its cause and mend it, or list it in tests/flaky.txt"
            terminalreporter.write_line(f"flaky ({note}): {name}: failed, then passed alone: {reason}", yellow=True)


def _reason(report: pytest.TestReport) -> str:
    lines = report.longreprtext.splitlines()
    return next((line for line in lines if line.startswith("E ")), lines[-1] if lines else "")[:300]


def _passes_alone(root: Path, name: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:randomly", "-p", "no:cacheprovider", name]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=root, env={**environment, _INNER: "1"}, check=False)
    return done.returncode == 0


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and not os.environ.get(_INNER):
        config.pluginmanager.register(SecondTry(config), "second-try")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each report name its shelf."""
    for item in items:
        item.add_marker(shelves.item_shelf(item))
