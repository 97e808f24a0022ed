"""Samples from Arrow data of any library, by the Arrow C data interface: columns are viewed where they lie.

The interface is three structures of C that libraries hand to one another in capsules (`__arrow_c_stream__`,
`__arrow_c_array__`). It is made to be spoken without a library of one's own, so neither side needs to have pyarrow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_int, c_int64, c_void_p, py_object
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from isochrone.learn._data import FEATURES_MAX, whole

# Samples and their labels, and with them what each counts.
_Labelled: TypeAlias = tuple[sparse.csr_matrix, NDArray[Any]]
_Weighed: TypeAlias = tuple[sparse.csr_matrix, NDArray[Any], NDArray[np.float64]]


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_void_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(_Schema))),
    ("dictionary", POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, POINTER(_Schema))),
    ("private_data", c_void_p),
]
_Array._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(_Array))),
    ("dictionary", POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, POINTER(_Array))),
    ("private_data", c_void_p),
]
_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Schema))),
    ("get_next", ctypes.CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(c_char_p, POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, POINTER(_Stream))),
    ("private_data", c_void_p),
]

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [py_object, c_char_p]

# Fixed-width numbers, by their letter in a format string.
_NUMBERS = {
    "c": np.int8, "C": np.uint8, "s": np.int16, "S": np.uint16, "i": np.int32, "I": np.uint32, "l": np.int64,
    "L": np.uint64, "e": np.float16, "f": np.float32, "g": np.float64,
}  # fmt: skip


# One more, their number, must fit SciPy's indices.
_INDEX_MAX = np.iinfo(np.int64).max


class _Owner:
    """A structure of another library, released when no view of its memory is left."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __del__(self) -> None:
        if self.made.release:
            self.made.release(ctypes.byref(self.made))


class _Samples(NamedTuple):
    """What rows have: where the lists of each begin and end, the labels, and the weights if they are asked for."""

    offsets: NDArray[Any]
    features: NDArray[Any]
    numbers: NDArray[Any]
    labels: NDArray[Any]
    weights: NDArray[Any] | None


