"""The ``shadow`` of a route: copies of its requests to another target."""

from config.schema.rollout import RolloutArmConfig
from config.schema.shadow.copies import CopiesConfig
from config.schema.text import Name


class ShadowConfig(CopiesConfig):
    """Copies of a route's requests to another target, after the client's answer. The answers of the copies are compared
    with those of the client, and reach no client."""

    name: Name | None = None
    """Name of the shadow, and key of its counts; that of the target when absent."""
    to: RolloutArmConfig
    """Target of the copies. A pool's name alone is short for ``{pool: NAME}``."""

    @property
    def label(self) -> str:
        """The name of the shadow."""
        return self.name or self.to.label
