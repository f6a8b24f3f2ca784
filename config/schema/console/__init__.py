"""The section `console`.

console.py  the section
"""
