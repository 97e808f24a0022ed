//! Keys on their way from one partition to another.

use super::*;
use isochrone_core::command::{Append, NewId, StreamId, ZAddFlags};
use isochrone_core::migration::{Cursor, Move, Piece, Ring, Step, Stretch, Told, Versions};
use isochrone_core::{Export as _, KeyspaceId, PartitionId, StateMachine, wire};

const RINGS: [Ring; 2] = [ring(0), ring(1)];

const fn ring(at: u16) -> Ring {
    Ring { keyspace: KeyspaceId(3), partitions: 2, at: PartitionId(at) }
}

fn take(store: &mut Store, step: Step) -> Told {
    let command = Store::step(step, Stamp::from_nanos(1)).unwrap();
    if Store::reads_only(&command) {
        let reply = store.read(&command).unwrap();
        assert_eq!(reply, store.clone().apply(&command));
    }
    Store::told(&store.apply(&command)).unwrap().clone()
}

fn release(store: &mut Store, from: usize, wish: Option<Stretch>, done: u64) -> Told {
    let wish = wish.map(|stretch| (stretch, RINGS[1 - from].at));
    take(store, Step::Release { ring: RINGS[from], wish, done })
}

/// The same state after a way through chunks.
fn travelled(store: &Store) -> Store {
    let (view, mut copy) = (store.export(), Store::default());
    for index in 0.. {
        let Some(chunk) = view.chunk(index) else { break };
        copy.absorb(&chunk).unwrap();
    }
    assert_eq!(copy.digest(), store.digest());
    assert!(copy == *store);
    copy
}

/// Moves a stretch from one to the other, all chunks twice, with restarts in between. How many moves it took, and keys.
fn carry(stores: &mut [Store; 2], from: usize, stretch: Stretch) -> (u64, u64) {
    let (mut moves, mut moved, mut done) = (0, 0, 0);
    while let Told::Leaving { of, keys, piece, .. } = release(&mut stores[from], from, Some(stretch), done) {
        (moves, moved) = (moves + 1, moved + keys);
        let mut piece = piece;
        loop {
            *stores = [travelled(&stores[0]), travelled(&stores[1])];
            let install = Step::Install { ring: RINGS[1 - from], of, piece: piece.clone() };
            let told = take(&mut stores[1 - from], install.clone());
            let again = take(&mut stores[1 - from], install);
            match told {
                Told::Installed => {
                    assert_eq!(again, Told::Installed);
                    break;
                }
                Told::Expects(at) => {
                    assert_eq!((again, at), (Told::Expects(at), piece.next));
                    match take(&mut stores[from], Step::Fetch { serial: of.serial, from: at }) {
                        Told::Piece(next) => piece = next,
                        told => panic!("{told:?}"),
                    }
                }
                told => panic!("{told:?}"),
            }
        }
        done = of.serial;
    }
    (moves, moved)
}

fn get(store: &mut Store, key: &str) -> Response {
    store.apply(&at(1, Operation::Get { key: key.into() }))
}

fn at(nanos: u64, operation: Operation) -> Command {
    Command::new(Stamp::from_nanos(nanos), operation)
}

fn blobs(prefix: &str, count: u32) -> Keys {
    (0..count).map(|number| Blob::from(format!("{prefix}{number:04}"))).collect()
}

/// A value of each type under keys that begin with this: small ones, and collections of several chunks.
fn fill(store: &mut Store, prefix: &str) {
    let key = |name: &str| Blob::from(format!("{prefix}{name}"));
    let mut run = |operation| {
        let reply = store.apply(&at(5, operation));
        assert!(!reply.is_error(), "{reply:?}");
    };
    for number in 0..300 {
        let (key, value) = (key(&number.to_string()), Blob::from(vec![7; number * 20]));
        run(Operation::Set { key, value, condition: Condition::Always, expiry: Expiry::Clear, get: false });
    }
    let value = Blob::from("soon");
    let expiry = Expiry::At(Stamp::from_nanos(1_000));
    run(Operation::Set { key: key("brief"), value, condition: Condition::Always, expiry, get: false });
    run(Operation::IncrBy { key: key("count"), by: 41 });
    run(Operation::Push {
        key: key("list"),
        values: blobs(&"l".repeat(300), 3_000),
        side: Side::Right,
        only_if_exists: false,
    });
    run(Operation::SAdd { key: key("set"), members: blobs("m", 100) });
    let pairs: Pairs =
        blobs("f", 900).iter().map(|field| (field.clone(), Blob::from(vec![1; 900]))).collect();
    run(Operation::HSet { key: key("hash"), pairs });
    let members = blobs("z", 50).iter().map(|member| (Score::new(2.5).unwrap(), member.clone())).collect();
    run(Operation::ZAdd { key: key("sorted"), flags: ZAddFlags::default(), members });
    for millis in 1..40 {
        let id = NewId::This(StreamId { millis, sequence: 0 });
        let fields = vec![(Blob::from("f"), Blob::from("v"))];
        let append = Append { id, fields, only_if_exists: false, trimming: None };
        run(Operation::XAdd { key: key("stream"), append: append.into() });
    }
}

