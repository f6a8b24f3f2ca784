"""The shadows of one process. A reload preserves those that compare the same."""

from collections.abc import Mapping

from config.schema.config import Config
from policies.shadowing.live import LiveShadow
from policies.shadowing.pairs import PairTally, ShadowSample
from policies.shadowing.planned import planned


class LiveShadows:
    """Shadows by name."""

    def __init__(self) -> None:
        self.by_name: Mapping[str, LiveShadow] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        configured: dict[str, LiveShadow] = {}
        for plan in planned(config):
            live = self.by_name.get(plan.name)
            if live is None or live.plan.identity != plan.identity:
                live = LiveShadow(plan)
            live.configure(plan, config.workers)
            configured[plan.name] = live
        self.by_name = configured

    def take(self) -> dict[tuple[str, str], PairTally]:
        """The counts since the last report, by name and identity."""
        taken = ((live, live.take()) for live in self.by_name.values())
        return {(live.name, live.plan.identity): tally for live, tally in taken if tally is not None}

    def take_samples(self) -> dict[tuple[str, str], list[ShadowSample]]:
        """The samples since the last report, by name and identity."""
        taken = ((live, live.take_samples()) for live in self.by_name.values())
        return {(live.name, live.plan.identity): samples for live, samples in taken if samples}
