//! The client that takes commands. See the module.

pub(super) mod forwarding;

use super::keys::{self, Keys};
use super::lines::Lines;
use super::scratch::{Executed, execute};
use super::whole::{Then, Whole};
use super::{Answer, Ask, Carries, Parameters, Refusal, Setup, Transacts, counted};
use crate::around::{Around, Timer};
use crate::listing::holds;
use crate::request::{self, Outcome, Read, Reason, Request, TxnId};
use forwarding::{Away, BYTES_MAX, Forwards, GuestId};
use isochrone_core::command::{Command, Operation, Response};
use isochrone_core::{
    Blob, Effects, Fact, Identity, Instant, Loan, Malformed, Process, ProcessId, Snapshot, Span, Stamp,
    StateMachine as _, Ticket, wire,
};
use isochrone_replication::partitions::Noted;
use isochrone_store::Store;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A client of transactions, and the commands that become its transactions.
#[derive(Clone, Hash)]
pub struct Commands<C: Process> {
    knobs: Parameters,
    client: C,
    loan: Loan<C>,
    /// Whether the client had an input since the last [`Process::settle`].
    touched: bool,
    /// The next command, batch, or ticket at the client.
    next: u64,
    asked: BTreeMap<u64, Asked>,
    /// Of commands, by the host's ticket.
    tickets: BTreeMap<Ticket, u64>,
    lines: Lines,
    /// Commands that have all their keys.
    ready: VecDeque<u64>,
    batches: BTreeMap<u64, Batch>,
    /// Batches that are to begin a transaction.
    go: VecDeque<u64>,
    /// Batches that are to begin another one, and when.
    pausing: BTreeSet<(Instant, u64)>,
    armed: Option<Instant>,
    /// What the client was asked, by ticket, and on whose behalf.
    inner: BTreeMap<u64, Of>,
    /// Commits that the client was asked for, by ticket, and until when they may wait for others.
    commits: BTreeMap<u64, (Instant, TxnId)>,
    /// Of transactions, by the host's ticket: what the client was asked, or the command that deletes what is over for them.
    hosts: BTreeMap<Ticket, u64>,
    /// Those of them that have not begun, as far as the host knows.
    begins: BTreeMap<Ticket, Beginning>,
    /// Commands that look at all keys, with the host's ticket.
    wholes: BTreeMap<u64, (Ticket, Whole)>,
    /// Those of them that wait for what came before them.
    behind: BTreeSet<u64>,
    forwards: Forwards,
}

/// A command that is not answered.
#[derive(Clone, Hash, Debug)]
struct Asked {
    whose: Whose,
    command: Command,
    keys: Keys,
    since: Instant,
    /// How many of its keys it still waits for.
    missing: usize,
    /// Whether it is a part of a batch.
    taken: bool,
}

/// Who waits for a command.
#[derive(Copy, Clone, Hash, Debug)]
enum Whose {
    Host(Ticket),
    /// Another client, as the so many-th of what it has forwarded.
    Guest(GuestId, usize),
    /// A transaction of the host's own, which begins anew behind it.
    Begins(Ticket),
    /// Nobody any more.
    Nobody,
}

/// A transaction of the host's own that begins.
#[derive(Clone, Hash, Debug)]
struct Beginning {
    reads: Vec<Blob>,
    writes: Vec<Blob>,
    since: Instant,
    /// What has its deadline at or before this is over for it.
    stamp: Stamp,
    /// How often it has found something over.
    tries: u32,
}

/// Commands that go as one transaction, in order.
#[derive(Clone, Hash, Debug)]
struct Batch {
    /// The keys that are let go at the end.
    held: Keys,
    /// The commands of the transaction, and its keys.
    run: Vec<u64>,
    keys: Keys,
    /// Commands that go behind them, one by one: together they were too large.
    rest: VecDeque<u64>,
    /// Whether others were looked for that could go along.
    gathered: bool,
    since: Instant,
    /// Transactions that were aborted.
    tries: u32,
    /// Whether the next is to be executed here, wherever the keys have their home.
    stays: bool,
    stage: Stage,
}

#[derive(Clone, Hash, Debug)]
enum Stage {
    /// It is to begin, at once or after a pause.
    Waits,
    /// Another client is to execute it.
    Away(Away),
    /// It was asked to begin, under this ticket, and has time until then.
    Begins { ticket: u64, due: Instant },
    /// It was asked to commit; with these replies, if that succeeds.
    Commits { txn: TxnId, replies: Vec<Response>, writes: bool },
}