#[test]
fn every_type_goes_there_and_back_unchanged() {
    let mut stores = [Store::default(), Store::default()];
    // All of one tag move together, in several chunks.
    let tag = ('a'..='z').find(|tag| RINGS[0].owner(RINGS[0].place(&[*tag as u8])).0 == 0).unwrap();
    fill(&mut stores[0], &format!("{{{tag}}}"));
    fill(&mut stores[0], "b");
    let before = stores[0].clone();
    let (moves, keys) = carry(&mut stores, 0, Stretch::ALL);
    // What the first partition does not own stays: the harness filled it in nevertheless.
    let gone = |key: &[u8]| RINGS[0].owner(RINGS[0].place(key)) == PartitionId(0);
    let expected = before.keys.iter().filter(|listed| gone(listed.key)).count();
    assert_eq!((keys, stores[1].len()), (expected as u64, expected));
    assert!(expected > 100 && moves > 3, "{expected} keys in {moves} moves");
    for listed in before.keys.iter() {
        let here = usize::from(gone(listed.key));
        assert!(stores[here].keys.get(listed.key) == Some(listed.value), "{:?}", listed.key);
        assert!(stores[1 - here].keys.get(listed.key).is_none(), "{:?}", listed.key);
    }
    assert_eq!(stores[0].digest().wrapping_add(stores[1].digest()), before.digest());
    let deadlines = stores.iter().filter_map(Store::deadline).collect::<Vec<_>>();
    assert!(deadlines.iter().all(|deadline| *deadline == Stamp::from_nanos(1_000)) && !deadlines.is_empty());
    let (_, back) = carry(&mut stores, 1, Stretch::ALL);
    assert_eq!(back, keys);
    assert!(stores[0].keys == before.keys && stores[0].digest() == before.digest());
    assert_eq!((stores[0].deadline(), stores[1].len()), (before.deadline(), 0));
}

#[test]
fn what_has_left_is_refused_and_leads_to_where_it_is() {
    let mut stores = [Store::default(), Store::default()];
    let key =
        (0..).map(|n| format!("k{n}")).find(|key| RINGS[0].owner(RINGS[0].place(key.as_bytes())).0 == 0);
    let key = key.unwrap();
    let other =
        (0..).map(|n| format!("o{n}")).find(|key| RINGS[0].owner(RINGS[0].place(key.as_bytes())).0 == 0);
    let place = RINGS[0].place(key.as_bytes());
    stores[0].apply(&at(1, Operation::IncrBy { key: key[..].into(), by: 7 }));
    let one = Stretch { first: place, last: place };
    let Told::Leaving { of, keys: 1, piece, .. } = release(&mut stores[0], 0, Some(one), 0) else { panic!() };
    assert_eq!(
        (of, piece.last),
        (Move { from: RINGS[0].at, to: RINGS[1].at, serial: 1, stretch: one, version: 1 }, true)
    );
    let elsewhere = |store: &mut Store, there| {
        let told = Told::Elsewhere { stretch: one, to: RINGS[1].at, version: 1, there };
        let refused = Response::Move(Box::new(told));
        assert_eq!(get(store, &key), refused);
        assert_eq!(store.read(&at(1, Operation::Get { key: key[..].into() })), Some(refused.clone()));
        let digest = store.digest();
        let both = [other.as_deref().unwrap(), &key].map(Blob::from);
        let transaction = Operation::Transaction {
            watched: [].into(),
            operations: both.map(|key| Operation::IncrBy { key, by: 1 }).into(),
        };
        assert_eq!(store.apply(&at(1, transaction)), refused, "one of its keys is elsewhere");
        assert_eq!(store.digest(), digest);
    };
    elsewhere(&mut stores[0], false);
    assert_eq!(stores[0].len(), 0);
    // Asked again by somebody else: the same move, also with another wish.
    let Told::Leaving { of: again, .. } = release(&mut stores[0], 0, Some(Stretch::ALL), 0) else { panic!() };
    assert_eq!(again, of);
    assert_eq!(take(&mut stores[1], Step::Install { ring: RINGS[1], of, piece }), Told::Installed);
    assert_eq!(get(&mut stores[1], &key), Response::bulk(b"7"));
    elsewhere(&mut stores[0], false);
    assert_eq!(release(&mut stores[0], 0, None, 1), Told::Nothing);
    elsewhere(&mut stores[0], true);
    assert_eq!(take(&mut stores[0], Step::Fetch { serial: 1, from: Cursor::default() }), Told::Nothing);
    assert_eq!(release(&mut stores[0], 0, Some(one), 0), Told::Nothing, "it is not here");
    // What it was is not touched by a flush of who has given it away.
    stores[0].apply(&at(1, Operation::Flush));
    elsewhere(&mut stores[0], true);
    // Back again, in a later version.
    let (moves, keys) = carry(&mut stores, 1, one);
    assert_eq!((moves, keys), (1, 1));
    assert_eq!(get(&mut stores[0], &key), Response::bulk(b"7"));
    let Response::Move(told) = get(&mut stores[1], &key) else { panic!() };
    assert_eq!(*told, Told::Elsewhere { stretch: one, to: RINGS[0].at, version: 2, there: true });
}

