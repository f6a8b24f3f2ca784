"""Finds nodes without inner nodes that cannot work: inputs that are absent, models of another kind."""

from collections.abc import Iterator

from config.checks.pipelines.walk import Placed, model_names, model_of, nodes, pipelines, takes_tensors
from config.document import Document
from config.node import Node
from config.problem import Problem, closest
from config.schema.pipelines.outputs import TakesTensors
from config.schema.pipelines.pipeline import StepConfig


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report inputs that a node lacks or never reads, and models that cannot do its work."""
    known, tensors = model_names(root), takes_tensors(root)

    def takes(name: str) -> bool:
        return model_of(name, known) is not None and tensors(name)

    for found in pipelines(root):
        for entry in nodes(found):
            yield from _inputs(doc, entry)
            yield from _judge(doc, entry, takes)
            score = entry.node.rerank.score if entry.node.rerank is not None else None
            if score is not None and model_of(score, known) is not None and not takes(score):
                yield doc.problem((*entry.place, "rerank", "score"), "does not take tensors: use `embed`")


def _inputs(doc: Document, entry: Placed) -> Iterator[Problem]:
    """Report inputs of steps whose names the kind of the node fixes."""
    node = entry.node
    for kind, leaf in node.placed_leaves():
        fixed = leaf.fixed_inputs()
        if leaf.needs_inputs() and isinstance(node, StepConfig) and not node.inputs:
            yield doc.problem((*entry.place, kind), "needs `in`: each input becomes an output with its name")
        if fixed and isinstance(node, StepConfig) and node.inputs:
            for name in node.inputs:
                if name not in fixed:
                    place = (*entry.place, "in", name)
                    yield doc.problem_with_key(place, f"is not an input of `{kind}`", closest(name, list(fixed)))
            for name in sorted(fixed - node.inputs.keys()):
                yield doc.problem((*entry.place, "in"), f"`{kind}` needs the input `{name}`")


def _judge(doc: Document, entry: Placed, takes: TakesTensors) -> Iterator[Problem]:
    judge = entry.node.judge
    for inside, model in judge.placed_models() if judge is not None else ():
        if takes(model):
            yield doc.problem((*entry.place, "judge", *inside), f'"{model}" takes tensors, and a judge compares texts')
