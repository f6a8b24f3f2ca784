"""Prices of models.

price.py  `price` of a model: rates, tiers and changes
"""
