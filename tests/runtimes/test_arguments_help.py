"""The help of both runtimes' command lines."""

from collections.abc import Callable

import pytest

from runtimes.llm.__main__ import main as llm
from runtimes.tensor.__main__ import main as tensor

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("main", [llm, tensor])
def test_help_shows_defaults_of_values_only(
    main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: 30" in text
    for nothing in ("None", "True", "False", "[]", ")"):
        assert f"(default: {nothing}" not in text
