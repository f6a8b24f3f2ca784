"""Comparison of two answers to one request: pure, and linear or bounded in the size of the answers.

answers.py      an answer in the parts that are compared
text.py         equal, normalized and similar texts
tensors.py      tensors within tolerances, or by their largest values
json_fields.py  JSON values, field by field
tools.py        tool calls: names and arguments
differences.py  the differences of two answers under a configuration
"""