/// A command that was on its way while its key left and came back is not executed: what was sent before it may have been refused
/// in between.
#[test]
fn what_is_back_is_refused_to_who_does_not_know_that_it_was_away() {
    let mut stores = [Store::default(), Store::default()];
    let mine = |name: &str| {
        let mut keys = (0..).map(|n| Blob::from(format!("{name}{n}")));
        keys.find(|key| RINGS[0].owner(RINGS[0].place(key)).0 == 0).unwrap()
    };
    let (key, other) = (mine("k"), mine("o"));
    let place = RINGS[0].place(&key);
    let one = Stretch { first: place, last: place };
    let knowing = |versions: &[u64], operation| {
        let known = versions.iter().fold(Versions::FIRST, |known, version| known.and(*version));
        Store::knowing(at(1, operation), known)
    };
    let add = || Operation::IncrBy { key: key.clone(), by: 1 };
    assert_eq!(stores[0].apply(&knowing(&[0], add())), Response::Integer(1));
    carry(&mut stores, 0, one);
    let gone = Told::Elsewhere { stretch: one, to: RINGS[1].at, version: 1, there: true };
    assert_eq!(stores[0].apply(&knowing(&[0], add())), Response::Move(Box::new(gone)));
    carry(&mut stores, 1, one);
    let back = Response::Move(Box::new(Told::Served(vec![(one, 2)])));
    let digest = stores[0].digest();
    for late in [0, 1] {
        assert_eq!(stores[0].apply(&knowing(&[late], add())), back);
        let get = knowing(&[late], Operation::Get { key: key.clone() });
        assert_eq!(stores[0].read(&get), Some(back.clone()));
    }
    let both = || {
        let operations =
            [other.clone(), key.clone(), key.clone()].map(|key| Operation::IncrBy { key, by: 1 });
        Operation::Transaction { watched: [].into(), operations: operations.into() }
    };
    assert_eq!(stores[0].apply(&knowing(&[0, 2, 1], both())), back, "each as often as it is named");
    assert_eq!(stores[0].digest(), digest);
    assert_eq!(stores[0].apply(&knowing(&[2], add())), Response::Integer(2));
    let all = [1, 3, 4].map(Response::Integer);
    assert_eq!(stores[0].apply(&knowing(&[0, 2, 2], both())), Response::Array(all.into()));
    assert_eq!(stores[0].apply(&at(1, add())), Response::Integer(5), "what says nothing is executed as ever");
}

