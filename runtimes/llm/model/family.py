"""What a row of the table of families has: what config.json calls things, and what is special."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtimes.llm.model import tensor_names
from runtimes.llm.model.family_features import Raw
from runtimes.llm.model.tensor_names import Names


def _no_features(raw: Raw) -> dict[str, Any]:
    return {}


def _as_it_is(raw: Raw) -> Raw:
    return raw


def _has_window(raw: Raw, layer: int) -> bool:
    return raw.get("sliding_window") is not None


def _always(raw: Raw, layer: int, sliding: bool) -> bool:
    return True


def _the_models(raw: Raw, layer: int) -> tuple[int, int] | None:
    return None


def _never(raw: Raw, layer: int) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`slides` tells which layers have a window where config.json does not list them, `turns` which are turned by their
    positions. Of `neighbours`, a rotation turns (2i, 2i + 1). `alike` layers all have the same attention, whatever
    config.json lists. `defaults` are transformers' for absent fields, `keys` the family's own spellings of fields;
    `refused` fields change what is computed, and have no place here."""

    names: Names = field(default_factory=lambda: tensor_names.LLAMA)
    defaults: Raw = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    completed: Callable[[Raw], Raw] = _as_it_is
    """config.json with the fields that follow from others."""
    features: Callable[[Raw], dict[str, Any]] = _no_features
    slides: Callable[[Raw, int], bool] = _has_window
    turns: Callable[[Raw, int, bool], bool] = _always
    heads: Callable[[Raw, int], tuple[int, int] | None] = _the_models
    """Key heads of a layer, and the size of a head, where they are not the model's."""
    values_are_keys: Callable[[Raw, int], bool] = _never
    alike: bool = False
    neighbours: bool = False
    local_rope: bool = False
    """Whether only layers without a window are scaled."""
    norms_are_offsets: bool = False
    """Whether norm weights are stored as their difference from 1."""
    refused: tuple[str, ...] = ()
