"""Matrix factorisation."""

import pickle

import numpy as np
import pandas
import pyarrow as arrow
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from isochrone.learn import CopFactorizer


def ratings(n=4000, people=120, films=60, seed=0):
    """Cells of a matrix of rank 3, some of which are known with noise."""
    random = np.random.default_rng(seed)
    P, Q = random.normal(size=(people, 3)), random.normal(size=(films, 3))
    cells = np.column_stack([random.integers(people, size=n), random.integers(films, size=n)])
    return cells, 3.0 + np.einsum("ij,ij->i", P[cells[:, 0]], Q[cells[:, 1]]) + 0.1 * random.normal(size=n)


def same(one, other):
    parts = ("row_factors_", "column_factors_")
    return one.intercept_ == other.intercept_ and all(
        getattr(one, part).tobytes() == getattr(other, part).tobytes() for part in parts
    )


@pytest.fixture(scope="module")
def cells():
    return ratings()


def test_it_finds_what_is_there(cells):
    X, y = cells
    model = CopFactorizer(n_components=3, max_iter=200, eta0=0.1, decay=0.98, random_state=0).fit(X[:3200], y[:3200])
    assert model.score(X[3200:], y[3200:]) > 0.95 and model.n_features_in_ == 2
    assert model.row_factors_.shape == (120, 3) and model.column_factors_.shape == (60, 3)
    assert model.loss_curve_[-1] < model.loss_curve_[0] / 10 and len(model.loss_curve_) == model.n_iter_
    by_hand = model.row_factors_[X[0, 0]] @ model.column_factors_[X[0, 1]] + model.intercept_
    assert np.isclose(model.predict(X[:1])[0], by_hand)


@pytest.mark.parametrize("settings", [
    {}, dict(l1_ratio=0.5, alpha=1e-3), dict(fit_intercept=False, learning_rate="invscaling"), dict(shuffle=False, alpha=0.0),
])
def test_cop_is_serial(cells, settings):
    X, y = cells
    weights = np.random.default_rng(1).random(len(y))
    settings = dict(n_components=4, max_iter=5, tol=None, random_state=0) | settings
    for given in (None, weights):
        serial = CopFactorizer(scheme="serial", **settings).fit(X, y, given)
        for threads in (1, 2, 4):
            assert same(CopFactorizer(n_jobs=threads, **settings).fit(X, y, given), serial), threads
    assert same(CopFactorizer(scheme="locking", **settings).fit(X, y, weights), serial)
    stopped = [CopFactorizer(n_jobs=threads, **(settings | dict(tol=1e-2, max_iter=100))).fit(X, y) for threads in (1, 2)]
    assert same(*stopped) and stopped[0].n_iter_ == stopped[1].n_iter_ < 100
    early = dict(tol=1e-2, max_iter=100, early_stopping=True, validation_fraction=0.25)
    stopped = [CopFactorizer(n_jobs=threads, **(settings | early)).fit(X, y, weights) for threads in (1, 2)]
    assert same(*stopped) and stopped[0].n_iter_ == stopped[1].n_iter_ < 100
    assert stopped[0].t_ == stopped[0].n_iter_ * 3000


def test_names_of_any_kind(cells):
    X, y = cells
    settings = dict(n_components=3, max_iter=5, tol=None, random_state=0)
    plain = CopFactorizer(**settings).fit(X, y)
    named = pandas.DataFrame({"who": [f"person {at:03}" for at in X[:, 0]], "what": X[:, 1]})
    model = CopFactorizer(**settings).fit(named, y)
    assert same(model, plain) and model.rows_[0] == "person 000" and model.columns_.dtype == X.dtype
    objects = CopFactorizer(**settings).fit(named.to_numpy(), y)
    listed = CopFactorizer(**settings).fit(named.to_numpy().tolist(), y)
    assert same(objects, plain) and same(listed, plain) and listed.columns_.dtype == X.dtype
    unknown = model.predict(pandas.DataFrame({"who": ["nobody", "person 001"], "what": [0, 10**6]}))
    assert unknown.tolist() == [model.intercept_] * 2


