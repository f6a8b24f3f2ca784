"""The tensors of a folder by the names that they have where nothing is quantized."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from runtimes.llm.model.matrix import Weight
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.quantized_layouts import LAYOUTS, MatrixLayout, MatrixParts, Settings, is_scattered
from runtimes.llm.weights.tensor_files import InvalidCheckpoint, TensorFiles

_WAY_OUT = "serve the model with `kind: vllm`, or take a GGUF file of it"
_Result = TypeVar("_Result")
_COMPRESSED = frozenset(
    {"pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "mixed-precision", "dense"}
)


class QuantizedFiles:
    """`settings` is the quantization_config of config.json, None of a folder without. Raises UnsupportedModel for a
    method or an option that is not supported."""

    def __init__(self, files: TensorFiles, settings: Settings | None) -> None:
        self._files = files
        self._settings = settings or {}
        self._layouts = LAYOUTS[_method(settings)] if settings else ()

    def __contains__(self, name: str) -> bool:
        return name in self._files or self._place(name) is not None

    @property
    def stored_shapes(self) -> list[tuple[tuple[int, ...], bool]]:
        """Of all tensors, those of matrices in full, and whether a tensor can be stored as it is, in codes. The tensors
        of scales are among them."""
        return [self._stored_shape(name) for name in self._files]

    def weight(self, name: str) -> Weight:
        """Raises UnsupportedModel for a missing tensor, InvalidCheckpoint for parts that do not fit together."""
        place = self._place(name)
        if place is None:
            return self._files.tensor(name)
        layout, parts = place
        return _read(name, lambda: layout.weight(parts, self._settings))

    def part(self, name: str, index: int) -> Weight:
        """One part along the first dimension of a tensor, alone. Raises as `weight` does."""
        place = self._place(name)
        if place is None:
            return self._files.part(name, index)
        layout, parts = place
        return _read(name, lambda: layout.weight(_PartOf(parts.files, parts.prefix, index), self._settings))

    def _place(self, name: str) -> tuple[MatrixLayout, MatrixParts] | None:
        """How the matrix `name` is stored, None if it is not quantized."""
        for layout in self._layouts:
            parts = MatrixParts(self._files, name + "_" if layout.marker == "blocks" else name.removesuffix("weight"))
            if layout.marker in parts and layout.main in parts:
                return layout, parts
        return None

    def _stored_shape(self, stored: str) -> tuple[tuple[int, ...], bool]:
        for layout in self._layouts:
            parts = MatrixParts(self._files, stored.removesuffix(layout.main))
            if stored.endswith(layout.main) and layout.marker in parts:
                shape = _read(stored, lambda: layout.shape(parts, self._settings))  # noqa: B023 - called at once
                return shape, layout.codes and not is_scattered(parts, self._settings)
        return self._files.shape(stored), False


@dataclass(frozen=True, slots=True)
class _PartOf(MatrixParts):
    """One part along the first dimension of every tensor."""

    index: int

    def __call__(self, part: str) -> Tensor:
        return self.files.part(self.prefix + part, self.index)

    def shape(self, part: str) -> tuple[int, ...]:
        return self.files.shape(self.prefix + part)[1:]


def _read(name: str, read: Callable[[], _Result]) -> _Result:
    try:
        return read()
    except (UnsupportedModel, InvalidCheckpoint):
        raise
    except (RuntimeError, ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        reason = (str(error) or repr(error)).splitlines()[0][:200]
        raise InvalidCheckpoint(f"the quantized parts of tensor {name} do not fit together: {reason}") from None


# ── quantization_config ───────────────────────────────────────────────────────────────────────────────


def quantization_settings(raw: Mapping[str, Any]) -> Settings | None:
    """The quantization_config of a config.json; None if its model is not quantized."""
    settings = raw.get("quantization_config") or raw.get("quantization")
    if settings is not None and not isinstance(settings, dict):
        raise UnsupportedModel("quantization_config of config.json is not an object")
    return settings or None


def _method(settings: Settings) -> str:
    """Raises UnsupportedModel if a method, or one of its options, would need other arithmetic."""
    method = str(settings.get("quant_method"))
    if "quant_method" not in settings and {"group_size", "bits"} <= settings.keys():
        method = "mlx"
    if method not in LAYOUTS:
        names = ", ".join(LAYOUTS)
        raise UnsupportedModel(
            f"quantization_config of method {method!r} is not supported; these are: {names}. Else {_WAY_OUT}"
        )
    for option, supported in _OPTIONS.get(method, {}).items():
        if (value := settings.get(option)) is not None and value not in supported:
            raise UnsupportedModel(f"{option} {value!r} of quantization method {method} is not supported: {_WAY_OUT}")
    if method == "compressed-tensors":
        _refuse_transforms(settings)
    return method


_OPTIONS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "gptq": {"bits": (2, 4, 8), "checkpoint_format": ("gptq", "gptq_v2"), "is_marlin_format": (False,)},
    "awq": {"bits": (4,), "version": ("gemm", "GEMM")},
    "compressed-tensors": {"format": tuple(_COMPRESSED)},
    "mlx": {"mode": ("affine", "mxfp4")},
}


def _refuse_transforms(settings: Settings) -> None:
    sparse = settings.get("sparsity_config") or {}
    if sparse.get("format", "dense") != "dense":
        raise UnsupportedModel(f"sparsity_config of format {sparse['format']!r} is not supported: {_WAY_OUT}")
    if (settings.get("transform_config") or {}).get("config_groups"):
        raise UnsupportedModel(f"transform_config of compressed-tensors is not supported: {_WAY_OUT}")
    for group in (settings.get("config_groups") or {}).values():
        form = group.get("format")
        if form is not None and form not in _COMPRESSED:
            raise UnsupportedModel(f"format {form!r} of compressed-tensors is not supported: {_WAY_OUT}")
