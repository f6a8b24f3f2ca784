"""Finds nodes without inner nodes that cannot work: inputs that are absent, models of another kind; and drafts that are
no texts."""

from collections.abc import Container, Iterator, Mapping

from config.checks.pipelines.walk import Placed, model_names, model_of, nodes, pipelines, takes_tensors
from config.checks.references import targets
from config.document import Document
from config.node import Node
from config.problem import Problem, closest
from config.schema.pipelines.outputs import TakesTensors, outputs_of
from config.schema.pipelines.pipeline import DraftConfig, StepConfig

_RUNTIMES = {"tensor": "the bundled tensor runtime", "llm": "the bundled LLM runtime"}


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report inputs that a node lacks or never reads, and models that cannot do its work."""
    configured, tensors = model_names(root), takes_tensors(root)
    hosts = {kind: _hosted(root, kind) for kind in _RUNTIMES}

    def takes(name: str) -> bool:
        return model_of(name, configured) is not None and tensors(name)

    for pipeline in pipelines(root):
        for entry in nodes(pipeline):
            yield from _inputs(doc, entry)
            yield from _drafts(doc, entry, takes)
            yield from _bundled(doc, entry, configured, hosts)
            score = entry.node.rerank.score if entry.node.rerank is not None else None
            if score is not None and model_of(score, configured) is not None and not takes(score):
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


def _bundled(
    doc: Document, entry: Placed, configured: Mapping[str, str], hosts: Mapping[str, Container[str]]
) -> Iterator[Problem]:
    """Report models that the bundled runtime of their node's kind does not serve."""
    for kind, runtime in (("call", "tensor"), ("tokenize", "llm"), ("detokenize", "llm")):
        section = getattr(entry.node, kind)
        model = None if section is None or section.model is None else model_of(section.model, configured)
        if model is not None and model not in hosts[runtime]:
            message = (
                f"is not served by {_RUNTIMES[runtime]} alone: each of its pools needs `runtime: {{kind: {runtime}}}`"
            )
            yield doc.problem((*entry.place, kind), message)


def _hosted(root: Node, kind: str) -> frozenset[str]:
    """The models whose pools are all bundled runtimes of a kind."""
    pools = {pool["name"].text for pool in root["pools"] if pool["runtime"]["kind"].text == kind}
    hosted = set[str]()
    for model in root["models"]:
        used = [pool.text for route in model["routes"] for pool in targets(route)]
        if (name := model["name"].text) is not None and used and all(pool in pools for pool in used):
            hosted.add(name)
    return frozenset(hosted)


def _drafts(doc: Document, entry: Placed, takes: TakesTensors) -> Iterator[Problem]:
    """Report models of tensors among those that compare texts, and drafts without a text."""
    node = entry.node
    if node.judge is not None and takes(node.judge.model):
        message = f'"{node.judge.model}" takes tensors, and drafts are texts'
        yield doc.problem((*entry.place, "judge", "model"), message)
    if not isinstance(node, DraftConfig) or node.guard is not None:
        return
    outputs = outputs_of(node, takes)
    if outputs.is_open:
        label = node.answering_model() or node.label
        yield doc.problem(entry.place, f'"{label}" takes tensors, and drafts are texts')
    elif ("text",) not in outputs.declared:
        names = [".".join(path) for path in outputs.declared]
        shown = ", ".join(f"`{name}`" for name in names) or "none"
        message = f"has no output `text`, which a draft needs: its outputs are {shown}"
        yield doc.problem(entry.place, message, closest("text", names))
