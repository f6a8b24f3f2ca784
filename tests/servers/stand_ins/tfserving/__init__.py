"""TensorFlow Serving's stand-in, since its binary is nowhere to be had: its own published messages and services
(`tensorflow-serving-api`) over a real TensorFlow, with its rules for REST, its statuses and its words.

It runs in an environment of its own, whose packages are not here: see `tests/servers/tfserving.py`.
"""
