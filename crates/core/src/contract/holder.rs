//! A process that holds another.

use super::{Act, Label, Note, Probe, ProbeSetup};
use crate::{
    Blob, Effects, Fact, Identity, Loan, Malformed, Mark, Process, ProcessId, Snapshot, Ticket, Wrap,
};
use serde::{Deserialize, Serialize};

/// A record of a holder: its own, or one of the probe inside.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum HolderRecord {
    /// Its own.
    Own(u32),
    /// The probe's.
    Inner(u32),
}

/// A timer of a holder; it has none of its own.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum HolderTimer {
    /// The probe's.
    Inner(u32),
}

/// A mark of a holder; it makes none of its own.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum HolderMark {
    /// The probe's.
    Inner(Label),
}

impl Mark for HolderMark {
    fn fact(&self) -> Option<Fact> {
        let HolderMark::Inner(label) = self;
        label.fact()
    }
}

/// A process that gives everything to the probe inside, and for each answer of the probe writes a record
/// of its own and answers its host with the same outcome plus [`Holder::SHIFT`].
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Holder {
    inner: Probe,
    loan: Loan<Probe>,
}

struct Inside;

impl Wrap<Holder, Probe> for Inside {
    fn message(&self, message: Note) -> Note {
        Note::Inner(Box::new(message))
    }
    fn record(&self, record: u32) -> HolderRecord {
        HolderRecord::Inner(record)
    }
    fn timer(&self, timer: u32) -> HolderTimer {
        HolderTimer::Inner(timer)
    }
    fn mark(&self, mark: Label) -> HolderMark {
        HolderMark::Inner(mark)
    }
}

impl Holder {
    /// What it adds to the probe's outcomes.
    pub const SHIFT: u32 = 1_000;

    fn run(&mut self, effects: &mut Effects<Holder>, input: impl FnOnce(&mut Probe, &mut Effects<Probe>)) {
        let inner = &mut self.inner;
        for (ticket, outcome) in effects.lend(&mut self.loan, &Inside, |effects| input(inner, effects)) {
            effects.record(HolderRecord::Own(outcome));
            effects.complete(ticket, outcome + Holder::SHIFT);
        }
    }
}

impl Process for Holder {
    type Setup = ProbeSetup;
    type Message = Note;
    type Record = HolderRecord;
    type Request = Vec<Act>;
    type Outcome = u32;
    type Timer = HolderTimer;
    type Mark = HolderMark;

    fn open(identity: Identity, setup: &ProbeSetup) -> Holder {
        Holder { inner: Probe::open(identity, setup), loan: Loan::default() }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.inner.restore(chunk)
    }

    /// Its own records only prove their place in the order: they tell the probe inside as themselves
    /// plus [`Holder::SHIFT`].
    fn replay(&mut self, record: HolderRecord) {
        match record {
            HolderRecord::Own(label) => self.inner.replay(label + Holder::SHIFT),
            HolderRecord::Inner(label) => self.inner.replay(label),
        }
    }

    fn start(&mut self, effects: &mut Effects<Holder>) {
        self.run(effects, |inner, effects| inner.start(effects));
    }

    fn receive(&mut self, from: ProcessId, note: Note, effects: &mut Effects<Holder>) {
        if let Note::Inner(note) = note {
            self.run(effects, |inner, effects| inner.receive(from, *note, effects));
        }
    }

    fn request(&mut self, ticket: Ticket, script: Vec<Act>, effects: &mut Effects<Holder>) {
        self.run(effects, |inner, effects| inner.request(ticket, script, effects));
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Holder>) {
        self.run(effects, |inner, effects| inner.cancel(ticket, effects));
    }

    fn expire(&mut self, HolderTimer::Inner(timer): HolderTimer, effects: &mut Effects<Holder>) {
        self.run(effects, |inner, effects| inner.expire(timer, effects));
    }

    fn settle(&mut self, effects: &mut Effects<Holder>) {
        self.run(effects, |inner, effects| inner.settle(effects));
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.inner.snapshot()
    }
}
