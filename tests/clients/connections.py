#!/usr/bin/env python3
"""Several connections at once, against Redis: what one of them does, and what all of them are told of it.

From a seed a script of steps is drawn: one connection sends one or more commands in one packet, or is closed. The same script
runs on a node of ours and on `redis-server`. After each step the bytes that came at every connection, replies and messages in
their order, must be the same on both, and so what `CLIENT LIST` says of the connections (who waits, who is within MULTI, who
has subscribed to how much); at the end of a script also what the keys hold. [`EXCEPTIONS`] are the differences that are meant,
as docs/redis.md tells them. Beside these the drawing leaves out what has no one answer, where it says so.

    connections.py --binary target/debug/isochrone [--seeds N] [--from S] [--seed S] [--protocol NAME]

runs N seeds from S on, or one. Of a seed that fails it prints the shortest script that still does, and both answers. With
`--protocol` it runs against one of three nodes on that protocol instead of against `isochrone redis`. Exit status 0 when all
was the same. Standard library only.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# How long what Redis has answered may be missing before that is called a difference, seconds.
PATIENCE = 2.0

# --- the protocol ------------------------------------------------------------------------------------


class Id:
    """Stands in a command for the id that a server has given to a connection."""

    def __init__(self, connection):
        self.connection = connection

    def __str__(self):
        return f"<id of {self.connection}>"


def packet(command, ids):
    words = [str(ids.get(word.connection, 1)) if isinstance(word, Id) else word for word in command]
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def frame_end(data, at=0):
    """Where the reply ends that begins here; none where it is not whole."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    kind, end = data[at:at + 1], line + 2
    if kind in b"$=!*%~>":
        length = int(data[at + 1:line])
        if length < 0:
            return end
        if kind in b"$=!":
            end += length + 2
            return end if end <= len(data) else None
        for _ in range(2 * length if kind == b"%" else length):
            end = frame_end(data, end)
            if end is None:
                return None
    return end


EOF = b"(closed)"


