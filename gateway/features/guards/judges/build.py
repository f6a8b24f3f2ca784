"""The judge of a guard of the file. Each kind is imported when a guard needs it."""

from config.schema.guards import (
    InjectionGuardConfig,
    JudgingGuardConfig,
    LanguageGuardConfig,
    ModelGuardConfig,
    SchemaGuardConfig,
    TopicsGuardConfig,
    WebhookGuardConfig,
)
from gateway.features.guards.judges.base import Judge


def judge_of(guard: JudgingGuardConfig) -> Judge:
    """The judge of a guard. Raises `ValueError` for one that cannot be made, and `ModuleNotFoundError`."""
    if isinstance(guard, ModelGuardConfig | InjectionGuardConfig):
        return _of_model(guard)
    if isinstance(guard, TopicsGuardConfig):
        from gateway.features.guards.judges.topics import TopicJudge

        return TopicJudge(guard)
    if isinstance(guard, LanguageGuardConfig):
        from gateway.features.guards.judges.languages import LanguageJudge

        return LanguageJudge(guard)
    if isinstance(guard, SchemaGuardConfig):
        from gateway.features.guards.judges.schemas import SchemaJudge

        return SchemaJudge(guard)
    assert isinstance(guard, WebhookGuardConfig)
    from gateway.features.guards.judges.hosted import HostedJudge

    return HostedJudge(guard)


def _of_model(guard: ModelGuardConfig | InjectionGuardConfig) -> Judge:
    from gateway.features.guards.judges.models import INJECTION, ChatJudge, ConditionJudge, LabelJudge

    if guard.labels:
        return LabelJudge(guard)
    if isinstance(guard, InjectionGuardConfig):
        return ChatJudge(guard, INJECTION)
    if guard.match_if is not None:
        return ConditionJudge(guard)
    assert guard.prompt is not None
    return ChatJudge(guard, guard.prompt)
