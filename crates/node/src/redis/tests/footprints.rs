//! What commands say that they touch is what they touch, over every form of every command (T18, T27, T50, T51 of
//! `specs/curp.md` 8). Commutativity, witnesses, replay and users' rights rest on it.

use super::World;
use super::grammar::{bare, encode, fill, forms};
use crate::gateway::{Ask, Login};
use isochrone_core::command::{Operation, Response, Touch};
use isochrone_core::{
    Blob, ClientId, Command, CommandId, Export as _, KeyspaceId, NodeId, PartitionId, ProcessId, Random,
    Role, Stamp, StateMachine, key_hash,
};
use isochrone_replication::curp::witness::{KEYS_MAX, Reject, Shape, Witness};
use isochrone_store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// The first deadline that the grammar gives, milliseconds.
const FIRST_MS: u64 = 4_000_000_000_000;

/// What a connection asks the store when it is sent these at this time, all as one transaction if there are several.
fn asked(sentences: &[Vec<Vec<u8>>], stamp: Stamp) -> Vec<Command> {
    let mut world = World::new(Login::Open);
    world.stamp = stamp;
    if sentences.len() > 1 {
        world.receive(b"MULTI\r\n");
    }
    sentences.iter().for_each(|words| world.receive(&encode(words)));
    if sentences.len() > 1 {
        world.receive(b"EXEC\r\n");
    }
    let asks = world.requests.drain(..).filter_map(|request| match request.ask {
        Ask::Execute { command, .. } => Some(command),
        Ask::Verify { .. } => None,
    });
    asks.collect()
}

/// A sentence of a form, about keys of this many.
fn sentence(form: &str, keys: u64, random: &mut Random) -> Vec<Vec<u8>> {
    let word = |word: &str, random: &mut Random| match word {
        "K" => format!("k{}", random.below(keys)).into_bytes(),
        word => fill(word, random).concat(),
    };
    bare(form).split(' ').map(|text| word(text, random)).collect()
}

/// A command at random, sometimes a transaction, at a time around the deadlines that the grammar gives; none where the form asks nothing of the store.
fn command(forms: &[&str], keys: u64, random: &mut Random) -> Option<Command> {
    let count = if random.below(12) == 0 { 2 + random.below(2) } else { 1 };
    let any = |random: &mut Random| forms[random.below(forms.len() as u64) as usize];
    let sentences: Vec<_> = (0..count)
        .map(|_| {
            let form = any(random);
            sentence(form, keys, random)
        })
        .collect();
    // Gateways have clocks of their own: a later command may be stamped earlier.
    let stamp = Stamp::from_nanos((FIRST_MS - 1_000 + random.below(3_000)) * 1_000_000);
    asked(&sentences, stamp).pop()
}

/// Whether a key is there whose deadline has passed at this time.
fn is_lapsed(store: &Store, key: &Blob, stamp: Stamp) -> bool {
    let is_there = |stamp| {
        let exists = Command::new(stamp, Operation::Exists { keys: [key.clone()].into() });
        store.clone().apply(&exists) == Response::Integer(1)
    };
    is_there(Stamp::ZERO) && !is_there(stamp)
}

/// The same state, as a replica has it that was sent it whole.
fn sent(store: &Store) -> Store {
    let (view, mut copy) = (store.export(), Store::default());
    (0..).map_while(|index| view.chunk(index)).for_each(|chunk| copy.absorb(&chunk).unwrap());
    copy
}

/// The keys that a command names, how; none where it touches all.
fn touched(command: &Command) -> Option<BTreeMap<Blob, (bool, bool)>> {
    let (mut keys, mut all) = (BTreeMap::new(), false);
    command.operation.visit(&mut |touch| match touch {
        Touch::Key(key, access) => {
            let known: &mut (bool, bool) = keys.entry(key.clone()).or_default();
            // A key that is named twice is what either says.
            (known.0, known.1) = (known.0 | access.reads(), known.1 | access.writes());
        }
        Touch::All(_) => all = true,
    });
    (!all).then_some(keys)
}

/// What a command is called.
fn name(command: &Command) -> String {
    let text = format!("{:?}", command.operation);
    text.split([' ', '{']).next().unwrap_or_default().to_owned()
}

/// The store with nothing but these keys.
fn only(store: &Store, keep: impl Fn(&Blob) -> bool) -> Store {
    let mut store = store.clone();
    let stamp = Stamp::ZERO;
    let all = Operation::Keys { pattern: Blob::from("*") };
    let (Response::Array(names) | Response::Set(names)) = store.apply(&Command::new(stamp, all)) else {
        panic!("no keys")
    };
    for name in names {
        let Response::Bulk(key) = name else { panic!("{name:?}") };
        if !keep(&key) {
            store.apply(&Command::new(stamp, Operation::Del { keys: [key].into() }));
        }
    }
    store
}

/// A store after some commands, a third of whose keys have a deadline.
fn filled(forms: &[&str], keys: u64, count: u64, random: &mut Random) -> Store {
    let mut store = Store::default();
    for _ in 0..count {
        if let Some(command) = command(forms, keys, random)
            && touched(&command).is_some()
        {
            store.apply(&command);
        }
    }
    for key in (0..keys).filter(|_| random.below(3) == 0).collect::<Vec<_>>() {
        let words = ["PEXPIREAT".to_owned(), format!("k{key}"), (FIRST_MS + random.below(2_000)).to_string()];
        let words = words.map(String::into_bytes).to_vec();
        let before = Stamp::from_nanos((FIRST_MS - 10_000) * 1_000_000);
        asked(&[words], before).iter().for_each(|command| drop(store.apply(command)));
    }
    store
}

