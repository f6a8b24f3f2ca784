"""A model's output as lines of the log."""

import logging

import pytest

from runtimes.tensor.instances.model_log import ModelLog


def test_a_model_s_output_forges_no_line_and_commands_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = ModelLog("m")
    log.feed("a\0b\x1b[31mc\x85d\u2028e\x9bf\tg\n".encode() + b"\xff\n\0\n")
    log.text("h\u2029i")
    assert [record.getMessage() for record in caplog.records] == ["m: ab[31mcdef\tg", "m: \\xff", "m: h", "m: i"]
