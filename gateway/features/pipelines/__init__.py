"""Models that are graphs of other models: the executor, and one module for each kind of node.

executor.py   runs one pipeline as an `Upstream`
build.py      compiles the pipelines of a configuration; the registry of the kinds of nodes
scope.py      what a node reads and returns: `StepScope`, `Output`, and the protocol `PipelineNode`
graphs.py     pipelines in the snapshot, and the plans of requests that call models
calls.py      calls the models of steps as the pipeline's client: their routes, limits, prices
budgets.py    the budgets of a request to a pipeline
step.py       one step: its inputs, its time, its record, its failure
request.py    the client's request: its values, and requests of steps made from it
outgoing.py   values of an answer, and an answer from values
passed.py     the stream of the last step as the pipeline's
part.py       one part of a node, such as a member of an ensemble: recorded like a step
conditions.py compiled conditions, and the values that they read
values.py     tensors, texts and JSON values, and their conversion
rows.py       splits values by row and joins them
metadata.py   inputs and outputs for clients of tensors

model.py      calls a model
sequence.py   runs steps as soon as their inputs are there
each.py       runs a node for each row; no_rows.py: its outputs for an empty batch
ensemble.py   several members answer at once; combined.py combines their outputs
switch.py     the first branch whose condition holds
guards/       blocks what its model classifies as forbidden, also on streams
cascade.py    cheap models first
arrays.py     tensors as arrays
bodies/       bodies of JSON as values, and values as bodies
drafts/       several drafts of one answer, of which one is selected: judge, agree
leaves/       nodes that contain no others: template, rerank, decode, tokenize, call

To add a kind of node:

1. A field of `NodeConfig` (config/schema/pipelines/pipeline.py), with a section of its own in a module there, and its
   name in `KINDS`. If it contains nodes, `NodeConfig.placed_nodes` yields them. If it does not, its section is a
   `LeafConfig`, its field one of `LeafKinds` (nodes.py), and its module is in leaves/.
2. A module here, with a class that implements `PipelineNode`: `run(scope)` returns an `Output` of values, or of an
   answer that has begun; `bound(estimate)` returns the most that it uses. It is compiled once, so it has no state of a
   request. A model is called by `scope.call.models.call(name, request, scope.call)`, or by a `ModelNode` inside.
3. A function in build.py, registered in its `KINDS`.
4. The checks of the file: config/checks/pipelines. The page: docs/pipelines.md.
"""
