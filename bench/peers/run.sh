#!/usr/bin/env bash
# Isochrone beside its peers, on this machine, in one run. See run.py for what is measured.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 bench/peers/run.py "$@"
