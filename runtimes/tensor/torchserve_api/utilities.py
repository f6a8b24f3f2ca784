"""The functions of `ts.utils.util`, `ts.handler_utils.utils` and `ts.handler_utils.timer` that handlers use."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class PredictionException(Exception):
    """A failure whose text and status the client gets."""

    def __init__(self, message: str, error_code: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """The classes that a module itself defines."""
    classes = [
        one for _, one in inspect.getmembers(module, inspect.isclass) if one.__module__ == module.__name__
    ]  # fmt: skip
    return [one for one in classes if parent_class is None or issubclass(one, parent_class)]


def load_label_mapping(mapping_file_path: str) -> dict[str, Any] | None:
    """The names of classes in `index_to_name.json`, the last of each list of names; None without the file."""
    path = Path(mapping_file_path)
    if not path.is_file():
        return None
    mapping = json.loads(path.read_text())
    if not isinstance(mapping, dict):
        raise TypeError('index_to_name mapping should be in "class":"label" json format')
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        return {str(key): name for key, name in enumerate(names)}
    mapping = {key: value[-1] if isinstance(value, list) and value else value for key, value in mapping.items()}
    if not all(isinstance(value, str) for value in mapping.values()):
        raise TypeError("labels in index->name mapping must be either str or List[str]")
    return mapping


def map_class_to_label(
    probs: Sequence[Sequence[float]],
    mapping: Mapping[str, Any] | None = None,
    lbl_classes: Sequence[Sequence[int]] | None = None,
) -> list[dict[str, float]]:
    """The probabilities of each row by the name of their class."""
    classes = lbl_classes or [list(range(len(row))) for row in probs]
    return [
        {str((mapping or {}).get(str(one), one)): value for one, value in zip(row_classes, row, strict=False)}
        for row_classes, row in zip(classes, probs, strict=True)
    ]


def timed(func: F) -> F:
    """The function itself: the runtime measures batches."""
    return func


def send_intermediate_predict_response(*_: Any, **__: Any) -> NoReturn:
    raise PredictionException("Intermediate responses of handlers are not supported: return the whole answer.", 501)
