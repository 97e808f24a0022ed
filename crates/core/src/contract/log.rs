//! What happened in a contract test, in order.

use crate::{Fact, Instant, ProcessId, Stamp, Ticket};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// One thing that happened.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Seen {
    /// A process was opened.
    Opened {
        /// Its incarnation.
        incarnation: u32,
    },
    /// It was given a chunk of its snapshot, with these records.
    Restored {
        /// Their labels.
        records: Vec<u32>,
    },
    /// It was given a durable record.
    Replayed {
        /// Its label.
        record: u32,
    },
    /// It began to act.
    Started,
    /// A message arrived.
    Received {
        /// Its sender.
        from: ProcessId,
        /// Its label.
        label: u32,
    },
    /// A request arrived.
    Requested {
        /// Its ticket.
        ticket: Ticket,
    },
    /// A ticket was cancelled.
    Cancelled {
        /// The ticket.
        ticket: Ticket,
    },
    /// A timer fired.
    Expired {
        /// The timer.
        timer: u32,
    },
    /// The input at hand ended.
    Settled,
    /// The clocks at an input that asked for them ([`Act::Clock`](super::Act::Clock)).
    Clock {
        /// The steady clock.
        now: Instant,
        /// The wall clock.
        stamp: Stamp,
    },
    /// An answer reached the host.
    Answered {
        /// The ticket.
        ticket: Ticket,
        /// The answer.
        outcome: u32,
        /// Whether it is the last one.
        last: bool,
    },
    /// A mark reached the host.
    Marked {
        /// Its label.
        label: u32,
    },
}

/// The log of one test, shared by its probes and its host. It is no part of a probe's state: all logs
/// are equal.
#[derive(Clone, Default, Debug)]
pub struct Log(Arc<Mutex<Vec<(ProcessId, Seen)>>>);

impl Log {
    /// Notes what a process was given.
    pub fn add(&self, process: ProcessId, seen: Seen) {
        self.entries().push((process, seen));
    }

    /// For the host: an answer of this process has left (`last` for `complete`, not for `emit`).
    pub fn answered(&self, process: ProcessId, ticket: Ticket, outcome: u32, last: bool) {
        self.add(process, Seen::Answered { ticket, outcome, last });
    }

    /// For the host: a mark of this process has left, with this fact.
    pub fn marked(&self, process: ProcessId, fact: &Fact) {
        if let Fact::Decided { position, .. } = fact {
            self.add(process, Seen::Marked { label: *position as u32 });
        }
    }

    /// What one process saw, and what it said to its host, in order; `Settled` left out.
    pub fn of(&self, process: ProcessId) -> Vec<Seen> {
        let entries = self.entries();
        let own = entries.iter().filter(|(id, seen)| *id == process && *seen != Seen::Settled);
        own.map(|(_, seen)| seen.clone()).collect()
    }

    /// Everything, in order.
    pub fn all(&self) -> Vec<(ProcessId, Seen)> {
        self.entries().clone()
    }

    /// The labels of the messages that a process received, in order.
    pub fn received(&self, process: ProcessId) -> Vec<u32> {
        self.pick(process, |seen| match seen {
            Seen::Received { label, .. } => Some(*label),
            _ => None,
        })
    }

    /// The answers of a process to a ticket, in order, with whether each was the last.
    pub fn answers(&self, process: ProcessId, of: Ticket) -> Vec<(u32, bool)> {
        self.pick(process, |seen| match seen {
            Seen::Answered { ticket, outcome, last } if *ticket == of => Some((*outcome, *last)),
            _ => None,
        })
    }

    /// The marks of a process, in order.
    pub fn marks(&self, process: ProcessId) -> Vec<u32> {
        self.pick(process, |seen| match seen {
            Seen::Marked { label } => Some(*label),
            _ => None,
        })
    }

    /// The timers of a process that fired, in order.
    pub fn expired(&self, process: ProcessId) -> Vec<u32> {
        self.pick(process, |seen| match seen {
            Seen::Expired { timer } => Some(*timer),
            _ => None,
        })
    }

    /// The incarnations in which a process was opened.
    pub fn incarnations(&self, process: ProcessId) -> Vec<u32> {
        self.pick(process, |seen| match seen {
            Seen::Opened { incarnation } => Some(*incarnation),
            _ => None,
        })
    }

    /// Whatever `choose` finds in what one process saw, in order.
    pub fn pick<T>(&self, process: ProcessId, choose: impl Fn(&Seen) -> Option<T>) -> Vec<T> {
        let entries = self.entries();
        entries.iter().filter(|(id, _)| *id == process).filter_map(|(_, seen)| choose(seen)).collect()
    }

    /// A failed assertion elsewhere must not hide the log.
    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<(ProcessId, Seen)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hash for Log {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Log {
    fn eq(&self, _: &Log) -> bool {
        true
    }
}

impl Eq for Log {}
