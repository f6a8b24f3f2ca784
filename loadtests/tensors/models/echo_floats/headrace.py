"""The input as the output."""

from collections.abc import Mapping
from typing import Any


class Model:
    def infer(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"OUT": inputs["IN"]}
