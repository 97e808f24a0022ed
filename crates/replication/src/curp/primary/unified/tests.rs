//! A copy that is sent names: what waits, and what is taken for garbage.

use super::*;
use crate::curp::primary::Parameters;
use crate::message::Entry;
use crate::order::{Member, Setup};
use crate::{REPLICA, Tuning as _};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, ClientId, Effect, Footprint, Identity, Instant, NodeId, Outbox, Process as _, Random, ReplicaId,
    Span, Stamp,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::Cell;

thread_local! {
    /// How many commands were unpacked.
    static UNPACKED: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize)]
struct Put(Blob);

impl<'de> Deserialize<'de> for Put {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Put, D::Error> {
        UNPACKED.set(UNPACKED.get() + 1);
        Blob::deserialize(deserializer).map(Put)
    }
}

impl Footprint for Put {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(&self.0, Access::Write));
    }
}

const REIGN: Reign = Reign(1, 1);

fn server(node: u16) -> ProcessId {
    ProcessId { node: NodeId(node), role: REPLICA, ..ProcessId::from_u64(0) }
}

/// A command of the one client, on a key.
fn put(sequence: u64, key: u64) -> Entry<Put> {
    let client = ClientId { process: ProcessId::from_u64(7), incarnation: 1 };
    let command = Put(Blob::new(&key.to_le_bytes()));
    Entry::Command { id: CommandId { client, sequence }, below: 1, command }
}

/// A copy that follows a master from its first place on.
struct Lab {
    copy: Order<Entry<Put>>,
    outbox: Outbox<Order<Entry<Put>>>,
}

impl Lab {
    fn new() -> Lab {
        let mut parameters = Parameters::for_rtt(Span::from_millis(1));
        parameters.unified = true;
        let member = |node: u16| Member { replica: ReplicaId(node as u8), process: server(node) };
        let setup = Setup { members: [0, 1].map(member).into(), preferred: None, parameters };
        let me = server(1);
        let copy = Order::open(Identity { process: me, incarnation: 1 }, &setup);
        let mut lab = Lab { copy, outbox: Outbox::new(me, Random::seeded(1)) };
        lab.tell(Message::Start { reign: REIGN });
        lab.run(Run { adopts: true, ..whole(0, 0, Vec::new()) });
        UNPACKED.set(0);
        lab
    }

    /// What it says to a message of its master's, or of a client's.
    fn tell(&mut self, message: Message<Entry<Put>>) -> Vec<Message<Entry<Put>>> {
        let effects = self.outbox.input(Instant::ZERO, Stamp::ZERO);
        self.copy.receive(server(0), message, effects);
        self.copy.check();
        let said = self.outbox.drain().filter_map(|effect| match effect {
            Effect::Send { message, .. } => Some(message),
            _ => None,
        });
        said.collect()
    }

    /// Takes a run; what it suspects of being garbage.
    fn run(&mut self, run: Run<Entry<Put>>) -> Vec<Entry<Put>> {
        let said = self.tell(Message::Replicate(run));
        let suspects = said.into_iter().filter_map(|message| match message {
            Message::Collected { suspects, .. } => Some(suspects),
            _ => None,
        });
        suspects.flatten().collect()
    }

    /// Takes a run of one place, of which all is named.
    fn named(&mut self, at: u64, values: &[Entry<Put>]) {
        let (batches, names) = outline(self.copy.process.keyspace, vec![values.into()]);
        assert_eq!(names.len(), values.len());
        self.run(Run { batches, names, ..whole(at, 0, Vec::new()) });
    }

    fn supply(&mut self, values: Vec<Entry<Put>>) {
        self.tell(Message::Supplied { epoch: REIGN.0, values });
    }

    /// Whether it keeps this for its client.
    fn keeps(&mut self, value: &Entry<Put>) -> bool {
        let hashes = key_hashes(self.copy.process.keyspace, |see| value.visit(see)).unwrap();
        let requests = vec![(hashes, value.clone())];
        let said = self.tell(Message::Records { reign: REIGN, requests });
        said.iter().any(|said| matches!(said, Message::Verdicts(verdicts) if verdicts.verdicts[0].1))
    }

