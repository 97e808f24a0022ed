//! A process that does what it is told.

use super::{Log, Seen};
use crate::{
    Blob, Effects, Fact, Identity, Malformed, Mark, Process, ProcessId, Snapshot, Span, Ticket, wire,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of a script: an effect to make.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Act {
    /// Sends a note with this label; its receiver then runs the script.
    Send(ProcessId, u32, Vec<Act>),
    /// The same, ahead.
    SendAhead(ProcessId, u32, Vec<Act>),
    /// Runs the script; what it sends is urgent.
    Urgently(Vec<Act>),
    /// Runs the script; what it sends was sent before.
    Repeating(Vec<Act>),
    /// Writes a record of this label.
    Record(u32),
    /// The same, soon.
    RecordSoon(u32),
    /// The same, lazily.
    RecordLazily(u32),
    /// Arms a timer; when it fires, the script runs.
    Arm(u32, Span, Vec<Act>),
    /// Stops a timer.
    Disarm(u32),
    /// Answers a ticket for the last time.
    Complete(Ticket, u32),
    /// The same, ahead.
    CompleteAhead(Ticket, u32),
    /// Answers a ticket with more to come.
    Emit(Ticket, u32),
    /// Makes a mark of this label.
    Mark(u32),
    /// Runs the script at the next `settle`.
    AtSettle(Vec<Act>),
    /// Notes both clocks in the log.
    Clock,
}

/// What probes and holders tell each other.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Note {
    /// Between probes: a label, and what to do about it.
    Plain(u32, Vec<Act>),
    /// Between probes inside holders.
    Inner(Box<Note>),
}

/// A mark with a label.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Label(pub u32);

impl Mark for Label {
    fn fact(&self) -> Option<Fact> {
        Some(Fact::Decided { position: self.0.into(), digest: self.0.into() })
    }
}

/// What a probe starts with.
#[derive(Clone, Debug)]
pub struct ProbeSetup {
    /// Where it notes what it is given.
    pub log: Log,
    /// What it does in `start`.
    pub at_start: Vec<Act>,
}

impl ProbeSetup {
    /// A probe that does nothing at its start.
    pub fn new(log: &Log) -> ProbeSetup {
        ProbeSetup { log: log.clone(), at_start: Vec::new() }
    }
}

/// A process that notes every input and does what its script says.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Probe {
    me: ProcessId,
    log: Log,
    at_start: Vec<Act>,
    at_settle: Vec<Act>,
    records: Vec<u32>,
    timers: BTreeMap<u32, Vec<Act>>,
}

impl Probe {
    fn run(&mut self, script: Vec<Act>, effects: &mut Effects<Probe>) {
        for act in script {
            match act {
                Act::Send(to, label, then) => effects.send(to, Note::Plain(label, then)),
                Act::SendAhead(to, label, then) => effects.send_ahead(to, Note::Plain(label, then)),
                Act::Urgently(script) => effects.urgently(|effects| self.run(script, effects)),
                Act::Repeating(script) => effects.repeating(|effects| self.run(script, effects)),
                Act::Record(label) => {
                    self.records.push(label);
                    effects.record(label);
                }
                Act::RecordSoon(label) => {
                    self.records.push(label);
                    effects.record_soon(label);
                }
                Act::RecordLazily(label) => {
                    self.records.push(label);
                    effects.record_lazily(label);
                }
                Act::Arm(timer, after, then) => {
                    self.timers.insert(timer, then);
                    effects.arm(timer, after);
                }
                Act::Disarm(timer) => effects.disarm(timer),
                Act::Complete(ticket, outcome) => effects.complete(ticket, outcome),
                Act::CompleteAhead(ticket, outcome) => effects.complete_ahead(ticket, outcome),
                Act::Emit(ticket, outcome) => effects.emit(ticket, outcome),
                Act::Mark(label) => effects.mark(Label(label)),
                Act::AtSettle(then) => self.at_settle.extend(then),
                Act::Clock => {
                    self.see(Seen::Clock { now: effects.now(), stamp: effects.stamp() });
                }
            }
        }
    }

    fn see(&self, seen: Seen) {
        self.log.add(self.me, seen);
    }
}

impl Process for Probe {
    type Setup = ProbeSetup;
    type Message = Note;
    type Record = u32;
    type Request = Vec<Act>;
    type Outcome = u32;
    type Timer = u32;
    type Mark = Label;

    fn open(identity: Identity, setup: &ProbeSetup) -> Probe {
        let probe = Probe {
            me: identity.process,
            log: setup.log.clone(),
            at_start: setup.at_start.clone(),
            at_settle: Vec::new(),
            records: Vec::new(),
            timers: BTreeMap::new(),
        };
        probe.see(Seen::Opened { incarnation: identity.incarnation });
        probe
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let records: Vec<u32> = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "probe chunk", cause: error.to_string() })?;
        self.records.extend(&records);
        self.see(Seen::Restored { records });
        Ok(())
    }

    fn replay(&mut self, record: u32) {
        self.records.push(record);
        self.see(Seen::Replayed { record });
    }

    fn start(&mut self, effects: &mut Effects<Probe>) {
        self.see(Seen::Started);
        self.run(self.at_start.clone(), effects);
    }

    fn receive(&mut self, from: ProcessId, note: Note, effects: &mut Effects<Probe>) {
        let Note::Plain(label, then) = note else { return };
        self.see(Seen::Received { from, label });
        self.run(then, effects);
    }

    fn request(&mut self, ticket: Ticket, script: Vec<Act>, effects: &mut Effects<Probe>) {
        self.see(Seen::Requested { ticket });
        self.run(script, effects);
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Probe>) {
        self.see(Seen::Cancelled { ticket });
    }

    fn expire(&mut self, timer: u32, effects: &mut Effects<Probe>) {
        self.see(Seen::Expired { timer });
        let then = self.timers.get(&timer).cloned().unwrap_or_default();
        self.run(then, effects);
    }

    fn settle(&mut self, effects: &mut Effects<Probe>) {
        self.see(Seen::Settled);
        let script = std::mem::take(&mut self.at_settle);
        self.run(script, effects);
    }

    /// One chunk for each two records, so that a test sees several.
    fn snapshot(&self) -> Option<Snapshot> {
        let chunks: Vec<Blob> =
            self.records.chunks(2).map(|records| Blob::from(wire::encode(&records.to_vec()))).collect();
        Some(Box::new(chunks.into_iter()))
    }
}
