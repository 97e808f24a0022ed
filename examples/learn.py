# From nothing to a trained model and a picture of its plan:
#   pip install '.[plot]' && python examples/learn.py

# %% Real text that is already there: lines of code. Which package is each from?
import pathlib, numpy, scipy, sklearn
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split
from isochrone.learn import CopClassifier, plan

lines, y = [], []
for package in (numpy, scipy, sklearn):
    for path in sorted(pathlib.Path(package.__file__).parent.rglob("*.py")):
        found = [line for line in path.read_text(encoding="utf-8").splitlines() if len(line) > 40][::4]
        lines, y = lines + found, y + [package.__name__] * len(found)

# %% Words and pairs of words, but for the commonest, which would make every line wait for the one before.
X = CountVectorizer(binary=True, max_df=0.005, ngram_range=(1, 2), dtype=numpy.float32).fit_transform(lines)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %% The conflicts of the samples, once for all three classes and for every model to come.
conflicts = plan(X_train)
print(conflicts.describe())
conflicts.plot().savefig("plan.png")

# %% Two threads; the same bits as with one.
model = CopClassifier(loss="log_loss", alpha=1e-6, max_iter=10, tol=None, n_jobs=2).fit(X_train, y_train, plan=conflicts)
print(f"{X.shape[0]} lines, {X.shape[1]} features, accuracy on new lines: {model.score(X_test, y_test):.3f}")
