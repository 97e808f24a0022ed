"""Data that several tests learn from."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import KBinsDiscretizer


def sparse_samples(n=2000, d=400, per_row=12, seed=0, dtype=np.float64):
    """Random samples whose popular features many of them share, and labels of a linear rule with some noise."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, d + 1)
    popularity /= popularity.sum()
    indices = np.concatenate([
        np.sort(random.choice(d, size=per_row, replace=False, p=popularity)) for _ in range(n)
    ]).astype(np.int32)
    data = random.normal(size=n * per_row).astype(dtype)
    X = sparse.csr_matrix((data, indices, np.arange(0, n * per_row + 1, per_row, dtype=np.int32)), shape=(n, d))
    scores = X @ random.normal(size=d) + 0.3 * random.normal(size=n)
    return X, scores


def one_hot(X, bins):
    """Each column cut into equally full bins, each bin a feature: what tables become before linear learning."""
    cut = KBinsDiscretizer(bins, encode="onehot", strategy="quantile", quantile_method="averaged_inverted_cdf")
    return cut.fit_transform(X).tocsr()


@pytest.fixture(scope="session")
def samples():
    """Sparse samples and classes of -1 and 1."""
    X, scores = sparse_samples()
    return X, np.where(scores > 0, 1, -1)


@pytest.fixture(scope="session")
def breast_cancer():
    """569 tumours, 30 measurements each in 10 bins; whether benign."""
    X, y = load_breast_cancer(return_X_y=True)
    return one_hot(X, 10), y


@pytest.fixture(scope="session")
def digits():
    """1797 digits of 64 pixels, each of 3 greys a feature, background none; ten classes."""
    X, y = load_digits(return_X_y=True)
    rows, columns = np.nonzero(X)
    features = columns * 3 + (X[rows, columns] * 3 / 17).astype(int)
    return sparse.csr_matrix((np.ones(len(rows)), (rows, features)), shape=(len(X), 64 * 3)), y
