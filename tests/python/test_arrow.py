"""Arrow data of any library, and Parquet files."""

import gc
import weakref

import numpy as np
import pandas
import pyarrow as arrow
import pytest
from pyarrow import parquet

from isochrone.learn import CopClassifier, iter_arrow, iter_parquet, load_arrow, load_parquet

COLUMNS = dict(label="y", indices="u", values="z")


def table_of(X, y, indices=None, values=None, lists=arrow.ListArray):
    """A row for each sample."""
    indices = arrow.array(X.indices, indices or arrow.uint32())
    values = arrow.array(X.data, values or arrow.float64())
    offsets = X.indptr if lists is arrow.ListArray else X.indptr.astype(np.int64)
    made = {"u": lists.from_arrays(offsets, indices), "z": lists.from_arrays(offsets, values)}
    return arrow.table({"y": np.where(y > 0, "up", "down"), **made, "age": y})


def same(one, other):
    return one.shape == other.shape and (one != other).nnz == 0


class Exported:
    """Data of a library other than pyarrow: nothing but the capsule."""

    def __init__(self, data):
        self.data = data

    def __arrow_c_stream__(self, requested_schema=None):
        return self.data.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("lists", [arrow.ListArray, arrow.LargeListArray])
@pytest.mark.parametrize("values", [arrow.float32(), arrow.float64()])
@pytest.mark.parametrize("indices", [arrow.uint32(), arrow.int32()])
def test_a_table_in_one_piece_is_not_copied(samples, lists, values, indices):
    X, y = samples
    table = table_of(X, y, indices, values, lists)
    again, labels = load_arrow(Exported(table), **COLUMNS, n_features=400)
    assert again.dtype == values.to_pandas_dtype() and same(again, X.astype(again.dtype))
    assert np.array_equal(labels == "up", y > 0)
    for column, part in (("u", again.indices), ("z", again.data)):
        (chunk,) = table.column(column).chunks
        assert np.shares_memory(chunk.values.to_numpy(), part), column
    CopClassifier(max_iter=2, tol=None, n_jobs=2).fit(again, labels)


def test_memory_lives_as_long_as_its_views(samples):
    X, y = samples
    table = table_of(X, y)
    known = weakref.ref(table)
    again, _ = load_arrow(table, **COLUMNS)
    before = arrow.total_allocated_bytes()
    del table
    gc.collect()
    assert known() is None and same(again, X[:, : again.shape[1]])
    del again
    gc.collect()
    assert arrow.total_allocated_bytes() < before


def test_pieces_slices_batches_and_streams(samples):
    X, y = samples
    table = table_of(X, y)
    pieces = arrow.concat_tables(table.slice(start, 300) for start in range(0, 2000, 300))
    stream = arrow.RecordBatchReader.from_batches(table.schema, pieces.to_batches())
    for data in (pieces, stream, pandas.DataFrame({name: table[name].to_pylist() for name in ("y", "u", "z")})):
        again, labels = load_arrow(data, **COLUMNS, n_features=400)
        assert same(again, X) and np.array_equal(labels == "up", y > 0)
    (batch,) = table.slice(7, 90).to_batches()
    again, labels = load_arrow(batch, **COLUMNS, n_features=400)
    assert same(again, X[7:97]) and np.array_equal(labels == "up", y[7:97] > 0)


@pytest.mark.parametrize("kind", [
    arrow.string(), arrow.large_string(), arrow.string_view(), arrow.dictionary(arrow.int8(), arrow.string()),
])
def test_labels_of_every_kind(kind):
    words = ["up", "down", "", "a word of more than twelve letters", "naïve"]
    lists = arrow.array([[0], [1], [], [2], [0, 3]])
    labels = load_arrow(arrow.table({"y": arrow.array(words).cast(kind), "u": lists}), label="y", indices="u")[1]
    assert labels.tolist() == words
    if arrow.types.is_dictionary(kind):
        # A word that is null matters where a row has it.
        numbers, words_and_none = [1, 1, 0, 1, 1], arrow.array(["up", "down", None])
        table = arrow.table({"y": arrow.DictionaryArray.from_arrays(numbers, words_and_none), "u": lists})
        assert load_arrow(table, label="y", indices="u")[1].tolist() == ["down", "down", "up", "down", "down"]
        table = table.set_column(0, "y", arrow.DictionaryArray.from_arrays([1, 0, 0, 2, 1], words_and_none))
        with pytest.raises(ValueError, match="column 'y' has 1 nulls, the first in row 3: fill or drop those rows"):
            load_arrow(table, label="y", indices="u")
    sliced = arrow.table({"y": arrow.array(["x", *words]).cast(kind)[1:], "u": lists})
    assert load_arrow(sliced, label="y", indices="u")[1].tolist() == words


