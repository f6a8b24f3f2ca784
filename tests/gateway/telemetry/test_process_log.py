"""The process's own log: its level and its form are those of the file, and a reload changes them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from config.schema.telemetry import LogConfig
from gateway.telemetry import process_log


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    process_log.begin("worker-3")
    assert process_log._handler is not None
    process_log._handler.setStream(stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    monkeypatch.setattr(process_log, "_handler", None)


def test_text_is_the_default(written: io.StringIO) -> None:
    logging.getLogger("gateway.x").info("begins")
    logging.getLogger("gateway.x").debug("hidden")
    assert written.getvalue().endswith(" INFO worker-3 gateway.x begins\n")
    assert written.getvalue().count("\n") == 1


def test_json_has_one_object_a_line(written: io.StringIO) -> None:
    process_log.configure(LogConfig(format="json", level="warning"))
    log = logging.getLogger("gateway.x")
    log.info("hidden")
    try:
        raise ValueError("a\nb")
    except ValueError:
        log.exception("two\nlines of %s", "text")
    (line,) = written.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["process"], entry["message"]) == ("error", "worker-3", "two\nlines of text")
    assert "ValueError: a\nb" in entry["exception"]
    process_log.configure(LogConfig(level="debug"))
    log.debug("shown")
    assert written.getvalue().splitlines()[-1].endswith(" DEBUG worker-3 gateway.x shown")
