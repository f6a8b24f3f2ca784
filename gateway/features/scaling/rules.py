"""The rules of a pool's replicas, from the configuration."""

from config.schema.config import PoolConfig
from policies.clock import Window
from policies.scaling.scaler import ScalingRules


def rules_of(pool: PoolConfig) -> ScalingRules:
    """The rules of a pool whose number of endpoints is decided here."""
    replicas = pool.scaling
    assert replicas is not None
    occupancy = {} if pool.runtime is None else {"occupancy": pool.runtime.replicas.occupancy}
    return ScalingRules(
        places=pool.places,
        least=replicas.min,
        most=replicas.most,
        wait=replicas.wait,
        late=replicas.late,
        **occupancy,
        hold=replicas.hold,
        idle=replicas.idle,
    )


class Schedule:
    """The windows of time in which a pool needs more replicas."""

    def __init__(self, pool: PoolConfig) -> None:
        assert pool.scaling is not None
        self._windows = [(Window(each.during), each.min) for each in pool.scaling.schedule]

    def floor(self, utc: float) -> int:
        """The replicas that are required at a Unix time."""
        return max((least for window, least in self._windows if window.holds(utc)), default=0)
