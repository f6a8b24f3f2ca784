"""Train a small scikit-learn model, and write it to the file of the argument."""

import sys

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

if __name__ == "__main__":
    rows, kinds = load_iris(return_X_y=True)
    joblib.dump(LogisticRegression(max_iter=1000).fit(rows, kinds), sys.argv[1])
