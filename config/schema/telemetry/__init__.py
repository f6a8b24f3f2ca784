"""What the gateway reports about requests.

traces.py  `traces`
"""
