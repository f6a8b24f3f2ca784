"""Rates, budgets and prices.

limits.py    token buckets and concurrency
amounts.py   the units of limits
budget.py    budgets for each hour, day or month of the calendar
price.py     exact prices of requests, in picos
expected.py  the expected usage that only a response reports
lease.py     a part of a shared amount, leased in advance
"""
