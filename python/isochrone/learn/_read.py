"""Samples from files, and generated ones."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from isochrone import _native
from isochrone.learn._data import FEATURES_MAX, rows_of, whole
from isochrone.learn._plan import Plan, threads_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Labelled = tuple[sparse.csr_matrix, NDArray[np.float64]]
_Weighed = tuple[sparse.csr_matrix, NDArray[np.float64], NDArray[np.float64]]


class _Lines(TypedDict, total=False):
    format: str
    n_features: int | None
    zero_based: bool | str
    dtype: Any
    skip_errors: int
    bits: int


_FILE = """path : path-like
        An svmlight (libsvm) file, a sample a line: `label index:value index:value ...`; or Vowpal Wabbit's format. It may be
        compressed with gzip, zstd or bzip2, which is seen from its first bytes.
    format : {"svmlight", "vw"}, default="svmlight"
        The form of its lines.
    n_features : int, default=None
        Features there are; None for as many as occur. Give it where several files are to have the same. Under `format="vw"`
        there are `2**bits`.
    zero_based : bool or "auto", default="auto"
        Whether the first feature is 0 in the file (as scikit-learn's `dump_svmlight_file` writes by default) or 1; "auto" for 0 if
        a 0 occurs among the first samples (4096, or those of the first batch), else 1. Say which where a file may go without that
        feature, or each of several files is guessed for itself.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        Of the values.
    skip_errors : int, default=0
        Lines that may be wrong: they are left out, with a warning. One more is an error.
    bits : int, default=18
        Under `format="vw"`, features are hashed to `2**bits`: 1 to 31."""

_WEIGHTS = """return_sample_weight : bool, default=False
        Whether to hand out what the samples count, for `fit(X, y, sample_weight=...)`: the importances that lines of Vowpal
        Wabbit's format may have. Without it, a sample that does not count once is an error."""


@overload
def load_svmlight(
    path: _Path,
    *,
    return_plan: Literal[False] = ...,
    return_sample_weight: Literal[False] = ...,
    **lines: Unpack[_Lines],
) -> _Labelled: ...
@overload
def load_svmlight(
    path: _Path,
    *,
    return_plan: Literal[False] = ...,
    return_sample_weight: Literal[True],
    **lines: Unpack[_Lines],
) -> _Weighed: ...
@overload
def load_svmlight(
    path: _Path,
    *,
    return_plan: Literal[True],
    return_sample_weight: Literal[False] = ...,
    **lines: Unpack[_Lines],
) -> tuple[sparse.csr_matrix, NDArray[np.float64], Plan]: ...
@overload
def load_svmlight(
    path: _Path,
    *,
    return_plan: Literal[True],
    return_sample_weight: Literal[True],
    **lines: Unpack[_Lines],
) -> tuple[sparse.csr_matrix, NDArray[np.float64], NDArray[np.float64], Plan]: ...
@overload
def load_svmlight(
    path: _Path,
    *,
    return_plan: bool = ...,
    return_sample_weight: bool = ...,
    **lines: Unpack[_Lines],
) -> tuple[Any, ...]: ...
def load_svmlight(
    path: _Path,
    *,
    format: str = "svmlight",
    n_features: int | None = None,
    zero_based: bool | str = "auto",
    dtype: Any = np.float32,
    skip_errors: int = 0,
    bits: int = 18,
    return_plan: bool = False,
    return_sample_weight: bool = False,
) -> Any:
    """Reads a file of sparse samples.

    Parameters
    ----------
    {file}
    return_plan : bool, default=False
        Whether to plan the conflicts meanwhile, which costs next to nothing then.
    {weights}

    Returns
    -------
    X : scipy.sparse.csr_matrix of shape (n_samples, n_features)
        The samples.
    y : ndarray of shape (n_samples,)
        Their labels. float64.
    sample_weight : ndarray of shape (n_samples,)
        Only with `return_sample_weight=True`. float64.
    plan : Plan
        Only with `return_plan=True`.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If a line is wrong: with file, line, column, and what was expected.
    MemoryError
        If there is no memory for the samples, or to plan with up to the largest index.
    """
    reader = _reader(path, format, n_features, zero_based, dtype, skip_errors, bits)
    parts, planned = reader.all_planned() if return_plan else (reader.all(), None)
    samples = _samples(path, parts, return_sample_weight)
    _warn(reader)
    return samples if planned is None else (*samples, Plan(planned, rows_of(samples[0])))


@overload
def iter_svmlight(
    path: _Path,
    batch_size: int = ...,
    *,
    return_sample_weight: Literal[False] = ...,
    **lines: Unpack[_Lines],
) -> Iterator[_Labelled]: ...
@overload
def iter_svmlight(
    path: _Path,
    batch_size: int = ...,
    *,
    return_sample_weight: Literal[True],
    **lines: Unpack[_Lines],
) -> Iterator[_Weighed]: ...
@overload
def iter_svmlight(
    path: _Path,
    batch_size: int = ...,
    *,
    return_sample_weight: bool,
    **lines: Unpack[_Lines],
) -> Iterator[tuple[Any, ...]]: ...
def iter_svmlight(
    path: _Path,
    batch_size: int = 65536,
    *,
    n_features: int | None = None,
    format: str = "svmlight",
    zero_based: bool | str = "auto",
    dtype: Any = np.float32,
    skip_errors: int = 0,
    bits: int = 18,
    return_sample_weight: bool = False,
) -> Iterator[Any]:
    """Reads a file of sparse samples that need not fit into memory, batch by batch, for `partial_fit`.

    Parameters
    ----------
    path, format, zero_based, dtype, skip_errors, bits, return_sample_weight
        As of :func:`load_svmlight`.
    batch_size : int, default=65536
        Samples in a batch; the last one may have fewer.
    n_features : int
        Features there are, so that all batches have the same; under `format="vw"` there are `2**bits`.

    Yields
    ------
    X : scipy.sparse.csr_matrix of shape (batch_size, n_features)
        Samples.
    y : ndarray of shape (batch_size,)
        Their labels. float64.
    sample_weight : ndarray of shape (batch_size,)
        Only with `return_sample_weight=True`. float64.

    Raises
    ------
    OSError, ValueError
        As :func:`load_svmlight`.
    MemoryError
        If there is no memory for a batch.
    """
    whole("batch_size", batch_size, 1, sys.maxsize)
    if n_features is None and format != "vw":
        raise ValueError("n_features is None: give the number of features, so that all batches have the same")
    reader = _reader(path, format, n_features, zero_based, dtype, skip_errors, bits)
    while (parts := reader.batch(batch_size)) is not None:
        yield _samples(path, parts, return_sample_weight)
    _warn(reader)


def make_sparse(
    name: str = "kdda",
    *,
    scale: int = 16,
    n_samples: int | None = None,
    random_state: int = 1,
    n_jobs: int | None = None,
) -> tuple[sparse.csr_matrix, NDArray[np.float64]]:
    """Makes samples with the size and the conflicts of data that was learnt from in publications.

    Parameters
    ----------
    name : str, default="kdda"
        `"kdda"` (8.4 million samples, 20 million features, 36 a sample), `"kddb"` (19 and 30 million, 29), `"imdb"` (168 and
        686 thousand, 15), or `"hotspot:1000"` (a million samples of 100 out of 1000 features).
    scale : int, default=16
        Divides the number of samples and of features.
    n_samples : int, default=None
        Another number of samples.
    random_state : int, default=1
        The same one makes the same samples.
    n_jobs : int, default=None
        Threads to make them with; they are the same.

    Returns
    -------
    X : scipy.sparse.csr_matrix of shape (n_samples, n_features)
        The samples. float32.
    y : ndarray of shape (n_samples,)
        -1 or 1, by a plane with some noise. float64.

    Raises
    ------
    MemoryError
        If there is no memory for so many.
    """
    whole("scale", scale, 1, 2**32 - 1)
    whole("random_state", random_state, 0, 2**64 - 1)
    if n_samples is not None:
        whole("n_samples", n_samples, 1, 2**32 - 2)
    parts, _ = _native.generate(name, scale, n_samples, random_state, threads_of(n_jobs))
    return _matrix(parts)


def _reader(
    path: Any, format: str, n_features: int | None, zero_based: Any, dtype: Any, skip_errors: int, bits: int
) -> _native.Reader:
    if format not in ("svmlight", "libsvm", "vw"):
        raise ValueError(f'format is {format!r}: give "svmlight" or "vw"')
    try:
        of = np.dtype(dtype)
    except TypeError:
        of = None
    if of not in (np.float32, np.float64):
        raise ValueError(f"dtype is {dtype if of is None else of}: give float32 or float64")
    if not (zero_based == "auto" or isinstance(zero_based, (bool, np.bool_))):
        raise ValueError(f'zero_based is {zero_based!r}: give True, False or "auto"')
    whole("skip_errors", skip_errors, 0, 2**64 - 1)
    whole("bits", bits, 1, 31)
    if n_features is not None:
        whole("n_features", n_features, 0, FEATURES_MAX)
        if format == "vw" and n_features != 2**bits:
            raise ValueError(f'n_features is {n_features}, but under format="vw" there are 2**bits = {2**bits}: leave it out')
    base = None if zero_based == "auto" else bool(zero_based)
    double = of == np.float64
    return _native.Reader(os.fsdecode(path), format, base, n_features, double, skip_errors, bits)


def _matrix(parts: tuple[Any, ...]) -> tuple[sparse.csr_matrix, NDArray[np.float64]]:
    """A matrix over the memory that the native half has filled."""
    indptr, indices, values, width, labels = parts[:5]
    narrow = width <= np.iinfo(np.int32).max and len(indices) <= np.iinfo(np.int32).max
    if narrow:
        indptr, indices = indptr.astype(np.int32), indices.view(np.int32)
    else:
        # SciPy wants both alike.
        indptr, indices = indptr.view(np.int64), indices.astype(np.int64)
    matrix = sparse.csr_matrix((values, indices, indptr), shape=(len(labels), width), copy=False)
    return matrix, labels


def _samples(path: _Path, parts: tuple[Any, ...], weights: bool) -> tuple[Any, ...]:
    """The matrix, the labels, and what the samples count, where that is asked for."""
    matrix, labels = _matrix(parts)
    importances = parts[5]
    if weights:
        return matrix, labels, np.ones(len(labels)) if importances is None else importances
    if importances is not None:
        raise ValueError(
            f"{os.fsdecode(path)} has samples of an importance other than 1, {importances[importances != 1][0]} for one: pass "
            "return_sample_weight=True, and what comes of it to fit(X, y, sample_weight=...)"
        )
    return matrix, labels


def _warn(reader: _native.Reader) -> None:
    count, shown = reader.skipped()
    if count:
        listed = "\n  ".join(shown)
        warnings.warn(f"{count} wrong lines were left out:\n  {listed}", UserWarning, stacklevel=3)


load_svmlight.__doc__ = (load_svmlight.__doc__ or "").replace("{file}", _FILE).replace("{weights}", _WEIGHTS)
