"""Samples from Parquet files, by pyarrow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def load_parquet(
    path: str | os.PathLike[str],
    *,
    label: str,
    indices: str,
    values: str | None = None,
    n_features: int | None = None,
) -> tuple[sparse.csr_matrix, NDArray[Any]]:
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
    n_features : int, default=None
        Features there are; None for as many as occur.

    Returns
    -------
    X : scipy.sparse.csr_matrix of shape (n_samples, n_features)
        The samples; float32 if the file has float32 or no values, else float64.
    y : ndarray of shape (n_samples,)
        Their labels.

    Raises
    ------
    ImportError
        If pyarrow is not installed: `pip install isochrone[parquet]`.
    ValueError
        If a column is not there, has nulls, is not of lists, or lists differ in length.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as missing:
        raise ImportError("Parquet is read by pyarrow: pip install isochrone[parquet]") from missing
    names = [label, indices, *([values] if values else [])]
    known = parquet.read_schema(path).names if os.path.isfile(path) else names
    absent = [name for name in names if name not in known]
    if absent:
        raise ValueError(f"{os.fspath(path)} has no column {absent[0]!r}: it has {', '.join(known)}")
    table = parquet.read_table(path, columns=names).combine_chunks()
    columns = {name: _whole(table.column(name), name, arrow) for name in names}
    offsets, features = _lists(columns[indices], indices, arrow)
    features = features.to_numpy(zero_copy_only=False)
    if not np.issubdtype(features.dtype, np.integer):
        raise ValueError(f"column {indices!r} has lists of {features.dtype}: lists of integers are wanted")
    if values is None:
        numbers = np.ones(len(features), dtype=np.float32)
    else:
        ends, found = _lists(columns[values], values, arrow)
        differs = np.flatnonzero(np.diff(ends) != np.diff(offsets))
        if len(differs):
            row = differs[0]
            raise ValueError(
                f"row {row} has {np.diff(offsets)[row]} indices and {np.diff(ends)[row]} values: as many are wanted"
            )
        numbers = found.to_numpy(zero_copy_only=False)
        numbers = numbers if numbers.dtype == np.float32 else numbers.astype(np.float64, copy=False)
    if len(features) and features.min() < 0:
        raise ValueError(f"column {indices!r} has the feature {features.min()}: features count from 0")
    width = int(features.max()) + 1 if len(features) else 0
    if n_features is not None and width > n_features:
        raise ValueError(f"column {indices!r} has the feature {width - 1}, n_features is {n_features}")
    matrix = sparse.csr_matrix(
        (numbers, features, offsets), shape=(len(offsets) - 1, width if n_features is None else n_features)
    )
    return matrix, columns[label].to_numpy(zero_copy_only=False)


def _whole(column: Any, name: str, arrow: Any) -> Any:
    """The one array of a column."""
    if column.null_count:
        raise ValueError(f"column {name!r} has {column.null_count} nulls: fill or drop those rows")
    if column.num_chunks == 0:
        return arrow.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else arrow.concat_arrays(column.chunks)


def _lists(array: Any, name: str, arrow: Any) -> tuple[NDArray[Any], Any]:
    """Offsets from 0 on, and the elements of all lists."""
    if not (arrow.types.is_list(array.type) or arrow.types.is_large_list(array.type)):
        raise ValueError(f"column {name!r} is of {array.type}: lists are wanted, a list for each sample")
    offsets = array.offsets.to_numpy()
    elements = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if elements.null_count:
        raise ValueError(f"column {name!r} has nulls within its lists")
    return offsets - offsets[0], elements
