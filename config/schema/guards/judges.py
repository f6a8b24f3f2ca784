"""The sections of guards that judge whole texts: by a model, by a schema, by a language, by a hosted service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from config.schema.guards.kinds import NamedGuardConfig, Side
from config.schema.section import Conflict, Section
from config.schema.text import ModelName, Name, Secret, Shape
from config.schema.units import Duration


def as_json(value: Any) -> Any:
    """A value of the file, whose lists are tuples, as JSON has it."""
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list | tuple) else value


Share = Annotated[float, Field(ge=0, le=1)]
Language = Annotated[str, Shape(r"[a-z]{2}", "two letters of ISO 639-1, such as `en`")]
Instruction = Annotated[str, Field(min_length=1, max_length=65_536)]
Service = Literal[
    "headrace", "openai-moderation", "bedrock-guardrail", "azure-content-safety", "azure-prompt-shields",
    "model-armor", "lakera",
]  # fmt: skip
"""Whose contract a hosted service has."""
RESOURCES: dict[str, str] = {
    "bedrock-guardrail": "ID/VERSION",
    "model-armor": "projects/PROJECT/locations/LOCATION/templates/TEMPLATE",
}
"""The services with a resource in their path, and its form."""


class JudgingGuardConfig(NamedGuardConfig):
    """What every guard has that judges whole texts. It has no place in the text, so it cannot mask one."""

    on_error: Literal["block", "pass"] = "block"
    """What happens to a text when its judge fails: the request fails with ``guard_failed``, or the text passes."""
    timeout: Annotated[Duration, Field(gt=0, le=60)] = 5.0
    """Longest time of one call of the model or the service. After 5 failures in a row, ``on_error`` decides for 30 s
    without a call."""
    window: int = Field(200, ge=1, le=16_384)
    """Tokens that are judged at once, of four characters each. A stream is held back by so many."""
    overlap: int = Field(50, ge=0, le=16_383)
    """Tokens of a window that the next one has again. No longer text can escape between two windows."""

    def models(self) -> Iterator[tuple[str, str]]:
        """The models that it calls, each with its field."""
        yield from ()

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.action == "mask":
            message = "a verdict has no place in the text: use `block`, `replace`, `route` or `warn`"
            yield Conflict(("action",), message, concerns_value=True)
        if self.overlap >= self.window:
            yield Conflict(("overlap",), "is less than the window: each window must have new text", concerns_value=True)


class JudgingModelGuardConfig(JudgingGuardConfig):
    """What every guard has that asks a model of chats, or a classifier."""

    model: ModelName
    """The model."""
    thinking_tokens: int = Field(0, ge=0, le=65_536)
    """Tokens that a model of chats may think before its verdict, in addition to those of the verdict."""
    labels: tuple[str, ...] = Field((), max_length=100)
    """Labels of ``/v1/classify`` that a text must not have. The model then has servers of that operation."""
    classes: tuple[str, ...] = Field((), max_length=1000)
    """With ``labels``: all labels of the model, in the order of their probabilities. Servers name the most probable one
    only, so they are needed when another one can reach ``threshold``."""
    threshold: Share = 0.5
    """With ``labels``: the least probability of the label."""

    def models(self) -> Iterator[tuple[str, str]]:
        yield "model", self.model

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not self.labels:
            yield from self.inert("belongs to `labels`", "threshold", "classes")
            return
        yield from self.inert("has no effect beside `labels`", "thinking_tokens")
        for label in self.labels if self.classes else ():
            if label not in self.classes:
                yield Conflict(("classes",), f"does not have the label `{label}`", concerns_value=True)


class ModelGuardConfig(JudgingModelGuardConfig):
    """A guard that asks a model of this file: of tensors, of labels, or of chats. No guard examines its request."""

    kind: Literal["model"]
    """A model judges."""
    match_if: str | None = None
    """Condition on its outputs, as in the step ``guard`` of a pipeline; ``text`` is the answer of a model of chats."""
    prompt: Instruction | None = None
    """Instructions for a model of chats. Without ``match_if``, its answer begins with ``yes`` for a text to find, and
    with ``no`` for any other."""
    input: str | None = None
    """Input of a model of tensors that receives the text; its only input of BYTES when absent."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not (self.match_if or self.prompt or self.labels):
            yield Conflict(("kind",), "finds nothing: give `match_if`, `prompt` or `labels`", concerns_value=True)
        if self.labels:
            yield from self.inert("has no effect beside `labels`", "match_if", "prompt", "input")
        elif self.prompt is None:
            yield from self.inert("belongs to `prompt`", "thinking_tokens")


