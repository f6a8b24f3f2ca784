"""Makes `ts` importable for handlers, with the modules of this package, unless TorchServe itself is installed in the
model's environment."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_PACKAGES: Final = frozenset({"ts", "ts.torch_handler", "ts.utils", "ts.handler_utils"})
_HERE: Final = "runtimes.tensor.torchserve_api"
_MODULES: Final = {
    "ts.context": "context",
    "ts.torch_handler.base_handler": "base_handler",
    "ts.torch_handler.vision_handler": "vision_handler",
    "ts.torch_handler.image_classifier": "image_classifier",
    "ts.torch_handler.image_segmenter": "image_segmenter",
    "ts.torch_handler.object_detector": "object_detector",
    "ts.torch_handler.text_handler": "text_handler",
    "ts.torch_handler.text_classifier": "text_classifier",
    "ts.utils.util": "utilities",
    "ts.handler_utils.utils": "utilities",
    "ts.handler_utils.timer": "utilities",
}


def has(name: str) -> bool:
    """Whether a module of `ts.torch_handler` is offered."""
    return f"ts.torch_handler.{name}" in _MODULES


def offer() -> bool:
    """Whether TorchServe itself is installed. If not, its modules are offered from here on."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return False
    if importlib.util.find_spec("ts") is not None:
        return True
    sys.meta_path.append(_Finder())
    return False


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname in _PACKAGES:
            return ModuleSpec(fullname, _Offered(), is_package=True)
        return ModuleSpec(fullname, _Offered()) if fullname in _MODULES else None


class _Offered(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        name = _MODULES.get(spec.name)
        return None if name is None else importlib.import_module(f"{_HERE}.{name}")

    def exec_module(self, module: ModuleType) -> None:
        return
