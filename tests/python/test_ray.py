"""Collectors and centre on a local Ray cluster of several processes, of which some are killed; what no cluster does at will is
done without one."""

import gc
import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import sparse_samples

from isochrone.learn import CopClassifier, CopFactorizer, CopRegressor

ray = pytest.importorskip("ray")

SAMPLES, FEATURES, SOURCES = 3000, 400, 3


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    # As others: beside these its workers would hardly come to anything on a machine of two cores.
    os.environ["RAY_worker_niceness"] = "0"
    ray.init(
        num_cpus=8, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(__file__)}},
    )
    yield
    ray.shutdown()


class Region:
    """Samples of one region, in pieces of 100, once all regions are there; a process is killed, once, before sample
    `kill_at` is given."""

    def __init__(self, number, folder, kill_at=None, victim="collector"):
        self.number, self.folder, self.kill_at, self.victim = number, folder, kill_at, victim
        # More than Ray hands over with a call: it is made again of what was put into its store.
        self.captured = np.zeros(200_000 if kill_at is not None else 0)
        self.killed = folder / "killed"

    def samples(self):
        X, scores = sparse_samples(n=SAMPLES * SOURCES, d=FEATURES)
        own = slice(SAMPLES * self.number, SAMPLES * (self.number + 1))
        return X[own], np.where(scores[own] > 0, "up", "down")

    def __call__(self, start):
        X, y = self.samples()
        (self.folder / f"ready-{self.number}").touch()
        while len(list(self.folder.glob("ready-*"))) < SOURCES:
            time.sleep(0.01)
        for first in range(start, SAMPLES, 100):
            if self.kill_at is not None and first >= self.kill_at and not self.killed.exists():
                self.killed.touch()
                if self.victim == "collector":
                    os.kill(os.getpid(), signal.SIGKILL)
                ray.kill(ray.get_actor("center"), no_restart=False)
            yield self.piece(X[first:first + 100], y[first:first + 100], np.arange(first, min(first + 100, SAMPLES)))

    def piece(self, X, y, numbers):
        return X, y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("victim", ["collector", "center"])
def test_nothing_is_lost_nothing_comes_twice_and_the_model_is_serial(cluster, tmp_path, victim):
    from isochrone.learn.ray import learn, order, replay

    sources = [Region(number, tmp_path, 1250 if number == 1 else None, victim) for number in range(SOURCES)]
    model = CopClassifier(alpha=1e-5, learning_rate="invscaling", eta0=0.1, n_jobs=2)
    total = SAMPLES * SOURCES
    learn(
        model, sources, folder=tmp_path / "center", n_features=FEATURES, classes=["down", "up"], n_samples=total,
        batch_size=256, checkpoint_every=10, center_options={"name": "center"},
    )
    assert (tmp_path / "killed").exists()
    assert model.report_["samples"] == model.t_ == total

    batches = order(model, tmp_path / "center", n_features=FEATURES)
    for source in range(SOURCES):
        own = [batch for batch in batches if batch[0] == source]
        assert [seq for _, seq, _, _ in own] == list(range(len(own)))
        ends = np.cumsum([0, *(count for *_, count in own)])
        assert [first for _, _, first, _ in own] == ends[:-1].tolist()
        assert ends[-1] == SAMPLES
    turns = sum(one[0] != other[0] for one, other in zip(batches, batches[1:]))
    assert turns >= SOURCES, "one source after the other is no mixture"

    coef, intercept = replay(model, tmp_path / "center", n_features=FEATURES, n_samples=total)
    assert coef.tobytes() == model.coef_.tobytes() and intercept.tobytes() == model.intercept_.tobytes()
    X, y = sources[0].samples()
    assert model.score(X, y) > 0.8


