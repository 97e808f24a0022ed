"""What is taken without a copy, and what is refused in which words."""

import tracemalloc

import numpy as np
import pytest
from conftest import sparse_samples
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from isochrone.learn import CopClassifier, CopRegressor, plan
from isochrone.learn._data import rows_of


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_csr_matrix_is_not_copied(dtype):
    X, _ = sparse_samples(n=50, dtype=dtype)
    rows = rows_of(X)
    assert np.shares_memory(rows.values, X.data)
    assert np.shares_memory(rows.indices, X.indices)
    # Offsets of 64 bits, which SciPy uses beyond 2**31 entries, are viewed too.
    X.indptr = X.indptr.astype(np.int64)
    assert np.shares_memory(rows_of(X).indptr, X.indptr)
    dense = np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
    assert np.shares_memory(rows_of(dense).values, dense)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training_takes_memory_for_the_model_and_the_labels_only(dtype):
    X, scores = sparse_samples(n=4000, per_row=100, dtype=dtype)
    y = np.where(scores > 0, 1.0, -1.0)
    entries = X.data.nbytes + X.indices.nbytes
    model = CopClassifier(max_iter=1, tol=None)
    model.fit(X, y)
    tracemalloc.start()
    model.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < entries / 4, f"{peak} bytes beside {entries} of data"


def test_indices_of_64_bits_are_narrowed_after_a_look():
    X, scores = sparse_samples(n=300)
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    settings = dict(max_iter=2, tol=None)
    assert np.array_equal(
        CopRegressor(**settings).fit(wide, scores).coef_, CopRegressor(**settings).fit(X, scores).coef_
    )
    for wrong in (-1, 400, 2**32 + 1):
        bad = X.copy()
        # `copy` would narrow them itself.
        bad.indices, bad.indptr = wide.indices.copy(), wide.indptr
        bad.indices[5] = wrong
        with pytest.raises(ValueError, match="has feature .*, but there are 400 features"):
            CopRegressor().fit(bad, scores)


def test_a_feature_beyond_the_last():
    X, scores = sparse_samples(n=20)
    for wrong in (-1, 400):
        bad = X.copy()
        bad.indices[0] = wrong
        with pytest.raises(ValueError, match=f"row 0 has feature {wrong}, but there are 400 features"):
            CopRegressor().fit(bad, scores)
    bad = X.copy()
    bad.indptr[3] = -5
    with pytest.raises(ValueError, match=r"X.indptr\[3\] is -5: it begins with 0, never falls, and ends with .* entries, 240"):
        CopRegressor().fit(bad, scores)


@pytest.mark.parametrize("given", [dict(shuffle=True), dict(early_stopping=True), dict(early_stopping=True, shuffle=True)])
def test_a_wrong_row_is_told_by_its_number_in_the_data(given):
    X, scores = sparse_samples(n=100)
    for row in (2, 98):
        bad = X.copy()
        bad.data[bad.indptr[row]] = np.nan
        with pytest.raises(ValueError, match=rf"row {row}: the value of feature \d+ is NaN"):
            CopRegressor(random_state=0, **given).fit(bad, scores)


def test_what_fails_leaves_the_estimator_as_it_was():
    X, scores = sparse_samples(n=100)
    bad = X[:, :399].copy()
    bad.data[7] = np.nan
    fresh = CopRegressor()
    with pytest.raises(ValueError, match="NaN"):
        fresh.fit(bad, scores)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    for model, y in [(CopRegressor(max_iter=3, tol=None), scores), (CopClassifier(max_iter=3, tol=None), scores > 0)]:
        before = {name: np.copy(value) for name, value in vars(model.fit(X, y)).items()}
        for fail in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match="NaN|is expecting 400 features"):
                fail(bad, y[::-1])
        assert all(np.array_equal(value, before[name]) for name, value in vars(model).items())
        assert before.keys() == vars(model).keys()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(wrong):
    X, scores = sparse_samples(n=20)
    bad = X.copy()
    bad.data[15] = wrong
    with pytest.raises(ValueError, match=rf"row 1: the value of feature \d+ is (NaN|inf|-inf), which cannot be learnt"):
        CopRegressor().fit(bad, scores)
    fitted = CopRegressor(max_iter=2, tol=None).fit(X, scores)
    with pytest.raises(ValueError, match="row 1: the value of feature .*, by which nothing can be predicted: fill it in"):
        fitted.predict(bad)
    scores[3] = wrong
    with pytest.raises(ValueError, match="Input y contains"):
        CopRegressor().fit(X, scores)


