"""The expected usage that only a response reports."""

WEIGHT = 0.1
"""The weight of the latest answer in the moving mean."""


class DeviceTime:
    """Device time for each row: the moving mean of each model whose server reports its device time."""

    __slots__ = ("_by_model",)

    def __init__(self) -> None:
        self._by_model: dict[str, float] = {}

    def expected(self, model: str, rows: int) -> float:
        """Expected milliseconds for a request with `rows` rows; 0 before the first report."""
        each = self._by_model.get(model)
        return 0.0 if each is None else each * max(1, rows)

    def record(self, model: str, rows: int, milliseconds: float) -> None:
        """Record the reported time of a request. The models are those of the configuration, so memory is bounded."""
        each = milliseconds / max(1, rows)
        mean = self._by_model.get(model)
        self._by_model[model] = each if mean is None else mean + WEIGHT * (each - mean)
