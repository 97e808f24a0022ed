#!/usr/bin/env python3
"""CURP beside Redis and beside ourselves without replication, in one run on one machine.

    bench/peers/curp.py [--binary target/release/isochrone] [--seconds 4] [--rounds 3] [--format json]

Measured, each round in turn so that a noisy minute hits all alike, medians of the rounds (Park and Ousterhout,
NSDI 2019, figures 11 to 13, with every copy on disk):

- one sequential client: SET of 100 bytes, HMSET of one field, INCR, against Redis that keeps nothing, Redis with
  `--appendfsync always`, one unreplicated node of ours, and `curp`: asked at the master's node, whose commands go to its
  copies at once and to no witness (`1 copy`, `2 copies`); asked at a node that is neither master nor copy, whose commands go
  to the master and to the witness (`1 witness`), and without replication asked at such a node (`unreplicated, elsewhere`);
  with a copy that is also the witness (`unified`, at the master's node);
  without replication and with one copy or witness also where nodes look for news before they sleep (`poll`: an
  `idle_poll` of 200 us), as the source's servers do all the time;
- throughput: SET with 50 clients, pipeline 1 and 16;
- memory: a million values of 100 bytes.

What of this is published, `isochrone reproduce curp` measures too and puts beside it.

Needs redis-server and redis-benchmark on the PATH (Debian: redis-server redis-tools).
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import sys

from run import ROOT, Servers, memory_mb, redis_benchmark, start_isochrone, start_redis, sync_latency

VALUE = "x" * 100
POLL = 'idle_poll = "200us"'
COMMANDS = {
    "SET": ("-r", "2000000", "SET", "key:000000000000:__rand_int__", VALUE),
    "HMSET": ("-r", "2000000", "HMSET", "hash:00000000000:__rand_int__", "f", VALUE),
    "INCR": ("-r", "2000000", "INCR", "count:0000000000:__rand_int__"),
}


def systems(binary):
    """How each system is started in a set of servers; the port to ask."""
    return {
        "redis, nothing kept": lambda servers: start_redis(servers, False),
        "redis, always": lambda servers: start_redis(servers, True),
        "unreplicated": lambda servers: start_isochrone(servers, binary, nodes=1),
        "unreplicated, elsewhere": lambda servers: start_isochrone(servers, binary, at=2, replicas=1),
        "curp, 1 copy": lambda servers: start_isochrone(servers, binary, protocol="curp", parameters="f = 1"),
        "curp, 1 witness": lambda servers: start_isochrone(
            servers, binary, protocol="curp", parameters="f = 1", at=2),
        "curp, unified, 1": lambda servers: start_isochrone(
            servers, binary, protocol="curp", parameters="f = 1, unified = true"),
        "unreplicated, poll": lambda servers: start_isochrone(servers, binary, nodes=1, node=POLL),
        "unreplicated, elsewhere, poll": lambda servers: start_isochrone(
            servers, binary, node=POLL, at=2, replicas=1),
        "curp, 1 copy, poll": lambda servers: start_isochrone(
            servers, binary, protocol="curp", parameters="f = 1", node=POLL),
        "curp, 1 witness, poll": lambda servers: start_isochrone(
            servers, binary, protocol="curp", parameters="f = 1", node=POLL, at=2),
        "curp, 2 copies": lambda servers: start_isochrone(servers, binary, protocol="curp", parameters="f = 2"),
    }


def resident_mb(servers):
    """Memory of the process that was started first, which leads."""
    return memory_mb(servers.processes[0].pid)


def fill(port, keys):
    """Writes that many values of 100 bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        for first in range(0, keys, 1_000):
            commands = (f"*3\r\n$3\r\nSET\r\n$14\r\nkey:{key:010d}\r\n$100\r\n{VALUE}\r\n"
                        for key in range(first, first + 1_000))
            s.sendall("".join(commands).encode())
            answers = b""
            while len(answers) < 5_000:
                piece = s.recv(1 << 16)
                if not piece or b"-" in piece:
                    raise SystemExit(f"writing a million values failed: {piece[:200]!r}")
                answers += piece


