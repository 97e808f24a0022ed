#!/usr/bin/env python3
"""What is left of a cluster's throughput when far more is asked of it than it can do, and how soon it is well again.

    bench/protocols/overload.py [--protocols curp,epaxos] [--seconds 30] [--clients 2000] [--pipeline 160]

Three durable replicas over loopback, SET of 64-byte values over 100,000 keys, clients spread over all of them. First the peak:
the most of three loads, of 30, 100 and 100 clients with 1, 1 and 16 requests under way each. Then the overload: so many clients
with so many requests under way each, that none of them can be answered soon. Goodput is what was done without an error;
"well again" is when one client's ten writes in a row take at most thrice what they took before, or 10 ms, from the end of the overload;
"after" is the peak's best load again.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from run import Servers, ROOT, memory_mb, redis_answers, start_nodes, wait_for  # noqa: E402

PROTOCOLS = ["multipaxos", "curp", "curp-consensus", "mencius", "fastpaxos", "epaxos", "sdpaxos", "domino",
             "carousel-basic", "carousel-fast", "2pc", "tapir"]
LADDER = [(30, 1), (100, 1), (100, 16)]


def load(binary, gates, clients, pipeline, seconds):
    """What `isochrone bench` reports of one load."""
    command = [binary, "bench", "--workload", "set", "--records", "100000", "--value-size", "64", "--format", "json", "--reconnect",
               "--clients", str(clients), "--pipeline", str(pipeline), "--duration", f"{seconds}s"]
    for port in gates:
        command += ["--endpoint", f"127.0.0.1:{port}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(f"isochrone bench: {done.stderr}")
    return json.loads(done.stdout)


def ten_writes(port):
    """Seconds that ten writes of one client take, or nothing where one is not done."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        begin = time.monotonic()
        try:
            for _ in range(10):
                s.sendall(b"SET probe 1\r\n")
                if s.recv(64) != b"+OK\r\n":
                    return None
        except TimeoutError:
            return None
        return time.monotonic() - begin


def run(base, binary, protocol, a):
    with Servers(base) as servers:
        gates, _, _ = start_nodes(servers, binary, protocol=protocol)
        for port in gates:
            wait_for(port, protocol, redis_answers)
        load(binary, gates, 30, 1, 1)
        calm = min(filter(None, (ten_writes(gates[0]) for _ in range(10))))
        rungs = {rung: load(binary, gates, *rung, 5)["throughput_per_second"] for rung in LADDER}
        best, peak = max(rungs.items(), key=lambda item: item[1])
        before = max(memory_mb(p.pid, "VmHWM") for p in servers.processes)
        over = load(binary, gates, a.clients, a.pipeline, a.seconds)
        ended = time.monotonic()
        slow = True
        while slow and time.monotonic() - ended < 60:
            times = [ten_writes(port) for port in gates]
            slow = not all(t is not None and t <= max(3 * calm, 0.01) for t in times)
        well = time.monotonic() - ended
        after = load(binary, gates, *best, 5)["throughput_per_second"]
        return {"protocol": protocol, "peak": peak, "goodput": over["throughput_per_second"] / peak, "errors": over["errors"],
                "unknown": over["unknown"], "p99_ms": max((r["p99_ms"] for r in over["regions"]), default=0.0),
                "mb_before": before, "mb": max(memory_mb(p.pid, "VmHWM") for p in servers.processes), "well_s": well, "after": after / peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--clients", type=int, default=2_000)
    parser.add_argument("--pipeline", type=int, default=160)
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where the data directories go")
    a = parser.parse_args()
    binary = str(pathlib.Path(a.binary).resolve())
    print(f"{'protocol':15} {'peak/s':>8} {'goodput':>8} {'refused':>9} {'unknown':>8} {'p99 ms':>8} {'MB':>5} {'of':>5} {'well, s':>8} {'after':>6}")
    for protocol in a.protocols.split(","):
        r = run(a.dir, binary, protocol, a)
        print(f"{protocol:15} {r['peak']:8.0f} {r['goodput']:8.2f} {r['errors']:9} {r['unknown']:8} {r['p99_ms']:8.0f} "
              f"{r['mb_before']:5.0f} {r['mb']:5.0f} {r['well_s']:8.1f} {r['after']:6.2f}", flush=True)


if __name__ == "__main__":
    main()
