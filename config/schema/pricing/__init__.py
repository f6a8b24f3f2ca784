"""Prices of models, and messages about spend.

price.py        `price` of a model: rates, tiers and changes
soft_budget.py  `soft_budgets` of a tenant, and `webhooks`
"""