def measure(base, seconds, start):
    """All figures of one system."""
    with Servers(base) as servers:
        port = start(servers)
        found = {name: redis_benchmark(port, 1, 1, seconds, servers, command) for name, command in COMMANDS.items()}
        for pipeline in (1, 16):
            command = COMMANDS["SET"]
            found[f"SET x50 P{pipeline}"] = redis_benchmark(port, 50, pipeline, seconds, servers, command)
    with Servers(base) as servers:
        port = start(servers)
        fill(port, 1_000_000)
        found["memory"] = {"mb": resident_mb(servers)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where the data directories go")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    for program in ("redis-server", "redis-benchmark", arguments.binary):
        if not shutil.which(program):
            raise SystemExit(f"{program}: not found; apt-get install redis-server redis-tools, and cargo build --release")
    binary = str(pathlib.Path(arguments.binary).resolve())

    rounds = []
    for i in range(arguments.rounds):
        found = {}
        for name, start in systems(binary).items():
            print(f"round {i + 1} of {arguments.rounds}: {name}", end="", file=sys.stderr, flush=True)
            found[name] = one = measure(arguments.dir, arguments.seconds, start)
            print(f": {one['SET']['p50_ms']:.3f} ms; 50 clients {one['SET x50 P1']['per_second']:.0f} SET/s, with "
                  f"pipeline 16 {one['SET x50 P16']['per_second']:.0f}; {one['memory']['mb']:.0f} MB",
                  file=sys.stderr, flush=True)
        rounds.append(found)
    rows = {
        name: {case: {figure: statistics.median(one[name][case][figure] for one in rounds) for figure in figures}
               for case, figures in cases.items()}
        for name, cases in rounds[0].items()
    }

    def figure(name, case, what):
        return rows[name][case][what]

    plain, always = "redis, nothing kept", "redis, always"

    # What is asked of each: at most, or at least.
    def ratios_of(one, form, alone="unreplicated"):
        return {
            f"median SET of one client, {form} / {alone}":
                (figure(one, "SET", "p50_ms") / figure(alone, "SET", "p50_ms"), "at most", 1.15),
            f"throughput, 50 clients, {form} / {alone}":
                (figure(one, "SET x50 P1", "per_second") / figure(alone, "SET x50 P1", "per_second"), "at least", 0.8),
            f"throughput, 50 clients, {form} / redis always":
                (figure(one, "SET x50 P1", "per_second") / figure(always, "SET x50 P1", "per_second"), "at least", 0.9),
            f"throughput, 50 clients, pipeline 16, {form} / redis always":
                (figure(one, "SET x50 P16", "per_second") / figure(always, "SET x50 P16", "per_second"), "at least", 0.5),
            f"CPU of all servers a SET, 50 clients, {form} / redis":
                (figure(one, "SET x50 P1", "cpu_us") / figure(plain, "SET x50 P1", "cpu_us"), "at most", 3.0),
            f"memory of a million values, {form} / redis":
                (figure(one, "memory", "mb") / figure(plain, "memory", "mb"), "at most", 1.5),
        }

    forms = [("curp, 1 copy", "1 copy"), ("curp, 1 witness", "1 witness"), ("curp, unified, 1", "unified"),
             ("curp, 1 copy, poll", "1 copy, poll", "unreplicated, poll"),
             ("curp, 1 witness, poll", "1 witness, poll", "unreplicated, poll")]
    ratios = {name: ratio for form in forms for name, ratio in ratios_of(*form).items()}
    # Asked at the same node, so that what differs is the witness and not the way to another node.
    for poll in ("", ", poll"):
        form = ratios_of("curp, 1 witness" + poll, "1 witness" + poll, "unreplicated, elsewhere" + poll)
        ratios |= {name: ratio for name, ratio in form.items() if "elsewhere" in name}
    held = {name: ratio <= target if kind == "at most" else ratio >= target
            for name, (ratio, kind, target) in ratios.items()}
    sync = sync_latency(arguments.dir)
    if arguments.format == "json":
        ratios = {name: {"ratio": ratio, kind.replace(" ", "_"): target, "held": held[name]}
                  for name, (ratio, kind, target) in ratios.items()}
        print(json.dumps({"fdatasync_ms": sync, "rounds": arguments.rounds, "rows": rows, "ratios": ratios}))
    else:
        print(f"fdatasync of 4 KiB: {sync:.3f} ms; {os.cpu_count()} cores; medians of {arguments.rounds} rounds\n")
        print(f"{'':30} {'SET':>7} {'HMSET':>7} {'INCR':>7} {'x50 P1':>8} {'x50 P16':>9} {'x50 P1':>8} {'memory':>7}")
        print(f"{'':30} {'p50 ms':>7} {'p50 ms':>7} {'p50 ms':>7} {'SET/s':>8} {'SET/s':>9} {'CPU us':>8} {'MB':>7}")
        for name, row in rows.items():
            print(f"{name:30} {row['SET']['p50_ms']:7.3f} {row['HMSET']['p50_ms']:7.3f} {row['INCR']['p50_ms']:7.3f} "
                  f"{row['SET x50 P1']['per_second']:8.0f} {row['SET x50 P16']['per_second']:9.0f} "
                  f"{row['SET x50 P1']['cpu_us']:8.1f} {row['memory']['mb']:7.0f}")
        print()
        for name, (ratio, kind, target) in ratios.items():
            print(f"{name}: {ratio:.2f} ({kind} {target}) {'held' if held[name] else 'MISSED'}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
