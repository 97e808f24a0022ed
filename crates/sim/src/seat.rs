//! One process in its place: its records, snapshot, timers and held effects, all typed; and the face
//! that the simulation sees, which is not.

use crate::timers::{Fire, Timers};
use crate::trace::{FlowEvent, label};
use crate::world::{Event, Input, Outcome, Outgoing, World};
use isochrone_core::{
    Blob, Effect, Fact, Identity, Lane, Malformed, Mark, Outbox, Process, ProcessId, Protocol, Random,
    Snapshot, Ticket, Urgency, wire,
};
use std::collections::VecDeque;

/// A process behind its type.
pub(crate) trait Actor<F: Protocol> {
    /// Opens the next life from what is durable; `Input::Start` comes after.
    fn open(&mut self, world: &World<F>) -> Result<(), Malformed>;
    /// Handles one input and lets its effects out.
    fn input(&mut self, input: Input<F>, world: &mut World<F>);
    /// The input at hand has ended.
    fn settle(&mut self, world: &mut World<F>);
    /// Lets out what waited for records up to `durable`; true where more waits.
    fn release(&mut self, durable: u64, world: &mut World<F>) -> bool;
    /// The life ends; records behind `kept` are lost.
    fn crash(&mut self, kept: u64);
    /// A queued timer event is due.
    fn fire(&mut self, slot: u32, generation: u32, world: &mut World<F>) -> Option<Input<F>>;
    /// The steady clock of the node changed its rate.
    fn rearm(&mut self, world: &mut World<F>);
    /// Takes a snapshot where the records are that many; true where one was taken.
    fn take_snapshot(&mut self, every: u64) -> bool;
    /// The snapshot is durable, if the records it covers are; false where it must wait.
    fn keep_snapshot(&mut self, durable: u64) -> bool;
}

/// What waits for a record.
enum Held<F: Protocol> {
    Send { to: ProcessId, message: F::Message, urgency: Urgency },
    Answer { ticket: Ticket, outcome: Outcome<F>, last: bool },
    Mark { fact: Option<Fact>, text: Option<String> },
}

type Ask<F, P> = fn(<F as Protocol>::Request) -> Option<<P as Process>::Request>;
type Tell<F, P> = fn(<P as Process>::Outcome) -> Outcome<F>;

pub(crate) struct Seat<F: Protocol, P: Process<Message = F::Message>> {
    index: u32,
    node: u32,
    id: ProcessId,
    setup: P::Setup,
    ask: Ask<F, P>,
    tell: Tell<F, P>,
    incarnation: u32,
    process: Option<P>,
    outbox: Outbox<P>,
    timers: Timers<P::Timer>,
    /// The position of the newest record that holds back what comes after it.
    barrier: u64,
    /// With the position they wait for and the time they were made.
    held: VecDeque<(u64, u64, Held<F>)>,
    records: VecDeque<(u64, P::Record)>,
    last_record: u64,
    since_snapshot: u64,
    snapshot: Vec<Blob>,
    taking: Option<(u64, Snapshot)>,
}

impl<F: Protocol, P: Process<Message = F::Message>> Seat<F, P> {
    pub(crate) fn new(
        index: u32,
        node: u32,
        id: ProcessId,
        setup: P::Setup,
        ask: Ask<F, P>,
        tell: Tell<F, P>,
    ) -> Seat<F, P> {
        Seat {
            index,
            node,
            id,
            setup,
            ask,
            tell,
            incarnation: 0,
            process: None,
            outbox: Outbox::new(id, Random::seeded(0)),
            timers: Timers::new(),
            barrier: 0,
            held: VecDeque::new(),
            records: VecDeque::new(),
            last_record: 0,
            since_snapshot: 0,
            snapshot: Vec::new(),
            taking: None,
        }
    }

