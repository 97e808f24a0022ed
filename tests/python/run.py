#!/usr/bin/env python3
"""The Python package, built, installed and tested in a virtual environment of its own under target/.

    run.py [PYTEST ARGUMENTS]

Builds a wheel as a user would get it, installs it, checks the types and runs pytest. Without Python 3.10, or one that makes
virtual environments, it says that it skips and ends with 0. Where packages cannot be had it fails, unless PYTHON_SKIP=1 says
that it may skip then, too.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
VENV = ROOT / "target" / "python-venv"
WHEELS = ROOT / "target" / "python-wheels"


def skip(why):
    """Ends without a failure."""
    print(f"python: SKIPPED: {why}")
    sys.exit(0)


def environment():
    """A virtual environment with the pinned packages."""
    if sys.version_info < (3, 10):
        skip(f"the package needs Python 3.10, this is {sys.version.split()[0]}: make python PYTHON=python3.12")
    requirements, stamp = HERE / "requirements.txt", VENV / "requirements.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV])
    if made.returncode:
        skip("this Python cannot make virtual environments (Debian: python3-venv)")
    installed = subprocess.run([VENV / "bin" / "python", "-m", "pip", "install", "-q", "-r", requirements])
    if installed.returncode:
        why = "pip cannot install tests/python/requirements.txt"
        if os.environ.get("PYTHON_SKIP") == "1":
            skip(why)
        sys.exit(f"python: {why}; PYTHON_SKIP=1 leaves the Python package untested")
    shutil.copy(requirements, stamp)


# As the profile of the tests says, whose crates need not be built a second time then.
PROFILE = {"OPT_LEVEL": "1", "DEBUG": "false", "LTO": "off", "CODEGEN_UNITS": "16"}


def install():
    """A wheel of this tree, in the environment."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    build = [VENV / "bin" / "maturin", "build", "--out", WHEELS, "--quiet"]
    quick = os.environ | {f"CARGO_PROFILE_DEV_{name}": value for name, value in PROFILE.items()}
    subprocess.run([*build, "--interpreter", VENV / "bin" / "python"], check=True, cwd=ROOT, env=quick)
    (wheel,) = WHEELS.glob("*.whl")
    if "-abi3-" not in wheel.name:
        sys.exit(f"{wheel.name} is not for the stable ABI")
    pip = [VENV / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall"]
    subprocess.run([*pip, wheel], check=True)


def main():
    environment()
    install()
    program = VENV / "bin" / "python"
    quiet = os.environ | {"MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
    types = subprocess.run([program, "-m", "mypy", "--no-error-summary"], cwd=ROOT, env=quiet)
    tests = subprocess.run([program, "-m", "pytest", *sys.argv[1:]], cwd=ROOT, env=quiet)
    sys.exit(types.returncode or tests.returncode)


if __name__ == "__main__":
    main()
