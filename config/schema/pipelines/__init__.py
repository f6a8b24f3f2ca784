"""The ``pipeline`` of a model: a graph of steps in place of routes.

nodes.py     the kinds of nodes that contain no others; leaf.py: their base
template.py  the node `template`; rerank.py, decode.py, tokens.py, call.py: others
judge.py     the judgements of a `judge`; agree.py: the comparison of an `agree`
budget.py    the `budget` of a pipeline
pipeline.py  the pipeline, its steps, and the kinds of steps that contain others
outputs.py   the values that the parts of a pipeline produce, with their types
references.py  the steps to which the parts of a pipeline refer
parts.py     types that the others share: names, references, expressions
"""
