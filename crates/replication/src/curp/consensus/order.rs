//! The order: a log, and beside it a witness.

use super::message::{Message, Note, Record, Timer};
use super::recovery::{Reports, threshold};
use super::{Mutation, Parameters};
use crate::chunks::chunked;
use crate::curp::recent::Recent;
use crate::curp::witness::{Packed, Stored, Witness};
use crate::curp::{Verdicts, key_hashes};
use crate::multipaxos::log::{self, Log, Value};
use crate::order::{self, Knobs, Member, Membership, Ordered, Reign, Setup, Step, Takes, Tentative};
use crate::request::{Change, Refusal};
use isochrone_core::{
    Ballot, Blob, CommandId, Effects, Identity, Instant, Loan, Malformed, Process, ProcessId, Quorums, Slot,
    Snapshot, Ticket, Wire, Wrap, wire,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A log with a witness. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Order<V: Ordered> {
    process: ProcessId,
    parameters: Knobs<Parameters>,
    log: Log<V>,
    loan: Loan<Log<V>>,
    witness: Witness<Packed<V>>,
    /// The witness is cleared of all that is decided before it.
    cleared: Slot,
    /// A peer's state has come since the witness last wrote down what it keeps.
    jumped: bool,
    recent: Recent,
    /// When the witness' next round of collections begins.
    round: Instant,
    stage: Stage<V>,
}

/// What a replica does about leading.
#[derive(Clone, Hash, Debug)]
enum Stage<V: Ordered> {
    /// It does not lead.
    Follower,
    /// It leads in this ballot, and brings back what earlier leaders may have answered.
    Recovery(Ballot, Reports<V>, Replay),
    /// It takes commands in this ballot.
    Serving(Ballot),
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
enum Replay {
    /// Too few witnesses have told what they hold, or not all is decided that the leader adopted.
    Gathers,
    /// What is replayed is proposed, and a no-op.
    Proposed,
}

impl<V: Ordered> Stage<V> {
    fn ballot(&self) -> Option<Ballot> {
        match self {
            Stage::Follower => None,
            Stage::Recovery(ballot, ..) | Stage::Serving(ballot) => Some(*ballot),
        }
    }
}

/// How the log's effects are told apart.
struct Inner;

impl<V: Ordered> Wrap<Order<V>, Log<V>> for Inner {
    fn message(&self, message: log::Message<V>) -> Message<V> {
        Message::Log(message)
    }
    fn record(&self, record: log::Record<V>) -> Record<V> {
        Record::Log(record)
    }
    fn timer(&self, timer: log::Timer) -> Timer {
        Timer::Log(timer)
    }
    fn mark(&self, mark: log::Note) -> Note {
        Note::Log(mark)
    }
}

/// A chunk of an order's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
enum Image<V: Wire> {
    /// Of the log.
    Log(Blob),
    /// Of the witness.
    Witness(Vec<Stored<Packed<V>>>),
}

impl<V: Ordered> Order<V> {
    /// The witness.
    pub fn witness(&self) -> &Witness<Packed<V>> {
        &self.witness
    }

    /// The log.
    pub fn log(&self) -> &Log<V> {
        &self.log
    }

    /// Whether this replica leads and takes commands.
    pub fn serves_commands(&self) -> bool {
        let early = match &self.stage {
            Stage::Recovery(_, _, Replay::Gathers) if self.mutated(Mutation::SpeculateBeforeNoop) => {
                self.log.caught_up()
            }
            Stage::Recovery(..) => self.mutated(Mutation::PoolNotRebuilt),
            Stage::Follower | Stage::Serving(_) => false,
        };
        let serves = early || matches!(self.stage, Stage::Serving(_));
        serves && self.log.leads() && self.stage.ballot() == Some(self.log.ballot())
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        self.parameters.0.mutated(mutation)
    }

    /// Gives the log an input, and does what follows from it.
    fn with_log(
        &mut self,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut Log<V>, &mut Effects<Log<V>>),
    ) {
        let log = &mut self.log;
        let answers = effects.lend(&mut self.loan, &Inner, |inner| input(log, inner));
        for (ticket, answer) in answers {
            effects.complete(ticket, answer);
        }
        self.clear_decided();
        self.follow_log(effects);
        self.end_round(effects);
    }

    /// Clears the witness of what is in the log at or below the commit index (D-36): whoever leads next has it.
    fn clear_decided(&mut self) {
        let end = match self.mutated(Mutation::ClearUndecided) {
            true => self.log.end(),
            false => self.log.decided(),
        };
        for slot in self.cleared.max(self.log.base()).until(end) {
            let Some(Value::Batch(values)) = self.log.value(slot) else { continue };
            for value in values.iter() {
                let Some(id) = value.id().filter(|_| !value.reads()) else { continue };
                self.recent.insert(id, self.parameters.0.remember);
                if self.witness.is_empty() {
                    continue;
                }
                for hash in key_hashes(self.process.keyspace, |see| value.visit(see)).unwrap_or_default() {
                    self.witness.collect(hash, id);
                }
            }
        }
        self.cleared = self.cleared.max(end);
    }

    /// Begins what a new leader owes, goes on with it, or ends it.
    fn follow_log(&mut self, effects: &mut Effects<Self>) {
        let leads = self.log.leads().then(|| self.log.ballot());
        if leads != self.stage.ballot() {
            effects.disarm(Timer::Freeze);
            self.stage = Stage::Follower;
            if let Some(ballot) = leads {
                self.stage = Stage::Recovery(ballot, Reports::new(), Replay::Gathers);
                self.freeze(effects);
            }
        }
        self.replay_commands(effects);
    }

    /// Asks the witnesses that have not answered yet.
    fn freeze(&mut self, effects: &mut Effects<Self>) {
        let Stage::Recovery(ballot, reports, Replay::Gathers) = &self.stage else { return };
        for member in self.log.configuration().members() {
            if !reports.contains(member.process) {
                let freeze = Message::Freeze { ballot: *ballot };
                effects.urgently(|effects| effects.send_ahead(member.process, freeze));
            }
        }
        effects.arm(Timer::Freeze, self.parameters.0.log.resend);
    }

    fn on_freeze(&mut self, from: ProcessId, ballot: Ballot, effects: &mut Effects<Self>) {
        self.with_log(effects, |log, inner| log.follow(from, ballot, inner));
        if self.log.ballot() == ballot {
            // The promise lies before this message: no record of an older term is accepted any more.
            let contents = self.witness.contents().into_values().map(Packed::unpack).collect();
            effects.repeating(|effects| effects.send(from, Message::Frozen { ballot, contents }));
        }
    }

    fn on_frozen(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        contents: Arc<[V]>,
        effects: &mut Effects<Self>,
    ) {
        if let Stage::Recovery(current, reports, Replay::Gathers) = &mut self.stage
            && *current == ballot
        {
            reports.add(from, contents);
            self.replay_commands(effects);
        }
    }

    /// Proposes what may have been completed by witnesses and a no-op of this term, once enough witnesses have
    /// answered of the members in force behind all that was adopted.
    fn replay_commands(&mut self, effects: &mut Effects<Self>) {
        let Stage::Recovery(ballot, reports, Replay::Gathers) = &self.stage else { return };
        if !self.log.decided_what_it_adopted() {
            return;
        }
        let members: Vec<_> =
            self.log.configuration().members().iter().map(|member| member.process).collect();
        let (ballot, told) = (*ballot, reports.of(&members));
        if self.mutated(Mutation::SkipReplay) {
            self.stage = Stage::Recovery(ballot, Reports::new(), Replay::Proposed);
            return;
        }
        if told < Quorums::majority(members.len()) {
            return;
        }
        let more = usize::from(self.mutated(Mutation::ReplayMoreThan));
        let replayed = reports.held_by(&members, threshold(members.len(), told) + more);
        debug_assert!(self.commute(&replayed), "two that are replayed share a key");
        effects.disarm(Timer::Freeze);
        if !replayed.is_empty() {
            effects.mark(Note::Counted("recoveries_with_replay"));
        }
        // What is in the log already is executed once all the same.
        let now = effects.now();
        for value in replayed {
            let bytes = wire::encoded_size(&value);
            self.log.enqueue_replayed(value, bytes, now);
        }
        let log = &mut self.log;
        effects.lend(&mut self.loan, &Inner, |inner| log.propose_noop(inner));
        self.stage = Stage::Recovery(ballot, Reports::new(), Replay::Proposed);
    }

    /// Whether no two of these share a key.
    fn commute(&self, values: &[V]) -> bool {
        let keys = |value: &V| key_hashes(self.process.keyspace, |see| value.visit(see)).unwrap_or_default();
        let mut all: Vec<u64> = values.iter().flat_map(keys).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        all.len() == count
    }

    /// Takes commands from the moment when all that a new leader owes is decided and taken out.
    fn serve_if_ready(&mut self) {
        let ready = match &self.stage {
            Stage::Recovery(_, _, Replay::Proposed) => self.log.is_idle(),
            Stage::Recovery(..) | Stage::Follower | Stage::Serving(_) => false,
        };
        if let (true, Stage::Recovery(ballot, ..)) = (ready, &self.stage) {
            self.stage = Stage::Serving(*ballot);
        }
    }

    fn on_records(
        &mut self,
        from: ProcessId,
        reign: Reign,
        incarnation: u32,
        values: Vec<V>,
        effects: &mut Effects<Self>,
    ) {
        let ballot = self.log.ballot();
        let other = ballot == Ballot::ZERO || reign.0 != ballot.reign();
        if other && !self.mutated(Mutation::AcceptAnyTerm) {
            let ids = values.iter().filter_map(Ordered::id);
            let verdicts = ids.map(|id| (id.sequence, false)).collect();
            let reign = order::Order::reign(self);
            let refused = Message::Verdicts(Verdicts { incarnation, reign, verdicts });
            return effects.urgently(|effects| effects.send_ahead(from, refused));
        }
        let (mut kept, mut held, mut told, mut room) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // Seed 92 of three replicas: what was cleared before a peer's state was taken in, the journal does not tell.
        let before = self.jumped.then(|| self.witness.export().map(|held| (held.hash, held.id)).collect());
        for value in values {
            let Some(id) = value.id() else { continue };
            if self.recent.contains(id) {
                // Decided: safer than any record.
                told.push((id.sequence, true));
                continue;
            }
            let Some(keys) =
                key_hashes(self.process.keyspace, |see| value.visit(see)).filter(|_| !value.reads())
            else {
                told.push((id.sequence, false));
                continue;
            };
            let packed = Packed::new(&value, &mut room);
            if self.mutated(Mutation::AcceptConflict) {
                for hash in &keys {
                    self.witness.absorb(Stored { hash: *hash, id, request: packed.clone() });
                }
            }
            let known = keys.iter().all(|hash| self.witness.holds(*hash, id));
            let bytes = packed.bytes();
            match self.witness.record(&keys, id, packed, bytes) {
                Ok(()) => {
                    held.push((id.sequence, true));
                    if !known {
                        kept.push(value);
                    }
                }
                Err(_) => {
                    effects.mark(Note::Counted("records_refused"));
                    told.push((id.sequence, false));
                }
            }
        }
        if !told.is_empty() {
            let told = Message::Verdicts(Verdicts { incarnation, reign, verdicts: told });
            effects.urgently(|effects| effects.send_ahead(from, told));
        }
        if held.is_empty() {
            return;
        }
        let accepted = Message::Verdicts(Verdicts { incarnation, reign, verdicts: held });
        if self.mutated(Mutation::AcceptBeforeDurable) {
            effects.send_ahead(from, accepted.clone());
        }
        if !kept.is_empty() {
            self.jumped = false;
            effects.record(Record::Kept { values: kept, decided: self.cleared, held: before });
        }
        // What was held before is recorded before this message all the same.
        effects.urgently(|effects| effects.send(from, accepted));
    }

    /// Ends a round of collections when it is time: what has been in the way of others for long goes to the leader,
    /// who proposes it as if its client asked again (`specs/curp.md` 3.8).
    fn end_round(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if now < self.round {
            return;
        }
        self.round = now + self.parameters.0.round;
        if self.witness.is_empty() {
            return;
        }
        let values: Vec<V> = self.witness.turn().into_iter().map(|(_, value)| value.unpack()).collect();
        if let Some(leader) = self.log.leader().filter(|_| !values.is_empty()) {
            effects.repeating(|effects| effects.send_ahead(leader, Message::Suspects { values }));
        }
    }

    fn on_suspects(&mut self, values: Vec<V>, effects: &mut Effects<Self>) {
        if !self.serves_commands() {
            return;
        }
        for value in values {
            let bytes = wire::encoded_size(&value);
            effects.mark(Note::Counted("suspects"));
            // Refused, it is suspected again.
            let _ = order::Order::propose(&mut self.log, value, bytes, effects.now());
        }
    }

    /// What a journal tells of the witness: what was accepted had room when it was written down, so what stands in
    /// its way had been collected.
    fn recall(&mut self, values: Vec<V>, decided: Slot, held: Option<Vec<(u64, CommandId)>>) {
        if self.mutated(Mutation::ForgetRecords) {
            return;
        }
        self.log.recall(decided);
        self.clear_decided();
        if let Some(held) = held {
            self.witness.retain(|hash, id| held.contains(&(hash, id)));
        }
        let mut room = Vec::new();
        for value in values {
            let Some(id) = value.id() else { continue };
            let packed = Packed::new(&value, &mut room);
            for hash in key_hashes(self.process.keyspace, |see| value.visit(see)).unwrap_or_default() {
                let held = self.witness.absorb(Stored { hash, id, request: packed.clone() });
                debug_assert!(held, "a record that had room finds none");
            }
        }
    }
}

impl<V: Ordered> order::Order for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = <Log<V> as order::Order>::Position;

    const TOTAL: bool = true;
    const AHEAD: bool = true;
    const DEFERS: bool = true;
    const SPECULATES: bool = true;
    const MEMBERSHIP: Membership = Membership::Own;

    fn takes(&self) -> Takes {
        match (self.log.takes(), self.serves_commands()) {
            (Takes::Here, false) => Takes::Nobody,
            (takes, _) => takes,
        }
    }

    fn candidate(&self) -> Option<ProcessId> {
        self.log.candidate()
    }

    fn leads(&self) -> bool {
        self.log.leads()
    }

    fn may_read(&self, now: Instant) -> bool {
        let early = self.mutated(Mutation::ServeBeforeNoop);
        (early || self.serves_commands()) && self.log.may_read(now)
    }

    /// The term, and how often the members were changed: acceptances of the members before do not count among those
    /// of the members behind a change.
    fn reign(&self) -> Reign {
        Reign(self.log.ballot().reign(), u64::from(self.log.configuration().version()))
    }

    fn members(&self) -> &[Member] {
        self.log.configuration().members()
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        match self.serves_commands() {
            true => order::Order::propose(&mut self.log, value, bytes, now),
            false => Err(Refusal::NotLeader),
        }
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        if self.log.take_dropped() {
            return Some(Step::Dropped);
        }
        while let Some(values) = self.log.next_announced() {
            // What is replayed is answered when it is decided.
            if self.serves_commands() {
                return Some(Step::Tentative(Tentative { values, answer: true }));
            }
        }
        let step = self.log.step(now);
        if step.is_none() {
            self.serve_if_ready();
        }
        step
    }

    fn serial(&self) -> u64 {
        self.log.serial()
    }

    fn position(&self) -> Self::Position {
        self.log.position()
    }

    fn serves(&self, serial: u64) -> bool {
        self.log.serves(serial)
    }

    fn behind(&self) -> Option<ProcessId> {
        self.log.behind()
    }

    fn install(&mut self, position: &Self::Position) -> bool {
        let installed = self.log.install(position);
        // Whether it was ahead or not: that a heartbeat told as much is in no record, so for a replay it may be.
        self.jumped = true;
        self.clear_decided();
        installed
    }

    fn hold(&mut self, held: bool) {
        self.log.hold(held);
    }

    fn give_up(&mut self) {
        order::Order::give_up(&mut self.log);
    }

    /// Members change where commands are taken: behind a change what witnesses hold is counted among the new ones, and what
    /// was completed before, only a superquorum of the old ones need hold.
    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        let early = !self.serves_commands() && !self.mutated(Mutation::ChangeMembersEarly);
        if early && matches!(change, Change::Add(_) | Change::Remove(_)) {
            return effects.complete_ahead(ticket, Err(Refusal::NotLeader));
        }
        self.with_log(effects, |log, inner| order::Order::change(log, ticket, change, inner));
    }
}

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = log::Answer;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        let inner = Setup {
            members: setup.members.clone(),
            preferred: setup.preferred,
            parameters: setup.parameters.log,
        };
        let mut log = Log::open(identity, &inner);
        log.announce();
        Order {
            process: identity.process,
            parameters: Knobs(setup.parameters),
            log,
            loan: Loan::default(),
            witness: Witness::new(setup.parameters.witness),
            cleared: Slot::ZERO,
            jumped: false,
            recent: Recent::default(),
            round: Instant::ZERO,
            stage: Stage::Follower,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let image = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "consensus snapshot chunk", cause: error.to_string() })?;
        match image {
            Image::Log(chunk) => {
                self.log.restore(chunk)?;
                self.cleared = self.log.decided();
            }
            Image::Witness(_) if self.mutated(Mutation::ForgetRecords) => {}
            Image::Witness(rows) => {
                for row in rows {
                    self.witness.absorb(row);
                }
            }
        }
        Ok(())
    }

    fn replay(&mut self, record: Record<V>) {
        match record {
            Record::Log(record) => {
                self.log.replay(record);
                self.clear_decided();
            }
            Record::Kept { values, decided, held } => self.recall(values, decided, held),
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.with_log(effects, |log, inner| log.start(inner));
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        match message {
            Message::Log(message) => self.with_log(effects, |log, inner| log.receive(from, message, inner)),
            Message::Records { reign, incarnation, values } => {
                self.on_records(from, reign, incarnation, values, effects);
            }
            Message::Freeze { ballot } => self.on_freeze(from, ballot, effects),
            Message::Frozen { ballot, contents } => self.on_frozen(from, ballot, contents, effects),
            Message::Suspects { values } => self.on_suspects(values, effects),
            Message::Inquire => {
                if self.serves_commands() {
                    let reign = order::Order::reign(self);
                    let members = self.log.configuration().members().iter();
                    let witnesses: Arc<[ProcessId]> = members.map(|member| member.process).collect();
                    // A group has at most as many members as there are seats.
                    let needed = self.parameters.0.superquorum(witnesses.len()) as u8;
                    let leader = self.process;
                    effects.send_ahead(from, Message::Members { reign, leader, witnesses, needed });
                }
            }
            // For clients.
            Message::Verdicts(_) | Message::Members { .. } => {}
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Log(timer) => self.with_log(effects, |log, inner| log.expire(timer, inner)),
            Timer::Freeze => self.freeze(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.with_log(effects, |log, inner| log.settle(inner));
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let log = self.log.snapshot().into_iter().flatten();
        let log = log.map(|chunk| Blob::from(wire::encode(&Image::<V>::Log(chunk))));
        Some(Box::new(log.chain(chunked(self.witness.export().collect(), Image::Witness))))
    }

    fn check(&self) {
        self.log.check();
        assert!(self.cleared >= self.log.decided(), "the witness holds what was decided");
        if let Stage::Serving(_) = self.stage {
            assert!(
                !self.log.leads() || self.serves_commands(),
                "a leader serves in a term that is not its own"
            );
        }
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Image<u8>>("curp-consensus");
}
