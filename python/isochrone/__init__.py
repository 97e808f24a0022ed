"""Isochrone: geo-replicated data with strong consistency, and learning with many threads that is exactly serial.

The Python package holds the learning half: :mod:`isochrone.learn` has estimators for scikit-learn whose model does not
depend on the number of threads, bit for bit.

>>> from isochrone.learn import CopClassifier, make_sparse
>>> X, y = make_sparse("imdb", scale=64)
>>> CopClassifier(n_jobs=2).fit(X, y).score(X, y) > 0.9
True
"""

from isochrone._native import __version__

__all__ = ["__version__"]
