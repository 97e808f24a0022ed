//! One replica of a partition, input by input.

use super::{LIVES_MAX, Parameters, Partition, State, YIELDS_ONE_IN, Yields, snapshot};
use crate::carousel::Mutation;
use crate::carousel::message::{Part, Verdict, Vote, Word};
use crate::family;
use crate::group::{Message, Record, Rules, Server};
use crate::map::{Group, Map, Split};
use crate::request::TxnId;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{
    Ballot, Blob, ClientId, Effect, Export, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId,
    Process, ProcessId, Random, ReplicaId, Role, Slot, Span, Stamp,
};
use isochrone_replication::multipaxos::log;
use isochrone_replication::order::Member;
use isochrone_store::versions::Version;

fn process(node: u16, role: u8) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node), keyspace, partition, role: Role(role), instance: 0 }
}

/// A partition of three replicas.
fn setup(mutation: Option<Mutation>) -> family::Server<Parameters> {
    let members: Vec<_> =
        (0..3).map(|seat| Member { replica: ReplicaId(seat), process: process(seat.into(), 0) }).collect();
    let groups = [Group { members: members.into(), spares: [].into() }].into();
    family::Server {
        map: Map { keyspace: KeyspaceId(1), split: Split::Hash, groups },
        partition: PartitionId(0),
        clients: [].into(),
        parameters: Parameters { mutation, ..Parameters::fast(Span::from_millis(100)) },
    }
}

/// The terms of a follower's votes on one transaction, of this coordinator, that is asked for twice: before and after it
/// has promised a higher ballot to nobody who ever led; and how many of them it wrote down.
fn terms(mutation: Option<Mutation>, coordinator: ProcessId) -> (Vec<Ballot>, usize) {
    let me = process(1, 0);
    let identity = Identity { process: me, incarnation: 1 };
    let mut server = Server::<Partition>::open(identity, &setup(mutation));
    let mut outbox = Outbox::new(me, Random::seeded(1));
    let client = ClientId { process: process(9, 1), incarnation: 1 };
    let prepare = || {
        let keys: std::sync::Arc<[_]> = ["a".into()].into();
        Message::Own(Word::Prepare {
            txn: TxnId { client, sequence: 1 },
            below: 1,
            age: Span::ZERO,
            coordinator,
            part: Part { partition: PartitionId(0), reads: keys.clone(), writes: keys },
            read: true,
            vote: true,
        })
    };
    let higher = Ballot { round: 7, owner: ReplicaId(2) };
    let candidate = Message::Log(log::Message::Prepare { ballot: higher, from: Slot(0) });
    let inputs = [(process(9, 1), prepare()), (process(2, 0), candidate), (process(9, 1), prepare())];
    let (mut terms, mut written) = (Vec::new(), 0);
    server.start(outbox.input(Instant::ZERO, Stamp::from_nanos(1)));
    outbox.drain().for_each(drop);
    for (number, (from, message)) in (1..).zip(inputs) {
        let now = Instant::ZERO + Span::from_secs(number);
        server.receive(from, message, outbox.input(now, Stamp::from_nanos(number)));
        for effect in outbox.drain() {
            match effect {
                Effect::Send { message: Message::Own(Word::Vote { under, .. }), .. } => {
                    terms.push(under.term)
                }
                Effect::Record { record: Record::Own(_), .. } => written += 1,
                _ => {}
            }
        }
    }
    (terms, written)
}

/// I12 (`specs/carousel.md` 3.3, 4.8): what was voted is said again and never cast anew. Else a transaction that commits by the
/// first votes is not found among the second ones by a leader of a third term.
#[test]
fn a_vote_is_cast_once() {
    let (cast, written) = terms(None, process(0, 0));
    assert_eq!((cast.len(), written), (2, 1));
    assert_eq!(cast[0], cast[1], "in the term in which it was cast");
    let (again, written) = terms(Some(Mutation::VoteAgain), process(0, 0));
    assert_eq!((again.len(), written), (2, 2), "the planted bug is seen");
    assert_ne!(again[0], again[1]);
}

/// What names a partition that there is none of, as a node with another file may, gets into no log.
#[test]
fn what_names_a_partition_that_is_none_is_passed_over() {
    let nowhere = ProcessId { partition: PartitionId(60_000), ..process(0, 0) };
    assert_eq!(terms(None, nowhere), (Vec::new(), 0));
}

