"""Compiles the pipelines of a configuration: the registry of the kinds of nodes.

A new kind of node is a field of `NodeConfig`, a module here with a class that implements `scope.PipelineNode`, and an
entry of `KINDS`. Nodes that contain no others are `LEAVES`: their modules need extras, so each is imported on demand.
"""

from collections.abc import Callable, Mapping, Sequence

from config.expressions import JSON
from config.schema.config import Config
from config.schema.pipelines.outputs import (
    NodeOutputs,
    needs,
    outputs_of,
    own_values,
    references,
    request_of,
    steps_of,
    variables,
)
from config.schema.pipelines.parts import PipelineTensorConfig
from config.schema.pipelines.pipeline import NodeConfig, StepConfig
from gateway.features.pipelines.cascade import CascadeNode, CascadeStage
from gateway.features.pipelines.conditions import Branch, Condition, SwitchNode, ValuesNode
from gateway.features.pipelines.drafts import AgreeNode, JudgeNode
from gateway.features.pipelines.each import EachNode, NoRows
from gateway.features.pipelines.ensemble import EnsembleNode
from gateway.features.pipelines.examiner import Examiner
from gateway.features.pipelines.executor import Pipeline
from gateway.features.pipelines.guard import GuardNode
from gateway.features.pipelines.model import CallNode, ModelNode
from gateway.features.pipelines.scope import REQUEST, PipelineNode
from gateway.features.pipelines.steps import SequenceNode, Step

LEAVES = frozenset(("template", "rerank", "decode", "tokenize", "detokenize", "call"))
"""The kinds of nodes that `compile_leaf` compiles: fields of `NodeConfig`."""


def compile_leaf(config: NodeConfig) -> PipelineNode:
    """Compile a node of one of `LEAVES`. Raises ModuleNotFoundError if an extra is missing."""
    if config.template is not None:
        from gateway.features.pipelines.template import TemplateNode

        return TemplateNode(config.template)
    if config.rerank is not None:
        from gateway.features.pipelines.rerank import RerankNode

        return RerankNode(config.rerank)
    if config.decode is not None:
        from gateway.features.pipelines.decode import DecodeNode

        return DecodeNode(config.decode)
    if config.call is not None:
        return CallNode(config.call)
    from gateway.features.pipelines import tokens

    if (encode := config.tokenize) is not None:
        return tokens.TokenizeNode(encode) if encode.model is None else tokens.ServedTokenizeNode(encode)
    decode = config.detokenize
    assert decode is not None
    return tokens.DetokenizeNode(decode) if decode.model is None else tokens.ServedDetokenizeNode(decode)


class Builder:
    """Compiles the nodes of one configuration.

    While it compiles a node, it has the values that the node's conditions may refer to.
    """

    def __init__(
        self,
        config: Config,
        takes_tensors: Callable[[str], bool],
        takes_json: Callable[[str], bool],
        outputs_of_model: Callable[[str], Sequence[PipelineTensorConfig]],
        clock: Callable[[], float],
    ) -> None:
        self.subject = ""
        """The step whose answer a guard would guard."""
        self.is_enclosed = False
        """Whether an enclosing step has its own inputs, which are the request of the steps inside."""
        self._request = NodeOutputs({})
        self._visible: dict[str, NodeOutputs] = {}
        self.takes_tensors = takes_tensors
        """Whether the model of a name takes tensors."""
        self.takes_json = takes_json
        """Whether the servers of the model of a name are KServe v1's without declared tensors."""
        self.outputs_of_model = outputs_of_model
        """The outputs in the `signature` of the model of a name; empty without one."""
        self.clock = clock
        self._config = config

    def pipelines(self) -> dict[str, Pipeline]:
        """Every pipeline, by the name of its model."""
        made = {}
        for model in self._config.models:
            if (config := model.pipeline) is not None:
                self._request, self._visible = request_of(config, self.takes_tensors), {}
                made[model.name] = Pipeline(model.name, config, self.node(config), self.clock)
        return made

    def node(self, config: NodeConfig) -> PipelineNode:
        """Compile one node."""
        visible = self._visible
        try:
            self._visible = dict(visible)
            return KINDS[config.kinds()[0]](self, config)
        finally:
            self._visible = visible

    def condition(self, text: str, node: NodeConfig) -> Condition:
        """Compile a condition of a node on values around it, and on its own values."""
        own = own_values(node, self.takes_tensors)
        return Condition(text, variables(self._request, self._visible, own))

    def show(self, step: StepConfig) -> None:
        """Let the conditions of later nodes refer to a step."""
        self._visible[step.name] = outputs_of(step, self.takes_tensors)