class InjectionGuardConfig(JudgingModelGuardConfig):
    """A guard against texts that try to replace the instructions of a model."""

    kind: Literal["injection"]
    """A model judges by instructions of the gateway, or by labels of its own."""
    on: tuple[Side, ...] = Field(("prompt",), min_length=1)
    """Sides of the request."""
    model: ModelName
    """A model of chats; with ``labels`` a classifier with ``/v1/classify``."""
    labels: tuple[str, ...] = Field((), max_length=100)
    """Labels of a classifier for such texts, such as ``INJECTION`` and ``JAILBREAK``."""


class TopicConfig(Section):
    """One topic."""

    name: Name
    """Name of the topic."""
    examples: tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...] = Field(min_length=1, max_length=64)
    """Texts about it. A text is as close to a topic as to the closest of its examples."""


class TopicsGuardConfig(JudgingGuardConfig):
    """A guard against topics, by a model of embeddings."""

    kind: Literal["topics"]
    """Compares embeddings."""
    embed: ModelName
    """Model of embeddings, such as one of the bundled runtime."""
    deny: tuple[TopicConfig, ...] = Field((), max_length=100)
    """Topics that a text must not have."""
    allow: tuple[TopicConfig, ...] = Field((), max_length=100)
    """The only topics that a text of 40 characters or more may have."""
    threshold: Share = 0.6
    """Cosine from which a text has a topic. It depends on the model: try it with ``mode: monitor``."""

    def models(self) -> Iterator[tuple[str, str]]:
        yield "embed", self.embed

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not self.deny and not self.allow:
            yield Conflict(("kind",), "finds nothing: give `allow` or `deny`", concerns_value=True)


class LanguageGuardConfig(JudgingGuardConfig):
    """A guard against texts in other languages. It needs the extra ``languages``."""

    kind: Literal["language"]
    """Compares the language."""
    allow: tuple[Language, ...] = Field((), max_length=100)
    """The only languages that a text may have."""
    deny: tuple[Language, ...] = Field((), max_length=100)
    """Languages that a text must not have."""
    confidence: Share = 0.9
    """Least probability of a language. A text with less, or with fewer than 20 letters, is not decided and passes."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not self.deny and not self.allow:
            yield Conflict(("kind",), "finds nothing: give `allow` or `deny`", concerns_value=True)


class SchemaGuardConfig(JudgingGuardConfig):
    """A guard of the form of an answer. The text of each choice must be JSON that a schema allows; a choice without a
    text, such as a call of a tool, passes. A stream is held until its end. It needs the extra ``guards``."""

    kind: Literal["schema"]
    """Validates JSON."""
    on: tuple[Side, ...] = Field(("answer",), min_length=1)
    """Always ``[answer]``."""
    json_schema: Annotated[dict[str, Any], AfterValidator(as_json)]
    """A JSON Schema of draft 2020-12, with patterns of RE2. References lead only into this schema."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        yield from self.inert("has no effect: an answer is validated as a whole", "window", "overlap")
        if "prompt" in self.on:
            yield Conflict(("on",), "a schema is that of answers: write `on: [answer]`", concerns_value=True)


class WebhookGuardConfig(JudgingGuardConfig):
    """A guard that asks a hosted service."""

    kind: Literal["webhook"]
    """A hosted service judges."""
    model: ModelName
    """Model whose pool leads to the service, with ``protocol: http``. The pool has the credentials of the service."""
    service: Service = "headrace"
    """Whose contract the service has: that of docs/guard-webhooks.md, or that of a provider."""
    secret: Secret | None = None
    """With ``headrace``: the secret of the signatures, after the Standard Webhooks specification."""
    resource: Annotated[str, Shape(r"[A-Za-z0-9._:/-]{1,512}", "a resource's name")] | None = None
    """The guardrail ``ID/VERSION`` of Bedrock, or the template ``projects/…/templates/…`` of Model Armor."""
    severity: int = Field(4, ge=1, le=7)
    """With ``azure-content-safety``: the least severity of a category that is found."""
    window: int = Field(1000, ge=1, le=16_384)
    """Tokens that are judged at once, of four characters each. A stream is held back by so many."""

    def models(self) -> Iterator[tuple[str, str]]:
        yield "model", self.model

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.service == "headrace" and self.secret is None:
            yield Conflict(("kind",), "needs `secret`: its requests are signed", concerns_value=True)
        if self.service != "headrace":
            yield from self.inert("belongs to the service `headrace`", "secret")
        if self.service != "azure-content-safety":
            yield from self.inert("belongs to the service `azure-content-safety`", "severity")
        form = RESOURCES.get(self.service)
        if form is None:
            yield from self.inert("belongs to the services with a resource", "resource")
        elif self.resource is None or self.resource.count("/") != form.count("/"):
            yield Conflict(("service",), f"needs `resource: {form}`", concerns_value=True)