#[derive(Copy, Clone, Hash, Debug)]
enum Of {
    Batch(u64),
    Host(Ticket),
    Whole(u64),
    /// The end of a transaction that nobody waits for.
    Nobody,
}

/// Commands that look at all keys at a time; more are refused.
const WHOLES_MAX: usize = 256;
/// Times that a transaction of the host's own is begun at most, because what it has read is over.
const BEGINS_MAX: u32 = 8;
/// Commands of more keys than this go alone: who could go with them is looked for key by key.
const GATHERING_KEYS_MAX: usize = 64;

impl<C: Transacts> Commands<C>
where
    C::Message: Carries,
{
    /// The client inside.
    #[cfg(test)]
    pub(super) fn client(&self) -> &C {
        &self.client
    }

    /// The same, to be changed.
    #[cfg(test)]
    pub(super) fn client_mut(&mut self) -> &mut C {
        &mut self.client
    }

    #[cfg(test)]
    pub(super) fn patience(&self) -> Span {
        self.knobs.patience
    }

    #[cfg(test)]
    pub(super) fn limit(&self) -> Span {
        self.knobs.limit
    }

    fn partitions(&self) -> u16 {
        // There are at most 1,024.
        self.forwards.map.groups.len() as u16
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives the client an input.
    fn with(&mut self, effects: &mut Effects<Self>, input: impl FnOnce(&mut C, &mut Effects<C>)) {
        self.touched = true;
        self.lend(effects, input);
    }

    fn lend(&mut self, effects: &mut Effects<Self>, input: impl FnOnce(&mut C, &mut Effects<C>)) {
        let client = &mut self.client;
        let answers = effects.lend(&mut self.loan, &Around, |inner| input(client, inner));
        for (ticket, outcome) in answers {
            self.answered(ticket.0, outcome, effects);
        }
    }

    /// Asks the client.
    fn request(&mut self, of: Of, request: Request, effects: &mut Effects<Self>) {
        let ticket = self.number();
        self.inner.insert(ticket, of);
        if let Of::Host(host) = of {
            self.hosts.insert(host, ticket);
        }
        if let Request::Commit { txn, .. } = request
            && let Some(due) = self.waits_until(of, effects.now())
        {
            self.commits.insert(ticket, (due, txn));
            self.pausing.insert((due, ticket));
        }
        self.with(effects, |client, effects| client.request(Ticket(ticket), request, effects));
    }

    /// Until when a commit that is asked for now may wait for others.
    fn waits_until(&self, of: Of, now: Instant) -> Option<Instant> {
        let since = match of {
            Of::Batch(number) => self.batches.get(&number)?.since,
            Of::Host(_) => now,
            Of::Whole(number) => self.wholes.get(&number)?.1.since,
            Of::Nobody => return None,
        };
        // A last try has some time too.
        Some((since + self.knobs.limit).max(now + self.knobs.patience))
    }

    /// A commit is not looked after any more.
    fn leave_commit(&mut self, ticket: u64) {
        if let Some((due, _)) = self.commits.remove(&ticket) {
            self.pausing.remove(&(due, ticket));
        }
    }

    fn answered(&mut self, ticket: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        self.leave_commit(ticket);
        let of = self.inner.remove(&ticket);
        if let (Outcome::Aborted(reason), Some(Of::Batch(_) | Of::Host(_))) = (&outcome, of) {
            effects.mark(Noted::Fact(Fact::Counted(counted(*reason))));
        }
        match of {
            Some(Of::Batch(number)) => self.proceed(number, outcome, effects),
            Some(Of::Host(ticket)) => self.tell_host(ticket, outcome, effects),
            Some(Of::Whole(number)) => self.walked(number, outcome, effects),
            Some(Of::Nobody) | None => {}
        }
    }

    /// A transaction of the host's own goes on. Not so one that has read what is over by its stamp: another node, whose clock is
    /// behind, would still find that there. A command deletes it, as every read does, and the transaction begins anew, so
    /// that what it finds absent then is absent for all.
    fn tell_host(&mut self, ticket: Ticket, outcome: Outcome, effects: &mut Effects<Self>) {
        self.hosts.remove(&ticket);
        let (txn, reads) = match &outcome {
            Outcome::Begun { txn, reads } => (Some(*txn), Some(reads)),
            Outcome::Snapshot { reads, .. } => (None, Some(reads)),
            _ => (None, None),
        };
        if let Some(begins) = self.begins.remove(&ticket) {
            let over = |value: &Blob| !holds(value, None, begins.stamp);
            let reads = reads.into_iter().flatten().filter(|read| read.value.as_ref().is_some_and(over));
            // They are read and written: both sets together are hardly larger than those that were accepted.
            let most = ((begins.reads.len() + begins.writes.len()) / 2).max(1);
            let keys: Vec<Blob> = reads.take(most).map(|read| read.key.clone()).collect();
            if !keys.is_empty() {
                self.abandon(txn, effects);
                return self.delete_over(ticket, begins, keys, effects);
            }
        }
        effects.complete(ticket, Answer::Transaction(outcome));
    }

    /// Deletes keys that are over for a transaction of the host's own, within the time of a command since it was asked for.
    fn delete_over(
        &mut self,
        ticket: Ticket,
        mut begins: Beginning,
        over: Vec<Blob>,
        effects: &mut Effects<Self>,
    ) {
        begins.tries += 1;
        let late = effects.now().since(begins.since) >= self.knobs.limit;
        if late || begins.tries >= BEGINS_MAX {
            return Self::did_not_begin(ticket, Reason::StaleRead, effects);
        }
        if self.asked.len() >= self.knobs.open_max {
            let refusal = request::Refusal::Overloaded(self.asked.len());
            return effects.complete(ticket, Answer::Transaction(Outcome::Refused(refusal)));
        }
        let used = keys::Use { reads: true, writes: true };
        let keys = over.iter().map(|key| (key.clone(), used)).collect();
        let command = Command::new(begins.stamp, Operation::Sweep { keys: over.into() });
        let number = self.line_up(Whose::Begins(ticket), command, keys, begins.since);
        self.hosts.insert(ticket, number);
        self.begins.insert(ticket, begins);
    }

    /// What was over for a transaction of the host's own is so no more, or that could not be brought about in time.
    fn begin_anew(&mut self, ticket: Ticket, answer: Answer, effects: &mut Effects<Self>) {
        self.hosts.remove(&ticket);
        let Some(begins) = self.begins.get(&ticket) else { return };
        let reason = match answer {
            Answer::Replied(_) => {
                let (reads, writes) = (begins.reads.clone(), begins.writes.clone());
                return self.request(Of::Host(ticket), Request::Begin { reads, writes }, effects);
            }
            Answer::Refused(Refusal::Contended { reason, .. }) => reason,
            Answer::Refused(Refusal::Transaction(refusal)) => {
                self.begins.remove(&ticket);
                return effects.complete(ticket, Answer::Transaction(Outcome::Refused(refusal)));
            }
            // What may yet take effect deletes only what is over.
            _ => Reason::Unavailable,
        };
        self.begins.remove(&ticket);
        Self::did_not_begin(ticket, reason, effects);
    }

    /// A transaction of the host's own has ended before it has begun.
    fn did_not_begin(ticket: Ticket, reason: Reason, effects: &mut Effects<Self>) {
        effects.mark(Noted::Fact(Fact::Counted(counted(reason))));
        effects.complete(ticket, Answer::Transaction(Outcome::Aborted(reason)));
    }

    fn ask(&mut self, ticket: Ticket, command: Command, effects: &mut Effects<Self>) {
        let mut touched = Keys::default();
        let refusal = match keys::add(&mut touched, &command.operation) {
            Err(name) => Some(Refusal::Whole(name)),
            Ok(()) if self.asked.len() >= self.knobs.open_max => Some(Refusal::Overloaded(self.asked.len())),
            Ok(()) => None,
        };
        if let Some(Refusal::Whole(_)) = refusal
            && let Some(whole) = Whole::of(&command, self.partitions(), effects.now())
        {
            if self.wholes.len() >= WHOLES_MAX {
                return effects.complete_ahead(ticket, Answer::Refused(Refusal::Overloaded(WHOLES_MAX)));
            }
            let number = self.number();
            self.tickets.insert(ticket, number);
            if whole.waits() {
                self.behind.insert(number);
                self.pausing.insert((whole.since + self.knobs.limit, number));
            } else {
                self.go.push_back(number);
            }
            self.wholes.insert(number, (ticket, whole));
            return;
        }
        if let Some(refusal) = refusal {
            return effects.complete_ahead(ticket, Answer::Refused(refusal));
        }
        if touched.is_empty() {
            // It depends on nothing.
            let reply = Store::default().apply(&command);
            return effects.complete_ahead(ticket, Answer::Replied(reply));
        }
        let number = self.line_up(Whose::Host(ticket), command, touched, effects.now());
        self.tickets.insert(ticket, number);
    }

    /// A command gets into line for its keys.
    fn line_up(&mut self, whose: Whose, command: Command, keys: Keys, since: Instant) -> u64 {
        let number = self.number();
        let missing = self.lines.join(number, &keys);
        if missing == 0 {
            self.ready.push_back(number);
        } else {
            self.pausing.insert((since + self.knobs.limit, number));
        }
        self.asked.insert(number, Asked { whose, command, keys, since, missing, taken: false });
        number
    }

    /// A command has all its keys: it is to begin.
    fn start(&mut self, first: u64) {
        let Some(asked) = self.asked.get_mut(&first) else { return };
        asked.taken = true;
        self.pausing.remove(&(asked.since + self.knobs.limit, first));
        let (held, keys, since) = (asked.keys.clone(), asked.keys.clone(), asked.since);
        let number = self.number();
        let (run, rest, stage) = (vec![first], VecDeque::new(), Stage::Waits);
        let (gathered, tries, stays) = (false, 0, false);
        let batch = Batch { held, run, keys, rest, gathered, since, tries, stays, stage };
        self.batches.insert(number, batch);
        self.go.push_back(number);
    }

    /// Who is next in line for the keys of a batch that begins or leaves, and needs no others, goes along.
    fn gather(&mut self, number: u64) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        if std::mem::replace(&mut batch.gathered, true) {
            return;
        }
        let first = batch.run.first().and_then(|first| self.asked.get(first));
        let conditional =
            first.is_some_and(|first| matches!(first.command.operation, Operation::Transaction { .. }));
        let mut bytes: usize = first.map_or(0, |first| wire::encoded_size(&first.command));
        // What is much older would leave the others little time.
        let oldest = batch.since;
        while batch.run.len() < self.knobs.gather_max && batch.held.len() <= GATHERING_KEYS_MAX {
            let mut next = self.lines.next(&batch.held).into_iter().filter_map(|number| {
                let asked = self.asked.get(&number)?;
                self.lines.may_go_with(number, &asked.keys, &batch.held).then_some(number)
            });
            let Some(next) = next.next() else { break };
            let Some(asked) = self.asked.get_mut(&next) else { break };
            bytes += wire::encoded_size(&asked.command);
            if bytes > BYTES_MAX || asked.since + self.knobs.limit / 4 < oldest {
                break;
            }
            asked.taken = true;
            self.pausing.remove(&(asked.since + self.knobs.limit, next));
            self.lines.go_with(next, &asked.keys);
            if conditional {
                // What the first writes unread it may not write at all; then the others want what was there.
                for (key, used) in &asked.keys {
                    batch.keys.entry(key.clone()).or_default().reads |= used.reads;
                }
            }
            batch.since = batch.since.min(asked.since);
            batch.run.push(next);
        }
    }

    /// A command that looks at all keys asks for what it needs next; again, where nobody has answered in time.
    fn walk(&mut self, number: u64, effects: &mut Effects<Self>) {
        let now = effects.now();
        let Some((_, whole)) = self.wholes.get_mut(&number) else { return };
        if whole.inner.is_some() && now < whole.due {
            // The answer came in the moment in which it was not to be waited for any more, and led to this question.
            return;
        }
        if let Some(inner) = whole.inner.take() {
            self.forget(inner, effects);
        }
        let Some((_, whole)) = self.wholes.get_mut(&number) else { return };
        if now.since(whole.since) >= self.knobs.limit {
            let answer = whole.late(self.knobs.limit);
            return self.end_walk(number, answer, effects);
        }
        let then = whole.ask();
        self.walk_on(number, then, effects);
    }

    fn walked(&mut self, number: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        self.pausing.retain(|(_, other)| *other != number);
        let Some((_, whole)) = self.wholes.get_mut(&number) else { return };
        whole.inner = None;
        let then = whole.answered(outcome, effects.now());
        self.walk_on(number, then, effects);
    }

    fn walk_on(&mut self, number: u64, then: Then, effects: &mut Effects<Self>) {
        let Parameters { retry, patience, limit, .. } = self.knobs;
        match then {
            Then::Ask(request) => {
                let Some((_, whole)) = self.wholes.get_mut(&number) else { return };
                // Who leads nothing does not answer which keys there are; transactions end by themselves.
                let due = match request {
                    Request::List { .. } => effects.now() + patience,
                    // When its time is over it is to be aborted, and says whether it was.
                    Request::Commit { .. } => (whole.since + limit).max(effects.now() + patience) + patience,
                    _ => whole.since + limit,
                };
                whole.due = due;
                self.pausing.insert((due, number));
                // Its answer may come at once.
                whole.inner = Some(self.next + 1);
                self.request(Of::Whole(number), request, effects);
            }
            Then::Pause => {
                let Some((_, whole)) = self.wholes.get(&number) else { return };
                let (now, end) = (effects.now(), whole.since + limit);
                self.pausing.insert(((now + retry.pause_max).min(end.max(now)), number));
            }
            Then::End(answer) => self.end_walk(number, answer, effects),
        }
    }

    fn end_walk(&mut self, number: u64, answer: Answer, effects: &mut Effects<Self>) {
        if let Some((ticket, _)) = self.drop_walk(number) {
            self.tickets.remove(&ticket);
            effects.complete(ticket, answer);
        }
    }

    fn drop_walk(&mut self, number: u64) -> Option<(Ticket, Whole)> {
        let dropped = self.wholes.remove(&number)?;
        self.behind.remove(&number);
        self.pausing.retain(|(_, other)| *other != number);
        Some(dropped)
    }

    /// Nobody waits for this answer of the client any more.
    fn forget(&mut self, inner: u64, effects: &mut Effects<Self>) {
        self.inner.remove(&inner);
        self.leave_commit(inner);
        self.with(effects, |client, effects| client.cancel(Ticket(inner), effects));
    }

    /// Begins the transaction of a batch.
    fn begin(&mut self, number: u64, effects: &mut Effects<Self>) {
        if self.wholes.contains_key(&number) {
            return self.walk(number, effects);
        }
        if self.cooled(number) || self.retires(number, effects) {
            return;
        }
        if let Some((_, txn)) = self.commits.remove(&number) {
            // Its own answer says whether it was too late for that.
            return self.abandon(Some(txn), effects);
        }
        let Some(batch) = self.batches.get_mut(&number) else { return self.waited(number, effects) };
        if let Stage::Begins { ticket, due } = batch.stage {
            if due <= effects.now() {
                // Nothing of it was asked to take effect.
                self.forget(ticket, effects);
                self.fail_late(number, &Answer::Refused(Refusal::Unreached(self.knobs.limit)), effects);
            }
            return;
        }
        // It may have come back in the moment in which it was not to be waited for any more.
        if !matches!(batch.stage, Stage::Waits | Stage::Away(_)) {
            return;
        }
        let here = matches!(batch.stage, Stage::Waits);
        if here && batch.tries == 0 && effects.now().since(batch.since) >= self.knobs.limit {
            let refusal = Refusal::Waited(self.knobs.limit);
            return self.fail_late(number, &Answer::Refused(refusal), effects);
        }
        if self.leaves(number, effects) {
            return;
        }
        self.gather(number);
        let Some(batch) = self.batches.get_mut(&number) else { return };
        // A last try has some time too.
        let due = (batch.since + self.knobs.limit).max(effects.now() + self.knobs.patience);
        self.pausing.insert((due, number));
        // Its answer may come at once.
        batch.stage = Stage::Begins { ticket: self.next + 1, due };
        let of = |wanted: fn(&keys::Use) -> bool| -> Vec<Blob> {
            batch.keys.iter().filter(|(_, used)| wanted(used)).map(|(key, _)| key.clone()).collect()
        };
        let (reads, writes) = (of(|used| used.reads), of(|used| used.writes));
        self.request(Of::Batch(number), Request::Begin { reads, writes }, effects);
    }

    /// A command has waited in line for long.
    fn waited(&mut self, number: u64, effects: &mut Effects<Self>) {
        let limit = self.knobs.limit;
        let Some(asked) = self.asked.get(&number).filter(|asked| !asked.taken) else { return };
        let whose = asked.whose;
        if effects.now().since(asked.since) >= limit {
            self.give_up(number);
            self.answer(number, Answer::Refused(Refusal::Waited(limit)), effects);
        } else if let Whose::Guest(id, _) = whose {
            self.waited_here(id, effects);
        }
    }

    /// The transaction of a batch has come further.
    fn proceed(&mut self, number: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        if let Stage::Begins { due, .. } = batch.stage {
            self.pausing.remove(&(due, number));
        }
        match outcome {
            Outcome::Begun { txn, reads } => self.execute(number, Some(txn), &reads, effects),
            Outcome::Snapshot { reads, .. } => self.execute(number, None, &reads, effects),
            Outcome::Committed { .. } => {
                if let Stage::Commits { replies, .. } = std::mem::replace(&mut batch.stage, Stage::Waits) {
                    self.finish(number, replies, effects);
                }
            }
            Outcome::Aborted(reason) => self.again(number, reason, effects),
            Outcome::Unknown => match batch.stage {
                Stage::Commits { writes: true, .. } => self.fail(number, &Answer::Unknown, effects),
                // Nothing was to be written.
                _ => self.again(number, Reason::Unavailable, effects),
            },
            // It took too long to come here: it was ended meanwhile.
            Outcome::Refused(request::Refusal::NotOpen(_)) => self.again(number, Reason::Presumed, effects),
            Outcome::Refused(refusal) => {
                if let Stage::Commits { txn, .. } = batch.stage {
                    self.abandon(Some(txn), effects);
                }
                self.refuse(number, Refusal::Transaction(refusal), effects);
            }
            // A batch asks for none of these.
            Outcome::Moved(_) | Outcome::Served(_) | Outcome::Listed { .. } => {}
        }
    }

    /// What the commands of a batch depend on was read.
    fn execute(&mut self, number: u64, txn: Option<TxnId>, reads: &[Read], effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let commands = batch.run.iter().filter_map(|number| self.asked.get(number));
        let executed = execute(commands.map(|asked| &asked.command), &batch.keys, reads);
        let Executed { replies, updates } = match executed {
            Ok(executed) => executed,
            Err(key) => {
                self.abandon(txn, effects);
                return self.refuse(number, Refusal::Foreign(key), effects);
            }
        };
        // A key that was only to be read is to be deleted: its time is over.
        let mut undeclared = false;
        for update in &updates {
            let used = batch.keys.entry(update.key.clone()).or_default();
            undeclared |= !std::mem::replace(&mut used.writes, true);
        }
        match txn {
            _ if undeclared => {
                batch.stage = Stage::Waits;
                self.go.push_back(number);
                self.abandon(txn, effects);
            }
            None => self.finish(number, replies, effects),
            Some(txn) => {
                batch.stage = Stage::Commits { txn, replies, writes: !updates.is_empty() };
                self.request(Of::Batch(number), Request::Commit { txn, updates }, effects);
            }
        }
    }

    /// Ends a transaction that is open.
    fn abandon(&mut self, txn: Option<TxnId>, effects: &mut Effects<Self>) {
        if let Some(txn) = txn {
            self.request(Of::Nobody, Request::Abort { txn }, effects);
        }
    }

    /// A transaction has had no effect.
    fn again(&mut self, number: u64, reason: Reason, effects: &mut Effects<Self>) {
        let Parameters { retry, limit, .. } = self.knobs;
        let now = effects.now();
        if matches!(reason, Reason::Conflict | Reason::StaleRead) {
            self.heat(number, effects);
        }
        let Some(batch) = self.batches.get_mut(&number) else { return };
        batch.tries = batch.tries.saturating_add(1);
        batch.stage = Stage::Waits;
        let wanted =
            |number: &u64| self.asked.get(number).is_some_and(|asked| !matches!(asked.whose, Whose::Nobody));
        let end = batch.since + limit;
        let wanted = batch.run.iter().any(wanted);
        let tried = batch.tries;
        match retry.pause(tried, reason, effects.random()).filter(|_| wanted && now < end) {
            Some(_) if self.leaves(number, effects) => {}
            Some(pause) => drop(self.pausing.insert(((now + pause).min(end), number))),
            None => {
                let refusal = match reason {
                    Reason::Unavailable => Refusal::Unreached(limit),
                    reason => Refusal::Contended { tries: tried, limit, reason },
                };
                self.fail_late(number, &Answer::Refused(refusal), effects);
            }
        }
    }

    /// A transaction was not taken up: where several commands are in it, they go one by one.
    fn refuse(&mut self, number: u64, refusal: Refusal, effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        if batch.run.len() < 2 {
            return self.fail(number, &Answer::Refused(refusal), effects);
        }
        batch.rest = std::mem::take(&mut batch.run).into();
        self.go_on(number, effects);
    }

    /// Those commands of a transaction whose time is over, or for which nobody waits, end without reply; the others go on
    /// together. Where there are none of the former, all end.
    fn fail_late(&mut self, number: u64, answer: &Answer, effects: &mut Effects<Self>) {
        let (now, limit) = (effects.now(), self.knobs.limit);
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let over = |asked: &Asked| asked.since + limit <= now || matches!(asked.whose, Whose::Nobody);
        let late = |number: &u64| self.asked.get(number).is_none_or(over);
        let (late, others): (Vec<u64>, Vec<u64>) = batch.run.iter().copied().partition(late);
        if late.is_empty() || others.is_empty() {
            return self.fail(number, answer, effects);
        }
        (batch.keys, batch.since) = (Keys::default(), now);
        for asked in others.iter().filter_map(|other| self.asked.get(other)) {
            batch.since = batch.since.min(asked.since);
            for (key, used) in &asked.keys {
                let held = batch.keys.entry(key.clone()).or_default();
                held.reads |= used.reads;
                held.writes |= used.writes;
            }
        }
        (batch.run, batch.tries, batch.stage) = (others, 0, Stage::Waits);
        self.go.push_back(number);
        for command in late {
            self.answer(command, answer.clone(), effects);
        }
    }

    /// All commands of a transaction end without reply.
    fn fail(&mut self, number: u64, answer: &Answer, effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        for command in std::mem::take(&mut batch.run) {
            self.answer(command, answer.clone(), effects);
        }
        self.go_on(number, effects);
    }

    /// A transaction has taken effect.
    fn finish(&mut self, number: u64, replies: Vec<Response>, effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let run = std::mem::take(&mut batch.run);
        for (command, reply) in run.into_iter().zip(replies) {
            self.answer(command, Answer::Replied(reply), effects);
        }
        self.go_on(number, effects);
    }

    fn answer(&mut self, command: u64, answer: Answer, effects: &mut Effects<Self>) {
        let Some(asked) = self.asked.remove(&command) else { return };
        match asked.whose {
            Whose::Host(ticket) => {
                self.tickets.remove(&ticket);
                effects.complete(ticket, answer);
            }
            Whose::Guest(id, place) => self.ended(id, place, answer, effects),
            Whose::Begins(ticket) => self.begin_anew(ticket, answer, effects),
            Whose::Nobody => {}
        }
    }

    /// A batch goes on with what is left of it; if that is nothing, its keys are let go.
    fn go_on(&mut self, number: u64, effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        let next = batch.rest.pop_front();
        if let Some((command, asked)) = next.and_then(|next| Some((next, self.asked.get(&next)?))) {
            (batch.run, batch.keys) = (vec![command], asked.keys.clone());
            (batch.since, batch.tries, batch.stage) = (asked.since, 0, Stage::Waits);
            return self.go.push_back(number);
        }
        let Some(batch) = self.batches.remove(&number) else { return };
        self.let_go(number, batch, effects);
    }

    /// Keys are let go: who was next in line for them has one more each.
    fn leave(&mut self, keys: &Keys) {
        let mut got = Vec::new();
        self.lines.leave(keys, |command| got.push(command));
        self.got(got);
    }

    fn got(&mut self, commands: Vec<u64>) {
        for command in commands {
            let Some(asked) = self.asked.get_mut(&command) else { continue };
            asked.missing -= 1;
            if asked.missing == 0 {
                self.ready.push_back(command);
            }
        }
    }

    /// Nobody waits for a command any more: unless it has begun, it does not.
    fn leave_alone(&mut self, number: u64) {
        let Some(asked) = self.asked.get_mut(&number) else { return };
        asked.whose = Whose::Nobody;
        if !asked.taken {
            self.give_up(number);
            self.asked.remove(&number);
        }
    }

    /// Takes a command that is in no batch out of line.
    fn give_up(&mut self, number: u64) {
        let Some(asked) = self.asked.get(&number) else { return };
        self.pausing.remove(&(asked.since + self.knobs.limit, number));
        let mut got = Vec::new();
        self.lines.give_up(number, &asked.keys, |command| got.push(command));
        self.got(got);
    }
}

