"""Rates, budgets and prices.

limits.py    token buckets and concurrency, with their units
budget.py    budgets for each hour, day or month of the calendar, and leases of shared amounts
price.py     exact prices of requests in picos, and the expected usage that only a response reports
"""
