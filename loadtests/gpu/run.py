"""A run: how much time is left, what was measured, and what failed. Nothing that a part does ends the run."""

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `share` is its part of what the device allows, `ratio` is ours ÷ theirs."""

    part: str
    name: str
    value: float
    unit: str
    share: float | None = None
    ratio: float | None = None


@dataclass(slots=True)
class Run:
    """`seconds` from its creation on. `tiny` models for a machine without a GPU, to see that every part works."""

    device: str
    tiny: bool
    seconds: float
    clock: Callable[[], float] = time.monotonic
    figures: list[Figure] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def left(self) -> float:
        return self.seconds - (self.clock() - self._began)

    def part(self, name: str, does: Callable[["Run"], None], needs: float) -> None:
        """Run a part that takes about `needs` seconds, if so many are left."""
        if self.left < needs:
            self.skipped[name] = f"{self.left:.0f} s are left, and it takes {needs:.0f}"
            return
        began = self.clock()
        try:
            does(self)
        except Exception as error:
            self.failures[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        print(f"── {name}: {self.clock() - began:.0f} s, {self.left:.0f} left", flush=True)

    def add(
        self, part: str, name: str, value: float, unit: str, share: float | None = None, ratio: float | None = None
    ) -> None:
        figure = Figure(part, name, value, unit, share, ratio)
        self.figures.append(figure)
        print("  ".join(row(figure)), flush=True)

    def check(self, part: str, name: str, holds: bool, seen: str) -> None:
        """Record a comparison: a failure has what was seen."""
        if not holds:
            self.failures[f"{part}: {name}"] = seen
        print(f"{'ok  ' if holds else 'FAIL'} {part}: {name} ({seen})", flush=True)

    def as_json(self) -> str:
        return json.dumps(
            {
                "device": self.device,
                "figures": [asdict(figure) for figure in self.figures],
                "failures": self.failures,
                "skipped": self.skipped,
            },
            indent=1,
        )

    def as_table(self) -> str:
        """Markdown, for a page."""
        head = ["| part | figure | value | of the limit | ours ÷ theirs |", "|---|---|---|---|---|"]
        return "\n".join([*head, *(f"| {' | '.join(row(figure))} |" for figure in self.figures)])


def row(figure: Figure) -> list[str]:
    number = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.3g}"
    share = "" if figure.share is None else f"{figure.share:.0%}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return [figure.part, figure.name, f"{number} {figure.unit}", share, ratio]
