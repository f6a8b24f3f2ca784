"""A rollout as samples of metrics: each has the name of its family and the labels beside the rollout's name."""

from collections.abc import Iterator

from config.schema.rollout import RolloutConfig
from policies.rollouts.evidence import alarms, event_counts, log_ratio_mismatch, proofs
from policies.rollouts.progress import RolloutProgress
from policies.sequential.event_ratio import e_value

STATUSES = ("running", "held", "back", "done")


def samples(config: RolloutConfig, progress: RolloutProgress) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """The family, the labels and the value of each sample."""
    yield "weight", (), progress.share
    for status in STATUSES:
        yield "status", (status,), progress.status == status
    yield "e_value", ("sample_ratio", ""), e_value(log_ratio_mismatch(progress))
    for alarm in alarms(config, progress):
        yield "e_value", ("back_if", alarm.condition.key), e_value(alarm.log_e)
    for proof in proofs(config, progress):
        if proof.log_e is not None:
            yield "e_value", ("on_if", proof.condition.key), e_value(proof.log_e)
    for event in config.events():
        counts = event_counts(progress.strata, event)
        to, total = sum(count.canary for count in counts), sum(count.total for count in counts)
        yield "events", (event.key, "from"), total - to
        yield "events", (event.key, "to"), to
