"""The output file: one line for each request. A stopped run continues with the requests that have no answer."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class OutputExists(Exception):
    """The output file has results already, and the run does not continue them."""


class OutputFile:
    """Appends results, each as one line. `answered` are the ids that have an answer already."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Raises `OutputExists`. Continuing removes failed and torn lines: their requests run again."""
        self.answered = set[str]()
        if path.exists() and path.stat().st_size:
            if not resume:
                raise OutputExists(f"{path} has results: continue them with --resume, or choose another file")
            self._retain_answers(path)
        self._file = path.open("ab")

    def write(self, result: dict[str, Any]) -> None:
        """Append a result. The line is whole in the file, or absent after a crash."""
        self._file.write(json.dumps(result, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
        self._file.flush()

    def _retain_answers(self, path: Path) -> None:
        new = path.with_name(f"{path.name}.new")
        with path.open("rb") as old, new.open("wb") as rest:
            for raw in old:
                custom_id = _answered_id(raw)
                if custom_id is not None and custom_id not in self.answered:
                    self.answered.add(custom_id)
                    rest.write(raw)
            rest.flush()
            os.fsync(rest.fileno())
        new.replace(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _answered_id(raw: bytes) -> str | None:
    """The id of a whole line with an answer."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
        is_answer = line["error"] is None and line["response"]["status_code"] < 400
        return str(line["custom_id"]) if is_answer else None
    except (ValueError, KeyError, TypeError):
        return None
