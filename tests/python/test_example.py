"""The example of the README and those in docstrings run as they are."""

import doctest
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import isochrone

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "learn.py"


MODULES = ["isochrone", *(found.name for found in pkgutil.walk_packages(isochrone.__path__, "isochrone."))]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "isochrone._native"])
def test_examples_in_docstrings(name):
    if name == "isochrone.learn.ray":
        pytest.importorskip("ray")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_in_docstrings():
    finder, modules = doctest.DocTestFinder(), [importlib.import_module("isochrone.learn._" + end) for end in ("linear", "factor")]
    with_examples = {test.name.split(".")[-1] for module in modules for test in finder.find(module) if test.examples}
    assert with_examples == {"CopClassifier", "CopRegressor", "CopFactorizer"}


def test_from_installing_to_a_trained_model_in_under_twenty_lines(tmp_path):
    code = [line for line in EXAMPLE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) < 20
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert float(re.search(r"accuracy on new lines: (\S+)", done.stdout)[1]) > 0.7
    # Rare words are what makes threads worth having.
    assert float(re.search(r"parallelism +(\S+)", done.stdout)[1]) > 10
