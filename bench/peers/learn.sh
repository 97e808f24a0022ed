#!/usr/bin/env bash
# COP beside scikit-learn, LIBLINEAR and Vowpal Wabbit, on this machine, in one run. See learn.py for what is measured.
# Builds and installs the package into a virtual environment of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=target/bench-venv
if [ ! -x $venv/bin/python ]; then
    python3 -m venv $venv
fi
$venv/bin/pip install -q numpy scipy scikit-learn vowpalwabbit ||
    $venv/bin/pip install -q numpy scipy scikit-learn
$venv/bin/pip install -q .
exec $venv/bin/python bench/peers/learn.py "$@"
