"""Models that are graphs of other models: the executor, and one module for each kind of node.

executor.py   runs one pipeline as an `Upstream`
build.py      compiles the pipelines of a configuration; the registry of the kinds of nodes
scope.py      what a node reads and returns: `StepScope`, `Output`, and the protocol `PipelineNode`
graphs.py     pipelines in the snapshot, and the plans of requests that call models
calls.py      calls the models of steps as the pipeline's client: their routes, limits, prices, budgets
request.py    the client's request: its values, and requests of steps made from it
answers.py    values of an answer, an answer from values, and the stream of the last step as the pipeline's
bodies.py     bodies of JSON as values, and values as bodies
values.py     tensors, texts, JSON values and arrays, and their conversion
metadata.py   inputs and outputs for clients of tensors
resources.py  loads what nodes need before the configuration is in force

model.py      calls a model, or Python code
steps.py      runs steps as soon as their inputs are there; the record of a step and of a part
conditions.py compiled conditions; the first branch whose condition holds
each.py       runs a node for each row, and joins the outputs
ensemble.py   several members answer at once, and their answers become one
cascade.py    cheap models first
guard.py      blocks what its model classifies as forbidden; examiner.py: asks the model; examined.py: on streams
drafts.py     several drafts of one answer, of which one is selected: judge, agree
template.py   texts and messages from values
rerank.py     orders candidates
decode.py     pictures and sound as tensors
tokens.py     texts as tokens, and tokens as texts

To add a kind of node:

1. A field of `NodeConfig` (config/schema/pipelines/pipeline.py), with a section of its own in a module there, and its
   name in `KINDS`. If it contains nodes, `NodeConfig.placed_nodes` yields them. If it does not, its section is a
   `LeafConfig`, and its field one of `LeafKinds` (nodes.py).
2. A module here, with a class that implements `PipelineNode`: `run(scope)` returns an `Output` of values, or of an
   answer that has begun; `bound(estimate)` returns the most that it uses. It is compiled once, so it has no state of a
   request. A model is called by `scope.call.models.call(name, request, scope.call)`, or by a `ModelNode` inside.
3. A function in build.py, registered in its `KINDS`; a node without nodes is one of its `LEAVES`.
4. The checks of the file: config/checks/pipelines. The page: docs/pipelines.md.
"""