class _Column(NamedTuple):
    """A column, or what its lists are made of."""

    format: str
    array: Any
    schema: Any
    owner: _Owner
    name: str
    row: int
    """The number of its first row."""

    @property
    def length(self) -> int:
        return int(self.array.length)

    def buffer(self, at: int, dtype: Any, count: int, start: int) -> NDArray[Any]:
        """A view of one of its buffers, which keeps the memory alive."""
        dtype = np.dtype(dtype)
        address = self.array.buffers[at]
        if count == 0 or not address:
            return np.zeros(count, dtype)
        memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address + start * dtype.itemsize)
        memory.owner = self.owner
        found = np.frombuffer(memory, dtype)
        found.flags.writeable = False
        return found

    def words(self) -> _Column:
        """The dictionary that its numbers point into."""
        schema, array = self.schema.dictionary.contents, self.array.dictionary.contents
        return _Column(schema.format.decode(), array, schema, self.owner, self.name, 0)

    def nulls(self) -> NDArray[Any]:
        """The rows that are null, or point to a word of a dictionary that is."""
        absent = self._absent()
        unsaid = self.words().nulls() if self.array.dictionary else absent[:0]
        if len(unsaid):
            numbers = self.buffer(1, _NUMBERS[self.format], self.length, int(self.array.offset))
            absent = np.union1d(absent, np.flatnonzero(np.isin(numbers, unsaid)))
        return absent

    def _absent(self) -> NDArray[Any]:
        if self.array.null_count == 0 or self.array.n_buffers == 0 or not self.array.buffers[0]:
            return np.zeros(0, np.intp)
        offset = int(self.array.offset)
        bits = self.buffer(0, np.uint8, (offset + self.length + 7) // 8, 0)
        valid = np.unpackbits(bits, bitorder="little")[offset : offset + self.length]
        return np.flatnonzero(valid == 0)


@overload
def load_arrow(
    data: Any,
    *,
    label: str,
    indices: str,
    values: str | None = ...,
    weight: None = None,
    n_features: int | None = ...,
) -> _Labelled: ...
@overload
def load_arrow(
    data: Any,
    *,
    label: str,
    indices: str,
    values: str | None = ...,
    weight: str,
    n_features: int | None = ...,
) -> _Weighed: ...
def load_arrow(
    data: Any,
    *,
    label: str,
    indices: str,
    values: str | None = None,
    weight: str | None = None,
    n_features: int | None = None,
) -> Any:
    """Takes sparse samples from Arrow data: a row each, its features in a column of lists.

    Parameters
    ----------
    data : object with `__arrow_c_stream__` or `__arrow_c_array__`
        A table, record batch or stream of any library that speaks the Arrow PyCapsule interface: pyarrow, Polars, DuckDB,
        pandas, nanoarrow and others.
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
        The samples; float32 if the data has float32 or no values, else float64. Where the data is in one piece, its indices
        are of 32 bits and its values float32 or float64, they are not copied.
    y : ndarray of shape (n_samples,)
        Their labels.
    sample_weight : ndarray of shape (n_samples,)
        Only with `weight`. float64.

    Raises
    ------
    TypeError
        If `data` is no Arrow data.
    ValueError
        If a column is not there, has nulls, is not of lists, lists differ in length, or a weight is negative or not finite.
        Rows that name a feature twice, or hold NaN or infinity, are found by `fit`.
    """
    if n_features is not None:
        whole("n_features", n_features, 0, FEATURES_MAX)
    parts = [_samples(batch, label, indices, values, weight) for batch in _batches(data)]
    if not parts:
        raise ValueError("data has no rows")
    return _matrix(parts[0] if len(parts) == 1 else _joined(parts), indices, n_features, 0)


@overload
def iter_arrow(
    data: Any,
    *,
    label: str,
    indices: str,
    n_features: int,
    values: str | None = ...,
    weight: None = None,
) -> Iterator[_Labelled]: ...
@overload
def iter_arrow(
    data: Any,
    *,
    label: str,
    indices: str,
    n_features: int,
    values: str | None = ...,
    weight: str,
) -> Iterator[_Weighed]: ...
def iter_arrow(
    data: Any, *, label: str, indices: str, n_features: int, values: str | None = None, weight: str | None = None
) -> Iterator[Any]:
    """Takes samples from an Arrow stream that need not fit into memory, batch by batch, for `partial_fit`.

    Parameters
    ----------
    data, label, indices, values, weight
        As of :func:`load_arrow`. A stream, such as a `pyarrow.RecordBatchReader`, is asked for a batch when it is wanted.
    n_features : int
        Features there are, so that all batches have the same.

    Yields
    ------
    X : scipy.sparse.csr_matrix
        The samples of a record batch, as the data has been cut into.
    y : ndarray
        Their labels.
    sample_weight : ndarray
        Only with `weight`. float64.
    """
    _given(n_features)
    row = 0
    for batch in _batches(data):
        samples = _samples(batch, label, indices, values, weight)
        yield _matrix(samples, indices, n_features, row)
        row += len(samples.offsets) - 1


def _given(n_features: Any) -> None:
    if n_features is None:
        raise ValueError("n_features is None: give the number of features, so that all batches have the same")
    whole("n_features", n_features, 0, FEATURES_MAX)


def _batches(data: Any) -> Iterator[list[_Column]]:
    """The columns of one record batch after the other."""
    if hasattr(data, "__arrow_c_stream__"):
        yield from _streamed(data.__arrow_c_stream__())
    elif hasattr(data, "__arrow_c_array__"):
        schema, array = data.__arrow_c_array__()
        yield _columns(_taken(schema, b"arrow_schema", _Schema), _taken(array, b"arrow_array", _Array), 0)
    else:
        raise TypeError(
            f"data is a {type(data).__name__}: give an object with __arrow_c_stream__ or __arrow_c_array__, such as a "
            "table of pyarrow or Polars"
        )


def _streamed(capsule: Any) -> Iterator[list[_Column]]:
    owner = _taken(capsule, b"arrow_array_stream", _Stream)
    stream = owner.made

    def asked(ask: Any, into: Any) -> Any:
        code = ask(ctypes.byref(stream), ctypes.byref(into))
        if code:
            told = stream.get_last_error(ctypes.byref(stream))
            # Which number comes with it is its maker's choice, and seldom what the system said.
            raise OSError((told or b"the Arrow stream has failed").decode(errors="replace"))
        return into

    schema = _Owner(asked(stream.get_schema, _Schema()))
    row = 0
    while True:
        batch = asked(stream.get_next, _Array())
        # The end is a batch that there is not.
        if not batch.release:
            return
        columns = _columns(schema, _Owner(batch), row)
        row += int(batch.length)
        if batch.length:
            yield columns


def _taken(capsule: Any, name: bytes, kind: Any) -> _Owner:
    """Moves a structure out of its capsule, which then has nothing to release."""
    there = kind.from_address(_pointer_of(capsule, name))
    mine = kind()
    ctypes.memmove(ctypes.byref(mine), ctypes.byref(there), ctypes.sizeof(kind))
    ctypes.memset(ctypes.addressof(there) + kind.release.offset, 0, ctypes.sizeof(c_void_p))
    return _Owner(mine)


def _columns(schema: _Owner, array: _Owner, row: int) -> list[_Column]:
    if schema.made.format != b"+s":
        raise ValueError(f"data is one column of {_told(schema.made)}: a table is wanted, with a row for each sample")
    rows = _Column("+s", array.made, schema.made, array, "", row)
    nulls = rows.nulls()
    if len(nulls):
        raise ValueError(f"data has {len(nulls)} rows that are null, the first is row {row + nulls[0]}: fill or drop those rows")
    # Views keep the array alive, and the array's names are those of the schema.
    array.made.schema = schema
    columns = []
    for at in range(schema.made.n_children):
        kind = schema.made.children[at].contents
        part = array.made.children[at].contents
        if array.made.offset or part.length != array.made.length:
            part = _copied(part, offset=part.offset + array.made.offset, length=array.made.length, null_count=-1)
        columns.append(_Column(kind.format.decode(), part, kind, array, (kind.name or b"").decode(), row))
    return columns


def _samples(
    columns: list[_Column], label: str, indices: str, values: str | None, weight: str | None
) -> _Samples:
    """The samples of a batch."""
    found = {column.name: column for column in columns}
    for name in [label, indices, *(name for name in (values, weight) if name is not None)]:
        if name not in found:
            raise ValueError(f"data has no column {name!r}: it has {', '.join(found)}")
        if sum(column.name == name for column in columns) > 1:
            raise ValueError(f"data has more than one column {name!r}: give each a name of its own")
    offsets, features = _lists(found[indices], "integers", np.integer)
    if len(features) and int(features.max()) >= _INDEX_MAX:
        at = int(np.argmax(features))
        row = found[indices].row + int(np.searchsorted(offsets, at, side="right")) - 1
        raise ValueError(f"column {indices!r} has the feature {features[at]} in row {row}: below {_INDEX_MAX} is wanted")
    weights = _weights(found[weight]) if weight is not None else None
    if values is None:
        return _Samples(offsets, features, np.ones(len(features), np.float32), _labels(found[label]), weights)
    ends, numbers = _lists(found[values], "numbers", np.number)
    differs = np.flatnonzero(np.diff(ends) != np.diff(offsets))
    if len(differs):
        row = differs[0]
        raise ValueError(
            f"row {found[values].row + row} has {np.diff(offsets)[row]} indices and {np.diff(ends)[row]} values: as many "
            "are wanted"
        )
    if numbers.dtype != np.float32:
        numbers = numbers.astype(np.float64, copy=False)
    return _Samples(offsets, features, numbers, _labels(found[label]), weights)


def _lists(column: _Column, what: str, kind: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Offsets from 0 on, and the elements of all lists."""
    _whole(column)
    letters, start, count = column.format, int(column.array.offset), column.length
    if letters in ("+l", "+L"):
        offsets = column.buffer(1, np.int32 if letters == "+l" else np.int64, count + 1, start)
    elif letters.startswith("+w:"):
        size = int(letters[3:])
        offsets = np.arange(start, start + count + 1) * size
    else:
        raise ValueError(f"column {column.name!r} is of {_told(column.schema)}: lists are wanted, a list for each sample")
    schema, array = column.schema.children[0].contents, column.array.children[0].contents
    inner = _Column(schema.format.decode(), array, schema, column.owner, column.name, column.row)
    said = schema.dictionary.contents if schema.dictionary else schema
    dtype = _NUMBERS.get(said.format.decode())
    if dtype is None or not np.issubdtype(dtype, kind):
        raise ValueError(f"column {column.name!r} has lists of {_told(said)}: lists of {what} are wanted")
    first, last = int(offsets[0]), int(offsets[-1])
    nulls = inner.nulls()
    within = nulls[(nulls >= first) & (nulls < last)]
    if len(within):
        row = int(np.searchsorted(offsets, within[0], side="right")) - 1
        raise ValueError(f"column {column.name!r} has nulls within its lists, the first in row {column.row + row}")
    if array.dictionary:
        return offsets - first, _labels(inner._replace(array=_copied(array, offset=array.offset + first, length=last - first)))
    return offsets - first, inner.buffer(1, dtype, last - first, int(array.offset) + first)


def _labels(column: _Column) -> NDArray[Any]:
    """Numbers as they are, booleans, and strings as objects; of a dictionary what it says."""
    _whole(column)
    if column.array.dictionary:
        words = column.words()
        numbers = _labels(column._replace(array=_copied(column.array, dictionary=None)))
        # What is null there, no row says.
        said: NDArray[Any] = _labels(words._replace(array=_copied(words.array, null_count=0)))[numbers]
        return said
    letters, start, count = column.format, int(column.array.offset), column.length
    if letters in _NUMBERS:
        return column.buffer(1, _NUMBERS[letters], count, start)
    if letters == "b":
        bits = column.buffer(1, np.uint8, (start + count + 7) // 8, 0)
        flags: NDArray[Any] = np.unpackbits(bits, bitorder="little")[start : start + count].astype(bool)
        return flags
    if letters in ("u", "U"):
        ends = column.buffer(1, np.int32 if letters == "u" else np.int64, count + 1, start)
        text = column.buffer(2, np.uint8, int(ends[-1]), 0).tobytes()
        return _objects(text[ends[at] : ends[at + 1]].decode() for at in range(count))
    if letters == "vu":
        views = column.buffer(1, np.dtype("V16"), count, start)
        return _objects(_viewed(column, view.tobytes()) for view in views)
    raise ValueError(f"column {column.name!r} is of {_told(column.schema)}: labels are numbers or strings")


def _weights(column: _Column) -> NDArray[np.float64]:
    """Numbers from 0 on."""
    kind = column.schema.dictionary.contents if column.array.dictionary else column.schema
    if kind.format.decode() not in {*_NUMBERS, "b"}:
        raise ValueError(f"column {column.name!r} is of {_told(kind)}: weights are numbers")
    weights: NDArray[np.float64] = _labels(column).astype(np.float64, copy=False)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            f"column {column.name!r} has the weight {weights[wrong[0]]} in row {column.row + wrong[0]}: weights are finite "
            "numbers from 0 on"
        )
    return weights


def _copied(array: Any, **but: Any) -> Any:
    """The same structure with other fields; whoever owns the memory goes on to."""
    copy = _Array()
    ctypes.memmove(ctypes.byref(copy), ctypes.byref(array), ctypes.sizeof(_Array))
    for name, value in but.items():
        setattr(copy, name, value)
    return copy


def _objects(words: Iterator[str]) -> NDArray[Any]:
    return np.array(list(words), dtype=object)


def _viewed(column: _Column, view: bytes) -> str:
    """A string of up to twelve bytes stands in its view; a longer one where the view says."""
    length = int.from_bytes(view[:4], "little")
    if length <= 12:
        return view[4 : 4 + length].decode()
    buffer, start = int.from_bytes(view[8:12], "little"), int.from_bytes(view[12:16], "little")
    text: bytes = column.buffer(2 + buffer, np.uint8, length, start).tobytes()
    return text.decode()


def _whole(column: _Column) -> None:
    nulls = column.nulls()
    if len(nulls):
        raise ValueError(
            f"column {column.name!r} has {len(nulls)} nulls, the first in row {column.row + nulls[0]}: fill or drop those rows"
        )


def _told(schema: Any) -> str:
    """A type in words, as far as they are needed."""
    letters = schema.format.decode()
    if letters in _NUMBERS:
        return str(np.dtype(_NUMBERS[letters]))
    if letters in ("+l", "+L") or letters.startswith("+w:"):
        return f"lists of {_told(schema.children[0].contents)}"
    named = {"u": "strings", "U": "strings", "vu": "strings", "b": "booleans", "+s": "structures", "n": "nulls"}
    named |= dict.fromkeys(("z", "Z", "vz"), "bytes")
    named |= dict.fromkeys(("+vl", "+vL"), "list views (cast them to lists: `pyarrow.large_list`)")
    return named.get(letters, f"Arrow type {letters!r}")


def _joined(parts: list[_Samples]) -> _Samples:
    """The batches one behind the other: a copy."""
    before = np.cumsum([0, *(part.offsets[-1] for part in parts)])
    offsets = np.concatenate([[0], *(part.offsets[1:] + start for part, start in zip(parts, before, strict=False))])
    features, numbers, labels = (np.concatenate([part[at] for part in parts]) for at in (1, 2, 3))
    weights = [part.weights for part in parts if part.weights is not None]
    return _Samples(offsets, features, numbers, labels, np.concatenate(weights) if weights else None)


def _matrix(samples: _Samples, name: str, n_features: int | None, row: int) -> Any:
    """What is handed out of samples, the first of which is that of this row."""
    offsets, features, numbers, labels, weights = samples
    width = int(features.max()) + 1 if len(features) else 0

    def refused(at: int, why: str) -> ValueError:
        of = row + int(np.searchsorted(offsets, at, side="right")) - 1
        return ValueError(f"column {name!r} has the feature {features[at]} in row {of}{why}")

    if len(features) and features.min() < 0:
        raise refused(int(np.argmin(features)), ": features count from 0")
    if n_features is not None and width > n_features:
        raise refused(int(np.argmax(features)), f", n_features is {n_features}")
    width = width if n_features is None else n_features
    largest = max(width, len(features))
    if largest <= np.iinfo(np.int32).max:
        # Below 2**31 what is unsigned is signed as it stands.
        features = features.view(np.int32) if features.dtype == np.uint32 else features.astype(np.int32, copy=False)
        offsets = offsets.astype(np.int32, copy=False)
    else:
        features, offsets = features.astype(np.int64, copy=False), offsets.astype(np.int64, copy=False)
    matrix = sparse.csr_matrix((numbers, features, offsets), shape=(len(offsets) - 1, width), copy=False)
    return (matrix, labels) if weights is None else (matrix, labels, weights)