def _model(builder: Builder, config: NodeConfig) -> PipelineNode:
    assert config.model is not None
    model = config.model
    if isinstance(config, StepConfig) and config.explain:
        return ModelNode(model, takes_tensors=True, explains=True)
    return ModelNode(
        model,
        takes_tensors=builder.takes_tensors(model),
        takes_json=builder.takes_json(model),
        outputs=builder.outputs_of_model(model),
    )


def _steps(builder: Builder, config: NodeConfig) -> PipelineNode:
    read = {name for step in config.steps for name in references(step)} | set(steps_of(config.out.values()))
    steps, builder.subject = [], ""
    for step, waits in zip(config.steps, needs(config.steps), strict=True):
        steps.append(_step(builder, step, waits, is_read=step.name in read))
        if step.guard is None or step.guard.on == "answer":
            builder.subject = step.name
        builder.show(step)
    return SequenceNode(steps, config.out)


def _ensemble(builder: Builder, config: NodeConfig) -> PipelineNode:
    assert config.ensemble is not None
    return EnsembleNode(config.ensemble, [builder.node(member) for member in config.ensemble.members])


def _switch(builder: Builder, config: NodeConfig) -> PipelineNode:
    conditions = [
        None if branch.condition is None else builder.condition(branch.condition, branch) for branch in config.switch
    ]
    nodes = [builder.node(branch) for branch in config.switch]
    return SwitchNode([Branch(*each) for each in zip(conditions, nodes, strict=True)])


def _values(_: Builder, config: NodeConfig) -> PipelineNode:
    return ValuesNode(config.out)


def _step(builder: Builder, config: StepConfig, waits: frozenset[str], *, is_read: bool) -> Step:
    is_enclosed = builder.is_enclosed
    builder.is_enclosed = is_enclosed or bool(config.inputs)
    node = builder.node(config)
    builder.is_enclosed = is_enclosed
    if config.each:
        of_request = all(reference.partition(".")[0] == REQUEST for reference in config.inputs.values())
        node = EachNode(config, node, _no_rows(builder, config), reads_request=of_request and not is_enclosed)
    return Step(config, node, waits, is_read=is_read)


def _no_rows(builder: Builder, config: StepConfig) -> NoRows:
    """The outputs of a step without rows, as far as the file or a model declares them."""
    outputs = outputs_of(config, builder.takes_tensors)
    if outputs.declared and all(variable.type == JSON for variable in outputs.declared.values()):
        return NoRows(names=dict.fromkeys(path[0] for path in outputs.declared))
    return NoRows(model=None if config.explain else config.receiver)


def _cascade(builder: Builder, config: NodeConfig) -> PipelineNode:
    return CascadeNode(
        [
            CascadeStage(
                stage.label,
                builder.node(stage),
                None if stage.accept_if is None else builder.condition(stage.accept_if, stage),
                stage.hold,
            )
            for stage in config.cascade
        ]
    )


def _guard(builder: Builder, config: NodeConfig) -> PipelineNode:
    guard = config.guard
    assert guard is not None
    assert isinstance(config, StepConfig)  # the checks of the file refuse a guard elsewhere
    examiner = Examiner(
        guard, builder.condition(guard.block_if, config), takes_tensors=builder.takes_tensors(guard.model)
    )
    subject = builder.subject if guard.on == "answer" else ""
    return GuardNode(examiner, subject, tolerant=config.on_error.action == "skip" or config.on_error.use is not None)


def _judge(builder: Builder, config: NodeConfig) -> PipelineNode:

    assert config.judge is not None
    return JudgeNode(config.judge, [builder.node(draft) for draft in config.judge.of])


def _agree(builder: Builder, config: NodeConfig) -> PipelineNode:
    assert config.agree is not None
    return AgreeNode(config.agree, [builder.node(draft) for draft in config.agree.of])


KINDS: Mapping[str, Callable[[Builder, NodeConfig], PipelineNode]] = {
    "model": _model,
    "steps": _steps,
    "ensemble": _ensemble,
    "switch": _switch,
    "cascade": _cascade,
    "judge": _judge,
    "agree": _agree,
    "guard": _guard,
    "out": _values,
    **dict.fromkeys(LEAVES, lambda _, config: compile_leaf(config)),
}
