//! What a process answers an input with, in order, and the two faces of that answer: the protocol's
//! ([`Effects`]) and the host's ([`Outbox`]). Neither half can reach for the other's.

use crate::{Instant, Process, ProcessId, Random, Span, Stamp, Ticket};
use std::fmt;
use std::hash::{Hash, Hasher};

/// Whether an effect waits for the records before it.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Lane {
    /// It leaves when every record made before it is durable.
    Held,
    /// It waits for nothing and may overtake.
    Ahead,
}

/// How a message stands to others on their way to the same node. It matters only where those wait, since more is sent than
/// the way there carries; what does not wait arrives in order, whatever its urgency.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default)]
pub enum Urgency {
    /// Behind what was sent before.
    #[default]
    Ordinary,
    /// Ahead of what waits, unless it is larger than [`Urgency::SMALL`].
    Urgent,
    /// Behind what was sent before, and dropped where that waits: see [`Effects::repeating`].
    Repeat,
}

impl Urgency {
    /// So many bytes keep nobody waiting: a larger message overtakes none, and so many repeats pass at once.
    pub const SMALL: usize = 16 << 10;
}

/// When a record is to become durable, and what waits for that.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Haste {
    /// At once; what is made after it waits.
    Now,
    /// With the next that is in haste, or within some milliseconds; what is made after it waits.
    Soon,
    /// As [`Haste::Soon`], and nothing waits.
    Lazy,
}

impl Haste {
    /// Whether what is made after the record waits for it.
    pub fn holds(self) -> bool {
        self != Haste::Lazy
    }
}

/// One thing a process asks of its host.
pub enum Effect<P: Process> {
    /// A message to a peer, or to the process itself.
    Send {
        /// The receiver.
        to: ProcessId,
        /// What it is told.
        message: P::Message,
        /// Whether it waits.
        lane: Lane,
        /// How it stands to others on their way.
        urgency: Urgency,
    },
    /// A record for the journal. What comes after it waits for it, unless it is lazy.
    Record {
        /// What is written.
        record: P::Record,
        /// When it is to be durable.
        haste: Haste,
    },
    /// (Re)starts a timer: it fires once, `after` from now by the steady clock.
    Arm {
        /// The timer.
        timer: P::Timer,
        /// How long until it fires.
        after: Span,
    },
    /// Stops a timer.
    Disarm {
        /// The timer.
        timer: P::Timer,
    },
    /// The last answer to a ticket.
    Complete {
        /// The ticket.
        ticket: Ticket,
        /// The answer.
        outcome: P::Outcome,
        /// Whether it waits.
        lane: Lane,
    },
    /// One of several answers to a ticket; held like a send.
    Emit {
        /// The ticket.
        ticket: Ticket,
        /// The answer.
        outcome: P::Outcome,
    },
    /// A note; held like a send, changes nothing.
    Mark(P::Mark),
}

impl<P: Process> fmt::Debug for Effect<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Send { to, message, lane: Lane::Held, .. } => write!(f, "send {to} {message:?}"),
            Effect::Send { to, message, lane: Lane::Ahead, .. } => write!(f, "send_ahead {to} {message:?}"),
            Effect::Record { record, haste: Haste::Now } => write!(f, "record {record:?}"),
            Effect::Record { record, haste: Haste::Soon } => write!(f, "record_soon {record:?}"),
            Effect::Record { record, haste: Haste::Lazy } => write!(f, "record_lazily {record:?}"),
            Effect::Arm { timer, after } => write!(f, "arm {timer:?} {after}"),
            Effect::Disarm { timer } => write!(f, "disarm {timer:?}"),
            Effect::Complete { ticket, outcome, lane: Lane::Held } => {
                write!(f, "complete {ticket} {outcome:?}")
            }
            Effect::Complete { ticket, outcome, lane: Lane::Ahead } => {
                write!(f, "complete_ahead {ticket} {outcome:?}")
            }
            Effect::Emit { ticket, outcome } => write!(f, "emit {ticket} {outcome:?}"),
            Effect::Mark(mark) => write!(f, "mark {mark:?}"),
        }
    }
}

/// The protocol's face: the clocks and the randomness of this input, and the effects it makes.
/// Effects leave in the order they were made.
pub struct Effects<P: Process> {
    me: ProcessId,
    now: Instant,
    stamp: Stamp,
    random: Random,
    urgency: Urgency,
    queue: Vec<Effect<P>>,
}

impl<P: Process> Effects<P> {
    /// The process that is being run.
    pub fn me(&self) -> ProcessId {
        self.me
    }

