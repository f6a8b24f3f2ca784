"""What a request will probably use of what only its answer tells."""

WEIGHT = 0.1
"""Of the latest answer, in the mean of those before it."""


class DeviceTime:
    """For how long models keep their devices busy, a row: the mean of late, of each model whose server tells."""

    __slots__ = ("_by_model",)

    def __init__(self) -> None:
        self._by_model: dict[str, float] = {}

    def expected(self, model: str, rows: int) -> float:
        """Milliseconds for a request of so many rows; 0 while nothing is known."""
        return self._by_model.get(model, 0.0) * max(1, rows)

    def told(self, model: str, rows: int, milliseconds: float) -> None:
        """A request took so long. Models are those of the configuration, so there are few."""
        each = milliseconds / max(1, rows)
        known = self._by_model.get(model)
        self._by_model[model] = each if known is None else known + WEIGHT * (each - known)
