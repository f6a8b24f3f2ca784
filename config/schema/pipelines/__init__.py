"""The ``pipeline`` of a model: a graph of steps in place of routes.

pipeline.py  the pipeline, its budget, its steps, and the kinds of steps that contain others
leaves.py    the kinds of nodes that contain no others
call.py      the node `call`
outputs.py   the values that the parts of a pipeline produce, and the steps to which they refer
parts.py     types that the others share: names, references, expressions, the base of leaves
"""