    fn end(&self) -> Slot {
        self.copy.book.end()
    }

    /// How much is here of what was sent whole, and how many names wait.
    fn supplied(&self) -> (usize, usize) {
        let waiting = &self.copy.own.waiting;
        let lacking = waiting.iter().flat_map(|waiting| waiting.lacking.values());
        let names = waiting.iter().map(|waiting| waiting.run.names.len()).sum();
        (lacking.filter(|(_, value)| value.is_some()).count(), names)
    }
}

/// A run of these places, sent whole, when everything before `full` was on all backups.
fn whole(at: u64, full: u64, batches: Vec<Batch<Entry<Put>>>) -> Run<Entry<Put>> {
    let (at, full, names) = (Slot(at), Slot(full), Vec::new());
    Run { epoch: REIGN.0, at, batches, names, full, adopts: false, urgent: false }
}

/// One run always waits, and what was sent whole for those before it is gone with them; what no run lacks is not taken.
#[test]
fn what_was_sent_whole_goes_with_its_run() {
    let mut lab = Lab::new();
    let pair = |number: u64| [put(2 * number, 2 * number), put(2 * number + 1, 2 * number + 1)];
    lab.named(0, &pair(0));
    for number in 0..200 {
        lab.named(number + 1, &pair(number + 1));
        let [one, other] = pair(number);
        lab.supply(vec![one, put(9_000 + number, 9_000 + number)]);
        assert_eq!((lab.end(), lab.supplied()), (Slot(number), (1, 4)));
        lab.supply(vec![other]);
        assert_eq!((lab.end(), lab.supplied()), (Slot(number + 1), (0, 2)));
    }
    // What two runs lack is sent once for both, and the second has it when the first is gone.
    let both = put(8_000, 8_000);
    lab.named(201, std::slice::from_ref(&both));
    lab.named(202, &[both.clone(), put(8_001, 8_001)]);
    let [one, other] = pair(200);
    lab.supply(vec![one, other, both]);
    assert_eq!((lab.end(), lab.supplied()), (Slot(202), (1, 2)));
    lab.supply(vec![put(8_001, 8_001)]);
    assert_eq!((lab.end(), lab.supplied()), (Slot(203), (0, 0)));
}

/// However much is recorded while a run lacks one of many.
#[test]
fn nothing_is_unpacked_before_all_that_a_run_names_is_here() {
    let mut lab = Lab::new();
    let run: Vec<Entry<Put>> = (0..=40).map(|number| put(number, number)).collect();
    let (last, rest) = run.split_last().unwrap();
    assert!(rest.iter().all(|value| lab.keeps(value)));
    lab.named(0, &run);
    // Nor where it waits only for the run before it.
    let next = put(50, 50);
    assert!(lab.keeps(&next));
    lab.named(1, &[next]);
    assert!((100..200).all(|number| lab.keeps(&put(number, number))));
    assert!(lab.keeps(&run[0]), "the same again");
    assert_eq!((UNPACKED.get(), lab.end()), (0, Slot::ZERO));
    assert!(lab.keeps(last));
    assert_eq!((UNPACKED.get(), lab.end()), (run.len() + 1, Slot(2)));
    assert_eq!(lab.copy.book.get(Slot::ZERO).unwrap()[..], run[..]);
}

/// 3.8: runs come while a request is on its way to the master, and back in the log. It is none of the garbage that stands
/// in the way for three rounds.
#[test]
fn what_is_on_its_way_is_not_suspected_however_many_runs_come() {
    let mut lab = Lab::new();
    let held = put(1, 1);
    assert!(lab.keeps(&held));
    let mut suspects = |at: u64, full: u64| {
        assert!(!lab.keeps(&put(500 + at, 1)), "it is in the way");
        lab.run(whole(at, full, vec![[put(100 + at, 100 + at)].into()]))
    };
    // None of these is known to be on all backups.
    for at in 0..10 {
        assert!(suspects(at, 0).is_empty());
    }
    // Of these each is when the next one comes.
    assert!((10..12).all(|at| suspects(at, at).is_empty()));
    assert_eq!(suspects(12, 12), [held]);
}