#[test]
fn a_stretch_that_is_still_leaving_does_not_come_back() {
    let mut stores = [Store::default(), Store::default()];
    let Told::Leaving { of, piece, .. } = release(&mut stores[0], 0, Some(Stretch::ALL), 0) else { panic!() };
    assert_eq!(of.stretch, RINGS[0].stretch(RINGS[0].at), "nothing in it, so all of it at once");
    let install = Step::Install { ring: RINGS[1], of, piece };
    assert_eq!(take(&mut stores[1], install), Told::Installed);
    let Told::Leaving { of, piece, .. } = release(&mut stores[1], 1, Some(Stretch::ALL), 0) else { panic!() };
    let install = Step::Install { ring: RINGS[0], of, piece };
    assert_eq!(take(&mut stores[0], install.clone()), Told::Busy);
    assert_eq!(release(&mut stores[0], 0, None, 1), Told::Nothing);
    assert_eq!(take(&mut stores[0], install), Told::Installed);
    let served = |store: &mut Store, at: usize| match take(store, Step::Survey { ring: RINGS[at] }) {
        Told::Served(served) => served,
        told => panic!("{told:?}"),
    };
    let [first, second] = RINGS.map(|ring| ring.stretch(ring.at));
    // The second had given all it served, its own included.
    assert_eq!(served(&mut stores[1], 1), []);
    assert_eq!(served(&mut stores[0], 0), [(Stretch { first: first.first, last: second.last }, 2)]);
}

#[test]
fn steps_that_make_no_sense_change_nothing() {
    let mut store = Store::default();
    store.apply(&at(1, Operation::IncrBy { key: "k".into(), by: 1 }));
    let before = store.clone();
    let to = |to| Step::Release { ring: RINGS[0], wish: Some((Stretch::ALL, PartitionId(to))), done: 0 };
    assert_eq!(take(&mut store, to(0)), Told::Wrong);
    assert_eq!(take(&mut store, to(2)), Told::Wrong);
    let of = Move { from: RINGS[1].at, to: RINGS[0].at, serial: 1, stretch: Stretch::ALL, version: 1 };
    let chunk = Blob::from("not a chunk");
    let piece = Piece { from: Cursor::default(), next: Cursor { entry: 1, element: 0 }, last: true, chunk };
    assert_eq!(take(&mut store, Step::Install { ring: RINGS[0], of, piece }), Told::Wrong);
    assert_eq!(take(&mut store, Step::Release { ring: RINGS[1], wish: None, done: 0 }), Told::Wrong);
    assert!(store.keys == before.keys && store.digest() == before.digest());
    let step = Store::step(to(1), Stamp::ZERO).unwrap().operation;
    let nested = Operation::Transaction { watched: [].into(), operations: [step].into() };
    assert!(matches!(store.apply(&at(1, nested)), Response::Array(answers) if answers[0].is_error()));
    let response = Response::Move(Box::new(Told::Nothing));
    assert_eq!(wire::decode::<Response>(&wire::encode(&response)).unwrap(), response);
}

/// What was executed too early while a stretch goes is taken back, and its keys go with the others.
#[test]
fn a_key_that_was_deleted_too_early_is_moved() {
    let mut stores = [Store::default(), Store::default()];
    let mine = (0..9_000).map(|n| Blob::from(format!("k{n}")));
    let mine: Vec<Blob> = mine.filter(|key| RINGS[0].owner(RINGS[0].place(key)).0 == 0).collect();
    for key in &mine {
        stores[0].apply(&at(1, Operation::IncrBy { key: key.clone(), by: 1 }));
    }
    let Told::Leaving { of, piece, .. } = release(&mut stores[0], 0, Some(Stretch::ALL), 0) else { panic!() };
    take(&mut stores[1], Step::Install { ring: RINGS[1], of, piece });
    let left = mine.iter().filter(|key| !of.stretch.contains(RINGS[0].place(key)));
    let left: Vec<Blob> = left.cloned().collect();
    for key in &left {
        let delete = at(2, Operation::Del { keys: [key.clone()].into() });
        let before = stores[0].before(&delete);
        assert_eq!(stores[0].apply(&delete), Response::Integer(1));
        stores[0].revert(before);
    }
    assert!(left.len() > 1_000);
    let (_, moved) = carry_on(&mut stores, of.serial);
    assert_eq!((moved, stores[0].len(), stores[1].len()), (left.len() as u64, 0, mine.len()));
}

/// Goes on with all, from the first, behind this move.
fn carry_on(stores: &mut [Store; 2], mut done: u64) -> (u64, u64) {
    let (mut moves, mut moved) = (0, 0);
    while let Told::Leaving { of, keys, piece, .. } = release(&mut stores[0], 0, Some(Stretch::ALL), done) {
        assert!(piece.last);
        let install = Step::Install { ring: RINGS[1], of, piece };
        assert_eq!(take(&mut stores[1], install), Told::Installed);
        (moves, moved, done) = (moves + 1, moved + keys, of.serial);
    }
    (moves, moved)
}