    /// Lets the effects of one input out, or into the queue of those that wait.
    fn drain(&mut self, world: &mut World<F>) {
        let made = world.at;
        for effect in self.outbox.drain() {
            if !world.effect(self.node, matches!(effect, Effect::Record { .. })) {
                // The node crashes between two effects: the rest of them never was.
                break;
            }
            let (lane, held) = match effect {
                Effect::Send { to, message, lane, urgency } => (lane, Held::Send { to, message, urgency }),
                Effect::Complete { ticket, outcome, lane } => {
                    (lane, Held::Answer { ticket, outcome: (self.tell)(outcome), last: true })
                }
                Effect::Emit { ticket, outcome } => {
                    (Lane::Held, Held::Answer { ticket, outcome: (self.tell)(outcome), last: false })
                }
                Effect::Mark(mark) => {
                    let text = world.trace.recording.then(|| label(&mark));
                    (Lane::Held, Held::Mark { fact: mark.fact(), text })
                }
                Effect::Record { record, haste } => {
                    let position = world.record(self.node, haste.holds());
                    self.last_record = position;
                    self.since_snapshot += 1;
                    if haste.holds() {
                        self.barrier = position;
                    }
                    self.records.push_back((position, record));
                    continue;
                }
                Effect::Arm { timer, after } => {
                    let clock = &world.nodes[self.node as usize].clock;
                    let deadline = clock.steady(world.at).saturating_add(after.as_nanos());
                    let due = clock.when(deadline);
                    if let Some((slot, generation)) = self.timers.arm(timer, deadline, due) {
                        world.queue.push(due, Event::Timer { process: self.index, slot, generation });
                    }
                    continue;
                }
                Effect::Disarm { timer } => {
                    self.timers.disarm(&timer);
                    continue;
                }
            };
            let durable = world.nodes[self.node as usize].durable;
            if lane == Lane::Held && self.barrier > durable {
                if self.held.is_empty() {
                    world.nodes[self.node as usize].waiting.push(self.index);
                }
                self.held.push_back((self.barrier, made, held));
            } else {
                leave(self.index, held, made, lane == Lane::Ahead, world);
            }
        }
    }
}

/// An effect leaves its process.
fn leave<F: Protocol>(process: u32, effect: Held<F>, made: u64, ahead: bool, world: &mut World<F>) {
    match effect {
        Held::Send { to, message, urgency } => world.send(process, to, message, made, ahead, urgency),
        Held::Answer { ticket, outcome, last } => {
            world.outgoing.push(Outgoing::Answer { process, at: world.at, ticket, outcome, last });
        }
        Held::Mark { fact, text } => {
            if let Some(text) = text {
                let node = world.places[process as usize].node as usize;
                let decided = matches!(fact, Some(Fact::Decided { .. }));
                world.trace.note(world.at, Some(node), || {
                    if decided { FlowEvent::Decided(text) } else { FlowEvent::Mark(text) }
                });
            }
            if let Some(fact) = fact {
                world.fact(process, fact);
            }
        }
    }
}

impl<F: Protocol, P: Process<Message = F::Message>> Actor<F> for Seat<F, P> {
    fn open(&mut self, world: &World<F>) -> Result<(), Malformed> {
        self.incarnation += 1;
        let identity = Identity { process: self.id, incarnation: self.incarnation };
        let mut process = P::open(identity, &self.setup);
        for chunk in &self.snapshot {
            process.restore(chunk.clone())?;
        }
        for (_, record) in &self.records {
            // On a node it has been bytes meanwhile, and so it has here.
            let again = wire::decode::<P::Record>(&wire::encode(record));
            match again {
                Ok(again) if again == *record => process.replay(again),
                again => {
                    let cause = format!("{} came back from its bytes as {}", label(record), label(&again));
                    return Err(Malformed { what: "record", cause });
                }
            }
        }
        self.process = Some(process);
        let seed = world.seed ^ self.id.to_u64().rotate_left(20) ^ u64::from(self.incarnation) << 32;
        self.outbox = Outbox::new(self.id, Random::seeded(seed));
        self.last_record = self.records.back().map_or(0, |(position, _)| *position);
        self.barrier = self.last_record;
        Ok(())
    }

