"""A pipeline: a graph of steps that answers a model's requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import Field as Bounds
from pydantic import field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from config.schema.money import Amount
from config.schema.pipelines.leaves import LEAVES, LeafKinds, TemplateText
from config.schema.pipelines.parts import (
    Expression,
    Field,
    OnErrorConfig,
    PipelineTensorConfig,
    Place,
    Reference,
    StepName,
)
from config.schema.section import Section, ShortSection
from config.schema.text import Name
from config.schema.units import Count, Duration


class AgreementConfig(Section):
    """A comparison of drafts without a model."""

    by: Literal["text", "number", "edit"] = "text"
    """``text``: equal without case, spaces and punctuation. ``number``: equal in the last number. ``edit``: the mean
    similarity to the other drafts."""


class BudgetConfig(Section):
    """The most that all calls of one request may use together. A call that may exceed it does not start."""

    tokens: Count | None = None
    """Tokens of prompts and completions, such as ``8k``."""
    spend: Amount | None = None
    """Money, such as ``0.02 usd``, by the prices of the models."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.tokens is None and self.spend is None:
            raise ValueError("limits nothing: give `tokens` or `spend`")
        return self


class JudgementConfig(Section):
    """A model that compares two drafts at a time."""

    model: Name
    """Model of chats that judges."""
    prompt: TemplateText | None = None
    """Template of the request to the judge, with ``question``, ``a`` and ``b``. It must let the judge end with
    ``[[A]]``, ``[[B]]`` or ``[[C]]`` for a tie. Built in when absent."""
    max_tokens: int = Bounds(512, ge=1, le=65_536)
    """Tokens of a judgement."""
    both_orders: bool = True
    """Whether each pair is judged in both orders. Verdicts that differ are a tie, which the earlier draft wins."""
    otherwise: Literal["first", "fail"] = Bounds("first", alias="else")
    """When no judgement succeeds: ``first`` takes the first draft, ``fail`` fails the step."""


MAX_ROWS = 1024
"""Rows that a step computes one by one."""
MAX_DRAFTS = 16
Combine = Literal["vote", "mean", "concat", "first"]
KINDS = ("model", "steps", "ensemble", "switch", "cascade", "judge", "agree", *LEAVES)
"""The fields that determine the kind of a node. A node has exactly one of them."""


