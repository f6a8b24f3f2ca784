"""Reports of the gateway about requests.

metrics.py  `metrics`: bounds of the number of time series
usage.py    `usage`: what tenants have used and spent
requests.py `requests`: a record of each request
traces.py   `traces`: where spans go, and which requests are traced
"""
