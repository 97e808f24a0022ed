#!/usr/bin/env python3
"""Writes a second of three durable Isochrone replicas beside etcd and Redis, in one run on one machine.

    bench/peers/run.sh [--binary target/release/isochrone] [--seconds 8] [--rounds 3] [--format json]

Measured, each round in turn so that a noisy minute hits all alike, medians of the rounds:

- etcd: three nodes of Debian's etcd-server, durable, 100 gRPC clients putting 64-byte values
  (bench/peers/etcd, a Go program: etcd's clients speak gRPC only);
- redis: one `redis-server --appendfsync always`, redis-benchmark SET, 50 clients, pipeline 1 and 16;
- isochrone: three `isochrone node` processes over loopback, journals synced, redis-benchmark SET through
  the leader's port, 50 clients with pipeline 1 and 16, and 100 clients with pipeline 1.

Needs redis-server, redis-benchmark, etcd and go on the PATH (Debian: redis-server redis-tools
etcd-server golang). Every figure is a ratio of this run: absolute numbers belong to the machine.
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Protocols whose keyspaces name a leader.
LED = ["multipaxos", "curp", "curp-consensus"]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def wait_for(port, what, ready, seconds=30):
    """Polls until `ready` holds; the peer tells when it serves, nobody guesses a pause."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
                if ready(s):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"{what} did not serve on port {port} within {seconds} s")


def redis_answers(s):
    s.settimeout(5)
    s.sendall(b"SET ready 1\r\n")
    return s.recv(64).startswith(b"+OK")