class NodeConfig(LeafKinds):
    """One node of a pipeline: exactly one of its kinds."""

    may_select: ClassVar[bool] = False
    """Whether the node may consist of ``out`` alone."""

    model: Name | None = None
    """Model of this file that answers: its routes, limits, prices, retries, caches and queues apply."""
    steps: tuple[StepConfig, ...] = ()
    """Steps that run as soon as their values are available."""
    out: dict[Field, Reference] = Bounds({})
    """With ``steps``: outputs, by name, each of a step; when absent, the last step's answer as it is. Alone, in a
    branch of a ``switch``: values of the request or of earlier steps, so that the branch calls no model."""

    ensemble: EnsembleConfig | None = None
    """Several models answer at once, and their answers are combined."""
    switch: tuple[BranchConfig, ...] = ()
    """Branches with conditions. The first branch whose condition holds answers."""
    cascade: tuple[StageConfig, ...] = ()
    """Stages from the cheapest model to the most expensive one. The first acceptable answer is the answer."""
    judge: JudgeConfig | None = None
    """The best of several drafts, by the verdicts of a model."""
    agree: AgreeConfig | None = None
    """The answer on which most of several drafts agree."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = self.kinds()
        if len(kinds) != 1:
            given = f"has {' and '.join(kinds)}" if kinds else "does nothing"
            raise ValueError(f"{given}: give exactly one of {', '.join(KINDS)}")
        if self.out and kinds[0] not in ("steps", "out"):
            raise ValueError("`out` belongs to `steps`")
        return self

    def kinds(self) -> list[str]:
        """The kinds that are given: `out` is one if the node has no other."""
        kinds = [kind for kind in KINDS if getattr(self, kind)]
        return ["out"] if not kinds and self.out and self.may_select else kinds

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        """The models that the node itself calls, each with its place in it."""
        if self.model is not None:
            yield ("model",), self.model
        if self.judge is not None:
            yield ("judge", "model"), self.judge.model
        for name, leaf in self.placed_leaves():
            yield from (((name, *place), model) for place, model in leaf.placed_models())

    def models(self) -> Iterator[str]:
        """Every model that the node may call, those of its inner nodes included."""
        yield from (model for _, model in self.placed_models())
        for node in self.nodes():
            yield from node.models()

    def typed_models(self) -> Iterator[str]:
        """The models of `models` that receive requests of tensors or chats, and not only texts to encode."""
        if self.model is not None:
            yield self.model
        for _, leaf in self.placed_leaves():
            if leaf.sends_values():
                yield from (model for _, model in leaf.placed_models())
        if self.judge is not None:
            yield self.judge.model
        for node in self.nodes():
            yield from node.typed_models()

    def answering(self) -> NodeConfig | None:
        """The inner node whose answer has the form of this node's; None without one."""
        nodes = [node for node in self.nodes() if node.guard is None]
        return None if not nodes else nodes[-1] if self.steps or self.cascade else nodes[0]

    @property
    def receiver(self) -> str | None:
        """The model that receives the inputs of the node unchanged."""
        return self.call.receiver if self.call is not None else self.model

    def answering_model(self) -> str | None:
        """The model whose answer has the form of this node's."""
        if (inner := self.answering()) is not None:
            return inner.answering_model()
        return self.model

    def deciding_models(self) -> tuple[str, ...]:
        """The models that decide whether the node takes tensors: the answering one, or else all."""
        answering = self.answering_model()
        return tuple(self.typed_models()) if answering is None else (answering,)

    def nodes(self) -> Iterator[NodeConfig]:
        """The nodes directly inside this one."""
        return (node for _, node in self.placed_nodes())

    def placed_nodes(self) -> Iterator[tuple[Place, NodeConfig]]:
        """The nodes directly inside this one, each with its place in it."""
        for index, step in enumerate(self.steps):
            yield ("steps", index), step
        for index, member in enumerate(self.ensemble.members if self.ensemble is not None else ()):
            yield ("ensemble", "members", index), member
        for index, branch in enumerate(self.switch):
            yield ("switch", index), branch
        for index, stage in enumerate(self.cascade):
            yield ("cascade", index), stage
        for name, section in self.placed_drafts():
            for index, draft in enumerate(section.of):
                yield (name, "of", index), draft

    def placed_drafts(self) -> Iterator[tuple[str, DraftsConfig]]:
        """The kinds with drafts that are given, each with its field."""
        if self.judge is not None:
            yield "judge", self.judge
        if self.agree is not None:
            yield "agree", self.agree

    @property
    def combines(self) -> bool:
        """Whether the node reads the whole answers of its inner nodes, so that none of them is a stream."""
        return any(kind is not None for kind in (self.ensemble, self.judge, self.agree))

    def references(self) -> Iterator[tuple[Place, str]]:
        """The references of the node itself to values around it, each with its place."""
        return iter(())

    def conditions(self) -> Iterator[tuple[Place, str]]:
        """The conditions of the node itself, each with its place."""
        for name, leaf in self.placed_leaves():
            yield from (((name, *place), text) for place, text in leaf.placed_conditions())


class StepConfig(NodeConfig):
    """One step: a node with a name."""

    name: StepName
    """Name of the step, for references, logs and metrics."""
    inputs: dict[Field, Reference] = Bounds({}, alias="in")
    """Inputs of the step, by name. When absent, the step receives the pipeline's own request."""
    explain: bool = False
    """With a ``model`` of tensors: the step answers with the model's explanation of its answer, such as ``values``."""
    each: bool = False
    """Runs the step once for each row of its inputs, and gathers the outputs in the order of the rows."""
    at_most: int = Bounds(8, ge=1, le=64)
    """With ``each``: rows that are computed at once."""
    max_rows: int | None = Bounds(None, ge=1, le=MAX_ROWS)
    """With ``each``: the most rows; more are an error. Of rows that an earlier step makes, the cost of so many is
    reserved before the first step, and that of one row when absent."""
    on_error: OnErrorConfig = OnErrorConfig()
    """Action of the pipeline after the step, with all of its retries and fallbacks, has failed."""
    effects: bool = False
    """Whether a call of the step changes something outside, such as a booking. It is then neither hedged nor sent again
    after a server may have begun to process it."""
    at_least: Duration | None = None
    """Time that the step needs. With less left until the deadline, it fails at once."""

    def references(self) -> Iterator[tuple[Place, str]]:
        for name, reference in self.inputs.items():
            yield ("in", name), reference


class ListedNodeConfig(ShortSection, NodeConfig):
    """A node in a list of nodes. A model's name alone is short for ``{model: NAME}``."""

    short = "model"
    short_schema: ClassVar[JsonSchemaValue] = {"type": "string", "description": "A model's name."}

    name: StepName | None = None
    """Name of the node in logs and in ``x-headrace-steps``; the model's when absent."""
    unnamed: ClassVar[str] = "member"
    """The name in logs of a node without a name and a model."""

    @property
    def label(self) -> str:
        """The name in logs."""
        return self.name or self.model or self.unnamed


