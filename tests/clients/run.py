#!/usr/bin/env python3
"""Real clients against a running cluster.

Starts `isochrone up` on free ports, then lets `redis-cli`, `redis-benchmark`, redis-py, valkey-py, rq, celery, go-redis,
redigo, rueidis, redis-rs, node-redis, ioredis, jedis, Lettuce, hiredis and Perl's Redis.pm talk to it as they are; web apps
of Flask, Django and Express that keep their sessions there; grpcio by the published `.proto`; and, beside `redis-server`,
several connections at once (connections.py). Installs what it needs:
redis-tools, hiredis and Redis.pm from the system's packages where they are missing (as root or by sudo), Python packages
into a virtual environment of its own under target/, the others by their own package managers, whose programs must be
there: a client whose toolchain (go, cargo, npm, mvn, cc, perl) or package is missing is skipped, and the test says so.

Every test runs on `multipaxos` and again on `curp`, but for those that start clusters of their own.

    run.py --binary target/debug/isochrone [--only NAME] [--protocol NAME]

Exit status 0 when every test passed.
"""

import argparse
import http.client
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


def has_hiredis():
    return bool(shutil.which("cc")) and tried("cc", "-include", "hiredis/hiredis.h", "-fsyntax-only", "-xc", os.devnull)


def has_redis_pm():
    return bool(shutil.which("perl")) and tried("perl", "-MRedis", "-e1")


