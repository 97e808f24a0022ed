#!/usr/bin/env python3
"""The protocols beside each other on one machine: writes a second and server CPU a command.

    bench/protocols/run.py [--binary target/release/isochrone] [--seconds 6] [--rounds 3] [--cores 0.3] [--format json]

Three durable replicas over loopback, one redis-benchmark at every replica at once (so the clients are spread,
as those of a leaderless protocol are), SET of 64-byte values: over 1,000,000 keys (no contention to speak
of), and on one key (all contend). Rounds take each protocol in turn, so that a noisy minute hits all alike;
figures are medians of the rounds.

Without --cores the replicas share the machine, so what counts is the sum of their work. With --cores each
replica has that share of a core and no more, as if it had a machine of its own: what counts is the busiest
replica's work, which is what a protocol without a leader spreads. That takes a cgroup for each replica, so
it wants root; choose the shares so that together they leave the load generators and the disk a core.

Needs redis-benchmark on the PATH (Debian: redis-tools).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from run import Servers, ROOT, redis_answers, start_nodes, wait_for  # noqa: E402

PROTOCOLS = ["multipaxos", "mencius", "fastpaxos", "epaxos", "sdpaxos", "domino"]
REPLICAS = 3


class Shares:
    """A cgroup for each replica, in which it gets a share of a core; nothing where no share is asked for."""

    # Short, so that a replica that has spent its share does not stall for longer than a disk does.
    PERIOD_US = 10_000

    def __init__(self, cores):
        self.cores = cores
        self.groups = []

    def limit(self, pid, name):
        if self.cores is None:
            return
        quota = max(1_000, int(self.cores * self.PERIOD_US))
        unified = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        root = pathlib.Path("/sys/fs/cgroup" if unified else "/sys/fs/cgroup/cpu")
        group = root / f"isochrone-bench-{os.getpid()}-{name}"
        try:
            if unified:
                (root / "cgroup.subtree_control").write_text("+cpu")
            group.mkdir()
            self.groups.append(group)
            if unified:
                (group / "cpu.max").write_text(f"{quota} {self.PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise SystemExit(f"--cores: no cgroup for a replica ({error}); it wants root and the cpu controller")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for group in self.groups:
            group.rmdir()


def load(ports, count, clients, pipeline, keys, servers):
    """All replicas at once; commands a second of all together, p50 in ms, server CPU us a command."""
    before = servers.cpu_seconds()
    loads = [
        subprocess.Popen(
            ["redis-benchmark", "-p", str(port), "-n", str(count), "-c", str(clients), "-P", str(pipeline),
             "-r", str(keys), "--csv", "SET", "key:__rand_int__" if keys > 1 else "key", "x" * 64],
            stdout=subprocess.PIPE, text=True,
        )
        for port in ports
    ]
    rows = []
    for process in loads:
        out, _ = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"redis-benchmark ended with {process.returncode}")
        rows.append([cell.strip('"') for cell in out.strip().splitlines()[-1].split(",")])
    cpu = (servers.cpu_seconds() - before) / (count * len(ports)) * 1e6
    # The slowest ends last: what all did until then is a bound from below for the sum of the rates.
    rate = sum(float(row[-7]) for row in rows)
    return {"per_second": rate, "p50_ms": statistics.median(float(row[-4]) for row in rows), "cpu_us": cpu}


def run(base, binary, protocol, seconds, clients, pipeline, keys, cores):
    # The servers end before their groups do.
    with Shares(cores) as shares, Servers(base) as servers:
        gates, _, _ = start_nodes(servers, binary, nodes=REPLICAS, protocol=protocol)
        for i, process in enumerate(servers.processes):
            shares.limit(process.pid, f"n{i}")
        for port in gates:
            wait_for(port, protocol, redis_answers)
        # A short probe finds how many requests fill the time.
        probe = load(gates, 3_000, clients, pipeline, keys, servers)
        count = max(3_000, int(probe["per_second"] / REPLICAS * seconds))
        return load(gates, count, clients, pipeline, keys, servers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=17, help="connections at each replica")
    parser.add_argument("--pipeline", type=int, default=16)
    parser.add_argument("--cores", type=float, help="the share of a core that each replica gets; all, if not given")
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where the data directories go")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    a = parser.parse_args()
    binary = str(pathlib.Path(a.binary).resolve())
    cases = {(p, keys): [] for p in a.protocols.split(",") for keys in (1_000_000, 1)}
    for i in range(a.rounds):
        for (protocol, keys), runs in cases.items():
            print(f"round {i + 1} of {a.rounds}: {protocol}, {keys} keys", file=sys.stderr, flush=True)
            runs.append(run(a.dir, binary, protocol, a.seconds, a.clients, a.pipeline, keys, a.cores))
    rows = [
        {"protocol": protocol, "contention_percent": 100 if keys == 1 else 0,
         **{figure: statistics.median(r[figure] for r in runs) for figure in runs[0]}}
        for (protocol, keys), runs in cases.items()
    ]
    if a.format == "json":
        print(json.dumps(rows))
        return
    share = f"{a.cores} of a core for each replica" if a.cores else f"{os.cpu_count()} cores for all"
    print(f"{a.clients} connections at each of {REPLICAS} replicas, pipeline {a.pipeline}; {share}; "
          f"medians of {a.rounds} rounds\n")
    print(f"{'protocol':12} {'contention':>10} {'writes/s':>10} {'p50 ms':>8} {'server CPU us':>14}")
    for row in rows:
        print(f"{row['protocol']:12} {row['contention_percent']:9}% {row['per_second']:10.0f} "
              f"{row['p50_ms']:8.3f} {row['cpu_us']:14.1f}")


if __name__ == "__main__":
    main()