class MemberConfig(ListedNodeConfig):
    """A member of an ensemble. A model's name alone is short for ``{model: NAME}``."""

    weight: float = Bounds(1.0, ge=1e-6, le=1000)
    """Weight of its answer in a vote or a mean."""


class EnsembleConfig(Section):
    """Members that answer the same input at once, and how their answers become one."""

    members: tuple[MemberConfig, ...] = Bounds(min_length=1)
    """Models, or nodes, that answer."""
    combine: Combine
    """``vote``: the answer with most weight. ``mean``: the weighted mean of floating-point outputs. ``concat``: outputs
    joined along ``axis``, texts as lines. ``first``: the first answer."""
    axis: int = Bounds(-1, ge=-8, le=7)
    """With ``concat``: the dimension along which tensors are joined; -1 is the last one."""
    need: int | None = Bounds(None, ge=1)
    """Members that must answer; all when absent, and one with ``first``."""
    within: Duration | None = None
    """Time after which the received answers count, if ``need`` is met. Until the deadline when absent."""

    @property
    def least(self) -> int:
        """The number of members that must answer."""
        return self.need or (1 if self.combine == "first" else len(self.members))


class BranchConfig(NodeConfig):
    """A branch of a switch."""

    may_select: ClassVar[bool] = True

    condition: Expression | None = Bounds(None, alias="if")
    """Condition on values of the request and of earlier steps."""
    otherwise: Literal[True] | None = Bounds(None, alias="else")
    """``true`` on the last branch, instead of ``if``."""

    def conditions(self) -> Iterator[tuple[Place, str]]:
        if self.condition is not None:
            yield ("if",), self.condition

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if (self.condition is None) == (self.otherwise is None):
            raise ValueError("a branch has either `if` or `else: true`")
        return self


class StageConfig(ListedNodeConfig):
    """A stage of a cascade. A model's name alone is short for ``{model: NAME}``."""

    unnamed: ClassVar[str] = "stage"
    accept_if: Expression | None = None
    """Condition on the stage's answer. When it does not hold, or has no result, the next stage answers. Required for
    all stages but the last."""
    hold: int | None = Bounds(None, ge=1, le=4096)
    """Tokens of a stream that are held until the condition is evaluated; the whole answer when absent. No answer is
    replaced after its first token has reached the client. ``finish`` is ``stop`` while the answer is not complete."""

    def conditions(self) -> Iterator[tuple[Place, str]]:
        if self.accept_if is not None:
            yield ("accept_if",), self.accept_if


class DraftConfig(ListedNodeConfig):
    """A draft of a judge or an agreement. A model's name alone is short for ``{model: NAME}``."""

    unnamed: ClassVar[str] = "draft"


class DraftsConfig(Section):
    """Several drafts of one answer."""

    of: tuple[DraftConfig, ...] = Bounds(min_length=1, max_length=MAX_DRAFTS)
    """Models of chats, or nodes with a ``text``, that write the drafts. A name alone is short for a list of one."""
    n: int = Bounds(1, ge=1, le=MAX_DRAFTS)
    """Drafts of each model or node."""

    @field_validator("of", mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return (data,) if isinstance(data, str) else data

    @model_validator(mode="after")
    def _several(self) -> Self:
        count = len(self.of) * self.n
        if count < 2:
            raise ValueError("one draft has no other to compare: give several models, or `n`")
        if count > MAX_DRAFTS:
            raise ValueError(f"{count} drafts are too many: {MAX_DRAFTS} are the most")
        return self


class JudgeConfig(JudgementConfig, DraftsConfig):
    """The best of several drafts, by the verdicts of a model that compares two of them at a time."""


class AgreeConfig(AgreementConfig, DraftsConfig):
    """The answer on which most of several drafts agree. Its value ``agreement`` is the share, from 0 to 1."""


class PipelineConfig(NodeConfig):
    """Steps that answer a model's requests. A node alone, such as ``{ensemble: ...}``, is a pipeline of one step."""

    deadline: Duration | None = None
    """Time for the whole pipeline. Each step receives the remaining part of it, and of the client's own deadline."""
    budget: BudgetConfig | None = None
    """The most that all calls of one request may use together."""
    inputs: tuple[PipelineTensorConfig, ...] = ()
    """Inputs for clients of tensors. When absent, they are those of the models that receive them."""
    outputs: tuple[PipelineTensorConfig, ...] = ()
    """Outputs for clients of tensors. When absent, they are those of the models that produce them."""


NodeConfig.model_rebuild()
StepConfig.model_rebuild()
MemberConfig.model_rebuild()
EnsembleConfig.model_rebuild()
BranchConfig.model_rebuild()
StageConfig.model_rebuild()
DraftConfig.model_rebuild()
JudgeConfig.model_rebuild()
AgreeConfig.model_rebuild()
PipelineConfig.model_rebuild()