/// For one that stays open as long as somebody wants to change the entry, the others are refused for a part of the time only.
#[test]
fn readers_are_not_refused_for_as_long_as_one_is_open() {
    let (span, mut yields) = (Span::from_millis(200), Yields::new());
    let mut refused = 0;
    for tick in 0..10_000 {
        let now = Instant::ZERO + Span::from_millis(tick);
        yields.ask(now, span);
        refused += u64::from(yields.hold(now));
    }
    assert_eq!(refused, 200 * 10_000_u64.div_ceil(200 * (1 + YIELDS_ONE_IN)));
}

/// Each restart of a client is another life.
#[test]
fn floors_of_lives_that_are_long_over_are_forgotten_and_stay_over() {
    let mut state = State::default();
    let txn =
        |incarnation, sequence| TxnId { client: ClientId { process: process(9, 1), incarnation }, sequence };
    let lives = LIVES_MAX as u32;
    for life in 1..=lives {
        state.pass(txn(life, 5));
    }
    assert!(state.is_past(txn(1, 5)) && !state.is_past(txn(1, 6)) && !state.is_past(txn(lives + 1, 1)));
    assert_eq!(state.floors.len(), LIVES_MAX);
    state.pass(txn(lives + 1, 0));
    assert_eq!(state.floors.len(), LIVES_MAX);
    assert!(state.is_past(txn(1, 6)), "what it may still have sent");
    assert!(!state.is_past(txn(lives + 1, 1)));
    // Another process has lives of its own.
    let other = TxnId { client: ClientId { process: process(8, 1), incarnation: 1 }, sequence: 1 };
    assert!(!state.is_past(other));
}

/// A large state has thousands of chunks of versions, none of which claims anything.
#[test]
fn claims_are_made_of_the_tables_and_not_anew_for_every_chunk() {
    let client = ClientId { process: process(9, 1), incarnation: 1 };
    let txn = |sequence| TxnId { client, sequence };
    let key = |number: u64| Blob::from(format!("key{number}"));
    let part = |number| {
        let writes = [key(number)].into();
        Part { partition: PartitionId(0), reads: [].into(), writes }
    };
    let mut state = State::default();
    for number in 0..8 {
        let value = Blob::from(vec![7; CHUNK_MAX / 2]);
        state.store.put(&key(number), Version(1), Some(value));
        let verdict = Verdict { prepared: true, versions: Vec::new(), at: Version(2) };
        let (coordinator, term) = (process(0, 0), Ballot::default());
        let vote = Vote { txn: txn(number), part: part(number), coordinator, term, verdict };
        state.pending.insert(txn(number), vote);
    }
    let view = snapshot::View::of(&state);
    let chunks: Vec<Blob> = (0..).map_while(|index| view.chunk(index)).collect();
    assert!(chunks.len() > 3, "one of the tables and several of versions, not {}", chunks.len());
    let identity = Identity { process: process(1, 0), incarnation: 1 };
    let mut copy: Partition = Rules::open(identity, &setup(None));
    copy.absorb(&chunks[0]).unwrap();
    assert!((0..8).all(|number| copy.claims.conflict(txn(99), &part(number))));
    // What is made anew has lost this one.
    copy.claims.add(txn(99), &part(99));
    for chunk in &chunks[1..] {
        copy.absorb(chunk).unwrap();
    }
    assert!(copy.claims.written(&key(99)), "they were made anew for a chunk of versions");
    assert!((0..8).all(|number| copy.claims.written(&key(number))));
}

#[test]
fn nothing_stays_of_votes_that_the_state_of_a_peer_makes_void() {
    let identity = Identity { process: process(1, 0), incarnation: 1 };
    let open = || -> Partition { Rules::open(identity, &setup(None)) };
    let (mut replica, mut staged) = (open(), open());
    let client = ClientId { process: process(9, 1), incarnation: 1 };
    let txn = |sequence| TxnId { client, sequence };
    let vote = |sequence| {
        let part = Part { partition: PartitionId(0), reads: [].into(), writes: [Blob::from("a")].into() };
        let verdict = Verdict { prepared: true, versions: Vec::new(), at: Version(2) };
        Vote { txn: txn(sequence), part, coordinator: process(0, 0), term: Ballot::default(), verdict }
    };
    for sequence in [1, 2] {
        replica.replay(vote(sequence));
        replica.aged.insert(txn(sequence), Instant::ZERO);
    }
    staged.state.pending.insert(txn(1), vote(1));
    replica.install(staged, None);
    assert_eq!(replica.votes.len(), 1);
    assert!(replica.aged.keys().eq(replica.votes.keys()), "{:?}", replica.aged);
}