    fn input(&mut self, input: Input<F>, world: &mut World<F>) {
        let Some(process) = &mut self.process else { return };
        let (now, stamp) = world.clocks(self.node);
        let effects = self.outbox.input(now, stamp);
        match input {
            Input::Start => process.start(effects),
            Input::Message { from, message } => {
                process.receive(world.places[from as usize].id, message, effects);
            }
            Input::Request { ticket, request } => {
                if let Some(request) = (self.ask)(request) {
                    process.request(ticket, request, effects);
                }
            }
            Input::Admin { ticket, request } => {
                if let Ok(request) = request.downcast() {
                    process.request(ticket, *request, effects);
                }
            }
            Input::Cancel { ticket } => process.cancel(ticket, effects),
            Input::Expire { slot, arming } => {
                if let Some(timer) = self.timers.expire(slot, arming) {
                    process.expire(timer, effects);
                }
            }
        }
        if world.check {
            process.check();
        }
        self.drain(world);
    }

    fn settle(&mut self, world: &mut World<F>) {
        let Some(process) = &mut self.process else { return };
        let (now, stamp) = world.clocks(self.node);
        process.settle(self.outbox.input(now, stamp));
        if world.check {
            process.check();
        }
        self.drain(world);
    }

    fn release(&mut self, durable: u64, world: &mut World<F>) -> bool {
        while let Some((position, ..)) = self.held.front() {
            if *position > durable {
                return true;
            }
            if !world.effect(self.node, false) {
                return false;
            }
            let Some((_, made, effect)) = self.held.pop_front() else { break };
            // A turn may run ahead of the queue; nothing leaves before it was made.
            world.at = world.now.max(made);
            leave(self.index, effect, made, false, world);
        }
        false
    }

    fn crash(&mut self, kept: u64) {
        self.process = None;
        self.held.clear();
        self.timers.clear();
        self.taking = None;
        while self.records.back().is_some_and(|(position, _)| *position > kept) {
            self.records.pop_back();
        }
        self.since_snapshot = self.records.len() as u64;
    }

    fn fire(&mut self, slot: u32, generation: u32, world: &mut World<F>) -> Option<Input<F>> {
        let clock = &world.nodes[self.node as usize].clock;
        match self.timers.fire(slot, generation, clock.steady(world.now)) {
            Fire::Stale => None,
            Fire::Early { deadline, generation } => {
                let due = clock.when(deadline);
                self.timers.queued(slot, due);
                world.queue.push(due, Event::Timer { process: self.index, slot, generation });
                None
            }
            Fire::Due { arming } => Some(Input::Expire { slot, arming }),
        }
    }

    fn rearm(&mut self, world: &mut World<F>) {
        let clock = &world.nodes[self.node as usize].clock;
        for (slot, generation, due) in self.timers.hurry(|deadline| clock.when(deadline)) {
            world.queue.push(due, Event::Timer { process: self.index, slot, generation });
        }
    }

    fn take_snapshot(&mut self, every: u64) -> bool {
        if self.since_snapshot < every || self.taking.is_some() {
            return false;
        }
        let Some(snapshot) = self.process.as_ref().and_then(P::snapshot) else {
            // It keeps nothing worth one; ask again after as many records.
            self.since_snapshot = 0;
            return false;
        };
        self.since_snapshot = 0;
        self.taking = Some((self.last_record, snapshot));
        true
    }

    fn keep_snapshot(&mut self, durable: u64) -> bool {
        match self.taking.take() {
            Some((covers, chunks)) if covers <= durable => {
                // Read only now, when the process has gone on: the view must not have.
                self.snapshot = chunks.collect();
                while self.records.front().is_some_and(|(position, _)| *position <= covers) {
                    self.records.pop_front();
                }
                true
            }
            early => {
                let waits = early.is_some();
                self.taking = early;
                !waits
            }
        }
    }
}
