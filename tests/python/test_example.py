"""The example of the README runs as it is."""

import pathlib
import re
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "learn.py"


def test_from_installing_to_a_trained_model_in_under_twenty_lines(tmp_path):
    code = [line for line in EXAMPLE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) < 20
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert float(re.search(r"accuracy on new lines: (\S+)", done.stdout)[1]) > 0.7
    # Rare words are what makes threads worth having.
    assert float(re.search(r"parallelism +(\S+)", done.stdout)[1]) > 10
