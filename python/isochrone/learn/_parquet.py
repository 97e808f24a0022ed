"""Samples from Parquet files, by pyarrow."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, overload

from isochrone.learn._arrow import _given, _Labelled, _Weighed, iter_arrow, load_arrow
from isochrone.learn._data import whole


@overload
def load_parquet(
    path: str | os.PathLike[str],
    *,
    label: str,
    indices: str,
    values: str | None = ...,
    weight: None = None,
    n_features: int | None = ...,
) -> _Labelled: ...
@overload
def load_parquet(
    path: str | os.PathLike[str],
    *,
    label: str,
    indices: str,
    values: str | None = ...,
    weight: str,
    n_features: int | None = ...,
) -> _Weighed: ...
def load_parquet(
    path: str | os.PathLike[str],
    *,
    label: str,
    indices: str,
    values: str | None = None,
    weight: str | None = None,
    n_features: int | None = None,
) -> Any:
    """Reads sparse samples from a Parquet file: a row each, its features in a column of lists.

    Parameters
    ----------
    path : path-like
        The file, or a folder of them.
    label : str
        Column of the labels, numbers or strings.
    indices : str
        Column of lists of integers: the features that a sample has, counted from 0.
    values : str, default=None
        Column of lists of numbers, as long as those of `indices`: their values. None for 1 each.
    weight : str, default=None
        Column of numbers from 0 on: what the samples count, to be handed out for `fit(X, y, sample_weight=...)`.
    n_features : int, default=None
        Features there are; None for as many as occur.

    Returns
    -------
    X : scipy.sparse.csr_matrix of shape (n_samples, n_features)
        The samples; float32 if the file has float32 or no values, else float64.
    y : ndarray of shape (n_samples,)
        Their labels.
    sample_weight : ndarray of shape (n_samples,)
        Only with `weight`. float64.

    Raises
    ------
    ImportError
        If pyarrow is not installed: `pip install isochrone[parquet]`.
    ValueError
        If a column is not there, has nulls, is not of lists, lists differ in length, or a weight is negative or not finite.
    """
    parquet = _pyarrow().parquet
    names = _names(parquet, path, [label, indices, *(name for name in (values, weight) if name is not None)])
    with _named(path):
        table = parquet.read_table(path, columns=names)
        return load_arrow(table, label=label, indices=indices, values=values, weight=weight, n_features=n_features)


@overload
def iter_parquet(
    path: str | os.PathLike[str],
    batch_size: int = ...,
    *,
    label: str,
    indices: str,
    n_features: int,
    values: str | None = ...,
    weight: None = None,
) -> Iterator[_Labelled]: ...
@overload
def iter_parquet(
    path: str | os.PathLike[str],
    batch_size: int = ...,
    *,
    label: str,
    indices: str,
    n_features: int,
    values: str | None = ...,
    weight: str,
) -> Iterator[_Weighed]: ...
def iter_parquet(
    path: str | os.PathLike[str],
    batch_size: int = 65536,
    *,
    label: str,
    indices: str,
    n_features: int,
    values: str | None = None,
    weight: str | None = None,
) -> Iterator[Any]:
    """Reads a Parquet file that need not fit into memory, batch by batch, for `partial_fit`.

    Parameters
    ----------
    path : path-like
        The file; of a folder of them, one after the other.
    batch_size : int, default=65536
        Samples in a batch; the last one may have fewer.
    label, indices, values, weight
        As of :func:`load_parquet`.
    n_features : int
        Features there are, so that all batches have the same.

    Yields
    ------
    X : scipy.sparse.csr_matrix of shape (batch_size, n_features)
        Samples.
    y : ndarray of shape (batch_size,)
        Their labels.
    sample_weight : ndarray of shape (batch_size,)
        Only with `weight`. float64.
    """
    whole("batch_size", batch_size, 1, sys.maxsize)
    _given(n_features)
    pyarrow = _pyarrow()
    parquet = pyarrow.parquet
    if os.path.isdir(path):
        raise ValueError(
            f"{os.fspath(path)} is a folder, and iter_parquet reads one file: call it for each of "
            "`sorted(pyarrow.dataset.dataset(folder).files)`"
        )
    names = _names(parquet, path, [label, indices, *(name for name in (values, weight) if name is not None)])
    with _named(path):
        opened = parquet.ParquetFile(path)
    with opened as file:
        # One stream of them, so that rows are counted from the beginning of the file.
        batches = file.iter_batches(batch_size, columns=names)
        while True:
            with _named(path):
                first = next(batches, None)
            if first is None:
                return
            stream = pyarrow.RecordBatchReader.from_batches(first.schema, chain([first], batches))
            told = iter_arrow(stream, label=label, indices=indices, values=values, weight=weight, n_features=n_features)
            while True:
                # What is done with a batch is not in the file.
                with _named(path):
                    batch = next(told, None)
                if batch is None:
                    break
                yield batch


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """What is wrong with its columns is told with the file's name."""
    try:
        yield
    except (ValueError, OSError, NotImplementedError) as wrong:
        # That of Python: pyarrow's own kinds of error are for those who know it.
        kind = next(kind for kind in type(wrong).__mro__ if kind.__module__ == "builtins")
        if isinstance(wrong, UnicodeError):
            # Those of its kind are not made of a text.
            kind = ValueError
        if isinstance(wrong, OSError) and wrong.errno:
            raise kind(wrong.errno, os.strerror(wrong.errno), os.fspath(path)) from None
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path)) from None
        told = next(iter(str(wrong).splitlines()), type(wrong).__name__)
        raise kind(f"{os.fspath(path)}: {told}") from None


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as missing:
        raise ImportError("Parquet is read by pyarrow: pip install isochrone[parquet]") from missing
    return pyarrow


def _names(parquet: Any, path: str | os.PathLike[str], names: list[str]) -> list[str]:
    """The columns, each once, if the file has them."""
    with _named(path):
        known = parquet.read_schema(path).names if os.path.isfile(path) else names
    absent = [name for name in names if name not in known]
    if absent:
        raise ValueError(f"{os.fspath(path)} has no column {absent[0]!r}: it has {', '.join(known)}")
    return list(dict.fromkeys(names))
