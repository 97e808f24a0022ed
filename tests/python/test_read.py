"""Files of samples."""

import gzip

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from isochrone.learn import CopClassifier, iter_svmlight, load_svmlight, make_sparse, plan


@pytest.fixture
def file(samples, tmp_path):
    X, y = samples
    path = tmp_path / "samples.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path



@pytest.mark.parametrize("packed", [False, True])
def test_written_by_scikit_learn(file, packed):
    X, y = load_svmlight_file(str(file), n_features=400, zero_based=False)
    if packed:
        text, file = file.read_bytes(), file.with_suffix(".gz")
        file.write_bytes(gzip.compress(text))
    again, labels = load_svmlight(file, n_features=400, zero_based=False, dtype=np.float64)
    assert again.shape == X.shape and np.array_equal(labels, y)
    assert np.array_equal(again.indices, X.indices) and np.array_equal(again.data, X.data)
    single, _ = load_svmlight(file)
    assert single.dtype == np.float32 and np.array_equal(single.data, X.data.astype(np.float32))


def test_planned_while_it_is_read(file):
    X, y, planned = load_svmlight(file, return_plan=True)
    assert planned == plan(X)
    assert planned.depth == plan(X).depth
    CopClassifier(n_jobs=2, max_iter=2, tol=None).fit(X, y, plan=planned)


def test_in_batches_for_partial_fit(file):
    X, y = load_svmlight(file, n_features=400, zero_based=False, dtype=np.float64)
    model, whole = CopClassifier(), CopClassifier()
    for batch, labels in iter_svmlight(file, 300, n_features=400, zero_based=False, dtype=np.float64):
        assert batch.shape[1] == 400 and batch.shape[0] <= 300
        model.partial_fit(batch, labels, classes=[-1, 1])
    for start in range(0, 2000, 300):
        whole.partial_fit(X[start:start + 300], y[start:start + 300], classes=[-1, 1])
    assert model.t_ == 2000 and np.array_equal(model.coef_, whole.coef_)


def test_wrong_lines(file, tmp_path):
    lines = file.read_text().splitlines()
    lines[6] = "1 3:0.5 7:x"
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"samples.svm:7:\d+: .*expected"):
        load_svmlight(file)
    with pytest.warns(UserWarning, match=r"1 wrong lines were left out:\n.*samples.svm:7:"):
        X, _ = load_svmlight(file, skip_errors=1)
    assert X.shape[0] == 1999
    with pytest.raises(FileNotFoundError, match="absent.svm"):
        load_svmlight(tmp_path / "absent.svm")
    with pytest.raises(ValueError, match="dtype is int32: give float32 or float64"):
        load_svmlight(file, dtype=np.int32)
    with pytest.raises(ValueError, match="batch_size is 0"):
        next(iter_svmlight(file, 0, n_features=400))


def test_generated_samples_have_the_published_shape():
    X, y = make_sparse("imdb", scale=16)
    assert X.shape == (10485, 42848) and X.dtype == np.float32
    assert abs(X.nnz / X.shape[0] - 14.6) < 0.2
    assert set(np.unique(y)) == {-1.0, 1.0}
    again, _ = make_sparse("imdb", scale=16, n_jobs=2)
    assert (X != again).nnz == 0
    with pytest.raises(ValueError, match="no data is called `mnist`"):
        make_sparse("mnist")
