"""The contracts of hosted services, one row for each: what is sent, and what in the answer means that a text is found.

OpenAI       POST /v1/moderations
Bedrock      ApplyGuardrail of the Bedrock runtime
Azure        Content Safety: text:analyze and text:shieldPrompt, version 2024-09-01
Google       Model Armor v1: sanitizeUserPrompt and sanitizeModelResponse
Lakera       POST /v2/guard
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from config.schema.guards import Side, WebhookGuardConfig


class ServiceRow(NamedTuple):
    """One service. `…` in a path or a body stands for every entry of a list."""

    path: str
    """With `{resource}` of the guard, its parts `{first}` and `{second}`, and `{verb}` of the side."""
    body: Callable[[str, Side], dict[str, Any]]
    """The body for a text of a side."""
    matches: Mapping[tuple[str, ...], Callable[[Any, int], bool | None]]
    """By place in the answer: whether the value there, with the severity of the guard, means that the text is found;
    None for a value that the service does not have. An answer must have the first of the places."""
    query: str = ""
    verbs: tuple[str, str] = ("", "")
    """Of a prompt and of an answer."""


EACH = "…"


def _is_true(value: Any, _: int) -> bool | None:
    return value if isinstance(value, bool) else None


def _word(match: str, passing: str) -> Callable[[Any, int], bool | None]:
    return lambda value, _: True if value == match else False if value == passing else None


_AZURE = "api-version=2024-09-01"
SERVICES: dict[str, ServiceRow] = {
    "openai-moderation": ServiceRow(
        "/v1/moderations",
        lambda text, _: {"model": "omni-moderation-latest", "input": text},
        {("results", EACH, "flagged"): _is_true},
    ),
    "bedrock-guardrail": ServiceRow(
        "/guardrail/{first}/version/{second}/apply",
        lambda text, side: {
            "source": "INPUT" if side == "prompt" else "OUTPUT",
            "content": [{"text": {"text": text}}],
        },
        {("action",): _word("GUARDRAIL_INTERVENED", "NONE")},
    ),
    "azure-content-safety": ServiceRow(
        "/contentsafety/text:analyze",
        lambda text, _: {"text": text, "outputType": "EightSeverityLevels"},
        {
            ("categoriesAnalysis", EACH, "severity"): lambda value, least: (
                value >= least if isinstance(value, int) else None
            )
        },
        _AZURE,
    ),
    "azure-prompt-shields": ServiceRow(
        "/contentsafety/text:shieldPrompt",
        lambda text, side: (
            {"userPrompt": text, "documents": []} if side == "prompt" else {"userPrompt": "", "documents": [text]}
        ),
        {
            ("userPromptAnalysis", "attackDetected"): _is_true,
            ("documentsAnalysis", EACH, "attackDetected"): _is_true,
        },
        _AZURE,
    ),
    "model-armor": ServiceRow(
        "/v1/{resource}:{verb}",
        lambda text, side: {("userPromptData" if side == "prompt" else "modelResponseData"): {"text": text}},
        {("sanitizationResult", "filterMatchState"): _word("MATCH_FOUND", "NO_MATCH_FOUND")},
        verbs=("sanitizeUserPrompt", "sanitizeModelResponse"),
    ),
    "lakera": ServiceRow(
        "/v2/guard",
        lambda text, side: {"messages": [{"role": "user" if side == "prompt" else "assistant", "content": text}]},
        {("flagged",): _is_true},
    ),
}
LONGEST: dict[str, int] = {"azure-content-safety": 10_000, "azure-prompt-shields": 10_000}
"""Characters of a text that a service takes at most."""


def path_of(config: WebhookGuardConfig, side: Side) -> str:
    """The path of a request to the service of a guard."""
    row, resource = SERVICES[config.service], config.resource or ""
    first, _, second = resource.rpartition("/")
    return row.path.format(resource=resource, first=first, second=second, verb=row.verbs[side == "answer"])


def has_match(service: str, answer: Any, severity: int) -> bool:
    """Whether an answer means that the text is found. Raises `ValueError` for an answer of another form."""
    verdicts = []
    for number, (place, means) in enumerate(SERVICES[service].matches.items()):
        verdicts += [means(value, severity) for value in _at(answer, place)]
        if number == 0 and not verdicts:
            raise ValueError("the answer has no verdict")
    if None in verdicts:
        raise ValueError("the answer has no verdict")
    return any(verdicts)


def _at(value: Any, place: tuple[str, ...]) -> Iterator[Any]:
    if not place:
        yield value
    elif place[0] == EACH:
        for each in value if isinstance(value, list) else ():
            yield from _at(each, place[1:])
    elif isinstance(value, dict) and place[0] in value:
        yield from _at(value[place[0]], place[1:])