@pytest.mark.parametrize("numbers", [[True, False, True] * 5, [1, 0, 3] * 5, [0.5, -1.5, 2.0] * 5])
def test_labels_that_are_numbers(numbers):
    table = arrow.table({"y": numbers, "u": arrow.FixedSizeListArray.from_arrays(arrow.array(range(30)), 2)})
    ones, labels = load_arrow(table.slice(3), label="y", indices="u")
    assert labels.tolist() == numbers[3:]
    assert ones.dtype == np.float32 and ones.indices.tolist() == list(range(6, 30)) and ones.sum() == 24


def test_lists_of_a_dictionary_have_what_it_says():
    features = arrow.DictionaryArray.from_arrays([1, 0, 0, 2, 1], arrow.array([7, 3, 9]))
    values = arrow.DictionaryArray.from_arrays([0, 1, 1, 1, 0], arrow.array([0.5, 4.0]))
    lists = {name: arrow.ListArray.from_arrays([0, 1, 2, 5], part) for name, part in [("u", features), ("z", values)]}
    table = arrow.table({"y": [1, 2, 3], **lists})
    for data, rows in ((table, [[3], [7], [7, 9, 3]]), (table.slice(1), [[7], [7, 9, 3]])):
        X, _ = load_arrow(data, **COLUMNS)
        assert [X.indices[start:end].tolist() for start, end in zip(X.indptr, X.indptr[1:])] == rows
        assert X.data.tolist() == [0.5, 4.0, 4.0, 4.0, 0.5][5 - X.nnz:]
    unsaid = arrow.ListArray.from_arrays([0, 2, 3], arrow.DictionaryArray.from_arrays([0, 0, 1], arrow.array([7, None])))
    with pytest.raises(ValueError, match="column 'u' has nulls within its lists, the first in row 1"):
        load_arrow(arrow.table({"y": [1, 2], "u": unsaid}), label="y", indices="u")
    words = arrow.ListArray.from_arrays([0, 1], arrow.array(["a"]).dictionary_encode())
    with pytest.raises(ValueError, match="column 'u' has lists of strings: lists of integers are wanted"):
        load_arrow(arrow.table({"y": [1], "u": words}), label="y", indices="u")


def test_rows_that_are_null_are_refused():
    rows = arrow.array([{"y": 1, "u": [0]}, None, {"y": 2, "u": [1]}])
    with pytest.raises(ValueError, match="data has 1 rows that are null, the first is row 1: fill or drop those rows"):
        load_arrow(rows, label="y", indices="u")
    assert load_arrow(rows[2:], label="y", indices="u")[1].tolist() == [2]


@pytest.mark.parametrize("told, wrong", [
    ("has no column 'x': it has y, u, z, age", dict(label="x", indices="u")),
    ("has no column '': it has y, u, z, age", dict(label="y", indices="u", values="")),
    ("column 'age' is of int64: lists are wanted", dict(label="y", indices="age")),
    ("column 'z' has lists of float64: lists of integers are wanted", dict(label="y", indices="z")),
    (r"column 'u' has the feature 399 in row \d+, n_features is 10", dict(label="y", indices="u", n_features=10)),
    ("column 'u' is of lists of uint32: labels are numbers or strings", dict(label="u", indices="u")),
])
def test_other_tables_are_refused(samples, tmp_path, told, wrong):
    table = table_of(*samples)
    with pytest.raises(ValueError, match=told):
        load_arrow(table, **wrong)
    parquet.write_table(table, tmp_path / "samples.parquet")
    with pytest.raises(ValueError, match=told):
        load_parquet(tmp_path / "samples.parquet", **wrong)


def test_rows_that_are_wrong():
    table = arrow.table({
        "y": [0, 1, None],
        "u": [[0, 2], [1], []],
        "z": [[1.0, 2.0], [1.0, 2.0], []],
        "n": [[1], [1], None],
        "m": [[1], [], [None]],
        "negative": [[1], [-1], []],
    })
    for data in (table.slice(0, 3), arrow.concat_tables([table.slice(0, 1), table.slice(1)])):
        for wrong, told in [
            (dict(label="u", indices="u"), "labels are numbers or strings"),
            (dict(label="y", indices="u"), r"column 'y' has 1 nulls, the first in row 2: fill or drop those rows"),
            (dict(label="y", indices="n"), r"column 'n' has 1 nulls, the first in row 2"),
            (dict(label="y", indices="m"), r"column 'm' has nulls within its lists, the first in row 2"),
        ]:
            with pytest.raises(ValueError, match=told):
                load_arrow(data, **wrong)
    whole = table.slice(0, 2)
    with pytest.raises(ValueError, match="row 1 has 1 indices and 2 values: as many are wanted"):
        load_arrow(whole, **COLUMNS)
    with pytest.raises(ValueError, match="column 'negative' has the feature -1 in row 1: features count from 0"):
        load_arrow(whole, label="y", indices="negative")
    with pytest.raises(ValueError, match="data has no rows"):
        load_arrow(table.slice(0, 0), label="y", indices="u")
    with pytest.raises(TypeError, match="data is a list: give an object with __arrow_c_stream__"):
        load_arrow([1], label="y", indices="u")