    /// The steady clock: never goes back, rate within `drift_max`, meaningless after a restart or on
    /// another node. Timers and leases use this one only.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The wall clock: it may be wrong, jump or stand still.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The seeded randomness of this process.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Sends a message. It leaves when every record made before it is durable; it may then be lost,
    /// delayed, doubled or overtaken. To itself a process' message always arrives, once, in order,
    /// unless it crashes: this is how it learns that a record is durable.
    pub fn send(&mut self, to: ProcessId, message: P::Message) {
        self.queue.push(Effect::Send { to, message, lane: Lane::Held, urgency: self.urgency });
    }

    /// Sends a message that waits for nothing and may overtake this process' own undurable records.
    /// **Neither the message nor anything it implies may rest on a record that is not durable**: it
    /// may carry only what stays true if everything not yet durable is lost.
    pub fn send_ahead(&mut self, to: ProcessId, message: P::Message) {
        self.queue.push(Effect::Send { to, message, lane: Lane::Ahead, urgency: self.urgency });
    }

    /// What is sent in `input` may overtake what waits on its way to the same node: that somebody lives, a vote, a question.
    /// Large values that were sent before may arrive after it. For small messages: one above [`Urgency::SMALL`] waits like
    /// any other.
    pub fn urgently<T>(&mut self, input: impl FnOnce(&mut Effects<P>) -> T) -> T {
        self.with(Urgency::Urgent, input)
    }

    /// What is sent in `input` was sent before and no answer has come, or answers a question that may have been asked twice: it
    /// is dropped where something that this process has sent waits on its way to the same node. The first may wait there too, and
    /// a double behind it would only make the others later. When what waited as the first of them was dropped has left and could
    /// have been answered, one passes, though others wait by then; and those of the same moment, as long as they are small
    /// together ([`Urgency::SMALL`]). Whoever needs it asks again. What is dropped is decided by [`Repeats`](crate::Repeats).
    pub fn repeating<T>(&mut self, input: impl FnOnce(&mut Effects<P>) -> T) -> T {
        self.with(Urgency::Repeat, input)
    }

    /// As [`Effects::urgently`] where that is so, else with no other urgency than before.
    pub fn urgently_if<T>(&mut self, urgent: bool, input: impl FnOnce(&mut Effects<P>) -> T) -> T {
        if urgent { self.urgently(input) } else { input(self) }
    }

    /// As [`Effects::repeating`] where that is so, else with no other urgency than before.
    pub fn repeating_if<T>(&mut self, again: bool, input: impl FnOnce(&mut Effects<P>) -> T) -> T {
        if again { self.repeating(input) } else { input(self) }
    }

    fn with<T>(&mut self, urgency: Urgency, input: impl FnOnce(&mut Effects<P>) -> T) -> T {
        let before = std::mem::replace(&mut self.urgency, urgency);
        let out = input(self);
        self.urgency = before;
        out
    }

    /// Writes a record. Everything made later waits until it is durable.
    pub fn record(&mut self, record: P::Record) {
        self.queue.push(Effect::Record { record, haste: Haste::Now });
    }

    /// Writes a record. Everything made later waits until it is durable, and nobody minds if that takes some
    /// milliseconds longer: a host may let it wait for company, since a sync costs the same whatever it carries.
    pub fn record_soon(&mut self, record: P::Record) {
        self.queue.push(Effect::Record { record, haste: Haste::Soon });
    }

    /// Writes a record that keeps its place in the journal and holds nothing back. A crash may lose
    /// it although later effects have left.
    pub fn record_lazily(&mut self, record: P::Record) {
        self.queue.push(Effect::Record { record, haste: Haste::Lazy });
    }

    /// Arms a timer; where it runs already, this replaces it.
    pub fn arm(&mut self, timer: P::Timer, after: Span) {
        self.queue.push(Effect::Arm { timer, after });
    }

    /// Stops a timer, if it runs.
    pub fn disarm(&mut self, timer: P::Timer) {
        self.queue.push(Effect::Disarm { timer });
    }

    /// Answers a ticket for the last time, once earlier records are durable.
    pub fn complete(&mut self, ticket: Ticket, outcome: P::Outcome) {
        self.queue.push(Effect::Complete { ticket, outcome, lane: Lane::Held });
    }

    /// Answers a ticket for the last time without waiting; see [`Effects::send_ahead`] for what may.
    pub fn complete_ahead(&mut self, ticket: Ticket, outcome: P::Outcome) {
        self.queue.push(Effect::Complete { ticket, outcome, lane: Lane::Ahead });
    }

    /// Answers a ticket with more to come.
    pub fn emit(&mut self, ticket: Ticket, outcome: P::Outcome) {
        self.queue.push(Effect::Emit { ticket, outcome });
    }

    /// Notes something for metrics and tests; it changes nothing.
    pub fn mark(&mut self, mark: P::Mark) {
        self.queue.push(Effect::Mark(mark));
    }