def test_no_samples_no_features_and_features_that_do_not_match():
    X, scores = sparse_samples(n=20)
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        CopClassifier().fit(X[:0], scores[:0] > 0)
    with pytest.raises(ValueError, match="0 feature"):
        CopClassifier().fit(X[:, :0], scores > 0)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CopClassifier().fit(X, scores[:5] > 0)
    model = CopClassifier(max_iter=2, tol=None).fit(X, scores > 0)
    with pytest.raises(ValueError, match="X has 399 features, but CopClassifier is expecting 400 features"):
        model.predict(X[:, :399])
    with pytest.raises(ValueError, match="X has 399 features"):
        model.partial_fit(X[:, :399], scores > 0)


def test_more_features_than_have_a_number():
    X = sparse.csr_matrix((np.ones(2), np.array([5, 39 * 10**9]), np.array([0, 1, 2])), shape=(2, 40 * 10**9))
    for learn in (CopClassifier().fit, CopRegressor().partial_fit):
        with pytest.raises(ValueError, match="40000000000 features, more than the 4294967295 that there can be: hash them into fewer"):
            learn(X, [0, 1])


def test_a_feature_twice_in_a_row():
    X = sparse.csr_matrix((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    with pytest.raises(ValueError, match="row 0 has feature 1 more than once: sum or drop the repetitions first"):
        CopRegressor().fit(X, [0.0, 1.0])


def test_dtypes():
    X, scores = sparse_samples(n=40)
    with pytest.raises(ValueError, match="could not convert string to float"):
        CopRegressor().fit([["a", "b"], ["c", "d"]], [0.0, 1.0])
    with pytest.raises(ValueError, match="Complex data not supported"):
        CopRegressor().fit(X.astype(complex), scores)
    whole = X.copy()
    whole.data = np.sign(X.data)
    settings = dict(max_iter=2, tol=None)
    assert np.array_equal(
        CopRegressor(**settings).fit(whole.astype(np.int8), scores).coef_,
        CopRegressor(**settings).fit(whole, scores).coef_,
    )


def test_classes_that_are_none():
    X, scores = sparse_samples(n=40)
    with pytest.raises(ValueError, match="y has 1 class only"):
        CopClassifier().fit(X, np.ones(40))
    with pytest.raises(ValueError, match="Unknown label type"):
        CopClassifier().fit(X, scores)
    with pytest.raises(ValueError, match="y mixes labels of the types NoneType, str: give every sample a label"):
        CopClassifier().fit(X, np.array(["up", None] * 20, dtype=object))
    with pytest.raises(ValueError, match="y has labels that are bytes: decode them to strings first"):
        CopClassifier().fit(X, np.where(scores > 0, b"up", b"down"))
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes="):
        CopClassifier().partial_fit(X, scores > 0)
    for classes, told in [([0, None], "classes mixes labels of the types NoneType, int"), ([0, 1, np.nan], "NaN is no label")]:
        with pytest.raises(ValueError, match=told):
            CopClassifier().partial_fit(X, scores > 0, classes=classes)
    model = CopClassifier().partial_fit(X, np.where(scores > 0, "up", "down"), classes=["up", "down"])
    with pytest.raises(ValueError, match="y has the class left, which is not among"):
        model.partial_fit(X, np.repeat(["up", "left"], 20))
    with pytest.warns(UserWarning, match="one class after the other"):
        CopClassifier(max_iter=2, tol=None).fit(X, np.sort(scores > 0))


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy has no strings of any length before 2.0")
def test_labels_that_are_strings_of_any_length():
    X, scores = sparse_samples(n=40)
    y, settings = np.where(scores > 0, "up", "down"), dict(max_iter=2, tol=None)
    long = y.astype(np.dtypes.StringDType())
    model = CopClassifier(**settings).fit(X, long)
    assert model.classes_.tolist() == ["down", "up"] and np.array_equal(model.coef_, CopClassifier(**settings).fit(X, y).coef_)
    assert np.array_equal(model.partial_fit(X, long, classes=np.unique(long)).predict(X), model.predict(X))


@pytest.mark.parametrize(("given", "told"), [
    (dict(loss="absolute"), "loss is 'absolute': give one of 'hinge', 'squared_hinge', 'log_loss'"),
    (dict(scheme="fast"), "scheme is 'fast': give one of 'cop', 'hogwild', 'locking', 'occ', 'serial'"),
    (dict(penalty="l3"), "penalty is 'l3': give one of 'l2', 'l1', 'elasticnet', None"),
    (dict(alpha=-1.0), "alpha is -1.0: give 0 or more"),
    (dict(alpha=0.0), "alpha is 0, but learning_rate"),
    (dict(max_iter=0), "max_iter is 0: give 1 or more"),
    (dict(max_iter=10.0), "max_iter is 10.0: give a whole number from 1 on"),
    (dict(shuffle="no"), "shuffle is 'no': give True or False"),
    (dict(packed="yes"), "packed is 'yes': give True or False"),
    (dict(early_stopping="x"), "early_stopping is 'x': give True or False"),
    (dict(verbose=None), "verbose is None: give 0 for silence, or 1 for a progress bar"),
    (dict(max_iter=2**32), "max_iter is 4294967296: give 4294967295 at most"),
    (dict(n_jobs=0), "n_jobs is 0: give the number of threads, or -1 for all cores"),
    (dict(n_jobs=100_000), "n_jobs is 100000, more than the 1024 threads that there can be: give -1 for all cores"),
    (dict(l1_ratio=1.5), "l1_ratio is 1.5: give 0"),
    (dict(learning_rate="constant", eta0=0.0), "eta0 is 0, but learning_rate='constant' needs a positive step size"),
    (dict(early_stopping=True, validation_fraction=1.0), "validation_fraction is 1.0: give a share between 0 and 1"),
])
def test_parameters_that_mean_nothing(samples, given, told):
    with pytest.raises(ValueError) as raised:
        CopClassifier(**given).fit(*samples)
    assert str(raised.value).startswith(told)


def test_a_model_that_explodes_says_so(samples):
    X, y = samples
    with pytest.warns(ConvergenceWarning, match="where predicting 0 for all costs 0.5: scale the features to about 1"):
        CopRegressor(learning_rate="constant", eta0=1e3, max_iter=3).fit(X * 1e3, y)
    # Also where nobody asked for losses.
    for settings in (dict(max_iter=3), dict(max_iter=1), dict(max_iter=3, n_jobs=2, scheme="hogwild")):
        with pytest.warns(ConvergenceWarning, match=r"the loss is \S+, .* where predicting 0 for all costs 0.5: scale"):
            model = CopRegressor(learning_rate="constant", eta0=1e3, tol=None, **settings).fit(X * 1e3, y)
        assert model.loss_curve_ == []
    # So many that the intercept lags far enough behind to swing.
    dense = np.random.default_rng(1).normal(size=(5000, 5))
    with pytest.warns(ConvergenceWarning, match="or take a smaller eta0"):
        CopRegressor(learning_rate="constant", eta0=0.1, tol=None, max_iter=20).fit(dense, dense.sum(axis=1))
    # Of several classes any.
    for heavy in range(3):
        with pytest.warns(ConvergenceWarning, match="or take a smaller eta0"):
            CopClassifier(
                "squared_hinge", class_weight={heavy: 1e3}, max_iter=5, tol=None, learning_rate="constant", eta0=0.01
            ).fit(dense, dense[:, :3].argmax(axis=1))
    with pytest.raises(ValueError, match="beyond what a float can hold: scale the features to about 1"):
        CopRegressor(learning_rate="constant", eta0=1e300, max_iter=3).fit(X * 1e10, y)


def test_arrays_at_odd_addresses_are_copied():
    def odd(array):
        moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        moved[...] = array
        assert not moved.flags.aligned
        return moved

    X, scores = sparse_samples(n=50)
    settings = dict(max_iter=2, tol=None)
    even = CopRegressor(**settings).fit(X, scores, np.ones(50)).coef_
    moved = X.copy()
    moved.data, moved.indices, moved.indptr = odd(X.data), odd(X.indices), odd(X.indptr)
    assert np.array_equal(CopRegressor(**settings).fit(moved, odd(scores), odd(np.ones(50))).coef_, even)
    dense = X.toarray()[:, :5] + 1.0
    assert np.array_equal(
        CopRegressor(**settings).fit(odd(dense), scores).coef_, CopRegressor(**settings).fit(dense, scores).coef_
    )


def test_arrays_may_be_longer_than_their_rows():
    X, scores = sparse_samples(n=50)
    longer = X.copy()
    longer.data, longer.indices = np.append(X.data, [np.nan, 1.0]), np.append(X.indices, np.int32([-7, 10**6]))
    settings = dict(max_iter=2, tol=None)
    assert np.array_equal(CopRegressor(**settings).fit(longer, scores).coef_, CopRegressor(**settings).fit(X, scores).coef_)
    assert plan(longer) == plan(X)


def test_read_only_arrays():
    X, scores = sparse_samples(n=100)
    for part in (X.data, X.indices, X.indptr, scores):
        part.flags.writeable = False
    CopRegressor(max_iter=2, tol=None).fit(X, scores)
    assert plan(X).n_samples == 100
