#!/usr/bin/env python3
"""A replica that was killed comes back to a large state under load: how long until it has caught up, and what it
costs those who write meanwhile.

    bench/protocols/rejoin.py [--protocol curp] [--keys 2000000] [--value 200] [--away 8] [--binary target/release/isochrone]

Three durable replicas over loopback are filled; then 50 clients at each of the first two write with pipeline 16, the
third is killed with SIGKILL, and started again after a while. Once a second: how many positions it lags, the writes
a second, and the memory of the three.

Needs redis-benchmark on the PATH (Debian: redis-tools), and three to four times the state in memory.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from run import Servers, ROOT, memory_mb, redis_answers, start_node, start_nodes, wait_for  # noqa: E402


def metrics(port):
    """The sums of all metrics of a node by name; nothing while it does not answer."""
    try:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    except OSError:
        return {}
    sums = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            known = name if 'what="snapshots_installed"' in name else name.split("{")[0]
            sums[known] = sums.get(known, 0.0) + float(value)
    return sums


def write(port, keys, value, count):
    """Starts 50 clients that set random keys."""
    return subprocess.Popen(
        ["redis-benchmark", "-p", str(port), "-n", str(count), "-c", "50", "-P", "16", "-r", str(keys), "-q",
         "SET", "key:__rand_int__", "x" * value], stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/isochrone"))
    parser.add_argument("--protocol", default="multipaxos")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=200, help="bytes of a value")
    parser.add_argument("--away", type=float, default=8, help="seconds between SIGKILL and start")
    parser.add_argument("--limit", type=float, default=90, help="seconds after which it counts as not caught up")
    parser.add_argument("--dir", default=str(ROOT / "target"), help="where the data directories go")
    a = parser.parse_args()
    binary = str(pathlib.Path(a.binary).resolve())
    with Servers(a.dir) as servers:
        gates, admin, file = start_nodes(servers, binary, protocol=a.protocol)
        nodes = list(servers.processes)
        for port in gates:
            wait_for(port, a.protocol, redis_answers)
        write(gates[0], a.keys, a.value, a.keys * 3 // 2).wait()
        loads = [write(port, a.keys, a.value, 1_000_000_000) for port in gates[:2]]
        time.sleep(3)
        nodes[2].send_signal(signal.SIGKILL)
        nodes[2].wait()
        time.sleep(a.away)
        start_node(servers, binary, file, 2)
        nodes[2] = servers.processes[-1]
        began = last = time.time()
        asked = metrics(admin[0]).get("isochrone_gateway_commands_total", 0)
        near, least, back = 0, None, None
        print(f"{'s':>5} {'lag':>9} {'writes/s':>9}  MB of the three")
        while near < 3 and time.time() - began < a.limit:
            time.sleep(1)
            ours, theirs, now = metrics(admin[0]), metrics(admin[2]), time.time()
            total = ours.get("isochrone_gateway_commands_total", asked)
            # The other node that is asked does about as much.
            rate = 2 * (total - asked) / (now - last)
            asked, last = total, now
            least = rate if least is None else min(least, rate)
            lag = None
            if theirs.get("isochrone_ready"):
                lag = ours["isochrone_applied_position"] - theirs["isochrone_applied_position"]
            # What comes in a fifth of a second, and a batch of each node, may be on its way.
            near = near + 1 if lag is not None and lag <= rate / 5 + 2_000 else 0
            back = now - began if near == 1 else back
            shown = "-" if lag is None else f"{lag:.0f}"
            used = " ".join(str(round(memory_mb(node.pid))) for node in nodes)
            print(f"{now - began:5.1f} {shown:>9} {rate:9.0f}  {used}", flush=True)
        taken = metrics(admin[2])
        installed = sum(count for name, count in taken.items() if "snapshots_installed" in name)
        for load in loads:
            load.kill()
        end = f"caught up after {back:.0f} s" if near >= 3 else f"not caught up after {a.limit:.0f} s"
        print(f"{a.protocol}: {end}, {installed:.0f} snapshots taken in, {least:.0f} writes/s in the slowest second")


if __name__ == "__main__":
    main()
