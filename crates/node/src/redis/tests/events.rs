//! Keyspace notifications: which events a command makes, and who is told.

use super::{World, encode, encode_line};
use crate::gateway::{Ask, Login, Outcome};
use crate::hub::{Notice, Topic};
use crate::redis::spec::flag;
use crate::redis::table::COMMANDS;
use isochrone_core::command::{Operation, Side};
use isochrone_core::notify::Flags;
use isochrone_core::{Command, KeyspaceId, Span, StateMachine};
use isochrone_store::Store;
use std::collections::BTreeSet;

/// Who listens.
const LISTENER: u64 = 9;

/// A connection and a store, without a protocol between them, and one that listens to all events.
struct Stage {
    world: World,
    store: Store,
    /// What was answered to the last line.
    answered: String,
}

fn flags(letters: &str) -> Flags {
    Flags::parse(letters.as_bytes()).unwrap()
}

impl Stage {
    fn new(letters: &str) -> Stage {
        let mut world = World::new(Login::Open);
        world.hub.set_notifies(flags(letters));
        world.hub.subscribe(LISTENER, Topic::Pattern, &"__key*".into());
        Stage { world, store: Store::default(), answered: String::new() }
    }

    /// What is told of these commands, channel and message each.
    fn told(&mut self, line: &str) -> Vec<String> {
        for command in line.split(" ; ") {
            let words: Vec<Vec<u8>> = command.split(' ').map(word).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.world.receive(&encode(&words));
            self.carry_out();
        }
        self.answered = String::from_utf8_lossy(&std::mem::take(&mut self.world.out)).into_owned();
        self.hear()
    }

    /// Executes what the connection asks for, until it asks for nothing more.
    fn carry_out(&mut self) {
        while !self.world.requests.is_empty() {
            let request = self.world.requests.remove(0);
            let Ask::Execute { command, .. } = request.ask else { panic!("nobody logs in") };
            let read = Store::reads_only(&command).then(|| self.store.read(&command)).flatten();
            let response = read.unwrap_or_else(|| self.store.apply(&command));
            self.world.answer(request.id, Outcome::Done(response));
        }
    }

    fn hear(&mut self) -> Vec<String> {
        self.world.hub.hear(self.world.now);
        let told = self.world.hub.take_mail().into_iter().filter_map(|(connection, notice)| match notice {
            Notice::Message { channel, payload, .. } if connection == LISTENER => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Some(format!("{} {}", text(&channel), text(&payload)))
            }
            _ => None,
        });
        told.collect()
    }
}

/// A word, or bytes as digits.
fn word(text: &str) -> Vec<u8> {
    let Some(digits) = text.strip_prefix("hex:") else { return text.as_bytes().to_vec() };
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// The commands of a line of `redis_events.txt`, and the events. They were taken down from redis-server 7.0.15, one line after the
/// other.
fn lines() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    include_str!("redis_events.txt").lines().map(|line| {
        let (commands, events) = line.split_once(" =>").unwrap();
        let events = events.split(',').map(str::trim).filter(|event| !event.is_empty());
        (commands, events.collect())
    })
}