def test_names_beyond_what_a_float_holds_are_told_apart():
    large = 2**53
    X = np.array([[large, 0], [large + 1, 0]], np.uint64)
    model = CopFactorizer(n_components=2, max_iter=3, tol=None, random_state=0).fit(X, [1.0, 2.0])
    known = [(model.predict([[name, 0]]) != model.intercept_).item() for name in (large, large + 1, large + 2)]
    assert known == [True, True, False]
    # Of another type: signed, and as numbers with and without a fraction.
    assert np.array_equal(model.predict(X.astype(np.int64)), model.predict(X))
    assert (model.predict([[float(large), 0], [0.5, 0]]) == model.intercept_).tolist() == [False, True]
    table = arrow.table({"who": [large, large + 1], "what": [0.5, 0.5]})
    for cells in ([[large, 0.5], [large + 1, 0.5]], table, table.to_pandas()):
        assert CopFactorizer(max_iter=1, tol=None).fit(cells, [1.0, 2.0]).rows_.tolist() == [large, large + 1]


def test_what_fails_leaves_it_as_it_was(cells):
    X, y = cells
    fresh, wrong = CopFactorizer(n_components=2, max_iter=3, tol=None), np.full(len(y), np.nan)
    with pytest.raises(ValueError, match="NaN"):
        fresh.fit(pandas.DataFrame(X, columns=["person", "film"]), wrong)
    assert vars(fresh) == fresh.get_params()
    before = dict(vars(fresh.fit(X, y)))
    with pytest.raises(ValueError, match="NaN"):
        fresh.fit(pandas.DataFrame(X, columns=["person", "film"]), wrong)
    assert vars(fresh).keys() == before.keys() and all(vars(fresh)[name] is value for name, value in before.items())


def test_weights_of_cells(cells):
    X, y = cells
    settings = dict(n_components=3, max_iter=20, tol=None, alpha=0.0, fit_intercept=False, shuffle=False, random_state=0)
    known = np.arange(len(y)) % 4 != 0
    weighted, part = CopFactorizer(**settings).fit(X, y, known), CopFactorizer(**settings).fit(X[known], y[known])
    # All rows and columns occur in both, so both begin alike.
    assert same(weighted, part)
    assert weighted.score(X, y, sample_weight=known) == pytest.approx(part.score(X[known], y[known]))


def test_scikit_learn_conventions(cells):
    X, y = cells
    model = CopFactorizer(n_components=2, max_iter=3, tol=None, random_state=0).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "row_factors_")
    search = GridSearchCV(CopFactorizer(max_iter=30, tol=None, random_state=0), {"n_components": [1, 3]}, cv=3).fit(X, y)
    assert search.best_params_ == {"n_components": 3}


def test_warm_start_goes_on(cells):
    X, y = cells
    settings = dict(n_components=3, tol=None, learning_rate="constant", eta0=0.02, shuffle=False, random_state=0,
                    fit_intercept=False)
    at_once = CopFactorizer(max_iter=6, **settings).fit(X, y)
    in_two = CopFactorizer(max_iter=3, warm_start=True, **settings)
    assert same(in_two.fit(X, y).fit(X, y), at_once) and in_two.t_ == at_once.t_ == 6 * len(y)
    # Also by epochs, of however many cells.
    settings |= dict(learning_rate="geometric", decay=0.5)
    some = np.flatnonzero(np.arange(len(y)) % 2)
    assert len(np.unique(X[some, 0])) == len(np.unique(X[:, 0])) and len(np.unique(X[some, 1])) == len(np.unique(X[:, 1]))
    steps = CopFactorizer(max_iter=3, warm_start=True, **settings).fit(X, y)
    by_hand = CopFactorizer(max_iter=3, warm_start=True, **settings).fit(X, y)
    by_hand.set_params(max_iter=1, learning_rate="constant", eta0=0.02 * 0.5**3).fit(X[some], y[some])
    assert same(steps.set_params(max_iter=1).fit(X[some], y[some]), by_hand) and steps.epochs_ == 4


