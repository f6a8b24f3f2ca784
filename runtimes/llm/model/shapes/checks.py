"""Whether a number of a configuration can be that of a model."""


class UnsupportedModel(ValueError):
    """The model has a part that this engine does not support, or lacks a part that it needs."""


MOST = 1 << 24
MAX_LAYERS = 1 << 12
MAX_EXPERTS = 1 << 12
MAX_HEAD_DIM = 1 << 12
MAX_LATENT = 1 << 13
_LARGEST = 1e9


def checked_count(name: str, value: object, most: int = MOST) -> int:
    """`value` if it can be a size of a model. Raises UnsupportedModel."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        shown = repr(value) if not isinstance(value, int) or value.bit_length() < 100 else "a huge number"
        raise UnsupportedModel(f"the configuration's {name} is {shown}, which no model can have")
    return value


def check_number(name: str, value: object) -> None:
    """Raises UnsupportedModel for a `value` that no factor of a model has."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _LARGEST:
        raise UnsupportedModel(f"the configuration's {name} is {value!r}, which no model can have")
