"""Whole stories of a gateway among failing servers, replayed from a seed on virtual time."""