#[test]
fn commands_make_the_events_of_redis() {
    let mut stage = Stage::new("KAnm");
    let mut wrong = String::new();
    for (commands, mut expected) in lines() {
        let told = stage.told(commands);
        let mut told: Vec<&str> =
            told.iter().map(|told| told.strip_prefix("__keyspace@0__:").unwrap_or(told)).collect();
        // Of several keys, in any order.
        told.sort_unstable();
        expected.sort_unstable();
        if told != expected {
            wrong.push_str(&format!("{commands}\n  redis {expected:?}\n  here  {told:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// What writes and has no line of its own there, and why.
const SILENT: &[(&str, &str)] = &[
    ("flushall flushdb xack", "Redis tells nothing of them"),
    ("xautoclaim xclaim xreadgroup", "Redis tells that they make a consumer, which their answers do not"),
    ("georadius georadiusbymember", "what they store is told as GEOSEARCHSTORE does"),
];

#[test]
fn whatever_writes_makes_an_event() {
    let mut told = BTreeSet::new();
    for (commands, events) in lines().filter(|(commands, _)| !commands.contains(" ; ")) {
        if !events.is_empty() {
            let words: Vec<String> = commands.split(' ').map(str::to_ascii_lowercase).collect();
            told.insert(words[0].clone());
            told.extend(words.get(1).map(|word| format!("{}|{word}", words[0])));
        }
    }
    let silent: BTreeSet<&str> = SILENT.iter().flat_map(|(names, _)| names.split(' ')).collect();
    let specs = COMMANDS.iter().copied().flatten();
    let writing: BTreeSet<&str> = specs
        .flat_map(|spec| std::iter::once(spec).chain(spec.children()))
        .filter(|spec| spec.is(flag::WRITE))
        .map(|spec| spec.name)
        .collect();
    for name in &writing {
        assert!(told.contains(*name) != silent.contains(name), "{name}: told of, or excused");
    }
    assert!(silent.is_subset(&writing), "{silent:?}");
}

#[test]
fn classes_and_channels_are_those_that_are_wanted() {
    let mut stage = Stage::new("KE$x");
    assert_eq!(stage.told("SET a 1 PX 100"), ["__keyspace@0__:a set", "__keyevent@0__:set a"]);
    assert_eq!(stage.answered, "+OK\r\n");
    stage.world.pass(Span::from_secs(1));
    // Once, whether it is read or written.
    assert_eq!(stage.told("GET a"), ["__keyspace@0__:a expired", "__keyevent@0__:expired a"]);
    assert_eq!(stage.answered, "$-1\r\n");
    assert_eq!(stage.told("GET a ; DEL a"), Vec::<String>::new());
    stage.told("MSET a 1 b 2 ; PEXPIRE a 1 ; PEXPIRE b 1");
    stage.world.pass(Span::from_secs(1));
    stage.world.hub.set_notifies(flags("Ex"));
    assert_eq!(
        stage.told("MULTI ; RPUSH a x ; MGET b a ; EXEC"),
        ["__keyevent@0__:expired a", "__keyevent@0__:expired b"]
    );
    assert_eq!(
        stage.answered, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n*2\r\n$-1\r\n$-1\r\n",
        "the answer is as ever"
    );
}

#[test]
fn who_does_not_listen_costs_nothing() {
    for (letters, topic, name) in [
        ("KEA", Topic::Channel, "news"),
        ("KEA", Topic::Pattern, "news*"),
        ("KEA", Topic::Shard, "__keyspace@0__:a"),
        ("A", Topic::Pattern, "*"),
        ("KE", Topic::Pattern, "*"),
    ] {
        let mut world = World::new(Login::Open);
        world.hub.set_notifies(flags(letters));
        world.hub.subscribe(LISTENER, topic, &name.into());
        world.receive(&encode_line("LPOP a"));
        let [request] = &world.requests[..] else { panic!("{:?}", world.requests) };
        let Ask::Execute { command, .. } = &request.ask else { panic!("{request:?}") };
        assert!(matches!(command.operation, Operation::Pop { .. }), "{letters} {name}: {command:?}");
    }
    // Nor does a read, where changes alone are wanted.
    let mut stage = Stage::new("KEg");
    stage.world.receive(&encode_line("GET a"));
    let Ask::Execute { command, .. } = &stage.world.requests[0].ask else { panic!("nobody logs in") };
    assert!(matches!(command.operation, Operation::Get { .. }), "{command:?}");
}

#[test]
fn what_nobody_knows_to_have_happened_is_not_told() {
    let mut stage = Stage::new("KEAm");
    for outcome in [Outcome::Unknown("no answer in time".into()), Outcome::Refused("TRYAGAIN".into())] {
        stage.world.receive(&encode_line("SET a 1"));
        let id = stage.world.requests.remove(0).id;
        stage.world.answer(id, outcome);
        assert_eq!(stage.hear(), Vec::<String>::new());
    }
    // Nor what a watched key has kept from being executed.
    stage.told("WATCH a");
    let set = Operation::IncrBy { key: "a".into(), by: 1 };
    stage.store.apply(&Command::new(stage.world.stamp, set));
    assert_eq!(stage.told("MULTI ; SET a 2 ; EXEC"), Vec::<String>::new());
    assert_eq!(stage.answered, "+OK\r\n+QUEUED\r\n*-1\r\n");
}

#[test]
fn what_has_waited_makes_its_events_when_it_is_served() {
    let mut stage = Stage::new("KA");
    assert_eq!(stage.told("BLMOVE queue done LEFT RIGHT 0"), Vec::<String>::new());
    let (key, values, side) = ("queue".into(), ["job".into()].into(), Side::Left);
    let push = Operation::Push { key, values, side, only_if_exists: false };
    stage.store.apply(&Command::new(stage.world.stamp, push));
    stage.world.hub.filled(KeyspaceId(1), &"queue".into(), 1, stage.world.now);
    stage.world.deliver();
    stage.carry_out();
    assert_eq!(
        stage.hear(),
        ["__keyspace@0__:done rpush", "__keyspace@0__:queue lpop", "__keyspace@0__:queue del"]
    );
    assert_eq!(stage.world.out, b"$3\r\njob\r\n");
}

#[test]
fn flags_are_set_and_told_by_config() {
    let mut stage = Stage::new("");
    stage.told("CONFIG SET notify-keyspace-events KEA");
    assert_eq!(stage.answered, "+OK\r\n");
    stage.told("CONFIG GET notify*");
    assert_eq!(stage.answered, "*2\r\n$22\r\nnotify-keyspace-events\r\n$3\r\nAKE\r\n");
    stage.told("CONFIG SET notify-keyspace-events Kq");
    assert_eq!(
        stage.answered,
        "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class \
         character. Use 'Ag$lshzxeKEtmdn'.\r\n"
    );
    assert_eq!(stage.told("LPUSH l a"), ["__keyspace@0__:l lpush", "__keyevent@0__:lpush l"]);
}
