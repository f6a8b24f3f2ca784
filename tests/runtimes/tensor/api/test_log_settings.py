"""The log, as clients may change it while the server runs."""

import logging

import pytest

from adapters.errors import CallerError
from runtimes.tensor.api.log_settings import LogSettings, SettingsFormatter

pytestmark = pytest.mark.plain


def record(level: int, message: str = "hello") -> logging.LogRecord:
    return logging.LogRecord("runtimes.tensor", level, __file__, 1, message, None, None)


def test_levels_are_shown_and_hidden_one_by_one() -> None:
    settings = LogSettings()
    assert [settings.filter(record(level)) for level in (10, 20, 30, 40, 50)] == [False, True, True, True, True]
    settings.update({"log_info": False, "log_verbose_level": 1})
    assert [settings.filter(record(level)) for level in (10, 20, 30, 40, 50)] == [True, False, True, True, True]
    settings.update({"log_error": False})
    assert [settings.filter(record(level)) for level in (30, 40, 50)] == [True, False, False]


def test_a_record_is_one_line_in_either_form() -> None:
    settings = LogSettings()
    formatter = SettingsFormatter(settings)
    assert formatter.format(record(20, "a\nb")).endswith(" INFO runtimes.tensor a\\nb")
    settings.update({"log_format": "default"})
    line = formatter.format(record(30))
    assert line.startswith("W")
    assert line.endswith("runtimes.tensor] hello")


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": "blue"}, {"log_info": 1}, {"log_verbose_level": True}, {"log_verbose_level": -1},
        {"log_verbose_level": "1"}, {"log_format": "xml"}, {"log_file": "/nonexistent/log"}, {"log_info": None},
    ],
)  # fmt: skip
def test_an_invalid_setting_changes_nothing(changes: dict[str, object]) -> None:
    settings = LogSettings()
    before = settings.report()
    with pytest.raises(CallerError):
        settings.update({"log_warning": False, **changes})
    assert settings.report() == before
