#!/usr/bin/env python3
"""Real clients against a running cluster.

Starts `isochrone up` on free ports, then lets `redis-cli`, `redis-benchmark`, redis-py, rq, celery,
go-redis, redis-rs, node-redis and jedis talk to it as they are, and grpcio by the published `.proto`. Installs what it needs: redis-tools from the
system's packages where it is missing (as root or by sudo), Python packages into a virtual environment
of its own under target/, the others by their own package managers, whose programs must be there: a
client whose toolchain (go, cargo, npm, mvn) is missing is skipped, and the test says so.

Every test runs on `multipaxos` and again on `curp`, but for those that start clusters of their own.

    run.py --binary target/debug/isochrone [--only NAME] [--protocol NAME]

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
import time
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

    def __init__(self, binary, *more):
        self.binary = binary
        self.command = [
            binary, "up", "--config", str(ROOT / "deployments" / "three-regions.toml"),
            "--plain", "--format", "json", "--port", "0", *more,
        ]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self.process.wait()} before it was ready")
        ready = json.loads(line)
        self.ports = [int(region["redis"].rsplit(":", 1)[1]) for region in ready["regions"]]
        self.rpc = [region["grpc"] for region in ready["regions"]]
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


# One command of each of its 100 connections is enough to show that it runs; together the clusters take a dozen seconds, most
# of it the ways between their regions.
PROTOCOLS = ["multipaxos", "mencius", "fastpaxos", "epaxos", "sdpaxos", "domino", "curp", "curp-consensus"]
# What it runs where it is not told what to run, as it names it.
DEFAULT_TESTS = [
    "PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "LPUSH", "RPUSH", "LPOP", "RPOP", "SADD", "HSET", "SPOP", "ZADD", "ZPOPMIN",
    "LPUSH (needed to benchmark LRANGE)", "LRANGE_100 (first 100 elements)", "LRANGE_300 (first 300 elements)",
    "LRANGE_500 (first 500 elements)", "LRANGE_600 (first 600 elements)", "MSET (10 keys)",
]


def test_benchmark_runs_all_its_tests_on_every_protocol(cluster):
    import concurrent.futures

    def run(protocol):
        with Cluster(cluster.binary, "--protocol", protocol) as other:
            done = subprocess.run(
                ["redis-benchmark", "-p", str(other.ports[0]), "-n", "100", "-c", "100", "--csv"],
                capture_output=True, text=True, timeout=120,
            )
        # It ends with the first error.
        assert done.returncode == 0, f"{protocol}: {done.stdout}{done.stderr}"
        rows = [line.split('","')[0].strip('"') for line in done.stdout.splitlines()[1:] if line]
        same((protocol, rows), (protocol, DEFAULT_TESTS))

    # Four at once: they wait more than they compute.
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        list(executor.map(run, PROTOCOLS))


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


def test_redis_py_pipeline_of_a_hundred_waits_once(cluster):
    for region in range(len(cluster.ports)):
        r = connect(cluster, region, protocol=3)
        took = []
        for number in range(3):
            begin = time.monotonic()
            r.set(f"one:{number}", number)
            took.append(time.monotonic() - begin)
        one = min(took)
        begin = time.monotonic()
        with r.pipeline(transaction=False) as p:
            for number in range(100):
                p.set(f"hundred:{number}", number)
            same(p.execute(), [True] * 100)
        hundred = time.monotonic() - begin
        # One after the other they would take a hundred times as long as one.
        assert hundred < 10 * one + 0.2, f"region {region}: one takes {one:.3f} s, a hundred together {hundred:.3f} s"


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


# --- streams, users -------------------------------------------------------------------------------------


def test_redis_py_streams(cluster):
    import threading

    for protocol in (2, 3):
        here, there = connect(cluster, 0, protocol=protocol), connect(cluster, 1, protocol=protocol)
        here.delete("stream")
        first = here.xadd("stream", {"a": 1})
        second = there.xadd("stream", {"b": 2}, maxlen=10)
        same(here.xrange("stream"), [(first, {"a": "1"}), (second, {"b": "2"})])
        same(there.xrevrange("stream", count=1), [(second, {"b": "2"})])
        same((here.xlen("stream"), here.type("stream"), here.xdel("stream", first)), (2, "stream", 1))
        same([key for key in here.scan_iter(_type="stream")], ["stream"])
        heard = []
        reader = threading.Thread(target=lambda: heard.append(there.xread({"stream": "$"}, block=20_000)))
        reader.start()
        # What `$` means is known once it waits.
        wait_for("a reader that waits", lambda: any(c["cmd"] == "xread" and "b" in c["flags"] for c in there.client_list()))
        third = here.xadd("stream", {"c": 3})
        reader.join(30)
        entries = [(third, {"c": "3"})]
        same(heard, [{"stream": [entries]}] if protocol == 3 else [[["stream", entries]]])


def test_redis_py_users(cluster):
    import redis

    admin = connect(cluster, 2)
    admin.acl_setuser("reader", enabled=True, passwords="+secret", categories=["+@read"], keys=["open:*"], reset=True)
    admin.set("open:a", 1)
    reader = connect(cluster, 2, username="reader", password="secret")
    same(reader.get("open:a"), "1")
    for denied in (lambda: reader.get("closed"), lambda: reader.set("open:a", 2), lambda: reader.acl_list()):
        try:
            denied()
        except redis.exceptions.NoPermissionError:
            continue
        raise AssertionError("a user reached what the rules deny")
    same(admin.acl_log()[0]["username"], "reader")
    same(admin.acl_deluser("reader"), 1)
    try:
        connect(cluster, 2, username="reader", password="secret").ping()
    except redis.exceptions.AuthenticationError:
        return
    raise AssertionError("a user that is no more has logged in")


# --- gRPC ------------------------------------------------------------------------------------------------


def test_grpc_from_the_published_proto(cluster):
    import rpc

    for protocol in ("carousel-fast", "2pc"):
        with Cluster(cluster.binary, "--protocol", protocol) as other:
            rpc.check(other.rpc, connect(other, 2))


# --- what is built on redis-py ---------------------------------------------------------------------------


def wait_for(what, holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds} s in vain for {what}"
        time.sleep(0.02)


def test_rq_jobs_end_to_end(cluster):
    import redis
    import rq

    connection = redis.Redis(port=cluster.ports[0], socket_timeout=60)
    queue = rq.Queue("jobs", connection=connection)
    jobs = [queue.enqueue("operator.add", number, 1) for number in range(10)]
    last = queue.enqueue("operator.mul", 6, 7, depends_on=jobs)
    broken = queue.enqueue("operator.truediv", 1, 0)
    worker = rq.SimpleWorker([queue], connection=redis.Redis(port=cluster.ports[1], socket_timeout=60))
    assert worker.work(burst=True, logging_level="CRITICAL")
    same([job.return_value(refresh=True) for job in jobs], list(range(1, 11)))
    same(last.return_value(refresh=True), 42)
    same(broken.get_status(refresh=True), rq.job.JobStatus.FAILED)
    assert "ZeroDivisionError" in broken.latest_result().exc_string
    same(queue.count, 0)


def test_celery_chords_end_to_end(cluster):
    import celery
    import redis

    url = f"redis://127.0.0.1:{cluster.ports[0]}/0"
    connect(cluster).flushdb()
    environment = os.environ | {"BROKER": url, "PYTHONPATH": str(HERE)}
    log = ROOT / "target" / "celery.log"
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "threads", "--concurrency", "4",
               "--loglevel", "INFO", "--without-mingle"]
    with open(log, "w") as out:
        worker = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    os.environ["BROKER"] = url
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    # It has the broker of the cluster before, where there was one.
    sys.modules.pop("tasks", None)
    try:
        import tasks

        same(tasks.add.delay(2, 3).get(timeout=60), 5)
        same(celery.group(tasks.add.s(i, i) for i in range(5))().get(timeout=60), [0, 2, 4, 6, 8])
        same(celery.chain(tasks.add.s(1, 2), tasks.add.s(4))().get(timeout=60), 7)
        same(celery.chord((tasks.add.s(i, i) for i in range(5)), tasks.total.s())().get(timeout=60), 20)
        lock = redis.Redis.from_url(url).lock("celery:lock", timeout=10)
        assert lock.acquire(blocking=False)
        lock.extend(10)
        lock.release()
    except Exception:
        print(log.read_text()[-4000:])
        raise
    finally:
        worker.terminate()
        worker.wait(30)


# --- other languages -------------------------------------------------------------------------------------


class Skipped(Exception):
    """A toolchain is not there."""


INSTALLED = set()


def client_program(cluster, folder, tool, install, run):
    """Installs what a program needs, once, and runs it against two regions."""
    if not shutil.which(tool):
        raise Skipped(f"{tool} is not on the PATH")
    ports = [str(port) for port in cluster.ports[:2]]
    # Build outputs stay under target/.
    for command in [install, [*run, *ports]]:
        if command is not install or folder not in INSTALLED:
            done = subprocess.run(command, cwd=HERE / folder, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    INSTALLED.add(folder)
    same(done.stdout.strip().split("\n")[-1], "ok")


def test_go_redis(cluster):
    program = str(ROOT / "target" / "go-client")
    client_program(cluster, "go", "go", ["go", "build", "-o", program, "."], [program])


def test_redis_rs(cluster):
    out = str(ROOT / "target" / "rust-client")
    build = ["cargo", "build", "--quiet", "--locked", "--target-dir", out]
    client_program(cluster, "rust", "cargo", build, [f"{out}/debug/isochrone-clients"])


def test_node_redis(cluster):
    client_program(cluster, "node", "npm", ["npm", "ci", "--silent", "--no-audit", "--no-fund"], ["node", "main.mjs"])


def test_jedis(cluster):
    out = str(ROOT / "target" / "java-client")
    compile = ["mvn", "-q", "-B", f"-DbuildDirectory={out}", "compile", "dependency:build-classpath",
               f"-Dmdep.outputFile={out}/classpath"]
    program = f'exec java -cp "{out}/classes:$(cat {out}/classpath)" Main "$@"'
    client_program(cluster, "java", "mvn", compile, ["sh", "-c", program, "Main"])


# They start clusters of other protocols, and need no second turn.
OF_THEIR_OWN = [test_benchmark_runs_all_its_tests_on_every_protocol, test_grpc_from_the_published_proto]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the isochrone program")
    parser.add_argument("--only", default="", help="run the tests whose name contains this")
    parser.add_argument("--protocol", action="append", help="run them on this protocol; may be repeated")
    arguments = parser.parse_args()
    binary = str(pathlib.Path(arguments.binary).resolve())
    ensure_tools()
    ensure_python()
    tests = [(n, t) for n, t in globals().items() if n.startswith("test_") and arguments.only in n]
    passed, failed, skipped = 0, 0, 0
    for turn, protocol in enumerate(arguments.protocol or ["multipaxos", "curp"]):
        with Cluster(binary, "--protocol", protocol) as cluster:
            for name, test in tests:
                if turn > 0 and test in OF_THEIR_OWN:
                    continue
                try:
                    test(cluster)
                    passed += 1
                    print(f"ok      {protocol} {name}", flush=True)
                except Skipped as why:
                    skipped += 1
                    print(f"skipped {protocol} {name}: {why}", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAILED  {protocol} {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
