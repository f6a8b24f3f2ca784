"""adapter_config.json of PEFT (https://huggingface.co/docs/peft/package_reference/lora): which modules an adapter
changes, and by how much.

A field that would change the arithmetic in another way is refused by its name.
"""

import functools
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.tensor_files import json_object

T = TypeVar("T")
CONFIG = "adapter_config.json"
MOST_RANK = 4096
_REFUSED = (
    "use_dora", "modules_to_save", "lora_bias", "target_parameters", "trainable_token_indices", "layer_replication",
    "alora_invocation_tokens", "use_qalora", "use_bdlora", "arrow_config", "kasa_config", "monteclora_config",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """`rank_pattern` and `alpha_pattern` are by patterns of modules' names, the first that matches counts."""

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    by_root: bool
    """rsLoRA: alpha is divided by the root of the rank (Kalajdzievski 2023, https://arxiv.org/abs/2312.03732)."""
    targets: str | tuple[str, ...]
    """Ends of modules' names, or a pattern, or `all-linear`."""

    @classmethod
    def read(cls, folder: Path) -> "AdapterConfig":
        """Raises UnsupportedModel or InvalidCheckpoint, which name the file."""
        raw = json_object(folder / CONFIG)
        if (kind := raw.get("peft_type")) != "LORA":
            raise _wrong(f"peft_type is {kind!r}: only LORA is supported")
        if (bias := raw.get("bias") or "none") != "none":
            raise _wrong(f"bias is {bias!r}: only none is supported")
        for name in _REFUSED:
            if raw.get(name):
                raise _wrong(f"{name} is set, which is not supported")
        targets = raw.get("target_modules")
        if isinstance(targets, list):
            targets = tuple(map(str, targets))
        if not targets or not isinstance(targets, str | tuple):
            raise _wrong("target_modules has neither names nor a pattern")
        return cls(
            rank=_rank("r", raw["r"]),
            alpha=_number("lora_alpha", raw["lora_alpha"]),
            rank_pattern={key: _rank(f"rank_pattern.{key}", of) for key, of in _pattern(raw, "rank_pattern").items()},
            alpha_pattern={
                key: _number(f"alpha_pattern.{key}", of) for key, of in _pattern(raw, "alpha_pattern").items()
            },
            by_root=bool(raw.get("use_rslora")),
            targets=targets,
        )

    def rank_of(self, module: str) -> int:
        return _first(self.rank_pattern, module, self.rank)

    def scale_of(self, module: str) -> float:
        """The factor of what the adapter adds."""
        rank = self.rank_of(module)
        return _first(self.alpha_pattern, module, self.alpha) / (math.sqrt(rank) if self.by_root else rank)

    def has(self, module: str) -> bool:
        """Whether target_modules names the module. A pattern that cannot be evaluated is taken to name it."""
        if isinstance(self.targets, tuple):
            return any(module == target or module.endswith(f".{target}") for target in self.targets)
        if self.targets == "all-linear":
            return True
        try:
            return _matches(f"^(?:{self.targets})$", module)
        except SchemaError:
            return True


def _pattern(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name) or {}
    if not isinstance(value, dict):
        raise _wrong(f"{name} is not an object")
    return value


def _rank(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_RANK:
        raise _wrong(f"{name} must be a number of 1 to {MOST_RANK}, not {value!r}"[:200])
    return value


def _number(name: str, value: object) -> float:
    # An integer of JSON may be beyond every float.
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    raise _wrong(f"{name} must be a number, not {value!r}"[:200])


def _first(patterns: Mapping[str, T], module: str, otherwise: T) -> T:
    for pattern, value in patterns.items():
        try:
            if re.escape(pattern) == pattern.replace(".", r"\.") and _ends_with(module, pattern):
                return value
            if _matches(rf"^(.*\.)?({pattern})$", module):
                return value
        except SchemaError:
            raise _wrong(f"the pattern {pattern!r} cannot be evaluated") from None
    return otherwise


def _ends_with(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _matches(pattern: str, text: str) -> bool:
    """By a library whose time is linear in the text: the pattern is of a file that others wrote.

    Raises SchemaError for a pattern that it does not support.
    """
    try:
        _validator(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


@functools.lru_cache(maxsize=4096)
def _validator(pattern: str) -> TypeAdapter[str]:
    """Compiled once: rank_pattern may name every module, and each is compared with every name."""
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])


def _wrong(reason: str) -> UnsupportedModel:
    return UnsupportedModel(f"{CONFIG}: {reason}")
