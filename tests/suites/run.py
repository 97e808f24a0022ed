#!/usr/bin/env python3
"""The tests that Redis and redis-py have for themselves, against three nodes of ours, asked at one that does not lead.

    tests/suites/run.py [--binary target/release/isochrone] [--protocol curp] [--redis DIR] [--only NAME]

DIR is a checkout of Redis 7.2.6, whose tests are run in a copy (Tcl 8.6 must be there); without it only those of redis-py run, which
are installed into a virtual environment under target/. Both address databases 9 and 10.

What must fail stands in known.tsv beside this file, with the reason, which docs/redis.md tells at length. Exit status 0 when
nothing else did; a test that is listed and passes is told, and is no failure.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))
from run import Servers, start_isochrone  # noqa: E402

UNITS = """type/string type/incr type/list type/list-2 type/list-3 type/set type/zset type/hash type/stream type/stream-cgroups
keyspace scan sort expire multi quit protocol bitops bitfield geo pubsub slowlog introspection introspection-2 info-command dump
other""".split()
# They are about what is not tested here: other servers, the insides of Redis, memory.
TAGS = "-needs:debug -needs:repl -needs:save -needs:reset -needs:config-resetstat -needs:config-maxmemory -needs:pfdebug -large-memory"
# They would wait for ever, or speak for all that follow them.
SKIPPED = ["/Keyspace notifications: evicted.*", "/.*list-max-listpack-size.*", "/.*quicklist.*fuzz.*", "/List of various encodings.*",
           "/Unblock fairness.*", "/Command being unblocked.*"]
# What the harness of Redis takes for granted, and what it does here.
HARNESS = [
    # Functions are absent.
    ("tests/support/server.tcl", "    r function flush\n", ""),
    # Settings that a unit would like: it goes on without.
    ("tests/support/server.tcl", "        r config set $param $val\n\n", "        catch {r config set $param $val}\n\n"),
    ("tests/support/server.tcl", "        r config set $param $val\n    }", "        catch {r config set $param $val}\n    }"),
    ("tests/test_helper.tcl", "    [srv $level \"client\"] {*}$args\n",
     "    set unset [catch {[srv $level \"client\"] {*}$args} answer]\n"
     "    if {$unset && [string match \"*CONFIG SET*\" $answer] && [string match \"*Unknown option*\" $answer]} { return OK }\n"
     "    if {$unset} { error $answer }\n    return $answer\n"),
    ("tests/support/test.tcl", "            set msg [string range $error 10 end]\n",
     "            set msg [expr {$assertion ? [string range $error 10 end] : $error}]\n"),
    # A test that failed half-way leaves its transaction to the next.
    ("tests/support/test.tcl", "            incr ::num_failed\n            send_data_packet $::test_server_fd err [join $details \"\\n\"]\n\n            if",
     "            incr ::num_failed\n            catch {r discard}\n            catch {r unwatch}\n            catch {r select 9}\n"
     "            send_data_packet $::test_server_fd err [join $details \"\\n\"]\n\n            if"),
]
PY_VERSION = "5.2.1"
PY_FILES = """commands connection connection_pool encoding lock pipeline pubsub scripting monitor multiprocessing hash""".split()


def copy_of(redis, into):
    """The tests of a checkout, with a harness that goes on where something is absent."""
    if not (redis / "tests" / "test_helper.tcl").exists():
        raise SystemExit(f"{redis}: no checkout of Redis: tests/test_helper.tcl is not there")
    shutil.copytree(redis / "tests", into / "tests", ignore=shutil.ignore_patterns("tmp"))
    (into / "tests" / "tmp").mkdir()
    (into / "src").mkdir()
    for tool in ("redis-cli", "redis-benchmark"):
        (into / "src" / tool).symlink_to(shutil.which(tool) or tool)
    for name, old, new in HARNESS:
        file = into / name
        text = file.read_text()
        if old not in text:
            raise SystemExit(f"{redis}: {name} does not have {old.strip()!r}: it is not that of Redis 7.2.6")
        file.write_text(text.replace(old, new, 1))
    return into


def redis_unit(directory, port, unit):
    """Runs one unit; how many passed, and what failed and how."""
    command = ["tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", str(port), "--single", f"unit/{unit}",
               "--ignore-encoding", "--ignore-digest", "--no-latency", "--durable", "--tags", TAGS]
    for pattern in SKIPPED:
        command += ["--skiptest", pattern]
    try:
        out = subprocess.run(command, cwd=directory, capture_output=True, timeout=900).stdout
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"") + f"\n[err]: 900 s were not enough for {unit} in nothing\n".encode()
    out = re.sub(r"\x1b\[[0-9;]*m", "", out.decode(errors="replace"))
    out = out.split("\n*** [err]")[0]
    failed = re.findall(r"^\[err\]: (.*?)(?: in tests/\S+)?\n(.*)", out, re.M)
    failed += [(name, "") for name in re.findall(r"^\[exception\]: (.*)", out, re.M)]
    return len(re.findall(r"^\[ok\]", out, re.M)), dict(failed)


def redis_py(port, base):
    """The same for redis-py."""
    venv, source = base / f"suites-venv-{PY_VERSION}", base / f"redis-{PY_VERSION}"
    if not (source / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [venv / "bin" / "pip"]
        subprocess.run([*pip, "install", "-q", f"redis=={PY_VERSION}", "pytest<9", "pytest-asyncio<1", "pytest-timeout", "mock",
                        "numpy", "cachetools", "uvloop"], check=True)
        subprocess.run([*pip, "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", base, f"redis=={PY_VERSION}"], check=True)
        shutil.rmtree(source, ignore_errors=True)
        with tarfile.open(base / f"redis-{PY_VERSION}.tar.gz") as packed:
            packed.extractall(base, filter="data")
        # What is installed is tested.
        shutil.rmtree(source / "redis")
        (source / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\ntimeout = 30\nfilterwarnings = ignore\n")
        (source / "done").touch()
    files = [f"tests/test_{name}.py" for name in PY_FILES]
    done = subprocess.run([venv / "bin" / "python", "-m", "pytest", *files, "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider",
                           "--redis-url", f"redis://127.0.0.1:{port}/9"],
                          cwd=source, capture_output=True, text=True, env=os.environ | {"COLUMNS": "400"})
    passed = re.search(r"(\d+) passed", done.stdout)
    if not passed:
        raise SystemExit(f"redis-py's tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) tests/test_\w+\.py::(\S+)(?: - (.*))?$", done.stdout, re.M)
    return int(passed.group(1)), {name.replace("::", "."): why for name, why in failed}


def known():
    """What must fail: unit, name and what it says, each as a pattern."""
    lines = (HERE / "known.tsv").read_text().splitlines()
    return [line.split("\t")[:3] for line in lines if line and not line.startswith("#")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--protocol", default="curp", help="of all databases; one that takes a leader")
    parser.add_argument("--redis", type=pathlib.Path, help="a checkout of Redis 7.2.6")
    parser.add_argument("--only", default="", help="units whose name contains this")
    arguments = parser.parse_args()
    base = ROOT / "target"
    base.mkdir(exist_ok=True)
    expected, wrong = known(), 0
    with Servers(base) as servers, tempfile.TemporaryDirectory(dir=base) as scratch:
        binary = str(pathlib.Path(arguments.binary).resolve())
        databases = [f"db{i}" for i in range(16)]
        port = start_isochrone(servers, binary, protocol=arguments.protocol, at=2, keyspaces=databases)
        units = {}
        if arguments.redis:
            directory = copy_of(arguments.redis, pathlib.Path(scratch))
            units = {unit: lambda unit=unit: redis_unit(directory, port, unit) for unit in UNITS}
        units["redis-py"] = lambda: redis_py(port, base)
        for unit, run in units.items():
            if arguments.only not in unit:
                continue
            passed, failed = run()
            hit = {name: [known for known in expected if all(map(fnmatch.fnmatchcase, (unit, name, why), known))]
                   for name, why in failed.items()}
            surprises = {name: why for name, why in failed.items() if not hit[name]}
            used = [known for found in hit.values() for known in found]
            idle = [name for of, name, _ in expected if of == unit and not any(one[:2] == [of, name] for one in used)]
            print(f"{unit}: {passed} passed, {len(failed) - len(surprises)} known to fail, {len(surprises)} failed", flush=True)
            for name, why in surprises.items():
                print(f"  failed: {name}: {why[:200]}")
            for pattern in idle:
                print(f"  listed, and nothing like it failed: {pattern}")
            wrong += len(surprises)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
