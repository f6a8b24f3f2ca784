"""Comparison of two answers to one request: pure, and linear or bounded in the size of the answers.

answers.py      an answer in the parts that are compared
text.py         equal, normalized and similar texts
tensors.py      tensors within tolerances, or by their largest values
differences.py  the differences of two answers, also of tool calls and field by field of JSON values
"""
