"""Rates, budgets and prices."""
