//! The life of witnesses (T11, T13, T14, T36's part of it, T40).

use super::*;
use crate::curp::Distant;
use crate::order::Ordered;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{ClientId, CommandId, Effect, Instant, Lane, Outbox, Random, Stamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Put(Blob);

impl Footprint for Put {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(&self.0, Access::Write));
    }
}

type Server = WitnessServer<Put, ()>;

fn process(number: u64) -> ProcessId {
    ProcessId::from_u64(number)
}

fn request(client: u64, sequence: u64, key: u8) -> Kept<Entry<Put>> {
    let id = CommandId { client: ClientId { process: process(client), incarnation: 1 }, sequence };
    (vec![u64::from(key) << 20], Entry::Command { id, below: 1, command: Put(Blob::from(vec![key])) })
}

/// A witness and its disk.
struct Lab {
    server: Server,
    outbox: Outbox<Server>,
    journal: Vec<Record<Entry<Put>>>,
}

impl Lab {
    fn new() -> Lab {
        let me = process(9);
        let identity = Identity { process: me, incarnation: 1 };
        let server = Server::open(identity, &crate::Tuning::for_rtt(isochrone_core::Span::from_millis(1)));
        Lab { server, outbox: Outbox::new(me, Random::seeded(1)), journal: Vec::new() }
    }

    /// What it answers; whether anything was recorded that the answer waits for.
    fn tell(&mut self, message: Message<Entry<Put>>) -> (Option<Message<Entry<Put>>>, bool) {
        let effects = self.outbox.input(Instant::ZERO, Stamp::ZERO);
        self.server.receive(process(1), wrapped(message), effects);
        self.server.check();
        let (mut answer, mut waits) = (None, false);
        for effect in self.outbox.drain() {
            match effect {
                Effect::Record { record, haste } => {
                    waits |= haste.holds();
                    self.journal.push(record);
                }
                Effect::Send { message: common::Message::Order { message, .. }, lane, .. } => {
                    assert_eq!(lane, Lane::Held, "nothing is said before it is durable");
                    answer = Some(message);
                }
                Effect::Mark(_) => {}
                effect => panic!("{effect:?}"),
            }
        }
        (answer, waits)
    }

    fn accepts(&mut self, reign: Reign, request: Kept<Entry<Put>>) -> bool {
        match self.tell(Message::Records { reign, requests: vec![request] }).0 {
            Some(Message::Verdicts(verdicts)) => {
                assert!(!verdicts.verdicts[0].1 || verdicts.reign == reign);
                verdicts.verdicts[0].1
            }
            answer => panic!("{answer:?}"),
        }
    }

    fn starts(&mut self, reign: Reign) -> bool {
        self.tell(Message::Start { reign }).0.is_some()
    }

    /// The sequence numbers that it gives to a recovery.
    fn contents(&mut self, master: u64) -> Option<Vec<u64>> {
        match self.tell(Message::Freeze { master, epoch: master + 1 }).0 {
            Some(Message::Contents { values, .. }) => values.map(|values| {
                let mut found: Vec<u64> = values.iter().filter_map(|v| Some(v.id()?.sequence)).collect();
                found.sort_unstable();
                found
            }),
            answer => panic!("{answer:?}"),
        }
    }

    fn collect(&mut self, master: u64, what: &[Kept<Entry<Put>>]) -> Option<Vec<u64>> {
        let pairs = what.iter().filter_map(|(keys, value)| Some((keys[0], value.id()?))).collect();
        match self.tell(Message::Collect { master, round: 1, pairs }).0 {
            Some(Message::Collected { suspects, .. }) => {
                Some(suspects.iter().filter_map(|value| Some(value.id()?.sequence)).collect())
            }
            None => None,
            answer => panic!("{answer:?}"),
        }
    }

    /// Loses what is in memory, and comes back with its snapshot and its journal, or its journal alone.
    fn restart(&mut self, snapshot: bool) {
        let (old, journal) = (self.server.clone(), std::mem::take(&mut self.journal));
        *self = Lab::new();
        if snapshot {
            old.snapshot().unwrap().for_each(|chunk| self.server.restore(chunk).unwrap());
        } else {
            journal.iter().cloned().for_each(|record| self.server.replay(record));
        }
        self.journal = journal;
    }
}