def tried(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


def ensure_tools():
    """redis-cli and redis-benchmark on the PATH; hiredis and Redis.pm where they can be had without asking anybody."""
    tools = shutil.which("redis-cli") and shutil.which("redis-benchmark")
    there = {"redis-tools": tools, "libhiredis-dev": has_hiredis(), "libredis-perl": has_redis_pm()}
    missing = [package for package, found in there.items() if not found]
    if not missing or (tools and not shutil.which("apt-get")):
        return
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"] if tools else ["sudo"]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *missing]):
        done = subprocess.run(sudo + command, env=quiet)
        assert tools or done.returncode == 0, f"{command}: status {done.returncode}"


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
            binary, "up", str(ROOT / "deployments" / "three-regions.toml"),
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
        same((r.sort("l", desc=True, start=0, num=2), r.sort("l", store="l")), (["4", "3"], 4))
        same(sorted(r.scan_iter(count=2)), ["h", "l", "n", "t", "z"])
        same(r.type("z"), "zset")
        same(r.delete("h", "l", "n", "t", "z", "absent"), 5)
        r.geoadd("g", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
        same(float(r.geodist("g", "Palermo", "Catania", "km")), 166.2742)
        same(r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km", sort="ASC"), ["Catania", "Palermo"])
        same(r.geosearchstore("g", "g", member="Catania", width=10, height=10, unit="km"), 1)
        same(r.delete("g"), 1)


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


# --- moving in ----------------------------------------------------------------------------------------


class RealRedis:
    """`redis-server` on a free port, for as long as the block lasts."""

    def __enter__(self):
        import connections
        import redis

        self.port = connections.free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL
        )
        self.client = redis.Redis(port=self.port)

        def answers():
            try:
                return self.client.ping()
            except redis.ConnectionError:
                return False

        wait_for("redis-server", answers)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)


def test_the_lines_of_the_page_move_a_redis_in(cluster):
    import re

    if not shutil.which("redis-server"):
        raise Skipped("there is no redis-server to move in")
    page = (ROOT / "docs" / "redis.md").read_text()
    lines = re.search(r"## Moving in.*?```python\n(.*?)```", page, re.DOTALL).group(1)
    with RealRedis() as real:
        old, new = real.client, connect(cluster, 1)
        new.flushdb()
        old.mset({f"key:{i}": f"value {i}" for i in range(100)})
        old.set("session", "abc", ex=1000)
        old.hset("hash", mapping={f"f{i}": i for i in range(600)})
        old.zadd("scores", {f"m{i}": i / 8 for i in range(200)})
        old.rpush("list", *[os.urandom(7).hex() for _ in range(500)])
        old.sadd("set", *range(1000))
        entry = old.xadd("stream", {"a": 1}).decode()
        lines = lines.replace("port=6379", f"port={real.port}").replace("port=7001", f"port={cluster.ports[0]}")
        exec(lines, {})
        same((new.dbsize(), new.get("key:42")), (old.dbsize(), "value 42"))
        assert 0 < new.ttl("session") <= 1000 and new.ttl("hash") == -1
        same((new.hget("hash", "f599"), new.zscore("scores", "m199"), new.scard("set")), ("599", 199 / 8, 1000))
        same(new.lrange("list", 0, -1), [element.decode() for element in old.lrange("list", 0, -1)])
        same(new.xrange("stream"), [(entry, {"a": "1"})])
    new.flushdb()


# --- several connections at once -----------------------------------------------------------------------


def test_connections_are_told_what_redis_tells_them(cluster):
    import connections

    if not shutil.which("redis-server"):
        raise Skipped("there is no redis-server to compare with")
    connections.check(cluster.binary, range(60))


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


def test_redis_py_consumer_groups(cluster):
    import redis
    import threading

    for protocol in (2, 3):
        here, there = connect(cluster, 0, protocol=protocol), connect(cluster, 1, protocol=protocol)
        here.delete("jobs")
        same(here.xgroup_create("jobs", "workers", id="$", mkstream=True), True)
        added = [here.xadd("jobs", {"number": number}) for number in range(6)]

        def taken(client, name, count):
            return str(client.xreadgroup("workers", name, {"jobs": ">"}, count=count))

        first, second = taken(here, "alive", 2), taken(there, "dead", 3)
        same([entry in first for entry in added], [True] * 2 + [False] * 4)
        same([entry in second for entry in added], [False] * 2 + [True] * 3 + [False])
        same(here.xack("jobs", "workers", *added[:2]), 2)
        summary = there.xpending("jobs", "workers")
        same((summary["pending"], summary["min"], summary["max"]), (3, added[2], added[4]))
        same(summary["consumers"], [{"name": "dead", "pending": 3}])
        # One entry was deleted since: whoever takes over is told so.
        here.xdel("jobs", added[3])
        claimed = here.xautoclaim("jobs", "workers", "alive", 0, "0-0")
        same([entry for entry, fields in claimed[1]], [added[2], added[4]])
        same((claimed[0], claimed[2]), ("0-0", [added[3]]))
        rows = here.xpending_range("jobs", "workers", "-", "+", 10)
        rows = [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]
        same(rows, [(added[2], "alive", 2), (added[4], "alive", 2)])
        same(added[5] in taken(here, "alive", 10), True)
        same(here.xack("jobs", "workers", added[2], added[4], added[5]), 3)
        same(there.xpending("jobs", "workers")["pending"], 0)
        (group,) = there.xinfo_groups("jobs")
        same((group["consumers"], group["last-delivered-id"], group["lag"]), (2, added[5], 0))
        # Who waits is given what comes, and told when the group goes.
        heard = []

        def listen():
            try:
                while True:
                    heard.append(str(there.xreadgroup("workers", "alive", {"jobs": ">"}, block=20_000)))
            except redis.ResponseError as error:
                heard.append(str(error))

        def waits():
            return any(c["cmd"] == "xreadgroup" and "b" in c["flags"] for c in there.client_list())

        reader = threading.Thread(target=listen)
        reader.start()
        wait_for("a consumer that waits", waits)
        last = here.xadd("jobs", {"number": 7})
        wait_for("what comes", lambda: len(heard) == 1)
        wait_for("a consumer that waits again", waits)
        same(here.xgroup_destroy("jobs", "workers"), 1)
        reader.join(30)
        same((last in heard[0], "NOGROUP" in heard[1]), (True, True))


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


def test_rq_scheduler_and_scripts(cluster):
    from datetime import datetime, timedelta, timezone

    import redis
    import rq
    from rq.exceptions import DuplicateJobError
    from rq.scheduler import RQScheduler

    connection = redis.Redis(port=cluster.ports[0], socket_timeout=60)
    connection.flushdb()
    queue = rq.Queue("later", connection=connection)
    job = queue.enqueue_in(timedelta(milliseconds=1), "operator.add", 20, 22)
    scheduler = RQScheduler([queue], connection=connection, logging_level="CRITICAL")
    elsewhere = redis.Redis(port=cluster.ports[1], socket_timeout=60)
    rival = RQScheduler([queue], connection=elsewhere, logging_level="CRITICAL")
    rival._name = "a rival"
    same([scheduler.acquire_locks(), rival.acquire_locks(), scheduler.acquire_locks()], [{"later"}, set(), {"later"}])
    wait_for("the job to be due", lambda: scheduler.enqueue_scheduled_jobs() or queue.count == 1)
    assert rq.SimpleWorker([queue], connection=connection).work(burst=True, logging_level="CRITICAL")
    same(job.return_value(refresh=True), 42)
    scheduler.release_locks()
    same(rival.acquire_locks(), {"later"})

    due = datetime.now(timezone.utc) + timedelta(hours=1)
    later = rq.job.Job.create("operator.add", (1, 2), id="later", origin=queue.name, connection=connection)
    for schedule in (lambda: queue.enqueue("operator.add", 1, 2, job_id="once", unique=True),
                     lambda: queue.schedule_job(later, due, unique=True)):
        schedule()
        try:
            raise AssertionError(f"a job is there twice: {schedule()}")
        except DuplicateJobError:
            pass
    same([queue.count, queue.scheduled_job_registry.count], [1, 1])

    # More than are deleted at a time.
    queue.enqueue_many([rq.Queue.prepare_data("operator.add", (i, 1)) for i in range(1_200)])
    same(queue.empty(), 1_201)
    same([queue.count, queue.empty()], [0, 0])
    same(sorted(connection.keys("rq:job:*")), [f"rq:job:{name}".encode() for name in sorted([job.id, "later"])])


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


# --- valkey-py -----------------------------------------------------------------------------------------


def test_django_redis_counts_in_every_region(cluster):
    import threading

    import django.conf
    from django.core.cache import caches

    if not django.conf.settings.configured:
        django.conf.settings.configure()
    names = [f"at{port}" for port in cluster.ports[:3]]
    django.conf.settings.CACHES = {
        f"at{port}": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{port}/0"}
        for port in cluster.ports[:3]
    } | {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    caches.__dict__["settings"] = django.conf.settings.CACHES
    here, there, elsewhere = (caches[name] for name in names)
    here.clear()
    here.set("hits", 0, timeout=600)

    def hit(name):
        for _ in range(30):
            caches[name].incr("hits")

    threads = [threading.Thread(target=hit, args=(names[i % 3],)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same([there.get("hits"), 0 < elsewhere.ttl("hits") <= 600], [180, True])
    same(here.incr("first", ignore_key_check=True), 1)
    try:
        raise AssertionError(f"what is not there was counted: {here.incr('none')}")
    except ValueError as refused:
        assert "not found" in str(refused), refused
    same(here.get("none"), None)


def test_scripts_of_python_libraries(cluster):
    import asyncio
    import datetime

    import aiocache.lock
    import huey
    import huey.contrib.helpers
    import limits
    import redis
    import redis_lock

    here, there = (redis.Redis(port=port, socket_timeout=30) for port in cluster.ports[:2])
    here.flushdb()
    queues = [huey.RedisHuey("jobs", port=port) for port in cluster.ports[:2]]
    now = datetime.datetime.now()
    for name, delay in ((b"a", -9), (b"b", -8), (b"c", 900)):
        queues[0].storage.add_to_schedule(name, now + datetime.timedelta(seconds=delay))
    same([queue.storage.read_schedule(now) for queue in queues], [[b"a", b"b"], []])
    same(queues[1].storage.schedule_size(), 1)
    places = [huey.contrib.helpers.RedisSemaphore(queue, "rooms", value=2) for queue in queues + queues]
    same([place.acquire() is not None for place in places[:3]], [True, True, False])

    stores = [limits.storage.storage_from_string(f"redis://127.0.0.1:{port}") for port in cluster.ports[:2]]
    limit = limits.parse("3/hour")
    hits = [limits.strategies.FixedWindowRateLimiter(stores[i % 2]).hit(limit, "ann") for i in range(5)]
    same(hits, [True, True, True, False, False])

    lock, other = redis_lock.Lock(here, "door", expire=60), redis_lock.Lock(there, "door", expire=60)
    same([lock.acquire(blocking=False), other.acquire(blocking=False)], [True, False])
    lock.extend(expire=300)
    assert 60 < there.ttl("lock:door") <= 300
    try:
        other.release()
        raise AssertionError("it released what it does not hold")
    except redis_lock.NotAcquired:
        pass
    lock.release()
    same([other.acquire(timeout=5), there.exists("lock:door")], [True, 1])
    lock.reset()
    same(here.exists("lock:door"), 0)

    async def compare():
        caches = [aiocache.Cache(aiocache.Cache.REDIS, endpoint="127.0.0.1", port=port) for port in cluster.ports[:2]]
        await caches[0].set("page", "old")
        async with aiocache.lock.OptimisticLock(caches[0], "page") as first:
            await caches[1].set("page", "newer")
            try:
                await first.cas("new")
                raise AssertionError("somebody else's change was written over")
            except aiocache.lock.OptimisticLockError:
                pass
        async with aiocache.lock.OptimisticLock(caches[1], "page") as second:
            assert await second.cas("newest", ttl=60)
        same(await caches[0].get("page"), "newest")
        for cache in caches:
            await cache.close()

    asyncio.run(compare())
    assert 0 < here.ttl("page") <= 60


def test_valkey_py(cluster):
    import threading

    import valkey

    for protocol in (2, 3):
        options = {"decode_responses": True, "socket_timeout": 30, "protocol": protocol}
        here, there = (valkey.Valkey(port=port, **options) for port in cluster.ports[:2])
        here.flushdb()
        same((here.set("s", "v", ex=100), there.get("s"), 0 < there.ttl("s") <= 100), (True, "v", True))
        here.hset("h", mapping={"a": 1, "b": 2})
        same(there.hgetall("h"), {"a": "1", "b": "2"})
        here.zadd("z", {"a": 1, "b": 2.5})
        same((there.zscore("z", "b"), sorted(there.scan_iter())), (2.5, ["h", "s", "z"]))
        with here.pipeline(transaction=False) as pipe:
            for number in range(100):
                pipe.set(f"p{number}", number)
            same(pipe.execute(), [True] * 100)
        with here.pipeline(transaction=True) as pipe:
            same(pipe.set("a", 1).incr("a").get("a").execute(), [True, 2, "2"])
        with here.pipeline() as pipe:
            pipe.watch("a")
            there.set("a", 7)
            pipe.multi()
            pipe.set("a", 3)
            try:
                pipe.execute()
            except valkey.WatchError:
                pass
            else:
                raise AssertionError("EXEC went through although the key had changed")
        lock = here.lock("lock", timeout=60)
        assert lock.acquire(blocking=False) and not there.lock("lock", timeout=60).acquire(blocking=False)
        lock.extend(10)
        lock.release()
        subscriber = there.pubsub()
        subscriber.subscribe("news")
        same(subscriber.get_message(timeout=30)["type"], "subscribe")
        there.publish("news", "hello")
        same(subscriber.get_message(timeout=30)["data"], "hello")
        popped = []
        reader = threading.Thread(target=lambda: popped.append(there.blpop("list", timeout=20)))
        reader.start()
        here.rpush("list", "pushed")
        reader.join(30)
        same([tuple(pair) for pair in popped], [("list", "pushed")])
        entry = here.xadd("stream", {"a": 1})
        same(there.xrange("stream"), [(entry, {"a": "1"})])


# --- sessions of web frameworks --------------------------------------------------------------------------


class WebApp:
    """A web app with a session store at one region, for as long as the block lasts."""

    def __init__(self, command, port, seconds):
        self.command = [*command, str(port), str(seconds)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=HERE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, f"{self.command} ended with {self.process.wait()} before it was ready"
        self.port = int(line)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=20)

    def ask(self, method, path, cookie=None, body=None):
        """Status and text of the answer, and the cookie that a browser has from then on."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, {"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        text, fresh = answer.read().decode(), answer.getheader("Set-Cookie")
        connection.close()
        return answer.status, text, fresh.split(";")[0] if fresh else cookie


def sessions(cluster, command):
    """Who has logged in at one region is known at another, until the session is over or its time is."""
    stored = connect(cluster)
    stored.flushdb()
    with WebApp(command, cluster.ports[0], 600) as here, WebApp(command, cluster.ports[1], 600) as there:
        same(here.ask("GET", "/me")[:2], (401, "nobody"))
        status, _, ann = here.ask("POST", "/login", body="ann")
        same((status, bool(ann)), (200, True))
        _, _, bob = there.ask("POST", "/login", body="bob")
        for visits in range(1, 7, 2):
            for at, app in enumerate((there, here)):
                status, text, ann = app.ask("GET", "/me", ann)
                same((status, text), (200, f"ann {visits + at}"))
        keys = [key for key in stored.scan_iter()]
        same(len(keys), 2)
        for key in keys:
            assert 0 < stored.ttl(key) <= 600, f"{key} lives {stored.ttl(key)} s"
        same(there.ask("POST", "/logout", ann)[1], "goodbye")
        same(here.ask("GET", "/me", ann)[:2], (401, "nobody"))
        same(here.ask("GET", "/me", bob)[:2], (200, "bob 1"))
        stored.flushdb()
        with WebApp(command, cluster.ports[1], 1) as short:
            _, _, eve = short.ask("POST", "/login", body="eve")
            wait_for("the end of a session", lambda: stored.dbsize() == 0)
            same(here.ask("GET", "/me", eve)[:2], (401, "nobody"))


def test_flask_sessions(cluster):
    sessions(cluster, [sys.executable, "webapp.py", "flask"])


def test_django_sessions(cluster):
    sessions(cluster, [sys.executable, "webapp.py", "django"])


def test_express_sessions(cluster):
    install(NODE)
    sessions(cluster, ["node", str(HERE / "node" / "webapp.mjs")])


# --- other languages -------------------------------------------------------------------------------------


class Skipped(Exception):
    """A toolchain, or a library, is not there."""


class Folder:
    """Programs of one language: the tool without which they are skipped, and the command that makes them."""

    def __init__(self, name, tool, make):
        self.name, self.tool, self.make, self.made = name, tool, make, False


# Build outputs stay under target/.
TARGET = ROOT / "target"
GO = Folder("go", "go", ["go", "build", "-o", f"{TARGET}/go-clients/", "./..."])
RUST = Folder("rust", "cargo", ["cargo", "build", "--quiet", "--locked", "--target-dir", f"{TARGET}/rust-client"])
NODE = Folder("node", "npm", ["npm", "ci", "--silent", "--no-audit", "--no-fund"])
CLASSES = f"{TARGET}/java-client"
JAVA = Folder("java", "mvn", ["mvn", "-q", "-B", f"-DbuildDirectory={CLASSES}", "compile", "dependency:build-classpath",
                              f"-Dmdep.outputFile={CLASSES}/classpath"])
C = Folder("c", "cc", ["cc", "-Wall", "-Werror", "-O1", "-o", f"{TARGET}/c-client", "main.c", "-lhiredis"])
PERL = Folder("perl", "perl", ["perl", "-c", "main.pl"])


def run_in(folder, command):
    done = subprocess.run(command, cwd=HERE / folder.name, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def install(folder):
    """Makes the programs of a folder, once."""
    if not shutil.which(folder.tool):
        raise Skipped(f"{folder.tool} is not on the PATH")
    if not folder.made:
        run_in(folder, folder.make)
    folder.made = True


def client_program(cluster, folder, *program):
    """Runs a program against two regions."""
    install(folder)
    ports = [str(port) for port in cluster.ports[:2]]
    same(run_in(folder, [*program, *ports]).strip().split("\n")[-1], "ok")


def java_program(cluster, name):
    client_program(cluster, JAVA, "sh", "-c", f'exec java -cp "{CLASSES}/classes:$(cat {CLASSES}/classpath)" {name} "$@"', name)


def test_go_redis(cluster):
    client_program(cluster, GO, f"{TARGET}/go-clients/clients")


def test_redigo(cluster):
    client_program(cluster, GO, f"{TARGET}/go-clients/redigo")


def test_rueidis(cluster):
    client_program(cluster, GO, f"{TARGET}/go-clients/rueidis")


def test_redis_rs(cluster):
    client_program(cluster, RUST, f"{TARGET}/rust-client/debug/isochrone-clients")


def test_node_redis(cluster):
    client_program(cluster, NODE, "node", "main.mjs")


def test_ioredis(cluster):
    client_program(cluster, NODE, "node", "ioredis.mjs")


def test_jedis(cluster):
    java_program(cluster, "Main")


def test_lettuce(cluster):
    java_program(cluster, "Lettuce")


def test_hiredis(cluster):
    if not has_hiredis():
        raise Skipped("there is no compiler, or hiredis is not installed")
    client_program(cluster, C, f"{TARGET}/c-client")


def test_redis_pm(cluster):
    if not has_redis_pm():
        raise Skipped("there is no Perl, or Redis.pm is not installed")
    client_program(cluster, PERL, "perl", "main.pl")


# They start clusters or nodes of their own, and need no second turn.
OF_THEIR_OWN = [
    test_benchmark_runs_all_its_tests_on_every_protocol, test_grpc_from_the_published_proto,
    test_connections_are_told_what_redis_tells_them,
]


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
