"""The ``pipeline`` of a model: a graph of steps in place of routes.

pipeline.py  the pipeline, its steps, and the kinds of steps that contain others
parts.py     types that the others share: names, references, expressions
"""