#[test]
fn a_record_is_taken_under_its_reign_only_and_once() {
    let mut lab = Lab::new();
    assert!(!lab.accepts(Reign(1, 1), request(1, 1, 1)), "it is no witness yet");
    assert!(lab.starts(Reign(1, 1)));
    assert!(lab.accepts(Reign(1, 1), request(1, 1, 1)));
    let records = lab.journal.len();
    assert!(lab.accepts(Reign(1, 1), request(1, 1, 1)), "the same again");
    assert_eq!(lab.journal.len(), records, "it is held once");
    assert!(!lab.accepts(Reign(1, 1), request(2, 1, 1)), "another one on the same key");
    for reign in [Reign(0, 1), Reign(2, 1), Reign(1, 0), Reign(1, 2)] {
        assert!(!lab.accepts(reign, request(1, 2, 2)), "under {reign:?}");
    }
    assert_eq!(lab.contents(1), Some(vec![1]));
    assert!(!lab.accepts(Reign(1, 1), request(1, 2, 2)), "it is frozen");
    assert!(!lab.accepts(Reign(1, 1), request(1, 1, 1)), "also what it holds");
    assert_eq!(lab.contents(1), Some(vec![1]), "asked again");
}

#[test]
fn a_new_list_keeps_what_there_is_and_refuses_the_old_one() {
    let mut lab = Lab::new();
    assert!(lab.starts(Reign(1, 1)));
    assert!(lab.accepts(Reign(1, 1), request(1, 1, 1)));
    assert!(lab.starts(Reign(1, 3)));
    assert!(!lab.starts(Reign(1, 2)), "a list that was given up");
    assert!(!lab.accepts(Reign(1, 1), request(1, 2, 2)), "the old list");
    assert!(lab.accepts(Reign(1, 3), request(1, 1, 1)), "the retry of what is held");
    assert!(!lab.accepts(Reign(1, 3), request(2, 1, 1)), "what is held is in the way still");
    assert_eq!(lab.contents(1), Some(vec![1]));
    assert!(!lab.starts(Reign(1, 4)), "frozen for good");
}

#[test]
fn power_loss_takes_nothing_that_was_accepted_and_thaws_nothing() {
    for snapshot in [false, true] {
        let mut lab = Lab::new();
        lab.starts(Reign(1, 1));
        let (_, waits) = lab.tell(Message::Records { reign: Reign(1, 1), requests: vec![request(1, 1, 1)] });
        assert!(waits, "an acceptance waits for its record");
        for number in 2..200 {
            // All in few sets, so that only what was forgotten in its place leaves room for what came after it.
            assert!(lab.accepts(Reign(1, 1), request(1, number, number as u8)), "{number}");
            assert_eq!(lab.collect(1, &[request(1, number, number as u8)]), Some(vec![]));
        }
        assert!(lab.accepts(Reign(1, 1), request(1, 200, 200)));
        lab.restart(snapshot);
        assert!(!lab.accepts(Reign(1, 1), request(2, 1, 200)));
        assert_eq!(lab.contents(1), Some(vec![1, 200]));
        lab.restart(snapshot);
        assert!(!lab.accepts(Reign(1, 1), request(1, 201, 201)), "still frozen");
        assert_eq!(lab.collect(1, &[request(1, 1, 1)]), None, "nothing is forgotten any more");
        assert_eq!(lab.contents(1), Some(vec![1, 200]));
        lab.tell(Message::End { before: 2 });
        lab.restart(snapshot);
        assert_eq!(lab.contents(1), None);
        assert!(!lab.starts(Reign(1, 1)), "a master that is over gets no witness again");
    }
}

#[test]
fn a_witness_that_lost_its_disk_is_none() {
    let mut lab = Lab::new();
    lab.starts(Reign(1, 1));
    assert!(lab.accepts(Reign(1, 1), request(1, 1, 1)));
    let mut wiped = Lab::new();
    assert!(!wiped.accepts(Reign(1, 1), request(1, 1, 1)));
    assert_eq!(wiped.contents(1), None, "it gives nothing to a recovery, not even nothing");
    assert_eq!(wiped.collect(1, &[]), None);
}