def test_a_stream_that_fails_says_why(samples):
    table = table_of(*samples)

    def batches():
        yield table.to_batches()[0]
        raise RuntimeError("the cable was cut")

    stream = arrow.RecordBatchReader.from_batches(table.schema, batches())
    with pytest.raises(OSError, match="the cable was cut"):
        load_arrow(stream, **COLUMNS)


def test_batches_larger_than_memory(samples, tmp_path):
    X, y = samples
    path = tmp_path / "samples.parquet"
    parquet.write_table(table_of(X, y), path, row_group_size=500)
    whole = CopClassifier()
    for start in range(0, 2000, 300):
        whole.partial_fit(X[start:start + 300], y[start:start + 300] > 0, classes=[False, True])
    by_file, by_stream = CopClassifier(), CopClassifier()
    for batch, labels in iter_parquet(path, 300, **COLUMNS, n_features=400):
        assert batch.shape[1] == 400 and batch.shape[0] <= 300
        by_file.partial_fit(batch, labels == "up", classes=[False, True])
    asked = []

    def batches():
        for batch in table_of(X, y).to_batches(max_chunksize=300):
            asked.append(len(batch))
            yield batch

    stream = arrow.RecordBatchReader.from_batches(table_of(X, y).schema, batches())
    for at, (batch, labels) in enumerate(iter_arrow(stream, **COLUMNS, n_features=400), 1):
        assert len(asked) == at
        by_stream.partial_fit(batch, labels == "up", classes=[False, True])
    assert by_file.t_ == 2000 and np.array_equal(by_file.coef_, whole.coef_)
    assert by_stream.t_ == 2000 and np.array_equal(by_stream.coef_, whole.coef_)
    with pytest.raises(ValueError, match="batch_size is 0"):
        next(iter_parquet(path, 0, **COLUMNS, n_features=400))


def test_what_is_wanted_in_place_of_list_views_is_told():
    views = arrow.array([[1]], arrow.list_view(arrow.int32()))
    with pytest.raises(ValueError, match=r"column 'u' is of list views \(cast them to lists: `pyarrow.large_list`\): lists are wanted"):
        load_arrow(arrow.table({"y": [1.0], "u": views}), label="y", indices="u")


def test_a_parquet_file_is_read_whole(samples, tmp_path):
    X, y = samples
    path = tmp_path / "samples.parquet"
    parquet.write_table(table_of(X, y), path, row_group_size=300)
    again, labels = load_parquet(path, **COLUMNS, n_features=400)
    assert same(again, X) and np.array_equal(labels == "up", y > 0)
    table = table_of(X[:4], y[:4]).append_column("w", arrow.array([[1], [1], None, [1]]))
    parquet.write_table(table, path)
    with pytest.raises(ValueError, match="samples.parquet: column 'w' has 1 nulls, the first in row 2"):
        load_parquet(path, label="y", indices="w")
    with pytest.raises(ValueError, match="samples.parquet: column 'w' has 1 nulls, the first in row 2"):
        list(iter_parquet(path, 2, label="y", indices="w", n_features=400))
    parquet.write_table(arrow.table({"y": range(5), "u": [[0], [], [1], [0, 7], [2]]}), path)
    for read in (lambda: load_parquet(path, **given), lambda: list(iter_parquet(path, 2, **given))):
        given = dict(label="y", indices="u", n_features=7)
        with pytest.raises(ValueError, match="samples.parquet: column 'u' has the feature 7 in row 3, n_features is 7"):
            read()
    # Also what its maker finds: in a later group of rows, and in labels that are no text.
    parquet.write_table(table_of(X, y), path, row_group_size=500, compression="zstd")
    with open(path, "r+b") as file:
        at = parquet.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
        file.seek(at)
        file.write(b"\xff" * 200)
    with pytest.raises(OSError, match="samples.parquet: ") as wrong:
        list(iter_parquet(path, 500, **COLUMNS, n_features=400))
    assert wrong.value.errno is None
    words = arrow.array([b"up", b"\xff"], arrow.binary()).view(arrow.string())
    parquet.write_table(arrow.table({"y": words, "u": [[0], [1]]}), path)
    with pytest.raises(ValueError, match="samples.parquet: 'utf-8' codec can't decode"):
        load_parquet(path, label="y", indices="u", n_features=8)
    parquet.write_table(arrow.table({"y": range(5), "u": [[0], [], [1], [0, 7], [2]]}), path)
    with pytest.raises(ValueError, match="is a folder, and iter_parquet reads one file"):
        next(iter_parquet(tmp_path, label="y", indices="u", n_features=8))
    # What goes wrong with a batch is not the file's.
    with pytest.raises(ValueError, match="^mine$"):
        for _ in iter_parquet(path, 2, label="y", indices="u", n_features=8):
            raise ValueError("mine")