    /// Runs an input of a process that this one holds. The inner effects take their place in this
    /// process' order, each wrapped in one variant of its own; inner answers come back as values, in
    /// order, behind all inner records, so what this process then makes of them waits for those too.
    /// Whether one was the last of its ticket is not told, so a process that emits says so in the answer.
    pub fn lend<Q: Process>(
        &mut self,
        loan: &mut Loan<Q>,
        wrap: &impl Wrap<P, Q>,
        input: impl FnOnce(&mut Effects<Q>),
    ) -> Vec<(Ticket, Q::Outcome)> {
        let inner = loan.0.get_or_insert_with(|| Effects {
            me: self.me,
            now: self.now,
            stamp: self.stamp,
            random: Random::seeded(0),
            urgency: self.urgency,
            queue: Vec::new(),
        });
        (inner.me, inner.now, inner.stamp, inner.urgency) = (self.me, self.now, self.stamp, self.urgency);
        std::mem::swap(&mut inner.random, &mut self.random);
        input(inner);
        std::mem::swap(&mut inner.random, &mut self.random);
        self.take_over(inner, wrap)
    }

    /// The effects of a held process become this one's; one copy serves all kinds of input.
    fn take_over<Q: Process>(
        &mut self,
        inner: &mut Effects<Q>,
        wrap: &impl Wrap<P, Q>,
    ) -> Vec<(Ticket, Q::Outcome)> {
        let mut answers = Vec::new();
        for effect in inner.queue.drain(..) {
            self.queue.push(match effect {
                Effect::Send { to, message, lane, urgency } => {
                    Effect::Send { to, message: wrap.message(message), lane, urgency }
                }
                Effect::Record { record, haste } => Effect::Record { record: wrap.record(record), haste },
                Effect::Arm { timer, after } => Effect::Arm { timer: wrap.timer(timer), after },
                Effect::Disarm { timer } => Effect::Disarm { timer: wrap.timer(timer) },
                Effect::Mark(mark) => Effect::Mark(wrap.mark(mark)),
                Effect::Complete { ticket, outcome, .. } | Effect::Emit { ticket, outcome } => {
                    answers.push((ticket, outcome));
                    continue;
                }
            });
        }
        answers
    }
}

/// How the effects of a held process `Q` are told apart inside its holder `P`.
pub trait Wrap<P: Process, Q: Process> {
    /// The variant that carries its messages.
    fn message(&self, message: Q::Message) -> P::Message;
    /// The variant that carries its records.
    fn record(&self, record: Q::Record) -> P::Record;
    /// The variant that carries its timers.
    fn timer(&self, timer: Q::Timer) -> P::Timer;
    /// The variant that carries its marks.
    fn mark(&self, mark: Q::Mark) -> P::Mark;
}

/// A buffer that a holder keeps for each process it holds, so that lending allocates nothing. It is no
/// part of the holder's state: clones start empty, all are equal.
pub struct Loan<Q: Process>(Option<Effects<Q>>);

impl<Q: Process> Default for Loan<Q> {
    fn default() -> Loan<Q> {
        Loan(None)
    }
}

impl<Q: Process> Clone for Loan<Q> {
    fn clone(&self) -> Loan<Q> {
        Loan(None)
    }
}

impl<Q: Process> fmt::Debug for Loan<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loan")
    }
}

impl<Q: Process> Hash for Loan<Q> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<Q: Process> PartialEq for Loan<Q> {
    fn eq(&self, _: &Loan<Q>) -> bool {
        true
    }
}

impl<Q: Process> Eq for Loan<Q> {}

/// The host's face of one process' effects: it sets the clocks for an input and drains what came of it.
pub struct Outbox<P: Process>(Effects<P>);

impl<P: Process> Outbox<P> {
    /// The outbox of one process in one incarnation, with its own randomness.
    pub fn new(me: ProcessId, random: Random) -> Outbox<P> {
        let urgency = Urgency::Ordinary;
        Outbox(Effects { me, now: Instant::ZERO, stamp: Stamp::ZERO, random, urgency, queue: Vec::new() })
    }

    /// Sets the clocks for one input and gives the protocol's face.
    ///
    /// # Panics
    /// If effects of an earlier input were not drained: a host bug that would mix two inputs.
    pub fn input(&mut self, now: Instant, stamp: Stamp) -> &mut Effects<P> {
        assert!(self.0.queue.is_empty(), "effects of the last input were not drained");
        debug_assert!(self.0.now <= now, "the steady clock went back from {} to {now}", self.0.now);
        self.0.now = now;
        self.0.stamp = stamp;
        &mut self.0
    }

    /// Takes the effects of the last input, first made first out.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect<P>> + '_ {
        self.0.queue.drain(..)
    }

    /// Whether the last input had no effects.
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }
}
