"""The section `console`.

console.py  the section
oidc.py     `console.oidc`
"""
