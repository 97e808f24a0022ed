"""NumPy and SciPy data as the native half wants it, without a copy where there is a way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

FEATURES_MAX = 2**32 - 1
"""Features are numbered in 32 bits."""


def whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuses what is not a whole number from `least` to `most`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}: give a whole number from {least} on")
    if value < least:
        raise ValueError(f"{name} is {value!r}: give {least} or more")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value!r}: give {most} at most")


def flags(estimator: Any, *names: str) -> None:
    """Refuses parameters that are neither True nor False: nearly everything else would be true."""
    for name in names:
        value = getattr(estimator, name)
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} is {value!r}: give True or False")


def loudness(verbose: Any) -> None:
    """Refuses what is neither silence nor a progress bar."""
    if not isinstance(verbose, (bool, np.bool_, int, np.integer)) or verbose < 0:
        raise ValueError(f"verbose is {verbose!r}: give 0 for silence, or 1 for a progress bar")


def check_width(features: int) -> None:
    """Refuses more features than have a number."""
    if features > FEATURES_MAX:
        raise ValueError(
            f"X has {features} features, more than the {FEATURES_MAX} that there can be: hash them into fewer "
            "(sklearn.feature_extraction.FeatureHasher)"
        )


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[dict[str, Any]]:
    """Where it fails, or is broken off, the estimator is as it was before: it gets the attributes that this hands out."""
    before = dict(estimator.__dict__)
    try:
        yield before
    except BaseException:
        estimator.__dict__ = before
        raise


def check_finite(told: str, *parts: Any) -> None:
    """Refuses a model that has grown beyond all numbers."""
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError(told)


def laid(numbers: Any, dtype: Any = None) -> NDArray[Any]:
    """One number behind the other, each where the processor takes it from: a view, or a copy of what lies otherwise."""
    return np.require(numbers, dtype, ["C", "A"])


class Rows(NamedTuple):
    """Samples in compressed sparse rows."""

    indptr: NDArray[np.uint64]
    """Where each row begins and the last one ends: n_samples + 1."""
    indices: NDArray[np.uint32]
    """The feature of each entry."""
    values: NDArray[Any]
    """The value of each entry, float32 or float64."""
    width: int
    """n_features."""

    @property
    def n_samples(self) -> int:
        return len(self.indptr) - 1

    def split(self, row: int) -> tuple[Rows, Rows]:
        """The rows before `row` and those from it on: views, but for the second's `indptr`."""
        entry = int(self.indptr[row])
        head = Rows(self.indptr[: row + 1], self.indices[:entry], self.values[:entry], self.width)
        tail = Rows(
            self.indptr[row:] - self.indptr[row], self.indices[entry:], self.values[entry:], self.width
        )
        return head, tail


def rows_of(X: Any) -> Rows:
    """The rows of an array or CSR matrix that scikit-learn's `validate_data` has let through.

    Values are not copied, unless they lie at odd addresses. Of a SciPy matrix 32-bit indices are viewed, 64-bit ones are
    narrowed (a copy of 4 bytes an entry); a dense array without zeros is viewed and gets indices made for it, with zeros it is
    turned into CSR.
    """
    check_width(X.shape[1])
    if not sparse.issparse(X):
        n, d = X.shape
        if np.count_nonzero(X) == X.size:
            indptr = np.arange(0, n * d + 1, d, dtype=np.uint64) if d else np.zeros(n + 1, np.uint64)
            indices = np.tile(np.arange(d, dtype=np.uint32), n)
            return Rows(indptr, indices, laid(X).reshape(-1), d)
        X = sparse.csr_matrix(X)
    indptr = _offsets(X.indptr)
    # SciPy lets arrays be longer than the last row, as those of rows that were appended to or cut off.
    indices, values = X.indices, X.data
    if indptr[-1] < min(len(indices), len(values)):
        indices, values = indices[: int(indptr[-1])], values[: int(indptr[-1])]
    return Rows(indptr, _features(indices, X.shape[1]), laid(values), X.shape[1])


def _offsets(indptr: NDArray[Any]) -> NDArray[np.uint64]:
    indptr = laid(indptr)
    return indptr.view(np.uint64) if indptr.dtype == np.int64 else indptr.astype(np.uint64)


def _features(indices: NDArray[Any], width: int) -> NDArray[np.uint32]:
    indices = laid(indices)
    if indices.dtype == np.int32:
        # A negative one becomes a feature beyond the last, which the native half refuses.
        return indices.view(np.uint32)
    if len(indices) and (indices.min() < 0 or indices.max() >= width):
        wrong = indices[(indices < 0) | (indices >= width)][0]
        raise ValueError(f"X.indices has feature {wrong}, but there are {width} features (0 to {width - 1})")
    return indices.astype(np.uint32)
