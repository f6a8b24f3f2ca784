from collections.abc import Sequence

from typing_extensions import Buffer

def whole_request(
    data: bytes | memoryview, max_fields: int
) -> tuple[str, bytes, dict[bytes, bytes], bool, bytes] | None: ...
def whole_response(data: bytes | memoryview) -> tuple[int, dict[bytes, bytes], bool, bytes, bool] | None: ...
def whole_chunks(data: bytes | memoryview) -> tuple[bytes, bool] | None: ...
def encoded_fields(fields: Sequence[tuple[str, str]]) -> bytes | None: ...

class Row:
    def __init__(
        self,
        memory: Buffer,
        *,
        row: int,
        column: int,
        journal: int,
        lock: int,
        key: tuple[int, int],
        number: int,
        worker: int,
        rates: tuple[tuple[int, object, float, float, float], ...],
        longest: float,
        most: int,
        budget: object | None,
        amount: int,
        period: int,
    ) -> None: ...
    def take(
        self, amounts: tuple[float, ...], picos: int, now: float, utc: float
    ) -> tuple[dict[int, float], int, int] | None: ...
    def settle(
        self,
        reserved: dict[int, float],
        reserved_picos: int,
        window: int,
        amounts: tuple[float, ...],
        picos: int,
        now: float,
    ) -> bool: ...
    def undo(self, reserved: dict[int, float], reserved_picos: int, window: int, now: float) -> bool: ...
