"""Real data, from the file to an accuracy that is worth something."""

from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import cross_val_score, train_test_split

from isochrone.learn import CopClassifier


def test_tumours(breast_cancer):
    X, y = breast_cancer
    for loss in ("hinge", "log_loss"):
        model = CopClassifier(loss=loss, alpha=1e-2, n_jobs=2)
        assert cross_val_score(model, X, y, cv=5).mean() > 0.95


def test_digits(digits):
    X, y = digits
    train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    ours = CopClassifier(loss="log_loss", alpha=1e-3, n_jobs=2).fit(train_X, train_y)
    theirs = SGDClassifier(loss="log_loss", alpha=1e-3, random_state=0).fit(train_X, train_y)
    assert ours.score(test_X, test_y) > 0.93
    assert ours.score(test_X, test_y) > theirs.score(test_X, test_y) - 0.02
