"""Which request runs when, on which copy of a model, and with whom. The deciding is pure; `dispatcher` acts."""
