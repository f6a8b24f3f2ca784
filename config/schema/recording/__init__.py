"""The sections of recorded traffic.

record.py  `record`
"""
