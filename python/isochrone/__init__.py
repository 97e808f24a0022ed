"""Isochrone: geo-replicated data with strong consistency, and learning with many threads that is exactly serial.

The Python package holds the learning half: :mod:`isochrone.learn` has estimators for scikit-learn whose model does not
depend on the number of threads, bit for bit.

>>> from isochrone.learn import CopClassifier
>>> model = CopClassifier(n_jobs=-1).fit(X, y)  # doctest: +SKIP
"""

from isochrone._native import __version__

__all__ = ["__version__"]
