#!/usr/bin/env python3
"""The protocols of transactions beside each other, over the wide area that `isochrone up` emulates.

    bench/protocols/transactions.py [--binary target/release/isochrone] [--clients 100] [--seconds 60] [--rounds 3]

Each protocol has a cluster of its own, `isochrone up deployments/carousel-ec2.toml`: five regions, five
partitions of three replicas, every log on disk, the published round trips between the regions. The same clients in all
five regions ask for the same mix (`isochrone bench --workload retwis`, through gRPC), one transaction after the other;
an aborted one is counted and not tried again. Rounds take each protocol in turn, so that a noisy minute hits all alike;
figures are medians of the rounds, of memory the largest.

"cores" is the processor time that cluster and clients took, over the time that passed: where that is far below the cores
there are, distances limit what commits, not the machine.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOCOLS = ["carousel-fast", "carousel-basic", "2pc", "tapir"]
# How long a cluster may take until all its regions serve, seconds.
START = 60


class Cluster:
    """`isochrone up`, from the moment it serves until it has ended."""

    def __init__(self, binary, config, protocol):
        self.out = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [binary, "up", config, "--protocol", protocol, "--plain", "--format", "json", "--port", "0"],
            stdout=self.out, stdin=subprocess.DEVNULL,
        )
        try:
            self.endpoints = [region["grpc"] for region in self.ready()["regions"]]
        except BaseException:
            self.process.kill()
            raise

    def ready(self):
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise SystemExit(f"isochrone up has ended with {self.process.returncode}")
            # Read by its place: the file's own is where the cluster writes.
            line, whole, _ = os.pread(self.out.fileno(), 1 << 16, 0).partition(b"\n")
            if whole:
                return json.loads(line)
            time.sleep(0.05)
        raise SystemExit(f"isochrone up does not serve within {START} s")

    def peak_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) / 1024

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def run(protocol, a, seed):
    command = [a.binary, "bench", "--workload", a.workload, "--clients", str(a.clients), "--duration", f"{a.seconds}s",
               "--seed", str(seed), "--format", "json"]
    if a.records:
        command += ["--records", str(a.records)]
    if a.rate:
        command += ["--rate", str(a.rate)]
    with Cluster(a.binary, a.config, protocol) as cluster:
        for endpoint in cluster.endpoints:
            command += ["--endpoint", endpoint]
        begun, before = time.monotonic(), cluster.cpu_seconds() + children()
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if out.returncode != 0:
            raise SystemExit(f"{protocol}: isochrone bench has ended with {out.returncode}: {out.stdout}")
        cores = (cluster.cpu_seconds() + children() - before) / (time.monotonic() - begun)
        found = json.loads(out.stdout)
        lost = found["refused"] + found["unknown"]
        if lost:
            print(f"{protocol}: {lost} refused or unknown: {found['first_error']}", file=sys.stderr)
        return {"per_second": found["committed_per_second"], "aborted_percent": found["abort_rate"] * 100,
                "p50_ms": found["all"]["p50_ms"], "p99_ms": found["all"]["p99_ms"], "cores": cores,
                "peak_mb": cluster.peak_mb()}


def children():
    """Processor time of the clients, which have ended; of the cluster only once it has."""
    times = os.times()
    return times.children_user + times.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--config", default=str(ROOT / "deployments/carousel-ec2.toml"))
    parser.add_argument("--workload", default="retwis")
    parser.add_argument("--clients", type=int, default=100, help="in all; each region has as many as the others")
    parser.add_argument("--records", type=int, help="keys, fewer for more contention [default: the workload's own]")
    parser.add_argument("--rate", type=float, help="transactions a second in all, at most")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--format", choices=["text", "json"], default="text")
    a = parser.parse_args()
    a.binary = str(pathlib.Path(a.binary).resolve())
    cases = {protocol: [] for protocol in a.protocols.split(",")}
    for i in range(a.rounds):
        for protocol, runs in cases.items():
            print(f"round {i + 1} of {a.rounds}: {protocol}", file=sys.stderr, flush=True)
            runs.append(run(protocol, a, i))
    rows = [
        {"protocol": protocol,
         **{figure: (max if figure == "peak_mb" else statistics.median)(r[figure] for r in runs) for figure in runs[0]}}
        for protocol, runs in cases.items()
    ]
    if a.format == "json":
        print(json.dumps(rows))
        return
    keys = f", {a.records} keys" if a.records else ""
    print(f"{a.workload}{keys}, {a.clients} clients, {a.seconds} s; {os.cpu_count()} cores; "
          f"medians of {a.rounds} rounds\n")
    print(f"{'protocol':14} {'committed/s':>11} {'aborted %':>10} {'p50 ms':>8} {'p99 ms':>8} {'cores':>6} {'peak MB':>8}")
    for row in rows:
        print(f"{row['protocol']:14} {row['per_second']:11.1f} {row['aborted_percent']:10.2f} {row['p50_ms']:8.1f} "
              f"{row['p99_ms']:8.1f} {row['cores']:6.2f} {row['peak_mb']:8.0f}")
    rate = {row["protocol"]: row["per_second"] for row in rows}
    if {"carousel-basic", "2pc"} <= rate.keys():
        print(f"\ncarousel-basic / 2pc: {rate['carousel-basic'] / rate['2pc']:.2f}")


if __name__ == "__main__":
    main()
