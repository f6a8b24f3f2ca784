import json
import logging
import sys
from collections.abc import Iterator

import pytest

from config.schema.config import LogConfig
from gateway.telemetry.process_log import ProcessHandler, begin_log, configure_log


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_each_line_is_one_object_also_with_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log("worker-1")
    configure_log(LogConfig(format="json"))
    log = logging.getLogger("gateway.some")
    log.info('a "quote"\nand a second line')
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it failed: %d", 7)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["message"] == 'a "quote"\nand a second line'
    assert (first["level"], first["logger"], first["process"]) == ("info", "gateway.some", "worker-1")
    assert first["time"].endswith("Z")
    assert second["message"] == "it failed: 7"
    assert "ValueError: no" in second["exception"]


def test_a_change_of_level_and_form_takes_effect_and_leaves_one_handler(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log()
    log = logging.getLogger("gateway.some")
    configure_log(LogConfig(level="error"))
    log.warning("hidden")
    configure_log(LogConfig(level="debug"))
    log.debug("shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("DEBUG gateway.some shown")
    assert sum(isinstance(each, ProcessHandler) for each in logging.getLogger().handlers) == 1


def test_the_log_of_another_program_stays_as_it_is() -> None:
    root = logging.getLogger()
    root.handlers[:] = [handler := logging.StreamHandler(sys.stdout)]
    level = root.level
    configure_log(LogConfig(format="json", level="error"))
    assert (root.handlers, root.level) == ([handler], level)
