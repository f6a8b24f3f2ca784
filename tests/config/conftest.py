"""A file that is right, to put one mistake in at a time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from config.loader import ConfigError, load
from config.schema.section import Section

RIGHT = """\
version: 1
pools:
  - name: vllm
    endpoints: [http://10.0.0.5:8000, http://10.0.0.6:8000]
  - name: spare
    endpoints: [http://10.0.0.7:8000]
models:
  - name: chat
    routes:
      - to: vllm
        fallback: [spare]
tenants:
  - name: acme
    models: [chat]
"""


def fields_of(section: type[Section]) -> str:
    """The names that a problem with an unknown field lists."""
    return ", ".join(field.alias or name for name, field in section.model_fields.items())


Complaints = Callable[[str], list[str]]


@pytest.fixture
def complaints(tmp_path: Path) -> Complaints:
    """Text → its problems, each as ``LINE: PATH: message``; none when it loads."""
    path = tmp_path / "file.yaml"

    def complain(text: str) -> list[str]:
        path.write_text(text)
        try:
            load(path)
        except ConfigError as error:
            return [line.removeprefix(f"{path}:") for line in str(error).splitlines()]
        return []

    return complain