#[test]
fn a_master_that_counts_ends_those_before_it() {
    let mut lab = Lab::new();
    lab.starts(Reign(1, 1));
    assert!(lab.accepts(Reign(1, 1), request(1, 1, 1)));
    assert_eq!(lab.contents(1), Some(vec![1]));
    lab.starts(Reign(2, 1));
    assert!(lab.accepts(Reign(2, 1), request(2, 1, 1)), "the two know nothing of each other");
    assert_eq!(lab.contents(1), Some(vec![1]), "a start ends nothing: it may come to nothing");
    assert_eq!(lab.collect(2, &[]), Some(vec![]));
    assert_eq!(lab.contents(1), None);
    assert_eq!(lab.contents(2), Some(vec![1]));
}

/// What was recorded when its client was gone stands in the way for four writes, and goes with two collections
/// (T37).
#[test]
fn an_orphan_is_suspected_after_three_rounds() {
    let mut lab = Lab::new();
    lab.starts(Reign(1, 1));
    assert!(lab.accepts(Reign(1, 1), request(7, 1, 1)));
    let mut slow = 0;
    for sequence in 10.. {
        if lab.accepts(Reign(1, 1), request(1, sequence, 1)) {
            break;
        }
        slow += 1;
        let suspects = lab.collect(1, &[request(1, sequence, 1)]).unwrap();
        assert_eq!(suspects, if slow == 4 { vec![1] } else { vec![] });
        if !suspects.is_empty() {
            lab.collect(1, &[request(7, 1, 1)]);
        }
    }
    assert_eq!(slow, 4);
}

/// 3.10, D-20, D-22: a read goes on to the server of the same node if nothing that is held has its key, under the
/// reign that this is a witness of; else the client is told, and of which reign it is.
#[test]
fn a_read_is_passed_on_only_where_nothing_stands_in_its_way() {
    let mut lab = Lab::new();
    let me = lab.server.me;
    let client = ClientId { process: process(7), incarnation: 1 };
    let near = |lab: &mut Lab, reign: Reign, key: u8| {
        let id = CommandId { client, sequence: 4 };
        let reads = vec![Entry::Read { id, below: 1, command: Put(Blob::from(vec![key])) }];
        let effects = lab.outbox.input(Instant::ZERO, Stamp::ZERO);
        lab.server.receive(client.process, wrapped(Message::Near { reign, reads: reads.clone() }), effects);
        let sent = lab.outbox.drain().find_map(|effect| match effect {
            Effect::Send { to, message: common::Message::Order { message, .. }, .. } => Some((to, message)),
            _ => None,
        });
        match sent.expect("an answer") {
            (to, Message::Near { reign: passed, reads: on }) => {
                assert_eq!((to, passed, on), (ProcessId { role: REPLICA, ..me }, reign, reads));
                None
            }
            (to, Message::Distant(Distant { incarnation, reign, sequences })) => {
                assert_eq!((to, incarnation, sequences), (client.process, 1, vec![4]));
                Some(reign)
            }
            sent => panic!("{sent:?}"),
        }
    };
    assert_eq!(near(&mut lab, Reign(1, 1), 1), Some(Reign::default()), "it is no witness yet");
    assert!(lab.starts(Reign(1, 1)));
    let hash = isochrone_core::key_hash(me.keyspace, &[1]);
    let write = (vec![hash], request(1, 1, 1).1);
    assert!(lab.accepts(Reign(1, 1), write.clone()));
    assert_eq!(near(&mut lab, Reign(1, 1), 1), Some(Reign(1, 1)), "it holds a write of that key");
    assert_eq!(near(&mut lab, Reign(1, 1), 2), None);
    for reign in [Reign(1, 0), Reign(1, 2), Reign(2, 1)] {
        assert_eq!(near(&mut lab, reign, 2), Some(Reign(1, 1)), "under {reign:?}");
    }
    lab.restart(false);
    assert_eq!(near(&mut lab, Reign(1, 1), 1), Some(Reign(1, 1)), "what was accepted is held");
    lab.collect(1, &[write]);
    assert_eq!(near(&mut lab, Reign(1, 1), 1), None, "it is on all backups");
    assert!(lab.starts(Reign(1, 2)));
    assert_eq!(near(&mut lab, Reign(1, 1), 2), Some(Reign(1, 2)), "the list is another one");
    lab.contents(1);
    assert_eq!(near(&mut lab, Reign(1, 2), 2), Some(Reign(1, 2)), "it is frozen");
}
