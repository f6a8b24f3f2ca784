"""The number of replicas of a pool: pure, on measured demand. Time is an argument.

scaler.py  the objective, the demand, and the decision with its reason; the servers that are awake
starts.py  the measured time of a start, and the hours in which requests are expected
"""