def memory_mb(pid, which="VmRSS"):
    """Resident MB of a process: now, or with VmHWM the most so far; 0 of one that has ended."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{which}:")), 0)


class Servers:
    """Processes that are ended together, with a directory that goes with them."""

    def __init__(self, base):
        pathlib.Path(base).mkdir(parents=True, exist_ok=True)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="isochrone-bench-", dir=base))
        self.processes = []

    def start(self, *command):
        log = open(self.directory / f"log-{len(self.processes)}.txt", "w")
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory))

    def cpu_seconds(self):
        """User and system time of all the processes so far."""
        total = 0
        for p in self.processes:
            fields = pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, why, *_):
        if why is SystemExit:
            for log in sorted(self.directory.glob("log-*.txt")):
                print(f"{log.name}: {log.read_text(errors='replace')[-2000:]}", file=sys.stderr)
        for p in self.processes:
            p.send_signal(signal.SIGTERM)
        for p in self.processes:
            try:
                p.wait(timeout=10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def redis_benchmark(port, clients, pipeline, seconds, servers, command=("-t", "set", "-d", "64", "-r", "100000")):
    """SET of 64-byte values over 100,000 keys, or another command: commands a second, p50 in ms, server CPU us a
    command."""
    # redis-benchmark counts requests, not seconds: a short probe finds how many fill the time.
    def run(count):
        done = subprocess.run(
            ["redis-benchmark", "-p", str(port), "-n", str(count), "-c", str(clients), "-P", str(pipeline),
             "--csv", *command],
            capture_output=True, text=True, check=True,
        )
        row = next(csv.reader([done.stdout.strip().splitlines()[-1]]))
        return float(row[1]), float(row[4])

    rate, _ = run(20_000 if clients > 1 else 2_000)
    count = max(20_000 if clients > 1 else 2_000, int(rate * seconds))
    before = servers.cpu_seconds()
    rate, p50 = run(count)
    return {"per_second": rate, "p50_ms": p50, "cpu_us": (servers.cpu_seconds() - before) / count * 1e6}


def etcd(base, seconds, loader):
    with Servers(base) as servers:
        ports = free_ports(6)
        peers, clients = ports[:3], ports[3:]
        cluster = ",".join(f"e{i}=http://127.0.0.1:{port}" for i, port in enumerate(peers))
        for i in range(3):
            servers.start(
                "etcd", "--name", f"e{i}", "--data-dir", f"e{i}",
                "--listen-peer-urls", f"http://127.0.0.1:{peers[i]}",
                "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers[i]}",
                "--listen-client-urls", f"http://127.0.0.1:{clients[i]}",
                "--advertise-client-urls", f"http://127.0.0.1:{clients[i]}",
                "--initial-cluster", cluster, "--log-level", "error",
            )
        for port in clients:
            wait_for(port, "etcd", lambda s: True)
        endpoints = ",".join(f"127.0.0.1:{port}" for port in clients)
        before = servers.cpu_seconds()
        done = subprocess.run(
            [loader, "-endpoints", endpoints, "-clients", "100", "-seconds", str(seconds)],
            capture_output=True, text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"etcd load: {done.stderr}")
        figures = json.loads(done.stdout)
        cpu = (servers.cpu_seconds() - before) / (figures["puts"] * (seconds + 2) / seconds) * 1e6
        return {"per_second": figures["puts_per_second"], "p50_ms": figures["p50_ms"], "cpu_us": cpu}


def start_redis(servers, durable):
    """Starts a redis-server that waits for its disk before it answers, or keeps nothing; its port."""
    [port] = free_ports(1)
    kept = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    servers.start("redis-server", "--port", str(port), "--save", "", *kept, "--dir", str(servers.directory))
    wait_for(port, "redis-server", redis_answers)
    return port


def redis(base, seconds, pipeline):
    with Servers(base) as servers:
        return redis_benchmark(start_redis(servers, True), 50, pipeline, seconds, servers)


def start_nodes(servers, binary, nodes=3, protocol="multipaxos", parameters="", node="", replicas=None, keyspaces=("main",)):
    """Starts nodes over loopback, of which all or the first `replicas` serve these keyspaces; where one leads, the first. Their
    Redis and HTTP ports, and their deployment file."""
    ports = free_ports(3 * nodes)
    peers, gates, admin = ports[:nodes], ports[nodes:2 * nodes], ports[2 * nodes:]
    lines = ['cluster = "bench"', '[[region]]', 'name = "here"', '[network]', 'lan_rtt = "0.1ms"']
    for i in range(nodes):
        lines += ["[[node]]", f'name = "n{i}"', 'region = "here"', f'listen = "127.0.0.1:{peers[i]}"',
                  f'redis = "127.0.0.1:{gates[i]}"', f'http = "127.0.0.1:{admin[i]}"', node]
    names = ", ".join(f'"n{i}"' for i in range(replicas or nodes))
    for name in keyspaces:
        lines += ["[[keyspace]]", f'name = "{name}"', f'protocol = "{protocol}"',
                  f"replicas = [{names}]", f"parameters = {{ {parameters} }}"]
        if protocol in LED:
            lines.append('leader = "n0"')
    file = servers.directory / "deployment.toml"
    file.write_text("\n".join(lines) + "\n")
    for i in range(nodes):
        start_node(servers, binary, file, i)
    return gates, admin, file


def start_node(servers, binary, file, i):
    servers.start(binary, "node", str(file), "--name", f"n{i}", "--data", f"n{i}")


def start_isochrone(servers, binary, at=0, **settings):
    """The same; the Redis port of node `at`, which serves."""
    gates, _, _ = start_nodes(servers, binary, **settings)
    wait_for(gates[at], "isochrone", redis_answers)
    return gates[at]


def isochrone(base, seconds, binary, clients, pipeline):
    with Servers(base) as servers:
        port = start_isochrone(servers, binary)
        return redis_benchmark(port, clients, pipeline, seconds, servers)


def sync_latency(base):
    """Mean of 200 fdatasyncs of 4 KiB, ms: the disk that this run met."""
    with tempfile.NamedTemporaryFile(dir=base) as f:
        begin = time.perf_counter()
        for _ in range(200):
            f.write(b"x" * 4096)
            f.flush()
            os.fdatasync(f.fileno())
        return (time.perf_counter() - begin) / 200 * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where the data directories go")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    arguments = parser.parse_args()
    for program in ("redis-server", "redis-benchmark", "etcd", "go", arguments.binary):
        if not shutil.which(program):
            raise SystemExit(f"{program}: not found; apt-get install redis-server redis-tools etcd-server golang, "
                             "and cargo build --release")
    binary = str(pathlib.Path(arguments.binary).resolve())
    loader = str(pathlib.Path(arguments.dir).resolve() / "etcd-load")
    subprocess.run(["go", "build", "-o", loader, "."], cwd=ROOT / "bench/peers/etcd", check=True)

    base, seconds = arguments.dir, arguments.seconds
    rows = {
        "etcd x3, 100 clients": lambda: etcd(base, seconds, loader),
        "isochrone x3, 100 clients": lambda: isochrone(base, seconds, binary, 100, 1),
        "redis always, 50 clients": lambda: redis(base, seconds, 1),
        "isochrone x3, 50 clients": lambda: isochrone(base, seconds, binary, 50, 1),
        "redis always, 50 clients, pipeline 16": lambda: redis(base, seconds, 16),
        "isochrone x3, 50 clients, pipeline 16": lambda: isochrone(base, seconds, binary, 50, 16),
    }
    rows = {name: row for name, row in rows.items() if arguments.only in name}
    found = {name: [] for name in rows}
    for i in range(arguments.rounds):
        for name, row in rows.items():
            print(f"round {i + 1} of {arguments.rounds}: {name}", file=sys.stderr, flush=True)
            found[name].append(row())

    medians = {
        name: {figure: statistics.median(r[figure] for r in runs) for figure in runs[0]}
        for name, runs in found.items()
    }
    ratios = {}
    for ours, theirs, target in [
        ("isochrone x3, 100 clients", "etcd x3, 100 clients", 5.0),
        ("isochrone x3, 50 clients", "redis always, 50 clients", 0.5),
        ("isochrone x3, 50 clients, pipeline 16", "redis always, 50 clients, pipeline 16", 0.5),
    ]:
        if ours in medians and theirs in medians:
            ratios[f"{ours} / {theirs}"] = {
                "ratio": medians[ours]["per_second"] / medians[theirs]["per_second"], "target": target,
            }
    sync = sync_latency(base)
    if arguments.format == "json":
        print(json.dumps({"fdatasync_ms": sync, "rounds": arguments.rounds, "rows": medians, "ratios": ratios}))
    else:
        print(f"fdatasync of 4 KiB: {sync:.3f} ms; {os.cpu_count()} cores; medians of {arguments.rounds} rounds\n")
        print(f"{'':40} {'writes/s':>10} {'p50 ms':>8} {'server CPU us':>14}")
        for name, row in medians.items():
            print(f"{name:40} {row['per_second']:10.0f} {row['p50_ms']:8.3f} {row['cpu_us']:14.1f}")
        print()
        for name, row in ratios.items():
            held = "held" if row["ratio"] >= row["target"] else "MISSED"
            print(f"{name}: {row['ratio']:.2f} (target {row['target']}) {held}")
    return 0 if all(row["ratio"] >= row["target"] for row in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