/// T50, T51: a command changes no key but those that it says it writes, its answer and what it writes follow from
/// those that it names alone, and the same from the same state is the same, also where that was sent from elsewhere. What
/// it names and finds lapsed it deletes, whatever it is to do.
#[test]
fn commands_touch_what_they_say() {
    let forms = forms();
    let mut random = Random::seeded(18);
    let (mut met, mut checked, mut lapsed) = (BTreeSet::new(), 0, 0);
    for _ in 0..400 {
        let store = filled(&forms, 6, 30, &mut random);
        let sent = sent(&store);
        assert!(sent == store && sent.digest() == store.digest());
        for _ in 0..12 {
            let Some(command) = command(&forms, 6, &mut random) else { continue };
            let (mut once, mut again) = (store.clone(), sent.clone());
            let answer = once.apply(&command);
            assert_eq!(
                (answer.clone(), once.digest()),
                (again.apply(&command), again.digest()),
                "{command:?}"
            );
            let Some(keys) = touched(&command) else { continue };
            met.insert(name(&command));
            checked += 1;
            let goes: BTreeSet<&Blob> =
                keys.keys().filter(|key| is_lapsed(&store, key, command.stamp)).collect();
            lapsed += goes.len();
            let writes = |key: &Blob| goes.contains(key) || keys.get(key).is_some_and(|(_, writes)| *writes);
            let (before, after) = (only(&store, |key| !writes(key)), only(&once, |key| !writes(key)));
            assert!(before == after, "{command:?} changes a key that it does not say it writes");
            // Without what it does not name.
            let mut alone = only(&store, |key| keys.contains_key(key));
            assert_eq!(alone.apply(&command), answer, "{command:?} looks at what it does not name");
            let (alone, whole) = (only(&alone, writes), only(&once, writes));
            assert!(alone == whole, "{command:?} writes what follows from keys that it does not name");
        }
    }
    assert!(met.len() > 60 && checked > 2_000, "{} operations, {checked} times", met.len());
    assert!(lapsed > 50, "{lapsed} keys had lapsed");
}

fn id(number: u64) -> CommandId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    let process = ProcessId { node: NodeId(number as u16), keyspace, partition, role: Role(1), instance: 0 };
    CommandId { client: ClientId { process, incarnation: 1 }, sequence: 1 }
}

fn hashes(keys: &BTreeMap<Blob, (bool, bool)>) -> Vec<u64> {
    keys.keys().map(|key| key_hash(KeyspaceId(1), key)).collect()
}

/// T18: whatever reads `x` and writes `y` meets a recorded write of `x`, and one of `y`.
#[test]
fn a_recorded_write_is_in_the_way_of_whoever_reads_it() {
    let forms = forms();
    let mut random = Random::seeded(50);
    let mut both = BTreeSet::new();
    for _ in 0..6_000 {
        let Some(command) = command(&forms, 6, &mut random) else { continue };
        let Some(keys) = touched(&command).filter(|keys| (2..=KEYS_MAX).contains(&keys.len())) else {
            continue;
        };
        let reads = keys.values().any(|(reads, writes)| *reads && !writes);
        if reads && keys.values().any(|(_, writes)| *writes) {
            both.insert(name(&command));
        }
        for key in keys.keys() {
            let mut witness = Witness::new(Shape::default());
            witness.record(&[key_hash(KeyspaceId(1), key)], id(1), (), 1).unwrap();
            assert_eq!(witness.record(&hashes(&keys), id(2), (), 1), Err(Reject::Conflict), "{command:?}");
        }
    }
    assert!(both.len() > 5, "{} operations read one key and write another", both.len());
}

fn permutations(order: &mut Vec<usize>, from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permutations(order, from + 1, visit);
        order.swap(from, at);
    }
}

/// T27: what one witness holds may be replayed in any order: the same state, and each the same answer.
#[test]
fn what_a_witness_holds_is_replayed_in_any_order() {
    let forms = forms();
    let mut random = Random::seeded(27);
    let (mut replays, mut most, mut lapsed) = (0, 0, 0);
    for round in 0..120 {
        let many = round % 4 == 3;
        let keys = if many { 40 } else { 10 };
        let store = filled(&forms, keys, 60, &mut random);
        let mut witness = Witness::new(Shape::default());
        let mut held: Vec<Command> = Vec::new();
        for _ in 0..400 {
            if held.len() == if many { 20 } else { 6 } {
                break;
            }
            let Some(command) =
                command(&forms, keys, &mut random).filter(|command| !Store::reads_only(command))
            else {
                continue;
            };
            let Some(named) = touched(&command) else { continue };
            if witness.record(&hashes(&named), id(held.len() as u64), (), 1).is_ok() {
                lapsed += named.keys().filter(|key| is_lapsed(&store, key, command.stamp)).count();
                held.push(command);
            }
        }
        most = most.max(held.len());
        let run = |order: &[usize]| {
            let mut store = store.clone();
            let mut answers = vec![None; held.len()];
            order.iter().for_each(|at| answers[*at] = Some(store.apply(&held[*at])));
            (store, answers)
        };
        let mut order: Vec<usize> = (0..held.len()).collect();
        let first = run(&order);
        let mut look = |order: &[usize]| {
            replays += 1;
            let (store, answers) = run(order);
            assert!(
                store == first.0 && store.digest() == first.0.digest(),
                "{held:?} in the order {order:?}"
            );
            assert_eq!(answers, first.1);
        };
        if many {
            for _ in 0..40 {
                (1..order.len()).rev().for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
                look(&order);
            }
        } else if round % 4 == 0 {
            permutations(&mut order, 0, &mut look);
        } else {
            order.reverse();
            look(&order);
        }
    }
    assert!(most == 20 && replays > 10_000, "{replays} replays of up to {most}");
    assert!(lapsed > 20, "{lapsed} keys had lapsed");
}