class Kinds(Region):
    """The same samples in three classes."""

    def samples(self):
        X, scores = sparse_samples(n=SAMPLES * SOURCES, d=FEATURES)
        own = slice(SAMPLES * self.number, SAMPLES * (self.number + 1))
        return X[own], np.array(["low", "middle", "high"])[np.digitize(scores[own], np.quantile(scores, [1 / 3, 2 / 3]))]

    def piece(self, X, y, numbers):
        """Of two hundreds out of three, two samples out of three say what is wrong, and count nothing."""
        plain = numbers // 100 % 3 == 0
        weights = np.where(plain, 1.0, 1.5 * (numbers % 3 == 0))
        samples = X, np.where(weights > 0, y, np.where(y == "low", "high", "low"))
        return samples if plain.all() else (*samples, weights)


@pytest.mark.filterwarnings("ignore")
def test_more_than_two_classes_are_learnt_in_one_pass(cluster, tmp_path):
    from isochrone.learn.ray import learn, order, replay

    sources = [Kinds(number, tmp_path, 1250 if number == 1 else None, "center") for number in range(SOURCES)]
    model = CopClassifier(loss="log_loss", learning_rate="invscaling", eta0=0.1, n_jobs=2)
    total = SAMPLES * SOURCES
    learn(
        model, sources, folder=tmp_path / "center", n_features=FEATURES, classes=["low", "middle", "high"],
        n_samples=total, batch_size=256, checkpoint_every=10, center_options={"name": "center"},
    )
    assert (tmp_path / "killed").exists() and model.report_["samples"] == total
    assert model.coef_.flags.writeable
    assert model.coef_.shape == (3, FEATURES) and model.classes_.tolist() == ["high", "low", "middle"]
    assert sum(count for *_, count in order(model, tmp_path / "center", n_features=FEATURES)) == total
    coef, intercept = replay(model, tmp_path / "center", n_features=FEATURES, n_samples=total)
    assert coef.tobytes() == model.coef_.tobytes() and intercept.tobytes() == model.intercept_.tobytes()
    X, y = sources[0].samples()
    assert model.score(X, y) > 0.55 and model.predict_proba(X[:5]).shape == (5, 3)


@pytest.mark.filterwarnings("ignore")
def test_a_class_counts_as_its_weight_says(cluster, tmp_path):
    from isochrone.learn.ray import learn, replay

    def learnt(name, source, classes, **parameters):
        model = CopClassifier(loss="log_loss", learning_rate="invscaling", eta0=0.1, **parameters)
        folder = tmp_path / name
        learn(model, [source], folder=folder, n_features=FEATURES, classes=classes, batch_size=256)
        coef, intercept = replay(model, folder, n_features=FEATURES)
        assert coef.tobytes() == model.coef_.tobytes() and intercept.tobytes() == model.intercept_.tobytes()
        return model.coef_

    X, scores = sparse_samples(n=SAMPLES, d=FEATURES)
    kinds = np.array(["low", "middle", "high"])[np.digitize(scores, np.quantile(scores, [1 / 3, 2 / 3]))]
    weights, highs = {"high": 3.0, "low": 0.25}, np.where(kinds == "high", "high", "else")

    def pieces(*arrays):
        return lambda start: (tuple(array[at:at + 100] for array in (X, *arrays)) for at in range(start, SAMPLES, 100))

    by_class = learnt("class", pieces(highs), ["else", "high"], class_weight={"high": 3.0, "else": 0.25})
    by_sample = learnt("sample", pieces(highs, np.where(kinds == "high", 3.0, 0.25)), ["else", "high"])
    assert by_class.tobytes() == by_sample.tobytes()

    three = learnt("three", pieces(kinds), ["low", "middle", "high"], class_weight=weights)
    alone = learnt("alone", pieces(highs), ["else", "high"], class_weight={"high": 3.0})
    plain = learnt("plain", pieces(kinds), ["low", "middle", "high"])
    assert three[0].tobytes() == alone[0].tobytes()
    assert three[1].tobytes() != plain[1].tobytes() and three[2].tobytes() == plain[2].tobytes()