def test_weights_of_a_table_are_sample_weights(samples, tmp_path):
    X, y = samples
    weights = np.arange(2000) % 4 * 0.5
    table = table_of(X, y).append_column("w", arrow.array(weights)).append_column("two", arrow.array([2] * 2000))
    pieces = arrow.concat_tables([table.slice(0, 700), table.slice(700)])
    path = tmp_path / "samples.parquet"
    parquet.write_table(table, path, row_group_size=300)
    for name, expected in (("w", weights), ("two", np.full(2000, 2.0))):
        by_hand = CopClassifier(max_iter=2, tol=None, n_jobs=2).fit(X, y, sample_weight=expected)
        columns = dict(**COLUMNS, weight=name, n_features=400)
        for again, labels, found in (
            load_arrow(table, **columns), load_arrow(pieces, **columns), load_parquet(path, **columns)
        ):
            assert found.dtype == np.float64 and np.array_equal(found, expected) and same(again, X)
            learnt = CopClassifier(max_iter=2, tol=None, n_jobs=2).fit(again, labels == "up", sample_weight=found)
            assert np.array_equal(learnt.coef_, by_hand.coef_)
        for batches in (iter_arrow(pieces, **columns), iter_parquet(path, 300, **columns)):
            assert np.array_equal(np.concatenate([found for _, _, found in batches]), expected)
    for wrong, told in [
        ([1.0, 0.0, -1.0], "column 'w' has the weight -1.0 in row 2: weights are finite numbers from 0 on"),
        ([1.0, np.nan, 1.0], "column 'w' has the weight nan in row 1"),
        ([1.0, 1.0, np.inf], "column 'w' has the weight inf in row 2"),
        ([1.0, 1.0, None], "column 'w' has 1 nulls, the first in row 2"),
        (["1", "1", "1"], "column 'w' is of strings: weights are numbers"),
        (arrow.array(["1", "1", "1"]).dictionary_encode(), "column 'w' is of strings: weights are numbers"),
        ([[1], [1], [1]], "column 'w' is of lists of int64: weights are numbers"),
    ]:
        column = wrong if isinstance(wrong, arrow.Array) else arrow.array(wrong)
        table = table_of(X[:3], y[:3]).append_column("w", column)
        for data in (table, arrow.concat_tables([table.slice(0, 1), table.slice(1)])):
            with pytest.raises(ValueError, match=told):
                load_arrow(data, **COLUMNS, weight="w")
        parquet.write_table(table, path)
        with pytest.raises(ValueError, match=told):
            list(iter_parquet(path, 2, **COLUMNS, weight="w", n_features=400))
    with pytest.raises(ValueError, match="has no column 'x': it has y, u, z, age, w"):
        load_parquet(path, **COLUMNS, weight="x")


def test_indices_beyond_what_scipy_counts_are_refused():
    lists = arrow.array([[1], [2, 2**63]], arrow.list_(arrow.uint64()))
    with pytest.raises(ValueError, match=r"column 'u' has the feature 9223372036854775808 in row 1: below 9223372036854775807"):
        load_arrow(arrow.table({"y": [0, 1], "u": lists}), label="y", indices="u")


def test_batches_want_the_number_of_features(samples, tmp_path):
    path = tmp_path / "samples.parquet"
    parquet.write_table(table_of(*samples), path)
    absent = tmp_path / "absent.parquet"
    for read in (lambda: load_parquet(absent, **COLUMNS), lambda: next(iter_parquet(absent, **COLUMNS, n_features=400))):
        with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*absent.parquet"):
            read()
        absent.write_bytes(b"a table of another kind")
        with pytest.raises(ValueError, match="absent.parquet: Parquet magic bytes not found"):
            read()
        absent.unlink()
    for wrong, told in [(-1, "n_features is -1: give 0 or more"), (2.5, "n_features is 2.5: give a whole number from 0 on")]:
        with pytest.raises(ValueError, match=told):
            load_parquet(path, **COLUMNS, n_features=wrong)
    for batches in (iter_parquet(path, **COLUMNS, n_features=None), iter_arrow(table_of(*samples), **COLUMNS, n_features=None)):
        with pytest.raises(ValueError, match="n_features is None: give the number of features"):
            next(batches)
