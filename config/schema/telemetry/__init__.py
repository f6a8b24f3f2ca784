"""Reports of the gateway about requests.

metrics.py  `metrics`: bounds of the number of time series
traces.py   `traces`: where spans go, and which requests are traced
"""