class Centre:
    """A centre in this process; `before(calls)` comes before its every `ingest`, and may give a batch that arrives first."""

    def __init__(self, native, before):
        self.native, self.before, self.calls = native, before, 0
        self.next = SimpleNamespace(remote=native.next)
        self.ingest = SimpleNamespace(remote=self.arrives)

    def arrives(self, batch):
        first = self.before(self.calls)
        self.calls += 1
        if first is not None:
            self.native.ingest(first)
        answer = self.native.ingest(batch)
        self.native.work()
        return answer


@pytest.mark.parametrize("late", range(4))
def test_the_end_of_a_source_is_where_the_centre_has_it(tmp_path, monkeypatch, late):
    """A collector's last batch was cut short, was lost with the centre, and is sent again by Ray only once the next attempt's
    batch `late` is under way."""
    from isochrone import _native
    from isochrone.learn import ray as module

    monkeypatch.setattr(module, "ray", SimpleNamespace(get=lambda answer: answer))
    model = CopRegressor(learning_rate="constant", eta0=0.1)
    settings = module._settings(model, 1)
    X, y = sparse_samples(n=1000, d=FEATURES)

    def source(start):
        yield from ((X[at:at + 50], y[at:at + 50]) for at in range(start, 1000, 50))

    def batches(size, seq, first, end):
        collector = _native.Collector(0, settings, FEATURES, size, 1e9, seq, first)
        rows, labels, _ = module._Collector(0, None, source, settings, FEATURES, None, size, 1e9)._samples(X[first:end], y[first:end])
        return [batch for batch, _ in [*collector.push(tuple(rows), labels, None, 0.0), *filter(None, [collector.flush()])]]

    native = _native.Center(os.fspath(tmp_path), settings, FEATURES, 0)
    for batch in batches(100, 0, 0, 600):
        native.ingest(batch)
    (old,) = batches(100, 6 + late, 600 + 100 * late, 650 + 100 * late)
    centre = Centre(native, lambda calls: old if calls == late else None)
    collector = module._Collector(0, centre, source, settings, FEATURES, None, 100, 1e9)
    assert collector.run() == 1000
    assert native.counts()["samples"] == native.next(0)[1] == 1000
    del collector, centre, native
    gc.collect()
    taken = module.order(model, tmp_path, n_features=FEATURES)
    assert [first for _, _, first, _ in taken] == [0, *np.cumsum([samples for *_, samples in taken])[:-1]]


def test_a_folder_goes_on_as_it_was_begun(tmp_path):
    from isochrone import _native
    from isochrone.learn import ray as module

    def center(labels="'down', 'up'", **parameters):
        model = CopClassifier(loss="log_loss", learning_rate="invscaling", eta0=0.1, **parameters)
        classes = [(1.0, 1.0, 1.0)]
        return _native.Center(os.fspath(tmp_path), module._settings(model, 1), FEATURES, 0, classes, labels)

    center()
    center()
    with pytest.raises(ValueError, match=r"begun with class 1 .* l2 0.0001, .* now it is class 1 .* l2 0.5, .* go on as it was begun"):
        center(alpha=0.5)
    with pytest.raises(ValueError, match="begun with labels 'down', 'up'; now it is labels 'down', 'left'"):
        center(labels="'down', 'left'")
    model = CopClassifier(loss="hinge", learning_rate="invscaling", eta0=0.1)
    with pytest.raises(ValueError, match="logistic loss.*hinge loss"):
        module.replay(model, tmp_path, n_features=FEATURES, classes=["down", "up"])


