"""Drift of a model's inputs and outputs against a reference, such as the training data.

columns.py     the columns of a reference: CSV, NPZ, Parquet; histograms.py: a reference of histograms, JSON
sketches.py    a feature's reference as counts of bins, and the bins of new values
plans.py       which column is which element of which tensor
statistics.py  the population stability index and the Kolmogorov-Smirnov statistic of counts
monitor.py     the windows: requests are noted on the loop, and counted in a thread
"""
