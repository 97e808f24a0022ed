#!/usr/bin/env python3
"""Real Redis clients against a running cluster.

Starts `isochrone up` on free ports, then lets `redis-cli`, `redis-benchmark` and `redis-py` talk to it
as they are. Installs what it needs: redis-tools from the system's packages where it is missing (as root
or by sudo), redis-py into a virtual environment of its own under target/.

    run.py --binary target/debug/isochrone [--only NAME]

Exit status 0 when every test passed.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
VENV = ROOT / "target" / "clients-venv"


def ensure_tools():
    """redis-cli and redis-benchmark on the PATH."""
    if shutil.which("redis-cli") and shutil.which("redis-benchmark"):
        return
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run(sudo + ["apt-get", "update", "-qq"], check=True)
    subprocess.run(
        sudo + ["apt-get", "install", "-y", "-qq", "redis-tools"],
        check=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )


def ensure_python():
    """This program again, under an interpreter that has redis-py."""
    requirements = HERE / "requirements.txt"
    stamp = VENV / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        subprocess.run([VENV / "bin" / "pip", "install", "-q", "-r", requirements], check=True)
        shutil.copy(requirements, stamp)
    if pathlib.Path(sys.prefix) != VENV:
        os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv])


class Cluster:
    """`isochrone up` with three regions, for as long as the block lasts."""

    def __init__(self, binary):
        self.command = [
            binary, "up", "--config", str(ROOT / "deployments" / "three-regions.toml"),
            "--plain", "--format", "json", "--port", "0",
        ]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self.process.wait()} before it was ready")
        ready = json.loads(line)
        self.ports = [int(region["redis"].rsplit(":", 1)[1]) for region in ready["regions"]]
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def cli(port, *words, stdin=None):
    """What `redis-cli` prints for these words."""
    done = subprocess.run(
        ["redis-cli", "-p", str(port), *words], input=stdin, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"redis-cli {words}: status {done.returncode}, {done.stderr}"
    return done.stdout.rstrip("\n")


def same(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


# --- redis-cli ---------------------------------------------------------------------------------------


def test_cli_reads_its_own_writes_in_every_region(cluster):
    for index, port in enumerate(cluster.ports):
        same(cli(port, "SET", f"city:{index}", "x" * 40), "OK")
        for other in cluster.ports:
            same(cli(other, "GET", f"city:{index}"), "x" * 40)


def test_cli_speaks_resp3(cluster):
    port = cluster.ports[0]
    same(cli(port, "-3", "HSET", "h3", "a", "1", "b", "2"), "2")
    # A map, not a list; Redis promises no order of its fields, and ours is that of a fixed hash.
    fields = cli(port, "-3", "--no-raw", "HGETALL", "h3").split("\n")
    same(sorted(field.split("# ")[1] for field in fields), ['"a" => "1"', '"b" => "2"'])


def test_cli_errors_are_those_of_redis(cluster):
    port = cluster.ports[0]
    cli(port, "SET", "text", "abc")
    same(cli(port, "INCR", "text"), "ERR value is not an integer or out of range")
    same(
        cli(port, "LPUSH", "text", "1"),
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    )
    same(cli(port, "GET"), "ERR wrong number of arguments for 'get' command")
    same(
        cli(port, "NOSUCH", "a", "b"),
        "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
    )


def test_cli_scans_and_lists_big_keys(cluster):
    port = cluster.ports[1]
    cli(port, "FLUSHDB")
    cli(port, "MSET", *[word for i in range(50) for word in (f"scan:{i}", str(i))])
    keys = cli(port, "--scan", "--pattern", "scan:*").split("\n")
    same(sorted(keys), sorted(f"scan:{i}" for i in range(50)))
    assert "Biggest string found" in cli(port, "--bigkeys").replace("string key found", "string found")


def test_cli_interactive_session(cluster):
    out = cli(cluster.ports[0], stdin="SET i 1\nINCR i\nTTL i\nEXPIRE i 100\nTTL i\nDEL i\n")
    same(out.split("\n"), ["OK", "2", "-1", "1", "100", "1"])


# --- redis-benchmark ---------------------------------------------------------------------------------


def test_benchmark_runs_unchanged(cluster):
    tests = "set,get,incr,lpush,lpop,sadd,hset,zadd,mset"
    done = subprocess.run(
        ["redis-benchmark", "-p", str(cluster.ports[0]), "-t", tests, "-n", "1000", "-c", "50", "-P", "4", "--csv"],
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split(",")[0].strip('"') for line in done.stdout.splitlines()[1:] if line]
    same(rows, ["SET", "GET", "INCR", "LPUSH", "LPOP", "SADD", "HSET", "ZADD", "MSET (10 keys)"])
    assert "ERR" not in done.stdout + done.stderr, done.stdout + done.stderr


# --- redis-py ----------------------------------------------------------------------------------------


def connect(cluster, region=0, **options):
    import redis

    return redis.Redis(port=cluster.ports[region], decode_responses=True, socket_timeout=30, **options)


def test_redis_py_types(cluster):
    for protocol in (2, 3):
        r = connect(cluster, protocol=protocol)
        r.flushdb()
        assert r.ping()
        assert r.set("s", "v", ex=100) and r.get("s") == "v" and 0 < r.ttl("s") <= 100
        assert r.set("s", "w", nx=True) is None and r.getdel("s") == "v"
        same((r.incr("n"), r.incrby("n", 5), r.decr("n"), r.incrbyfloat("n", 0.5)), (1, 6, 5, 5.5))
        r.hset("h", mapping={"a": 1, "b": 2})
        same(r.hgetall("h"), {"a": "1", "b": "2"})
        r.rpush("l", *range(5))
        same((r.lrange("l", 0, -1), r.lpop("l"), r.llen("l")), (list("01234"), "0", 4))
        r.sadd("t", "x", "y")
        same(r.smembers("t"), {"x", "y"})
        r.zadd("z", {"a": 1, "b": 2.5})
        same(r.zscore("z", "b"), 2.5)
        same([tuple(pair) for pair in r.zrange("z", 0, -1, withscores=True)], [("a", 1.0), ("b", 2.5)])
        same(r.mget("n", "absent"), ["5.5", None])
        same(sorted(r.scan_iter(count=2)), ["h", "l", "n", "t", "z"])
        same(r.type("z"), "zset")
        same(r.delete("h", "l", "n", "t", "z", "absent"), 5)


def test_redis_py_pipelines(cluster):
    r = connect(cluster, protocol=3)
    with r.pipeline(transaction=False) as p:
        for i in range(200):
            p.set(f"p{i}", i)
        same(p.execute(), [True] * 200)
    with r.pipeline(transaction=True) as p:
        p.set("a", 1).incr("a").get("a")
        same(p.execute(), [True, 2, "2"])


def test_redis_py_watch_sees_a_change_from_another_region(cluster):
    import redis

    here, there = connect(cluster, 0), connect(cluster, 1)
    here.set("watched", 1)
    with here.pipeline() as p:
        p.watch("watched")
        there.set("watched", 2)
        p.multi()
        p.set("watched", 3)
        try:
            p.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("EXEC went through although the key had changed")
    same(here.get("watched"), "2")


def test_redis_py_pool_under_threads(cluster):
    import concurrent.futures

    import redis

    pools = [
        redis.ConnectionPool(port=port, max_connections=16, decode_responses=True, protocol=3)
        for port in cluster.ports
    ]
    clients = [redis.Redis(connection_pool=pool) for pool in pools]
    clients[0].delete("total")
    with concurrent.futures.ThreadPoolExecutor(12) as executor:
        list(executor.map(lambda i: clients[i % len(clients)].incr("total"), range(300)))
    same(clients[-1].get("total"), "300")
    for pool in pools:
        pool.disconnect()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the isochrone program")
    parser.add_argument("--only", default="", help="run the tests whose name contains this")
    arguments = parser.parse_args()
    binary = str(pathlib.Path(arguments.binary).resolve())
    ensure_tools()
    ensure_python()
    tests = [(n, t) for n, t in globals().items() if n.startswith("test_") and arguments.only in n]
    failed = 0
    with Cluster(binary) as cluster:
        for name, test in tests:
            try:
                test(cluster)
                print(f"ok      {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