class Link:
    """One connection to one server."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.rest, self.frames, self.closed = b"", [], False
        self.id = int(self.ask("CLIENT", "ID")[1:])

    def send(self, data):
        # The other end may have closed it already; that is seen where it is read.
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def take_in(self):
        """Cuts into replies what has come; its end is one, too."""
        while not self.closed:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            self.rest += data
            while (end := frame_end(self.rest)) is not None:
                self.frames.append(self.rest[:end])
                self.rest = self.rest[end:]
            if not data:
                self.frames.append(EOF)
                self.closed = True

    def ask(self, *command):
        """The reply to a command of the test itself, on a connection to which nothing else comes."""
        self.send(packet(command, {}))
        while not self.frames:
            assert select.select([self.socket], [], [], 30)[0], f"no answer to {command}"
            self.take_in()
        return self.frames.pop(0)

    def close(self):
        self.socket.close()


class Server:
    """One of the two, with the connections of the script and one of the test itself, which sees what they do."""

    def __init__(self, name, port):
        self.name, self.port = name, port
        self.links, self.ids = {}, {}
        self.control = Link(port)
        # Ids that no counter or length in a script is taken for.
        while self.control.id < 1000:
            Link(port).close()
            self.control.close()
            self.control = Link(port)

    def link(self, connection):
        """This connection of the script, which is made where it is not there."""
        if connection not in self.links:
            self.links[connection] = Link(self.port)
            self.ids[connection] = self.links[connection].id
        return self.links[connection]

    def drop(self, connection):
        self.links.pop(connection).close()

    def take_in(self):
        for link in self.links.values():
            link.take_in()

    def listed(self):
        """What `CLIENT LIST` says of the connections of the script."""
        names = {number: connection for connection, number in self.ids.items()}
        found = {}
        for line in self.control.ask("CLIENT", "LIST").decode().splitlines():
            told = dict(re.findall(r"([a-z-]+)=(\S*)", line))
            if told and int(told["id"]) in names:
                found[names[int(told["id"])]] = projected(told)
        return found

    def others(self):
        """Whether somebody is connected beside the test itself."""
        return self.control.ask("CLIENT", "LIST").count(b" laddr=") > 1

    def reset(self):
        for connection in list(self.links):
            self.drop(connection)
        end = time.monotonic() + 10
        while self.others():
            assert time.monotonic() < end, f"{self.name}: connections that were closed stay"
        self.ids = {}
        self.control.ask("FLUSHALL")


def projected(told):
    """What both say of a connection, of what `CLIENT LIST` says."""
    # No `d`: whether a watched key has changed, we look at EXEC. What is queued behind such a change Redis does not count.
    # No `e`: RESET leaves it in 7.0, and does not in 7.2.
    flags = re.sub("[de]", "", told["flags"]) or "N"
    multi = "within" if int(told["multi"]) >= 0 else "without"
    kept = " ".join(f"{name}={told[name]}" for name in ("name", "db", "sub", "psub", "cmd", "user", "resp"))
    return f"{kept} flags={flags} multi={multi}"


def is_waiting(line):
    return bool(re.search(r"flags=\w*b", line))


# --- what is meant to differ -------------------------------------------------------------------------


def ids(frames, server, commands):
    """Each server numbers its connections as it likes."""
    names = {number: connection for connection, number in server.ids.items()}

    def name(match):
        connection = names.get(int(match.group(1)))
        return match.group(0) if connection is None else b":<id of %d>\r\n" % connection

    return [re.sub(rb":(\d+)\r\n", name, frame) for frame in frames]


def versions(frames, server, commands):
    """HELLO says 7.2.4, as the commands are those of that version."""
    return [re.sub(rb"(\$7\r\nversion\r\n)\$\d+\r\n[0-9.]+\r\n", rb"\1$5\r\n<...>\r\n", frame) for frame in frames]


def client_lines(frames, server, commands):
    """CLIENT LIST and CLIENT INFO: of addresses, times and buffers each has its own."""

    def lines(match):
        text = match.group(2).decode()
        told = [dict(re.findall(r"([a-z-]+)=(\S*)", line)) for line in text.splitlines()]
        return match.group(1) + "".join(projected(line) + "\n" for line in told).encode()

    return [re.sub(rb"([$=])\d+\r\n((?:txt:)?id=\d+ addr=.*?\n)\r\n", lines, frame, flags=re.DOTALL) for frame in frames]


def own_messages(frames, server, commands):
    """What a connection of RESP3 publishes to itself comes behind the replies; Redis 7.0 tells it before that of PUBLISH, within
    EXEC in the midst of its array."""
    if not commands or not any(command[0] in ("PUBLISH", "EXEC") for command in commands):
        return frames
    data, messages, end = b"".join(frames), [], []
    if data.endswith(EOF):
        data, end = data[:-len(EOF)], [EOF]

    def taken(match):
        messages.append(match.group(0))
        return b""

    word = rb"\$\d+\r\n[^\r]*\r\n"
    data = re.sub(rb">3\r\n\$7\r\nmessage\r\n(?:%s){2}|>4\r\n\$8\r\npmessage\r\n(?:%s){3}" % (word, word), taken, data)
    return list(cut(data)) + messages + end


def cut(data):
    """One reply after the other."""
    at = 0
    while at < len(data) and (end := frame_end(data, at)) is not None:
        yield data[at:end]
        at = end


def unsubscribed(frames, server, commands):
    """Which subscription ends first, where all do, is nowhere said."""
    if not commands or not any(command[0] in ("UNSUBSCRIBE", "PUNSUBSCRIBE") and len(command) == 1 for command in commands):
        return frames
    pattern = rb"([>*]3\r\n\$\d+\r\np?unsubscribe\r\n)(\$.*\r\n)(:\d+\r\n)"
    places = [place for place, frame in enumerate(frames) if re.fullmatch(pattern, frame, re.DOTALL)]
    parts = [re.fullmatch(pattern, frames[place], re.DOTALL).groups() for place in places]
    frames = list(frames)
    names = sorted(name for _, name, _ in parts)
    for place, (word, _, count), name in zip(places, parts, names):
        frames[place] = word + name + count
    return frames


EXCEPTIONS = [own_messages, unsubscribed, ids, versions, client_lines]


def normal(frames, server, commands):
    for exception in EXCEPTIONS:
        frames = exception(frames, server, commands)
    return frames


# --- drawing a script ----------------------------------------------------------------------------------


class Step:
    """What one connection does: commands in one packet, or none where it closes."""

    def __init__(self, connection, commands, behind=False, timed=False, leaves=False):
        self.connection, self.commands = connection, commands
        # Also where the connection waits: it is carried out behind what it waits for.
        self.behind = behind
        # It ends by its own time.
        self.timed = timed
        # It closes behind the commands, and does not wait for their replies.
        self.leaves = leaves or not commands

    def less(self, at):
        """Without one of its commands."""
        commands = self.commands[:at] + self.commands[at + 1:]
        return Step(self.connection, commands, self.behind, self.timed, self.leaves)

    def __str__(self):
        words = [" ".join(map(text, command)) for command in self.commands] + ["(closes)"] * self.leaves
        return f"{self.connection}: " + " | ".join(words)


def text(word):
    return repr(word)[2:-1] if isinstance(word, bytes) else str(word)


LISTS, SETS, STREAMS = ["l1", "l2", "l3"], ["z1", "z2"], ["s1", "s2"]
# May hold anything.
ANY = "x1"
# Holds a string, where lists are moved or numbers counted in vain.
TEXT = "text"
# Of what is watched: a key that came and is gone again has not changed here, and has in Redis. So these are there at first
# and only change or go, and those come and never go.
GOING, COMING = ["w1", "w2"], ["w3", "w4"]
GROUPED = "g1"
# Each channel fits one pattern: in which order a message comes to who has several that fit, is nowhere said.
CHANNELS, PATTERNS = ["a1", "a2", "b1"], ["a*", "b*"]


def may_be_queued(command):
    """Not what is refused within MULTI; and not what Redis answers there with a part of a reply: it has told how many replies
    follow before CLIENT REPLY holds them back, and ends a connection that kills itself before them."""
    refused = ("HELLO", "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE")
    return command[0] not in refused and command[:2] != ["CLIENT", "REPLY"] and command[-2:] != ["SKIPME", "NO"]


class Model:
    """What the drawing believes of a connection; wrong where a command does something else than it is drawn for."""

    def __init__(self):
        self.version, self.subscribed, self.muted = 2, False, False
        self.multi, self.key = False, None
        # Whether it waits, for what type, and for which keys.
        self.blocked, self.kind, self.keys = False, None, []
        self.watched = []


class Drawing:
    """A script from a seed."""

    def __init__(self, seed, payloads, waits):
        self.random = random.Random(seed)
        self.payloads, self.waits = payloads, waits
        self.counter = itertools.count(1)
        self.count = self.random.randint(4, 6)
        # Who waits for several keys that one EXEC fills is given of the one that it has named first, and in Redis of the one
        # that was filled first: a script has either such waits or such transactions.
        self.many = self.random.random() < 0.6
        # Whoever reads for a group that goes is told so at another time than in Redis; and what comes and goes, see above.
        self.flushes = self.random.random() < 0.3
        # The fewer keys, the more wait for one.
        self.lists, self.sets, self.streams = self.some(LISTS), self.some(SETS), self.some(STREAMS)
        # What it is about beside the usual.
        self.weights = {
            "block": 5, "fill": 5, "look": 2, "multi": 2, "watch": 1, "pubsub": 1, "client": 2, "session": self.one(0, 1),
            "fault": 1, "pipeline": 3,
        }
        for kind in self.random.sample(["block", "multi", "watch", "pubsub", "client", "session"], 2):
            self.weights[kind] += 6
        self.models = {}
        # Whose replies may be held back: Redis 7.0 does not close such a connection behind the reply that it does not write.
        self.hushed = set()

    def script(self):
        steps = [Step(0, self.prologue())]
        for connection in range(self.count):
            self.models[connection] = Model()
            if self.random.random() < 0.5:
                self.models[connection].version = 3
                steps.append(Step(connection, [["HELLO", 3]]))
        for _ in range(self.random.randint(15, 45)):
            steps.extend(self.step())
        return steps

    def prologue(self):
        group = ["XGROUP", "CREATE", GROUPED, "group", "$", "MKSTREAM"]
        return [["SET", TEXT, "x"], ["SET", "w1", "first"], ["RPUSH", "w2", "first"], group]

    def one(self, *choices):
        return self.random.choice(choices)

    def value(self):
        return f"v{next(self.counter)}"

    def values(self):
        return [self.value() for _ in range(self.random.randint(1, 3))]

    def some(self, names, most=3):
        return self.random.sample(names, self.random.randint(1, min(most, len(names))))

    def step(self):
        # The first two never wait, so that somebody always acts.
        free = [connection for connection, model in self.models.items() if not model.blocked]
        connection = self.random.choice(free if self.random.random() < 0.9 else list(self.models))
        model = self.models[connection]
        if self.random.random() < (0.06 if connection > 1 else 0.01):
            step = Step(connection, [])
            if model.multi or model.blocked or self.random.random() < 0.6:
                self.hushed.discard(connection)
            else:
                wait = Step(connection, [self.wait(connection)])
                step = self.one(Step(connection, [self.fill()]), self.pipeline(connection), wait)
                # WAIT never waits in such a Redis; here it does, and what is behind it is dropped with who leaves meanwhile.
                step.commands = [command for command in step.commands if command[0] != "WAIT"]
                step.leaves = True
            self.models[connection] = Model()
            return [step]
        if model.blocked:
            model.blocked = self.random.random() < 0.7
            return [Step(connection, self.behind(connection), behind=True)]
        if model.subscribed and model.version == 2 and self.random.random() < 0.9:
            return [Step(connection, [self.subscribed(connection)])]
        if model.muted and self.random.random() < 0.3:
            model.muted = False
            return [Step(connection, [["CLIENT", "REPLY", "ON"]])]
        if model.multi:
            if self.random.random() < 0.3:
                model.multi, model.key = False, None
                return [Step(connection, [[self.random.choices(["EXEC", "DISCARD", "RESET"], [10, 1, 1])[0]]])]
            return [Step(connection, [self.queued(connection) for _ in range(self.random.choice([1, 1, 2]))])]
        if model.watched and self.random.random() < 0.3:
            return [Step(connection, self.transaction(connection))]
        kind = self.random.choices(list(self.weights), list(self.weights.values()))[0]
        if kind == "block":
            return self.blocking_step(connection)
        if kind == "fill":
            return [Step(connection, [self.fill()])]
        if kind == "multi":
            if self.random.random() < 0.4:
                model.multi = True
                return [Step(connection, [["MULTI"]])]
            return [Step(connection, self.transaction(connection))]
        if kind == "pipeline":
            return [self.pipeline(connection)]
        return [Step(connection, [self.plain(kind, connection)])]

    def plain(self, kind, connection):
        """A command that fills nothing for which somebody may wait, and does not wait."""
        return getattr(self, kind)(connection)

    def any_plain(self, connection, within=False):
        kinds = ("look", "watch", "pubsub", "client", "fault")
        command = self.plain(self.random.choices(kinds, [self.weights[kind] for kind in kinds])[0], connection)
        if not within:
            return command
        fits = may_be_queued(command) and command[0] not in ("WATCH", "EXEC", "DISCARD")
        return command if fits else ["STRLEN", "w1"]

    def pipeline(self, connection):
        """Several commands in one packet."""
        commands = [self.any_plain(connection) for _ in range(self.random.randint(1, 4))]
        if self.random.random() < 0.3:
            commands += [self.fill() for _ in range(self.random.randint(1, 3))] + [self.look(connection), self.fill()]
            self.random.shuffle(commands)
            return Step(connection, commands)
        last = self.random.choices(["fill", "transaction", "block"], [5, 3, 2 if connection > 1 else 0])[0]
        if last == "fill":
            commands.append(self.fill())
        elif last == "transaction":
            commands += self.transaction(connection)
        else:
            commands.append(self.wait(connection))
            commands += [self.private(connection) for _ in range(self.random.randint(0, 2))]
        return Step(connection, commands)

    # --- one command of a kind

    def private(self, connection):
        """Touches nothing that another connection sees."""
        own = f"own{connection}"
        return self.one(["PING"], ["ECHO", self.value()], ["CLIENT", "ID"], ["CLIENT", "GETNAME"], ["INCR", own], ["GET", own])

    def behind(self, connection):
        """What is sent to be carried out behind a command that waits. Who is served goes on at once, and in Redis once all are
        served: so it wants nothing that others wait for, but of another type."""
        commands = [self.private(connection) for _ in range(self.random.randint(1, 2))]
        kind = self.random.choices(["nothing", "wait", "multi", "end"], [6, 2, 2, 1])[0]
        if kind == "wait" and self.models[connection].kind in ("list", "set"):
            other = "set" if self.models[connection].kind == "list" else "list"
            command, _, keys = self.blocking(other)
            self.models[connection].kind, self.models[connection].keys = None, keys
            return [*commands, command]
        if kind == "multi":
            return [["MULTI"], *commands, ["EXEC"]]
        if kind == "end":
            return [*commands, self.farewell(connection)]
        return commands

    def farewell(self, connection):
        return ["RESET"] if connection in self.hushed else [self.one("QUIT", "RESET")]

    def fill(self):
        """Gives a key something that somebody may wait for."""
        kind = self.random.choices(["list", "set", "stream"], [5, 3, 3])[0]
        key = ANY if self.random.random() < 0.2 else None
        waiting = [model for model in self.models.values() if model.blocked and model.keys]
        if waiting and self.random.random() < 0.7:
            model = self.random.choice(waiting)
            kind, key = model.kind or kind, self.random.choice(model.keys)
            # It may have been served by then.
            model.blocked = self.random.random() < 0.4
        # Each key but one holds one type.
        kind = {"l": "list", "z": "set", "s": "stream", "g": "stream"}.get((key or "")[:1], {"move": "list"}.get(kind, kind))
        # What is stored over a value of another type Redis tells nobody who waits; here it is popped.
        store = key != ANY
        if kind == "list":
            key, other = key or self.one(*self.lists), self.one(*self.lists, ANY)
            stored = [["SORT", other, "ALPHA", "STORE", key], ["SORT", other, "BY", "nosort", "STORE", key]]
            return self.one(
                ["LPUSH", key, *self.values()],
                ["RPUSH", key, *self.values()],
                ["LPUSH", key, self.value()],
                ["RPUSH", key, self.value()],
                ["LMOVE", other, key, self.one("LEFT", "RIGHT"), self.one("LEFT", "RIGHT")],
                ["RPOPLPUSH", other, key],
                self.whole(self.one(*self.lists), key, "list"),
                *(stored if store else []),
            )
        if kind == "set":
            key, other = key or self.one(*self.sets), self.one(*self.sets, ANY)
            stored = [
                ["ZUNIONSTORE", key, 2, other, self.one(*self.sets)], ["ZRANGESTORE", key, other, 0, 1],
                ["ZDIFFSTORE", key, 2, other, self.one(*self.sets)],
            ]
            return self.one(
                ["ZADD", key, *[word for value in self.values() for word in (self.random.randint(1, 9), value)]],
                ["ZADD", key, self.random.randint(1, 9), self.value()],
                ["ZADD", key, "NX", "CH", 5, self.one("m", "n")],
                ["ZINCRBY", key, 2, self.one("m", "n")],
                *(stored if store else []),
                ["GEOADD", key, 13.5, 38.25, "p"],
                self.whole(self.one(*self.sets), key, "set"),
            )
        key, other = key or self.one(*self.streams, GROUPED), self.one(*self.streams)
        if key == GROUPED or self.random.random() < 0.7:
            return ["XADD", key, *self.one([], ["NOMKSTREAM"], ["MAXLEN", 3]), f"{next(self.counter)}-1", "f", self.value()]
        return self.whole(other, key, "stream")

    def whole(self, other, key, kind):
        """Puts a whole value in the place of a key."""
        return self.one(
            ["RENAME", other, key], ["RENAMENX", other, key], ["COPY", other, key], ["COPY", other, key, "REPLACE"],
            ["RESTORE", key, 0, self.payloads[kind]], ["RESTORE", key, 0, self.payloads[kind], "REPLACE"],
        )

    def look(self, connection=None):
        """Looks at a key, takes something from it, or deletes it."""
        key = self.one(*self.lists, *self.sets, *self.streams, ANY)
        by_kind = {
            "l": [["LPOP", key], ["RPOP", key, 2], ["LLEN", key], ["LRANGE", key, 0, -1], ["LTRIM", key, 0, 0],
                  ["LPUSHX", key, self.value()]],
            "z": [["ZPOPMIN", key], ["ZPOPMAX", key, 2], ["ZRANGE", key, 0, -1, "WITHSCORES"], ["ZREM", key, "m"]],
            "s": [["XLEN", key], ["XRANGE", key, "-", "+"], ["XREAD", "STREAMS", key, 0], ["XTRIM", key, "MAXLEN", 1]],
            "x": [["SET", key, self.value()], ["SADD", key, self.value()], ["GET", key], ["GETDEL", key], ["LPOP", key]],
        }
        return self.one(*by_kind[key[0]], ["DEL", key], ["UNLINK", key], ["TYPE", key], ["EXISTS", key, self.one(*self.lists)])

    def blocking(self, kind=None):
        """A command that waits for ever, for what type, and for which keys."""
        lists, sets, streams = [*self.lists, ANY], [*self.sets, ANY], [*self.streams, ANY]
        most = 1 if self.many else 3
        kind = kind or self.random.choices(["list", "move", "set", "stream", "group"], [6, 3, 4, 3, 0 if self.flushes else 2])[0]
        # Now and then also for a key of a type for which this is no wait.
        stray = [self.one(*self.lists, *self.sets, *self.streams)] if not self.many and self.random.random() < 0.15 else []
        if kind in ("list", "set"):
            keys = [*self.some(lists if kind == "list" else sets, most), *stray]
            pop = self.one(*{"list": ("BLPOP", "BRPOP"), "set": ("BZPOPMIN", "BZPOPMAX")}[kind])
            several = {"list": ["BLMPOP", self.one("LEFT", "RIGHT")], "set": ["BZMPOP", self.one("MIN", "MAX")]}[kind]
            several = [several[0], 0, len(keys), *keys, several[1]]
            command = self.one([pop, *keys, 0], [pop, *keys, 0], several, [*several, "COUNT", self.random.randint(1, 3)])
        elif kind == "move":
            # Who waits for several keys, and one of them is filled by another's move, is given as of an EXEC that fills both.
            source, target = self.one(*lists), self.one(*(lists if self.many else ["away"]), TEXT)
            sides = [self.one("LEFT", "RIGHT"), self.one("LEFT", "RIGHT")]
            keys, command = [source], self.one(["BLMOVE", source, target, *sides, 0], ["BRPOPLPUSH", source, target, 0])
        elif kind == "stream":
            # Of a stream that is named twice Redis 7.0 tells once, 7.2 twice.
            keys = list(dict.fromkeys([*self.some(streams, most), *stray]))
            after = [self.one("$", "$", "0", f"{next(self.counter)}-0") for _ in keys]
            command = ["XREAD", *self.one([], [], ["COUNT", 1]), "BLOCK", 0, "STREAMS", *keys, *after]
        else:
            options = [*self.one([], ["COUNT", 1]), "BLOCK", 0, *self.one([], ["NOACK"])]
            keys, command = [GROUPED], ["XREADGROUP", "GROUP", "group", self.one("one", "two"), *options, "STREAMS", GROUPED, ">"]
        return command, kind, keys

    def wait(self, connection):
        model = self.models[connection]
        command, model.kind, model.keys = self.blocking()
        model.blocked = True
        return command

    def blocking_step(self, connection):
        if self.random.random() < 0.05:
            command = self.one(
                ["BLPOP", "nothing", 0.01], ["BZPOPMIN", "nothing", 0.01], ["BLMPOP", 0.01, 1, "nothing", "LEFT"],
                ["BLMOVE", "nothing", "l1", "LEFT", "LEFT", 0.01], ["XREAD", "BLOCK", 10, "STREAMS", "nothing", "$"],
            )
            return [Step(connection, [command, ["PING"]], timed=True)]
        if connection < 2:
            return [Step(connection, [self.fill()])]
        return [Step(connection, [self.wait(connection)])]

    def queued(self, connection):
        """A command within MULTI."""
        model = self.models[connection]
        kind = self.random.choices(["fill", "look", "block", "plain", "spoil"], [6, 3, 1, 4, 0.4])[0]
        if kind == "fill":
            if self.many:
                return self.fill()
            model.key = model.key or self.one(*self.lists, *self.sets, *self.streams, ANY)
            if model.key in self.sets:
                return ["ZADD", model.key, self.random.randint(1, 9), self.value()]
            if model.key in self.streams:
                return ["XADD", model.key, f"{next(self.counter)}-1", "f", self.value()]
            return [self.one("LPUSH", "RPUSH"), model.key, *self.values()]
        if kind == "look":
            return self.quiet_look()
        if kind == "block":
            # A move fills another key.
            command, _, _ = self.blocking()
            return command if command[0] not in ("BLMOVE", "BRPOPLPUSH", "XREADGROUP") or self.many else ["BLPOP", "l1", 0]
        if kind == "spoil":
            return self.one(["GET"], ["NOSUCH", "a"], ["MULTI"], ["WATCH", "w1"], ["CLIENT", "NOSUCH"])
        return self.any_plain(connection, within=True)

    def quiet_look(self):
        # Who reads a stream to which an entry came and from which it is gone waits on, and is told of nothing by Redis.
        while (command := self.look())[1] in [*self.streams, ANY]:
            pass
        return command

    def transaction(self, connection):
        """A whole transaction in one packet."""
        self.models[connection].key = None
        commands = [self.queued(connection) for _ in range(self.random.randint(1, 5))]
        self.models[connection].key, self.models[connection].watched = None, []
        return [["MULTI"], *commands, ["EXEC"]]

    def watch(self, connection):
        """Watches, or changes what may be watched."""
        model = self.models[connection]
        watched = [key for other in self.models.values() for key in other.watched]
        if watched and self.random.random() < 0.6:
            # Only what is there now, or only what is not.
            key, value = self.random.choice(watched), self.value()
            changes = {
                "w1": [["DEL", key], ["SET", key, value, "XX"], ["PEXPIRE", key, 1_000_000 + next(self.counter)]],
                "w2": [["DEL", key], ["RPUSHX", key, value], ["PERSIST", key], ["LREM", key, 0, "first"]],
                "w3": [["INCR", key], ["APPEND", key, next(self.counter)]],
                "w4": [["SET", key, value], ["SADD", key, value]],
            }
            if self.flushes:
                changes |= {"w3": [["FLUSHALL"], ["TYPE", key]], "w4": [["FLUSHDB"], ["TYPE", key]]}
            return self.random.choice(changes[key])
        if self.random.random() < 0.1:
            model.watched = []
            return ["UNWATCH"]
        keys = self.some([*GOING, *COMING])
        if not model.multi:
            model.watched = model.watched + keys
        return ["WATCH", *keys]

    def pubsub(self, connection):
        model = self.models[connection]
        command = self.one(
            ["SUBSCRIBE", *self.some(CHANNELS)], ["PSUBSCRIBE", *self.some(PATTERNS)], ["SUBSCRIBE", self.one(*CHANNELS)],
            ["UNSUBSCRIBE", *self.some(CHANNELS)], ["PUNSUBSCRIBE"], ["UNSUBSCRIBE"],
            *[["PUBLISH", self.one(*CHANNELS), self.value()]] * 6,
            ["PUBSUB", "NUMSUB", *CHANNELS], ["PUBSUB", "NUMPAT"], ["PUBSUB", "CHANNELS", self.one(*CHANNELS)],
        )
        if command[0] in ("SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE"):
            model.subscribed = model.subscribed or "UN" not in command[0]
        return command

    def subscribed(self, connection):
        """What may be said in RESP2 by who has subscribed, and now and then what may not."""
        model = self.models[connection]
        command = self.one(
            ["PING"], ["PING", self.value()], ["SUBSCRIBE", *self.some(CHANNELS)], ["PSUBSCRIBE", *self.some(PATTERNS)],
            ["UNSUBSCRIBE", *self.some(CHANNELS)], ["UNSUBSCRIBE"], ["PUNSUBSCRIBE"], ["GET", "own"], self.farewell(connection),
            ["PUBLISH", "a1", "x"],
        )
        if command[0] in ("RESET", "QUIT"):
            self.models[connection] = Model()
        elif command[0] in ("UNSUBSCRIBE", "PUNSUBSCRIBE"):
            model.subscribed = self.random.random() < 0.3
        return command

    def client(self, connection):
        blocked = [other for other, model in self.models.items() if model.blocked and other != connection]
        other = self.random.choice(blocked) if blocked and self.random.random() < 0.8 else self.random.randrange(self.count)
        model = self.models[connection]
        command = self.random.choice([
            *[["CLIENT", "UNBLOCK", Id(other), *self.one([], ["TIMEOUT"], ["ERROR"])]] * 4,
            ["CLIENT", "KILL", "ID", Id(other)], ["CLIENT", "KILL", "ID", Id(other), "SKIPME", "NO"],
            ["CLIENT", "REPLY", "OFF"], ["CLIENT", "REPLY", "SKIP"], ["CLIENT", "REPLY", "SKIP"], ["CLIENT", "REPLY", "ON"],
            ["CLIENT", "SETNAME", self.value()], ["CLIENT", "SETNAME", ""], ["CLIENT", "GETNAME"], ["CLIENT", "ID"],
            ["CLIENT", "NO-EVICT", self.one("ON", "OFF")], ["CLIENT", "INFO"],
            ["CLIENT", "LIST", "ID", *[Id(each) for each in range(self.count)]],
            ["PING"], ["ECHO", self.value()], *self.waits,
        ])
        if command[1:2] == ["REPLY"]:
            model.muted = command[2] == "OFF"
            self.hushed.add(connection)
        if command[-2:] == ["SKIPME", "NO"] and connection in self.hushed:
            return ["PING"]
        return command

    def session(self, connection):
        model = self.models[connection]
        command = self.one(["HELLO", 2], ["HELLO", 3], ["HELLO"], ["HELLO", 3, "SETNAME", self.value()],
                           self.farewell(connection), self.farewell(connection), ["SELECT", 0])
        if command[0] in ("RESET", "QUIT"):
            self.models[connection] = Model()
        elif command[0] == "HELLO" and len(command) > 1:
            model.version = command[1]
        return command

    def fault(self, connection):
        return self.one(
            ["NOSUCH", "a", "b"], ["GET"], ["EXEC"], ["DISCARD"], ["LPUSH", TEXT, "x"], ["INCR", TEXT], ["HELLO", 4],
            ["BLPOP", "l1", "x"], ["BLPOP", "l1", -1], ["BLMPOP", 0, 0, "l1", "LEFT"], ["XREAD", "BLOCK", -1, "STREAMS", "s1", 0],
            ["CLIENT", "UNBLOCK", "x"], ["CLIENT", "REPLY", "MAYBE"], ["CLIENT", "KILL", "ID", 0], ["PUBSUB", "NOSUCH"],
            ["SUBSCRIBE"],
        )


# --- running it ----------------------------------------------------------------------------------------


# These give a key something that somebody may wait for.
FILLS = {
    "LPUSH", "RPUSH", "LMOVE", "RPOPLPUSH", "SORT", "RENAME", "RENAMENX", "COPY", "RESTORE", "ZADD", "ZINCRBY", "ZUNIONSTORE",
    "ZRANGESTORE", "ZDIFFSTORE", "GEOADD", "XADD", "EXEC",
}


def fills_last(commands, within):
    """Whether nothing stands behind what fills. Who waits is served by a command of its own, and what is sent behind that in one
    packet may come before it: such packets are sent only while nobody waits."""
    for place, (name, *_) in enumerate(commands):
        if name in FILLS and (not within or name == "EXEC") and place < len(commands) - 1:
            return False
        within = name == "MULTI" or (within and name not in ("EXEC", "DISCARD", "RESET"))
    return True


class Difference(Exception):
    """The two have answered differently: at which step, and what."""

    def __init__(self, at, told):
        self.at, self.told = at, told


class Pair:
    """Redis, and ours."""

    def __init__(self, theirs, ours, waits):
        self.theirs, self.ours = theirs, ours
        self.patience = PATIENCE
        # Of three nodes WAIT tells another number than of one.
        self.waits = [["WAIT", 0, 0]] if waits else []
        self.payloads = {
            "list": self.dumped("RPUSH", "k", "r1", "r2"),
            "set": self.dumped("ZADD", "k", 1, "r1", 2, "r2"),
            "stream": self.dumped("XADD", "k", "5-1", "f", "r"),
        }

    def dumped(self, *command):
        """What Redis dumps of a key that this command has made."""
        self.theirs.control.ask(*command)
        dumped = self.theirs.control.ask("DUMP", "k")
        self.theirs.control.ask("DEL", "k")
        return dumped[dumped.index(b"\r\n") + 2:-2]

    def draw(self, seed):
        return Drawing(seed, self.payloads, self.waits).script()

    def run(self, steps):
        """Runs a script on both."""
        for server in (self.theirs, self.ours):
            server.reset()
        # All are there from the beginning, so that each can be named.
        words = (word for step in steps for command in step.commands for word in command)
        named = {word.connection for word in words if isinstance(word, Id)}
        for connection in sorted(named | {step.connection for step in steps}):
            for server in (self.theirs, self.ours):
                server.link(connection)
        listed = {}
        for at, step in enumerate(steps):
            waiting = {connection for connection, line in listed.items() if is_waiting(line)}
            within = "multi=within" in listed.get(step.connection, "")
            if step.connection in waiting and step.commands and not step.behind:
                continue
            if within and not all(map(may_be_queued, step.commands)):
                continue
            if waiting and not fills_last(step.commands, within):
                continue
            for server in (self.theirs, self.ours):
                self.act(server, step)
            listed = self.compare(at, step, len(waiting))
        self.compare_keys(len(steps))

    def act(self, server, step):
        link = server.link(step.connection)
        link.send(b"".join(packet(command, server.ids) for command in step.commands))
        if step.leaves:
            server.drop(step.connection)

    def compare(self, at, step, waiters):
        """That a step was the same on both; what Redis lists after it."""
        theirs, ours = self.theirs, self.ours
        # Redis does everything in one thread: what it was sent before the first question it has done, and all that comes of
        # that is written, when it answers the second; and who has left has left when it answers a third.
        theirs.listed()
        theirs.listed()
        while is_waiting((expected_list := theirs.listed()).get(step.connection, "")) and step.timed:
            time.sleep(0.005)
        theirs.take_in()
        expected = self.told(theirs, step)
        # Ours may take longer. Once as much has come there as in Redis, what more it may do of itself has ended when it has
        # carried out some writes, one after the other: who waits is served by commands, and each of these may lead to the next.
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            ours.take_in()
            missing = [link for connection, link in ours.links.items() if len(link.frames) < len(expected[connection])]
            if not missing:
                break
            select.select([link.socket for link in missing if not link.closed], [], [], max(0, end - time.monotonic()))
        moves = step.leaves or any(command[0] in FILLS | {"BLMOVE", "BRPOPLPUSH", "CLIENT"} for command in step.commands)
        for _ in range(1 + 3 * waiters if moves else 1):
            ours.control.ask("DEL", "barrier")
        while True:
            found_list = ours.listed()
            ours.take_in()
            found = self.told(ours, step)
            if (found, found_list) == (expected, expected_list) or time.monotonic() > end:
                break
            time.sleep(0.002)
        told = []
        for connection in sorted(expected):
            if found[connection] != expected[connection]:
                told.append((f"connection {connection}", b"".join(expected[connection]), b"".join(found[connection])))
        for connection in sorted(expected_list.keys() | found_list.keys()):
            theirs_of, ours_of = (lists.get(connection, "(gone)") for lists in (expected_list, found_list))
            if theirs_of != ours_of:
                told.append((f"CLIENT LIST of {connection}", theirs_of.encode(), ours_of.encode()))
        if told:
            raise Difference(at, told)
        for server in (theirs, ours):
            for connection, link in list(server.links.items()):
                link.frames.clear()
                if link.closed:
                    server.drop(connection)
        return expected_list

    def told(self, server, step):
        """What came at each connection."""
        commands = {step.connection: step.commands}
        return {connection: normal(link.frames, server, commands.get(connection)) for connection, link in server.links.items()}

    def compare_keys(self, at):
        looks = {
            b"string": ["GET"], b"list": ["LRANGE", 0, -1], b"zset": ["ZRANGE", 0, -1, "WITHSCORES"],
            b"stream": ["XRANGE", "-", "+"],
        }
        told = []
        own = [f"own{connection}" for connection in range(6)]
        for key in [*LISTS, *SETS, *STREAMS, ANY, TEXT, "away", *GOING, *COMING, GROUPED, *own]:
            found = theirs, ours = [server.control.ask("TYPE", key) for server in (self.theirs, self.ours)]
            look = looks.get(theirs[1:-2])
            if look and theirs == ours:
                found = [server.control.ask(look[0], key, *look[1:]) for server in (self.theirs, self.ours)]
            if found[0] != found[1]:
                told.append((f"key {key}", *found))
        if told:
            raise Difference(at, told)

    def differs(self, steps):
        """How they differ, where they do."""
        try:
            self.run(steps)
        except Difference as difference:
            return difference
        return None

    def shrunk(self, steps, difference, seconds=120):
        """A script that differs still, and as short as dropping steps and commands makes it."""
        end = time.monotonic() + seconds
        self.patience = 0.5
        steps = steps[:difference.at + 1]
        size = max(1, len(steps) // 2)
        while size and time.monotonic() < end:
            at = len(steps) - size
            while at >= 0 and time.monotonic() < end:
                fewer = steps[:at] + steps[at + size:]
                if found := self.differs(fewer):
                    steps, difference = fewer[:found.at + 1], found
                    at = min(at, len(steps))
                at -= size
            size //= 2
        for at in range(len(steps) - 1, -1, -1):
            for place in range(len(steps[at].commands) - 1, -1, -1):
                if len(steps[at].commands) > 1 and time.monotonic() < end:
                    fewer = steps[:at] + [steps[at].less(place)] + steps[at + 1:]
                    if found := self.differs(fewer):
                        steps, difference = fewer, found
        self.patience = PATIENCE
        return steps, self.differs(steps) or difference

    def report(self, seed):
        """What is wrong with a seed; none where nothing is."""
        steps = self.draw(seed)
        difference = self.differs(steps)
        if difference is None:
            return None
        steps, difference = self.shrunk(steps, difference)
        lines = [f"seed {seed}:", *[f"  {step}" for step in steps]]
        for what, theirs, ours in difference.told:
            lines += [f"  {what}:", f"    Redis: {theirs!r}", f"    ours:  {ours!r}"]
        return "\n".join(lines)


# --- the servers ---------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(name, port, command):
    """A server that answers on this port, for as long as the block lasts."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            try:
                server = Server(name, port)
                break
            except OSError:
                assert time.monotonic() < end, f"{command} does not answer"
                time.sleep(0.02)
        yield server
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def one_of_three(binary, protocol):
    """The first of three nodes, next to one another."""
    command = [binary, "up", str(ROOT / "deployments" / "one-room.toml"), "--protocol", protocol,
               "--plain", "--format", "json", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        ready = json.loads(process.stdout.readline())
        yield Server("ours", int(ready["regions"][0]["redis"].rsplit(":", 1)[1]))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


@contextlib.contextmanager
def both(binary, protocol=None):
    theirs, ours = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        redis = ["redis-server", "--port", str(theirs), "--save", "", "--appendonly", "no", "--dir", folder]
        theirs = stack.enter_context(serving("Redis", theirs, redis))
        if protocol:
            ours = stack.enter_context(one_of_three(binary, protocol))
        else:
            ours = stack.enter_context(serving("ours", ours, [binary, "redis", "--dir", f"{folder}/data", "--port", str(ours)]))
        yield Pair(theirs, ours, protocol is None)


def check(binary, seeds):
    """That all is the same with these seeds, for the tests beside this one."""
    with both(binary) as pair:
        for seed in seeds:
            wrong = pair.report(seed)
            assert wrong is None, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the isochrone program")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--protocol", help="against one of three nodes on this protocol")
    parser.add_argument("--show", action="store_true", help="print the script of the seed")
    arguments = parser.parse_args()
    if not shutil.which("redis-server"):
        sys.exit("there is no redis-server to compare with")
    seeds = range(arguments.first, arguments.first + arguments.seeds) if arguments.seed is None else [arguments.seed]
    failed = 0
    with both(str(pathlib.Path(arguments.binary).resolve()), arguments.protocol) as pair:
        for seed in seeds:
            if arguments.show:
                print(*pair.draw(seed), sep="\n")
            if wrong := pair.report(seed):
                failed += 1
                print(wrong, flush=True)
    print(f"{len(seeds) - failed} seeds passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