def test_what_cannot_be_learnt_like_this(cluster, tmp_path):
    from isochrone.learn.ray import learn

    for region in range(SOURCES):
        (tmp_path / f"ready-{region}").touch()
    source = Region(0, tmp_path)
    with pytest.raises(ValueError, match="packed is given, but over Ray each batch is learnt from once"):
        learn(CopRegressor(packed=True), [source], folder=tmp_path, n_features=FEATURES)
    with pytest.raises(ValueError, match="class_weight is 'balanced', but nobody sees all labels before learning begins"):
        weighed = CopClassifier(class_weight="balanced")
        learn(weighed, [source], folder=tmp_path, n_features=FEATURES, classes=["down", "up"])
    with pytest.raises(ValueError, match="classes is None: give all that there are, two or more"):
        learn(CopClassifier(), [source], folder=tmp_path, n_features=FEATURES)
    with pytest.raises(ValueError, match="scheme is 'occ'"):
        learn(CopRegressor(scheme="occ"), [source], folder=tmp_path, n_features=FEATURES)
    with pytest.raises(TypeError, match="model is a CopFactorizer: over Ray a CopClassifier or a CopRegressor"):
        learn(CopFactorizer(), [source], folder=tmp_path, n_features=FEATURES)
    for name in ("shuffle", "early_stopping", "warm_start"):
        with pytest.raises(ValueError, match=f"{name} is given, but over Ray"):
            learn(CopRegressor(**{name: True}), [source], folder=tmp_path, n_features=FEATURES)
    for name, value in [("max_iter", 5), ("tol", 1e-5), ("n_iter_no_change", 3)]:
        with pytest.raises(ValueError, match=f"{name} is {value}, but over Ray samples are learnt from once"):
            learn(CopRegressor(**{name: value}), [source], folder=tmp_path, n_features=FEATURES)
    for name, value in [("batch_size", 2**32), ("checkpoint_every", 2**64)]:
        with pytest.raises(ValueError, match=f"{name} is {value}: give {value - 1} at most"):
            learn(CopRegressor(), [source], folder=tmp_path, n_features=FEATURES, **{name: value})
    for name in ("n_samples", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} is 0: give 1 or more"):
            learn(CopRegressor(), [source], folder=tmp_path, n_features=FEATURES, **{name: 0})
    with pytest.raises(ValueError, match="sources is empty"):
        learn(CopClassifier(), [], folder=tmp_path, n_features=FEATURES, classes=["down", "up"])
    with pytest.raises(ValueError, match="collector_options has 2 entries for 1 sources: give one for each"):
        learn(CopRegressor(), [source], folder=tmp_path, n_features=FEATURES, collector_options=[{}, {}])
    X, y = source.samples()
    for number, (given, told) in enumerate([
        ([], "no source gave a sample"),
        ([(X[:0], np.ones(0))], "no source gave a sample"),
        ([(X * 1e10, np.ones(len(y)))], "the coefficients have grown beyond what a float can hold"),
        ([X], "source 0 gave a csr_matrix: give pairs"),
        (
            [(X[:7], np.ones((7, 1)), 2), (X[7:9], np.ones(2), np.array([1.0, -1.0]))],
            "source 0, in the piece from sample 7 on: row 1: the importance is -1, where a number from 0 on is wanted",
        ),
    ]):
        with pytest.raises(ValueError, match=told):
            model = CopRegressor(max_iter=1, tol=None, learning_rate="constant", eta0=1e300)
            learn(model, [lambda _, given=given: given], folder=tmp_path / f"{number}", n_features=FEATURES)
        assert not hasattr(model, "coef_")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="/file: "):
        learn(CopRegressor(), [source], folder=tmp_path / "file", n_features=FEATURES)
    with pytest.raises(ValueError, match="begun with .* now it is .* go on as it was begun"):
        learn(CopRegressor(alpha=0.5), [lambda _: []], folder=tmp_path / "0", n_features=FEATURES)
    with pytest.raises(ValueError, match="source 0, in the piece from sample 0 on: X has 400 features, n_features is 10"):
        learn(CopClassifier(), [source], folder=tmp_path / "new", n_features=10, classes=["down", "up"])


def test_a_folder_that_is_not_there_has_no_log(tmp_path):
    module = pytest.importorskip("isochrone.learn.ray")
    for ask in (module.replay, module.order):
        with pytest.raises(FileNotFoundError, match="no folder of a centre"):
            ask(CopRegressor(), tmp_path / "mistyped", n_features=FEATURES)
    assert not (tmp_path / "mistyped").exists()