impl<C: Transacts> Process for Commands<C>
where
    C::Message: Carries,
{
    type Setup = Setup<C::Setup>;
    type Message = C::Message;
    type Record = C::Record;
    type Request = Ask;
    type Outcome = Answer;
    type Timer = Timer<C::Timer>;
    type Mark = Noted<C::Mark>;

    fn open(identity: Identity, setup: &Self::Setup) -> Self {
        Commands {
            knobs: setup.parameters,
            client: C::open(identity, &setup.client),
            loan: Loan::default(),
            touched: false,
            next: 0,
            asked: BTreeMap::new(),
            tickets: BTreeMap::new(),
            lines: Lines::default(),
            ready: VecDeque::new(),
            batches: BTreeMap::new(),
            go: VecDeque::new(),
            pausing: BTreeSet::new(),
            armed: None,
            inner: BTreeMap::new(),
            commits: BTreeMap::new(),
            hosts: BTreeMap::new(),
            begins: BTreeMap::new(),
            wholes: BTreeMap::new(),
            behind: BTreeSet::new(),
            forwards: Forwards::new(identity.incarnation, setup.map.clone(), setup.nodes.clone()),
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.client.restore(chunk)
    }

    fn replay(&mut self, record: C::Record) {
        self.client.replay(record);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.with(effects, C::start);
    }

    fn receive(&mut self, from: ProcessId, message: C::Message, effects: &mut Effects<Self>) {
        match message.carried() {
            Ok(forward) => self.on_forward(from, forward, effects),
            Err(message) => self.with(effects, |client, effects| client.receive(from, message, effects)),
        }
    }

    fn request(&mut self, ticket: Ticket, ask: Ask, effects: &mut Effects<Self>) {
        match ask {
            Ask::Command(command) => self.ask(ticket, command, effects),
            Ask::Transaction(request) => {
                if let Request::Begin { reads, writes } = &request {
                    let (reads, writes) = (reads.clone(), writes.clone());
                    let (since, stamp) = (effects.now(), effects.stamp());
                    self.begins.insert(ticket, Beginning { reads, writes, since, stamp, tries: 0 });
                }
                self.request(Of::Host(ticket), request, effects);
            }
            Ask::Retire => self.retire(ticket, effects),
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        if let Some(number) = self.hosts.remove(&ticket) {
            self.begins.remove(&ticket);
            if self.asked.contains_key(&number) {
                return self.leave_alone(number);
            }
            return self.forget(number, effects);
        }
        let Some(number) = self.tickets.remove(&ticket) else { return };
        if let Some((_, whole)) = self.drop_walk(number) {
            return whole.inner.into_iter().for_each(|inner| self.forget(inner, effects));
        }
        self.leave_alone(number);
    }

    fn expire(&mut self, timer: Self::Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Of(timer) => self.with(effects, |client, effects| client.expire(timer, effects)),
            Timer::Again => {
                self.armed = None;
                while let Some((due, number)) = self.pausing.first().copied()
                    && due <= effects.now()
                {
                    self.pausing.pop_first();
                    self.go.push_back(number);
                }
            }
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        loop {
            while let Some(number) = self.ready.pop_front() {
                self.start(number);
            }
            let free = |number: &u64| self.asked.keys().next().is_none_or(|first| number < first);
            if let Some(number) = self.behind.first().copied().filter(free) {
                self.behind.remove(&number);
                self.walk(number, effects);
            } else if let Some(number) = self.go.pop_front() {
                self.begin(number, effects);
            } else if std::mem::take(&mut self.touched) {
                self.lend(effects, C::settle);
            } else {
                break;
            }
        }
        let due = self.pausing.first().map(|(due, _)| *due);
        if let Some(due) = due.filter(|due| self.armed.is_none_or(|armed| *due < armed)) {
            self.armed = Some(due);
            let now = effects.now();
            effects.arm(Timer::Again, if due > now { due.since(now) } else { Span::ZERO });
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.client.snapshot()
    }

    fn check(&self) {
        self.client.check();
        let nobody = self.asked.is_empty() && !self.forwards.cools_something();
        assert!(!nobody || self.lines.is_empty(), "keys are held by nobody");
        let taken = self.asked.values().filter(|asked| asked.taken).count();
        let members = self.batches.values().map(|batch| batch.run.len() + batch.rest.len()).sum::<usize>();
        assert!(taken == members, "{taken} commands are taken, and {members} are in batches");
    }
}
