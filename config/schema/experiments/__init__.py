"""The sections of experiments: their arms, and the values that clients report.

feedback.py    the metrics of ``POST /v1/feedback``
experiment.py  the ``experiment`` of a route
"""
