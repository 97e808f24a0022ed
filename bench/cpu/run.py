#!/usr/bin/env python3
"""What handling a message costs the runtime: the constants of crates/cli/src/calibrated.rs.

    bench/cpu/run.sh [--binary target/release/isochrone] [--seconds 6] [--rounds 3]

Three `isochrone node` processes over loopback, Multi-Paxos with one command a slot, load through the leader's
port only. A follower then takes in one Accept and sends one Accepted for each command, and applies it: its
processor time a command, at values of 16 and of 1,000 bytes, gives the cost of a message that comes in and one
that goes out (taken as equal) and of a byte. The journal is not synced, as the simulated runs do not sync either.
Medians of the rounds; needs redis-benchmark.
"""

import argparse
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ready(port, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as s:
                s.settimeout(5)
                s.sendall(b"SET ready 1\r\n")
                if s.recv(64).startswith(b"+OK"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"no node served on port {port} within {seconds} s")


def follower_us(binary, size, seconds):
    """Processor microseconds of one follower for each command."""
    with tempfile.TemporaryDirectory(prefix="isochrone-cpu-") as directory:
        peers, ports = free_ports(3), free_ports(3)
        text = 'cluster = "cpu"\n\n[journal]\nfsync = "off"\n\n[[region]]\nname = "here"\n'
        for i in range(3):
            text += f'\n[[node]]\nname = "n{i}"\nregion = "here"\nlisten = "127.0.0.1:{peers[i]}"\n'
            text += f'redis = "127.0.0.1:{ports[i]}"\n'
        text += '\n[[keyspace]]\nname = "main"\nprotocol = "multipaxos"\nreplication = 3\nleader = "n0"\n'
        text += "parameters = { batch_commands = 1 }\n"
        file = pathlib.Path(directory) / "cpu.toml"
        file.write_text(text)
        nodes = []
        try:
            for i in range(3):
                command = [binary, "node", str(file), "--name", f"n{i}", "--data", f"{directory}/n{i}"]
                nodes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            for port in ports:
                ready(port)

            def load(count):
                done = subprocess.run(
                    ["redis-benchmark", "-p", str(ports[0]), "-t", "set", "-n", str(count), "-c", "50",
                     "-P", "4", "-d", str(size), "-r", "10000", "--csv"],
                    capture_output=True, text=True, check=True)
                return float(done.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))

            rate = load(20_000)
            count = max(20_000, int(rate * seconds))
            before = [cpu_seconds(node) for node in nodes]
            load(count)
            spent = [cpu_seconds(node) - start for node, start in zip(nodes, before)]
            return statistics.mean(spent[1:]) / count * 1e6
        finally:
            for node in nodes:
                node.send_signal(signal.SIGTERM)
            for node in nodes:
                node.wait(timeout=10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    small, large = [], []
    for _ in range(given.rounds):
        small.append(follower_us(given.binary, 16, given.seconds))
        large.append(follower_us(given.binary, 1_000, given.seconds))
    small, large = statistics.median(small), statistics.median(large)
    byte = (large - small) / (1_000 - 16)
    print(f"follower, 16-byte values:    {small:6.2f} us a command")
    print(f"follower, 1,000-byte values: {large:6.2f} us a command")
    print(f"a message in, a message out: {small / 2:6.2f} us each")
    print(f"a byte:                      {byte * 1e6:6.0f} ps")


if __name__ == "__main__":
    main()