/// While a stretch goes, keys come into it and leave it; a move is never larger than was said.
#[test]
fn moves_are_small_whatever_is_written_meanwhile() {
    let mut stores = [Store::default(), Store::default()];
    let set = |number: u32| {
        let (key, value) = (Blob::from(format!("k{number}")), Blob::from(vec![1; 100]));
        at(9, Operation::Set { key, value, condition: Condition::Always, expiry: Expiry::Clear, get: false })
    };
    let mine = |number: u32| RINGS[0].owner(RINGS[0].place(format!("k{number}").as_bytes())).0 == 0;
    let mut written: Vec<u32> = (0..20_000).filter(|number| mine(*number)).collect();
    written.iter().for_each(|number| drop(stores[0].apply(&set(*number))));
    let (mut done, mut next, mut moves) = (0, 20_000, 0);
    while let Told::Leaving { of, keys, bytes, piece } = release(&mut stores[0], 0, Some(Stretch::ALL), done)
    {
        assert!(keys <= 2_048 && bytes <= 256 * 1_024 && piece.last, "{keys} keys, {bytes} bytes");
        let install = Step::Install { ring: RINGS[1], of, piece };
        assert_eq!(take(&mut stores[1], install), Told::Installed);
        (done, moves) = (of.serial, moves + 1);
        for number in next..next + 100 {
            let still = |number: u32| !of.stretch.contains(RINGS[0].place(format!("k{number}").as_bytes()));
            if mine(number) && still(number) && stores[0].apply(&set(number)) == Response::Ok {
                written.push(number);
            }
        }
        next += 100;
        let gone = written.swap_remove(moves * 7);
        for store in &mut stores {
            store.apply(&at(9, Operation::Del { keys: [Blob::from(format!("k{gone}"))].into() }));
        }
    }
    assert!(moves > 4, "{moves}");
    assert_eq!((stores[0].len(), stores[1].len()), (0, written.len()));
    assert!(stores[0].index.is_none());
}

/// What a move is said to carry is what it carries, also where a value is larger than a part, or nothing is left of one.
#[test]
fn a_move_says_how_much_it_carries() {
    let mut store = Store::default();
    for (key, length) in [("{a}1", 300_000), ("{a}2", 500_000), ("{a}3", 1_000)] {
        let (condition, expiry) = (Condition::Always, Expiry::Clear);
        let value = Blob::from(vec![7; length]);
        store.apply(&at(5, Operation::Set { key: key.into(), value, condition, expiry, get: false }));
    }
    let from = usize::from(RINGS[0].owner(RINGS[0].place(b"{a}1")).0);
    let Told::Leaving { keys: 3, bytes, .. } = release(&mut store, from, Some(Stretch::ALL), 0) else {
        panic!("the keys of one tag are one part")
    };
    assert!((801_000..801_000 + 3 * 100).contains(&bytes), "{bytes} bytes");
}

/// Its key may have come and gone elsewhere; others stay.
#[test]
fn an_absence_that_is_watched_does_not_outlast_a_move() {
    let mut stores = [Store::default(), Store::default()];
    let mine = |name: &str| {
        let mut keys = (0..).map(|n| Blob::from(format!("{name}{n}")));
        keys.find(|key| RINGS[0].owner(RINGS[0].place(key)).0 == 0).unwrap()
    };
    let (key, other) = (mine("k"), mine("o"));
    let watch = |store: &mut Store, key: &Blob| {
        let answer = store.apply(&at(1, Operation::Watch { key: key.clone(), seed: 1 }));
        let Response::Integer(number) = answer else { panic!("{answer:?}") };
        [(key.clone(), number as u64)]
    };
    let (number, stays) = (watch(&mut stores[0], &key), watch(&mut stores[0], &other));
    let goes_with = |store: &mut Store, watched: &[(Blob, u64)]| {
        store.apply(&at(2, Operation::Transaction { watched: watched.into(), operations: [].into() }))
    };
    let goes = |store: &mut Store| goes_with(store, &number);
    assert_eq!(goes(&mut stores[0]), Response::Array(vec![]));
    let place = RINGS[0].place(&key);
    let one = Stretch { first: place, last: place };
    carry(&mut stores, 0, one);
    assert_eq!(goes(&mut stores[1]), Response::NilArray);
    carry(&mut stores, 1, one);
    assert_eq!(goes(&mut stores[0]), Response::NilArray);
    assert_eq!(goes_with(&mut stores[0], &stays), Response::Array(vec![]));
}
