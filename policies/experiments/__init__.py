"""Experiments: comparisons of a route's arms by values that clients report, and the ids that carry the arm.

signed_ids.py  request ids that contain the arm of their request, under a code that no client can forge
"""
