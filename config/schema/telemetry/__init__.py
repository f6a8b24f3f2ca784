"""Reports of the gateway about requests.

traces.py  `traces`
"""