@pytest.mark.parametrize(("given", "told"), [
    (dict(n_components=0), "n_components is 0: give 1 or more"),
    (dict(shuffle="no"), "shuffle is 'no': give True or False"),
    (dict(scheme="fast"), "scheme is 'fast': give one of 'cop'"),
    (dict(learning_rate="optimal"), "learning_rate is 'optimal': give one of 'geometric', 'constant', 'invscaling'"),
    (dict(eta0=0.0), "eta0 is 0.0: give a positive number"),
])
def test_parameters_that_mean_nothing(cells, given, told):
    with pytest.raises(ValueError, match=told):
        CopFactorizer(**given).fit(*cells)


def test_cells_that_are_none(cells):
    X, y = cells
    for wrong, told in [
        (X[:, :1], "X has 1 columns: give two, each cell's row and column"),
        (X[:, 0], "X has 1 dimensions: give two columns"),
        (X[:0], "inconsistent numbers of samples|X has no cells"),
    ]:
        with pytest.raises(ValueError, match=told):
            CopFactorizer().fit(wrong, y)
    names = np.array([f"p{row}" for row in X[:, 0]], dtype=object)
    for absent in (None, np.nan, pandas.NA, pandas.NaT):
        wrong = pandas.DataFrame({"person": names, "film": X[:, 1]}, dtype=object)
        wrong.iloc[3, 0] = absent
        with pytest.raises(ValueError, match=r"X\[3\] has .* for its row: leave out cells whose row is not known"):
            CopFactorizer().fit(wrong, y)
    numbers = X.astype(float)
    numbers[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"X\[2\] has nan for its column"):
        CopFactorizer().fit(numbers, y)
    names[5] = 7
    with pytest.raises(ValueError, match="a column of X mixes names of the types int, str: give all the same type"):
        CopFactorizer().fit(np.column_stack([names, X[:, 1]]), y)
    fitted = CopFactorizer(n_components=2, max_iter=2, tol=None).fit(X, y)
    with pytest.raises(ValueError, match="X has names of the types .*str.*, where fit had .*int"):
        fitted.predict(np.column_stack([names, X[:, 1]]))
    with pytest.raises(ValueError, match=r"X is a sparse matrix: give its known cells, for M = X.tocoo\(\)"):
        CopFactorizer().fit(sparse.csr_matrix(X), y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        CopFactorizer().fit(X, np.where(np.arange(len(y)) == 3, np.nan, y))
    with pytest.raises(ValueError, match="scale y to about 1, or take a smaller eta0"):
        CopFactorizer(eta0=10.0, max_iter=50).fit(X, 1e6 * y)


def test_names_of_another_type_are_no_names(cells):
    X, y = cells
    text, bytes_ = X.astype(str), X.astype("S")
    for learnt, asked in [(X, text), (X, bytes_), (text, X), (text, bytes_), (bytes_, X), (text, X.astype(float))]:
        model = CopFactorizer(n_components=2, max_iter=3, tol=None, random_state=0).fit(learnt, y)
        with pytest.raises(ValueError, match="X has names of the types .*, where fit had"):
            model.predict(asked)
    model = CopFactorizer(n_components=2, max_iter=3, tol=None, random_state=0).fit(X, y)
    assert np.array_equal(model.predict(X.astype(np.int32)), model.predict(X.astype(float)))


def test_columns_and_values_are_where_they_were(cells):
    X, y = cells
    frame = pandas.DataFrame(X, columns=["person", "film"])
    model = CopFactorizer(n_components=2, max_iter=3, tol=None, random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == ["person", "film"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["film", "person"]])
    half = len(y) // 2
    with pytest.raises(ValueError, match="y should be a 1d array"):
        CopFactorizer().fit(X[: 2 * half], y[: 2 * half].reshape(half, 2))
