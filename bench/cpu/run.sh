#!/usr/bin/env bash
# What handling a message costs the runtime, for the simulator's model of the processor. See run.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 bench/cpu/run.py "$@"
