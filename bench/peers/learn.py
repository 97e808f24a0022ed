#!/usr/bin/env python3
"""COP beside what a user would pick instead, in one run on one machine: scikit-learn, LIBLINEAR, Vowpal Wabbit.

    bench/peers/learn.sh [--data kdda] [--scale 32] [--loss log_loss] [--rounds 5] [--threads 1,2]
                         [--only epoch|objective]

Samples are made with the size and the conflicts of published data (isochrone.learn.make_sparse); values are float32,
there is no intercept, the penalty is L2 with LIBLINEAR's C, that is alpha = 1 / (C n_samples).

- *One epoch*: nanoseconds for each non-zero of the data, from calling `fit` to its return, whatever it checks or copies
  included; step size 0.05 for ours and for SGDClassifier. A plan is made before and its time is told beside; schemes at each
  of `--threads`. The rounds take turns, the best of them counts: others on the machine only ever make a run slower. Where
  they never rest, `--clock cpu` counts processor time instead, and leaves out what has more than one thread.
- *Time to equal objective*: mean loss + alpha / 2 |w|^2, after more and more epochs of each. What counts is the time after
  which a system has come within 10 %, 3 % and 1 % of the lowest objective that any system has reached.

Vowpal Wabbit reads its own binary cache, written before; its time is that of the passes over it. Where it is not installed
it is left out, and that is said.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import LinearSVC

from isochrone.learn import CopClassifier, make_sparse, plan

EPOCHS = (1, 2, 3, 5, 8, 13, 20, 30)
STEP = 0.05
SGD_SCHEDULES = (
    {"learning_rate": "optimal"},
    {"learning_rate": "constant", "eta0": STEP},
    {"learning_rate": "invscaling", "eta0": 0.5, "power_t": 0.25},
    {"learning_rate": "invscaling", "eta0": 10.0, "power_t": 0.5},
)
THREADS = [1, 2]
CLOCK = [time.perf_counter]


class Data:
    """Samples to learn from, as many to be tested with, and what a model costs."""

    def __init__(self, options):
        X, y = make_sparse(options.data, scale=options.scale, n_jobs=-1)
        cut = X.shape[0] * 9 // 10
        self.X, self.y, self.test_X, self.test_y = X[:cut], y[:cut], X[cut:], y[cut:]
        # LIBLINEAR computes with doubles: converting is not charged to it.
        self.X64 = self.X.astype(np.float64)
        self.C, self.alpha, self.loss = options.C, 1.0 / (options.C * cut), options.loss

    def objective(self, coef):
        margin = self.y * (self.X64 @ coef)
        losses = np.maximum(0.0, 1.0 - margin) if self.loss == "hinge" else np.logaddexp(0.0, -margin)
        return float(losses.mean() + 0.5 * self.alpha * coef @ coef)

    def accuracy(self, coef):
        return float(((self.test_X @ coef > 0) == (self.test_y > 0)).mean())


def counts(text):
    """Numbers of threads, 1 first."""
    found = sorted({1, *map(int, text.split(","))})
    if found[0] < 1:
        raise ValueError(text)
    return found


def timed(work):
    """Seconds, and what `work` returned."""
    begun = CLOCK[0]()
    result = work()
    return CLOCK[0]() - begun, result


def ours(data, scheme, threads, epochs, planned):
    """Ours, with steps that fall to a fiftieth."""
    model = CopClassifier(
        loss=data.loss, alpha=data.alpha, scheme=scheme, n_jobs=threads, max_iter=epochs, tol=None, fit_intercept=False,
        learning_rate="geometric", eta0=STEP, decay=0.02 ** (1 / max(epochs - 1, 1)),
    )
    return lambda: model.fit(data.X, data.y, plan=planned).coef_[0]


def sgd(data, epochs, schedule, X=None):
    model = SGDClassifier(
        loss=data.loss, alpha=data.alpha, max_iter=epochs, tol=None, fit_intercept=False, shuffle=False, **schedule
    )
    return lambda: model.fit(data.X if X is None else X, data.y).coef_[0]


def liblinear(data, epochs):
    if data.loss == "hinge":
        model = LinearSVC(loss="hinge", C=data.C, fit_intercept=False, max_iter=epochs, tol=1e-9, dual=True)
    else:
        model = LogisticRegression(
            solver="liblinear", C=data.C, dual=True, fit_intercept=False, max_iter=epochs, tol=1e-9
        )
    return lambda: model.fit(data.X64, data.y).coef_[0]


class Vowpal:
    """Vowpal Wabbit over a cache of the samples."""

    def __init__(self, data, folder):
        from vowpalwabbit import Workspace

        self.workspace, self.data = Workspace, data
        text, self.cache = folder / "samples.vw", folder / "samples.cache"
        X = data.X
        with text.open("w") as file:
            for row in range(X.shape[0]):
                entries = slice(X.indptr[row], X.indptr[row + 1])
                named = " ".join(f"{u}:{z:g}" for u, z in zip(X.indices[entries], X.data[entries]))
                file.write(f"{int(data.y[row])} | {named}\n")
        bits = max(18, int(np.ceil(np.log2(X.shape[1]))))
        loss = "hinge" if data.loss == "hinge" else "logistic"
        self.arguments = (
            f"-b {bits} --loss_function {loss} --l2 {data.alpha} --noconstant --quiet --holdout_off -d {text}"
        )
        self.workspace(f"{self.arguments} --cache_file {self.cache} -k").finish()

    def __call__(self, epochs):
        def work():
            model = self.workspace(f"{self.arguments} --cache_file {self.cache} --passes {epochs}")
            self.model = model
            return model

        seconds, model = timed(work)
        coef = np.array([model.get_weight(feature) for feature in range(self.data.X.shape[1])])
        model.finish()
        # Under a penalty it keeps its weights up to a factor that is not told: the best one is taken.
        factors = np.logspace(-4, 0, 61)
        costs = [self.data.objective(factor * coef) for factor in factors]
        return seconds, factors[int(np.argmin(costs))] * coef


def epoch_times(data, options, vowpal):
    """Best seconds of each system for an epoch, with objective and accuracy of the model."""
    planning, planned = timed(lambda: plan(data.X))
    runs = {"COP, 1 thread": ours(data, "cop", 1, 1, None), "serial": ours(data, "serial", 1, 1, None)}
    runs |= {
        f"{scheme}, {threads} thread{'s' * (threads > 1)}": ours(data, scheme, threads, 1, planned)
        for scheme in ("cop", "hogwild", "locking", "occ") for threads in THREADS if (scheme, threads) != ("cop", 1)
    }
    runs = {name.replace("cop", "COP"): run for name, run in runs.items()}
    runs["scikit-learn SGDClassifier"] = sgd(data, 1, SGD_SCHEDULES[1])
    runs["the same, float64"] = sgd(data, 1, SGD_SCHEDULES[1], data.X64)
    runs["LIBLINEAR"] = liblinear(data, 1)
    best = {}
    for _ in range(options.rounds):
        for name, run in runs.items():
            seconds, coef = timed(run)
            if name not in best or seconds < best[name][0]:
                best[name] = (seconds, coef)
        if vowpal:
            seconds, coef = vowpal(1)
            if "Vowpal Wabbit" not in best or seconds < best["Vowpal Wabbit"][0]:
                best["Vowpal Wabbit"] = (seconds, coef)
        for threads in THREADS:
            name = f"planning, {threads} thread{'s' * (threads > 1)}"
            seconds, _ = timed(lambda: plan(data.X, n_jobs=threads))
            best[name] = (min(seconds, best.get(name, (seconds,))[0]), None)
    return best, planned


def curves(data, options, vowpal, planned):
    """For each system, (seconds, objective, accuracy) after more and more epochs."""
    systems = {
        "COP, 1 thread": lambda epochs: timed(ours(data, "cop", 1, epochs, None)),
        **{
            f"COP, {threads} threads": lambda epochs, threads=threads: timed(
                ours(data, "cop", threads, epochs, planned)
            )
            for threads in THREADS[1:]
        },
        "scikit-learn SGDClassifier": lambda epochs: min(
            (timed(sgd(data, epochs, schedule)) for schedule in SGD_SCHEDULES), key=lambda run: data.objective(run[1])
        ),
        "LIBLINEAR": lambda epochs: timed(liblinear(data, epochs)),
    }
    if vowpal:
        systems["Vowpal Wabbit"] = vowpal
    found = {}
    for name, run in systems.items():
        found[name] = []
        for epochs in EPOCHS:
            runs = [run(epochs) for _ in range(max(1, options.rounds // 2))]
            seconds = min(seconds for seconds, _ in runs)
            found[name].append((epochs, seconds, data.objective(runs[0][1]), data.accuracy(runs[0][1])))
    return found


def reached(curve, target):
    """Epochs and seconds until the objective was as low as that."""
    return next(((epochs, seconds) for epochs, seconds, objective, _ in curve if objective <= target), None)


def print_epoch(best, data):
    reference = best["scikit-learn SGDClassifier"][0]
    print(f"{'one epoch':<30}{'ns/non-zero':>12}{'SGDClassifier =':>16}{'objective':>11}{'accuracy':>10}")
    for name, (seconds, coef) in best.items():
        line = f"{name:<30}{seconds / data.X.nnz * 1e9:>12.2f}{reference / seconds:>15.2f}x"
        print(line + (f"{data.objective(coef):>11.4f}{data.accuracy(coef):>10.4f}" if coef is not None else ""))


def print_curves(found):
    lowest = min(objective for curve in found.values() for _, _, objective, _ in curve)
    print(f"\nseconds (epochs) to an objective of at most so much above the lowest, {lowest:.5f}")
    shares = (0.10, 0.03, 0.01)
    print(f"{'':<30}" + "".join(f"{f'{share:.0%}':>16}" for share in shares) + f"{'accuracy then':>15}")
    for name, curve in found.items():
        cells, accuracy = [], ""
        for share in shares:
            hit = reached(curve, lowest * (1 + share))
            cells.append(f"{hit[1]:.3f} ({hit[0]})" if hit else "not reached")
            if hit:
                accuracy = f"{next(accuracy for epochs, *_, accuracy in curve if epochs == hit[0]):.4f}"
        print(f"{name:<30}" + "".join(f"{cell:>16}" for cell in cells) + f"{accuracy:>15}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="kdda", help="kdda, kddb, imdb or hotspot:FEATURES")
    parser.add_argument("--scale", type=int, default=32, help="divides samples and features")
    parser.add_argument("--C", type=float, default=0.1, help="LIBLINEAR's inverse of the penalty")
    parser.add_argument("--loss", default="log_loss", choices=["hinge", "log_loss"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=counts, default=THREADS, help="1, and more, with commas (default 1,2)")
    parser.add_argument("--only", choices=["epoch", "objective"])
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    THREADS[:] = options.threads
    if options.clock == "cpu":
        CLOCK[0] = time.process_time
        THREADS[1:] = []
    data = Data(options)
    with tempfile.TemporaryDirectory() as folder:
        try:
            vowpal = Vowpal(data, pathlib.Path(folder))
        except ImportError:
            vowpal = None
            print("Vowpal Wabbit is not installed (pip install vowpalwabbit): left out")
        planned = plan(data.X)
        best, found = {}, {}
        if options.only != "objective":
            best, planned = epoch_times(data, options, vowpal)
        if options.only != "epoch":
            found = curves(data, options, vowpal, planned)
    n, d = data.X.shape
    if options.format == "json":
        epochs = {name: seconds for name, (seconds, _) in best.items()}
        print(json.dumps({"samples": n, "features": d, "entries": data.X.nnz, "epoch": epochs, "curves": found}))
        return
    print(
        f"{options.data} / {options.scale}: {n} samples, {d} features, {data.X.nnz / n:.1f} non-zeros each; "
        f"plan: depth {planned.depth}, parallelism {planned.parallelism:.2f}\n"
        f"{options.loss}, C {data.C:g} (alpha {data.alpha:.2g}); {os.cpu_count()} cores; best of {options.rounds} rounds, {options.clock} time\n"
    )
    if best:
        print_epoch(best, data)
    if found:
        print_curves(found)


if __name__ == "__main__":
    main()
