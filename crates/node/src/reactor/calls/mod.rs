//! Calls: what clients without a session ask of the shard, from other threads. The gRPC server makes them.
//!
//! A call comes through a bounded queue and gets one answer. Transactions that are open between two calls are listed
//! here, with the user that began them and the connection, until they end, their time is over, or the connection closes.

mod line;
#[cfg(test)]
mod tests;

pub(crate) use line::{Answer, Ask, By, Call, Connection, Line, Refusal, Said, Token, Why};

use super::verifier::{Asker, Party};
use super::{Origin, Reactor, TICK};
use crate::audit::{Act, Decision};
use crate::events::Event;
use crate::gateway::{self, Abort, KeyspaceView, Outcome, Read, Secret, Step, Transaction, Unfit};
use crate::memory::shown;
use crate::redis::acl::{DEFAULT, Entry, Reason, Verdict, Within, network};
use crate::redis::call::{self, After, Objection};
use bytes::Bytes;
use isochrone_core::command::Command;
use isochrone_core::{Blob, CommandId, Instant, ProcessId, Span, Ticket};
use line::{STOPPING, WAITING};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio::sync::oneshot;

/// The calls of a node.
pub(crate) struct Calls {
    queue: Receiver<Call>,
    /// Drawn at every start.
    life: u64,
    /// Each under the number of the ticket that has begun it.
    open: BTreeMap<u64, Open>,
    /// The newest of each name: one that is open, is beginning, or is to commit.
    names: BTreeMap<Named, u64>,
    /// For each keyspace, how long a transaction may be open.
    time_limits: Vec<Span>,
    /// The protocols that have transactions.
    transactional: Vec<&'static str>,
    /// Those that wait for a password to be checked.
    logins: BTreeMap<Party, Vec<Waiting>>,
    swept: Instant,
}

/// A login that waits: the user, whether the password is known to be right, and who is told.
type Waiting = (Arc<str>, bool, oneshot::Sender<Answer>);

/// What a client calls a transaction: each user's names are its own.
type Named = (Arc<str>, Blob);

/// A transaction between two calls.
#[derive(Clone)]
pub(crate) struct Open {
    txn: CommandId,
    of: ProcessId,
    /// The keyspace, as a place among all.
    keyspace: usize,
    user: Arc<str>,
    on: Connection,
    name: Option<Blob>,
    since: Instant,
}

impl Open {
    fn named(&self) -> Option<Named> {
        Some((Arc::clone(&self.user), self.name.clone()?))
    }
}

/// A call that waits for a process.
pub(crate) struct Pending {
    /// Nothing where the caller was told already that nobody knows.
    answer: Option<oneshot::Sender<Answer>>,
    stage: Stage,
    pub keyspace: usize,
    pub asked: Instant,
    pub of: ProcessId,
    /// Whether it is a command that changes nothing.
    pub reads: bool,
}

enum Stage {
    /// It will be open under this number.
    Begins {
        number: u64,
        user: Arc<str>,
        on: Connection,
        name: Option<Blob>,
    },
    /// With what has happened then, as far as anybody wants to be told.
    Commits(u64, Open, Vec<(Event, Blob)>),
    Aborts,
    Executes(After),
}

impl Stage {
    /// The name and the number of what begins or commits.
    fn named(&self) -> Option<(Named, u64)> {
        match self {
            Stage::Begins { number, user, name: Some(name), .. } => {
                Some(((Arc::clone(user), name.clone()), *number))
            }
            Stage::Commits(number, open, _) => open.named().map(|named| (named, *number)),
            _ => None,
        }
    }
}

/// What is said where there was no answer in time.
const LATE: &str = "no answer in time";
/// What is said of a transaction that has not begun before its name was given up.
const SUPERSEDED: &str = "another Begin or an Abort of this name came behind this one";

impl Pending {
    /// How it has ended for those who count, where there was no answer in time: what changes nothing had no effect.
    pub fn late(&self) -> Outcome {
        match self.stage {
            Stage::Commits(..) | Stage::Executes(_) if !self.reads => Outcome::Unknown(LATE.to_owned()),
            _ => Outcome::Refused(LATE.to_owned()),
        }
    }

    /// Tells the caller that there was no answer in time. Whether the answer is wanted all the same: a transaction that
    /// begins late has to be ended.
    pub fn give_up(&mut self) -> bool {
        let begins = self.begins();
        if let Some(answer) = self.answer.take() {
            // Whoever is gone need not be told.
            let _ = answer.send(match &self.stage {
                Stage::Begins { .. } => Err(Refusal::new(
                    Why::TryAgain,
                    format!(
                        "{LATE}: others hold the same keys, or a partition is cut off or has no majority"
                    ),
                )),
                _ if self.reads => Err(Refusal::new(Why::TryAgain, LATE)),
                _ => Ok(Said::Unknown(format!("{LATE}; it may or may not take effect"))),
            });
        }
        begins
    }

    fn begins(&self) -> bool {
        matches!(self.stage, Stage::Begins { .. })
    }

    /// Whether the caller was told that nobody knows.
    pub fn is_given_up(&self) -> bool {
        self.answer.is_none()
    }
}

impl Calls {
    /// Of a node whose keyspaces have these limits of time, in their order.
    pub fn new(
        queue: Receiver<Call>,
        life: u64,
        time_limits: Vec<Span>,
        transactional: Vec<&'static str>,
    ) -> Calls {
        Calls {
            queue,
            life,
            open: BTreeMap::new(),
            names: BTreeMap::new(),
            time_limits,
            transactional,
            logins: BTreeMap::new(),
            swept: Instant::ZERO,
        }
    }

    /// Transactions that are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether the name of a transaction belongs to a newer one, or was given up.
    fn is_superseded(&self, number: u64, open: &Open) -> bool {
        open.named().is_some_and(|named| self.names.get(&named) != Some(&number))
    }

    /// Frees a name, unless it belongs to another by now.
    fn free(&mut self, named: &Named, number: u64) {
        if self.names.get(named) == Some(&number) {
            self.names.remove(named);
        }
    }

    /// The answer of a process to this call is not waited for any more.
    pub fn forget(&mut self, pending: &Pending) {
        if let Some((named, number)) = pending.stage.named() {
            self.free(&named, number);
        }
    }

    /// Takes an open transaction off the list.
    fn close(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        if let Some(named) = open.named() {
            self.free(&named, number);
        }
        Some(open)
    }
}

impl Reactor {
    /// Takes up what was asked since the last round.
    pub(super) fn take_calls(&mut self, now: Instant) {
        for (party, accepted) in std::mem::take(&mut self.clients.verdicts_of_calls) {
            self.logged_in(party, accepted);
        }
        // As many as may wait: what comes meanwhile is for the next round.
        for _ in 0..WAITING {
            let Ok(call) = self.calls.queue.try_recv() else { break };
            let now = self.shard.look_at(self.clock);
            self.take_call(call, now);
        }
        if now >= self.calls.swept + TICK {
            self.calls.swept = now;
            self.sweep_open(now);
        }
    }

    fn take_call(&mut self, Call { ask, by, answer }: Call, now: Instant) {
        let ticket = self.origins.ticket();
        let user = ask.user().cloned();
        let taken = match ask {
            Ask::Login { named, from } => return self.login(named, from, answer, now),
            Ask::Begin { user, on, keyspace, reads, writes, name } => {
                // First of all: where a limit is met, it counts.
                if let Some(name) = &name {
                    self.end_named(&(Arc::clone(&user), name.clone()), now);
                }
                self.begin(&user, &keyspace, reads, writes).map(|(keyspace, of, transaction)| {
                    let stage = Stage::Begins { number: ticket.0, user, on, name };
                    self.calls.names.extend(stage.named());
                    (keyspace, of, Work::Transact(transaction), stage)
                })
            }
            Ask::Commit { user, txn, updates } => self.commit(&user, txn, updates),
            Ask::Abort { user, txn } => self.open_of(&user, txn).map(|open| {
                self.calls.close(txn.number);
                (open.keyspace, open.of, Work::Transact(Transaction::Abort { txn: open.txn }), Stage::Aborts)
            }),
            Ask::AbortNamed { user, name } => {
                self.end_named(&(user, name), now);
                return drop(answer.send(Ok(Said::Aborted(Abort::Client))));
            }
            Ask::Execute { user, keyspace, words } => self.execute(&user, &keyspace, &words),
        };
        let (keyspace, of, work, stage) = match taken {
            Ok(taken) => taken,
            Err(refusal) => {
                // Here, and not where it is answered: who asked may have gone by then.
                if refusal.why == Why::Denied
                    && let Some(audit) = &self.clients.hub.audit
                {
                    audit.tell(Act {
                        user: user.map(|user| user.to_string()),
                        address: by.address.map(|address| address.to_string()),
                        why: Some(refusal.text.clone()),
                        ..Act::new("grpc", by.method, Decision::Denied)
                    });
                }
                // Whoever is gone need not be told, here and below.
                return drop(answer.send(Err(refusal)));
            }
        };
        let reads = matches!(&work, Work::Execute(command) if command.operation.is_read());
        let asked = match work {
            Work::Transact(transaction) => self.shard.transact(of, ticket, transaction),
            Work::Execute(command) => self.shard.execute(of, ticket, command),
        };
        match asked {
            Ok(()) => {
                let pending = Pending { answer: Some(answer), stage, keyspace, asked: now, of, reads };
                self.origins.waiting.insert(ticket, Origin::Call(Box::new(pending)));
            }
            Err(error) => {
                if let Some((named, number)) = stage.named() {
                    self.calls.free(&named, number);
                }
                drop(answer.send(Err(Refusal::new(Why::Precondition, error.to_string()))));
            }
        }
    }

    /// Takes this name from whoever has it, which is ended unless it was asked to commit.
    fn end_named(&mut self, named: &Named, now: Instant) {
        if let Some(number) = self.calls.names.remove(named) {
            self.end(number);
            self.end_beginning(Ticket(number), now);
        }
    }

    /// The keyspace of this name: its place, and the process here that serves it.
    fn keyspace(&mut self, name: &str) -> Result<(usize, ProcessId), Refusal> {
        if self.stopping.is_some() {
            return Err(Refusal::new(Why::TryAgain, STOPPING));
        }
        let waiting = self.origins.len().max(self.calls.open());
        let limits = self.clients.limits();
        let backlog = self.shard.io().ledger().backlog();
        if waiting >= limits.requests || backlog >= limits.journal_queue_bytes {
            *self.clients.counters.limited.entry("in_flight").or_default() += 1;
            let text = format!("{waiting} commands and transactions are under way at this node; try again");
            return Err(Refusal::new(Why::Limit, text));
        }
        let views = self.clients.keyspaces();
        let Some(place) = views.iter().position(|view| view.name == name) else {
            let names: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
            let right = if names.is_empty() { "this node has none".into() } else { names.join(", ") };
            let text = format!("there is no keyspace {name:?}; there is: {right}");
            return Err(Refusal::new(Why::NotFound, text));
        };
        let of = self.clients.host(views[place].id).ok_or_else(|| {
            Refusal::new(Why::Precondition, format!("no process of this node serves {name:?}"))
        })?;
        Ok((place, of))
    }

    fn begin(
        &mut self,
        user: &str,
        name: &str,
        reads: Vec<Blob>,
        writes: Vec<Blob>,
    ) -> Result<(usize, ProcessId, Transaction), Refusal> {
        let (place, of) = self.keyspace(name)?;
        let KeyspaceView { protocol, transactional, .. } = &self.clients.keyspaces()[place];
        if !transactional {
            let able = self.calls.transactional.join(", ");
            let text = format!(
                "keyspace {name:?} runs {protocol}, which has no transactions; use Execute, or a keyspace with one of: {able}"
            );
            return Err(Refusal::new(Why::Precondition, text));
        }
        self.permit(user, "get", reads.iter())?;
        self.permit(user, "set", writes.iter())?;
        Ok((place, of, Transaction::Begin { reads, writes }))
    }

    fn commit(
        &mut self,
        user: &str,
        txn: Token,
        updates: Vec<(Blob, Option<Blob>)>,
    ) -> Result<(usize, ProcessId, Work, Stage), Refusal> {
        let open = self.open_of(user, txn)?;
        // The rules may be others than when it began.
        let keys =
            |set: bool| updates.iter().filter(move |(_, value)| value.is_some() == set).map(|(key, _)| key);
        self.permit(user, "set", keys(true))?;
        self.permit(user, "del", keys(false))?;
        if updates.iter().any(|(_, value)| value.is_some()) {
            self.has_memory(open.keyspace)?;
        }
        // Its name stays its own: it may be open again behind that.
        self.calls.open.remove(&txn.number);
        let wanted = self.clients.hub.wanted();
        let events = updates.iter().map(|(key, value)| {
            // Whether a key that is deleted was there is not known here.
            (if value.is_some() { Event::Set } else { Event::Del }, key.clone())
        });
        let events = events.filter(|(event, _)| wanted.has(event.class())).collect();
        let work = Work::Transact(Transaction::Commit { txn: open.txn, updates });
        Ok((open.keyspace, open.of, work, Stage::Commits(txn.number, open, events)))
    }

    /// The open transaction of this name, of this user.
    fn open_of(&self, user: &str, txn: Token) -> Result<Open, Refusal> {
        let open = self.calls.open.get(&txn.number).filter(|_| txn.life == self.calls.life);
        match open {
            Some(open) if *open.user == *user => Ok(open.clone()),
            Some(_) => Err(Refusal::new(Why::Denied, "another user has begun this transaction")),
            None => Err(Refusal::new(
                Why::Precondition,
                "this transaction is not open here: it has ended, its time was over, or another node, or an \
                 earlier life of this one, has begun it; begin a new one",
            )),
        }
    }

    fn execute(
        &mut self,
        user: &str,
        name: &str,
        words: &[Bytes],
    ) -> Result<(usize, ProcessId, Work, Stage), Refusal> {
        let (place, of) = self.keyspace(name)?;
        let keyspace = self.clients.keyspaces()[place].id;
        let stamp = self.shard.io().stamp;
        let words = words.iter().map(|word| &word[..]);
        let mut call =
            self.clients.understand(words, keyspace, user, stamp).map_err(|objection| match objection {
                Objection::Wrong(text) => Refusal::new(Why::Invalid, text),
                Objection::Denied(text) => Refusal::new(Why::Denied, text),
            })?;
        if call.grows {
            self.has_memory(place)?;
        }
        call.report(keyspace, &self.clients.hub);
        let call::Call { name, operation, after, .. } = call;
        *self.clients.counters.commands.entry(name).or_default() += 1;
        Ok((place, of, Work::Execute(Command::new(stamp, operation)), Stage::Executes(after)))
    }

    /// Refuses what may make data grow in the keyspace at this place where a node is full.
    fn has_memory(&mut self, place: usize) -> Result<(), Refusal> {
        let view = &self.clients.keyspaces()[place];
        if view.full.is_empty() {
            return Ok(());
        }
        let full =
            view.full.iter().map(|full| format!("{} (which may use {})", full.node, shown(full.limit)));
        let text = format!(
            "keyspace {:?} takes nothing that may make data grow: there is no memory for more at {}; delete, have keys expire, or \
             raise `memory` of [limits] there",
            view.name,
            full.collect::<Vec<_>>().join(", ")
        );
        *self.clients.counters.limited.entry("memory").or_default() += 1;
        Err(Refusal::new(Why::Limit, text))
    }

    /// Whether the user may do to these keys what this command does; what is denied goes into ACL LOG.
    fn permit<'k>(
        &mut self,
        user: &str,
        command: &str,
        keys: impl Iterator<Item = &'k Blob>,
    ) -> Result<(), Refusal> {
        let stamp = self.shard.io().stamp;
        let users = &mut self.clients.hub.users;
        for key in keys {
            let Some(reason) = users.denies(user, command, key) else { continue };
            let object = if reason == Reason::Command { command.as_bytes() } else { &key[..] };
            users.note_call(Entry::new(reason, Within::Nothing, object, user), None, stamp);
            let text = format!("user {user} may not {} key {key:?}", command.to_ascii_uppercase());
            return Err(Refusal::new(Why::Denied, text));
        }
        Ok(())
    }

    /// A process has answered.
    pub(super) fn called(&mut self, mut pending: Pending, outcome: Outcome, now: Instant) {
        let answer = pending.answer.take();
        let named = pending.stage.named();
        let (said, begun) = match (pending.stage, outcome) {
            (Stage::Executes(after), Outcome::Done(response)) => {
                (Ok(Said::Replied(after.reply(response, &mut self.clients.hub, now))), None)
            }
            (Stage::Begins { number, user, on, name }, Outcome::Transaction(step)) => {
                let (of, keyspace) = (pending.of, pending.keyspace);
                let open = |txn| Open { txn, of, keyspace, user, on, name, since: now };
                self.begun(*step, number, open)
            }
            (Stage::Commits(number, open, events), Outcome::Transaction(step)) => {
                if matches!(*step, Step::Committed(_)) {
                    let keyspace = self.clients.keyspaces()[open.keyspace].id;
                    events.iter().for_each(|(event, key)| self.clients.hub.happened(keyspace, *event, key));
                }
                // What was not taken up has not ended; it may be asked again, or given up.
                let again = matches!(*step, Step::Refused(Unfit::Wrong | Unfit::TooLarge, _));
                if again {
                    let superseded = self.calls.is_superseded(number, &open);
                    self.calls.open.insert(number, open);
                    if superseded {
                        self.end(number);
                    }
                }
                (ended(*step), None)
            }
            (Stage::Aborts, Outcome::Transaction(_)) => (Ok(Said::Aborted(Abort::Client)), None),
            (_, Outcome::Refused(text)) => {
                let text = text.strip_prefix("TRYAGAIN ").map(str::to_owned).unwrap_or(text);
                let why = match text.strip_prefix("ERR ") {
                    // It names the limit.
                    Some(error) if error.starts_with(OVER_LIMIT) => Why::Limit,
                    // An error code of its own: the command makes no sense for this keyspace.
                    Some(_) => Why::Precondition,
                    None => Why::TryAgain,
                };
                (Err(Refusal::new(why, text)), None)
            }
            (_, Outcome::Unknown(text)) if pending.reads => (Err(Refusal::new(Why::TryAgain, text)), None),
            (_, Outcome::Unknown(text)) => (Ok(Said::Unknown(text)), None),
            (_, outcome) => {
                debug_assert!(false, "{outcome:?} is no answer to a call");
                (Ok(Said::Unknown("the process has answered something else; this is a bug".into())), None)
            }
        };
        let heard = answer.is_some_and(|answer| answer.send(said).is_ok());
        // Nobody will go on with it.
        if let Some(number) = begun.filter(|_| !heard) {
            self.end(number);
        }
        if let Some((named, number)) = named
            && !self.calls.open.contains_key(&number)
        {
            self.calls.free(&named, number);
        }
    }

    /// What is said of a transaction's beginning, and under which number it is open.
    fn begun(
        &mut self,
        step: Step,
        number: u64,
        open: impl FnOnce(CommandId) -> Open,
    ) -> (Answer, Option<u64>) {
        match step {
            Step::Begun { txn, reads } => {
                let open = open(txn);
                let superseded = self.calls.is_superseded(number, &open);
                self.calls.open.insert(number, open);
                if superseded {
                    self.end(number);
                    return (Err(Refusal::new(Why::TryAgain, SUPERSEDED)), None);
                }
                match plain(reads) {
                    Ok(reads) => {
                        let txn = Token { life: self.calls.life, number };
                        (Ok(Said::Begun { txn, reads }), Some(number))
                    }
                    Err(refusal) => {
                        self.end(number);
                        (Err(refusal), None)
                    }
                }
            }
            Step::Snapshot { reads, at } => (plain(reads).map(|reads| Said::Snapshot { reads, at }), None),
            // Nothing was asked to be written yet.
            Step::Unknown => (Ok(Said::Aborted(Abort::Unavailable)), None),
            step => (ended(step), None),
        }
    }

    /// Gives an open transaction up that nobody will.
    fn end(&mut self, number: u64) {
        let Some(open) = self.calls.close(number) else { return };
        let ticket = self.origins.ticket();
        // A process that is gone has forgotten it.
        let _ = self.shard.transact(open.of, ticket, Transaction::Abort { txn: open.txn });
    }

    /// Gives a transaction up that has not begun: it is not to wait for its keys, nor to hold others.
    fn end_beginning(&mut self, ticket: Ticket, now: Instant) {
        let begins = |origin: &Origin| matches!(origin, Origin::Call(pending) if pending.begins());
        // What has begun by now is ended with its answer.
        let answered = self.shard.io().answers.iter().any(|answer| answer.ticket == ticket);
        if answered || !self.origins.waiting.get(&ticket).is_some_and(begins) {
            return;
        }
        let Some(Origin::Call(pending)) = self.origins.take(ticket) else { return };
        self.shard.cancel(pending.of, ticket);
        let outcome = Outcome::Refused(SUPERSEDED.to_owned());
        if !pending.is_given_up() {
            let took = now.since(pending.asked);
            self.reporter.answered(pending.keyspace, &outcome, took, pending.reads);
        }
        self.called(*pending, outcome, now);
    }

    /// Ends the transactions whose time is over, and those whose client has gone.
    fn sweep_open(&mut self, now: Instant) {
        let limits = &self.calls.time_limits;
        let over = |open: &Open| {
            let limit = limits.get(open.keyspace).copied().unwrap_or_default();
            open.on.is_closed() || now.since(open.since) >= limit
        };
        let late: Vec<_> =
            self.calls.open.iter().filter(|(_, open)| over(open)).map(|(number, _)| *number).collect();
        for number in late {
            self.end(number);
        }
        self.reporter.open_transactions(self.calls.open.len());
    }

    fn login(
        &mut self,
        named: Option<(String, Secret)>,
        from: IpAddr,
        answer: oneshot::Sender<Answer>,
        now: Instant,
    ) {
        let users = &self.clients.hub.users;
        let Some((user, password)) = named else {
            return drop(answer.send(match users.login() {
                gateway::Login::Open => Ok(Said::User(DEFAULT.into())),
                gateway::Login::Required => Err(Refusal::new(
                    Why::Stranger,
                    "this node wants to know who asks; send the metadata `authorization: Basic \
                     <base64 of user:password>`",
                )),
            }));
        };
        let verdict = users.judge(&user, password.expose());
        match verdict {
            Verdict::Accepted if !users.failures.delay(from) => {
                return drop(answer.send(Ok(Said::User(user.into()))));
            }
            Verdict::Refused => {
                self.clients.counters.login_failures += 1;
                self.note_login(&user, from);
                return drop(answer.send(Err(wrong_password())));
            }
            Verdict::Accepted | Verdict::Wrong | Verdict::Ask => {}
        }
        let party = (network(from), self.clients.print(&user, &password));
        let waiting: Waiting = (user.as_str().into(), verdict == Verdict::Accepted, answer);
        if let Some(others) = self.calls.logins.get_mut(&party) {
            // Those that were cancelled meanwhile are among them.
            let most = self.clients.limits().requests;
            if others.len() < most {
                return others.push(waiting);
            }
            *self.clients.counters.limited.entry("login_checks").or_default() += 1;
            let text = format!("{most} calls wait for this password to be checked; try again shortly");
            return drop(waiting.2.send(Err(Refusal::new(Why::Limit, text))));
        }
        if self.clients.verify(Asker::Calls(party), from, user, password, now) {
            self.calls.logins.insert(party, vec![waiting]);
        } else {
            let text = "too many passwords wait to be checked; try again shortly";
            drop(waiting.2.send(Err(Refusal::new(Why::Limit, text))));
        }
    }

    /// Puts a login that was refused into ACL LOG.
    fn note_login(&mut self, user: &str, from: IpAddr) {
        let stamp = self.shard.io().stamp;
        let entry = Entry::new(Reason::Auth, Within::Nothing, b"AUTH", user);
        self.clients.hub.users.note_call(entry, Some(from), stamp);
    }

    /// The verifier has said whether this password is right.
    fn logged_in(&mut self, party: Party, accepted: bool) {
        for (user, own, answer) in self.calls.logins.remove(&party).unwrap_or_default() {
            let admitted = accepted && self.clients.hub.users.admits(&user, own);
            if !admitted {
                self.note_login(&user, party.0);
            }
            let said = if admitted { Ok(Said::User(user)) } else { Err(wrong_password()) };
            drop(answer.send(said));
        }
    }
}

/// How the words of a process begin that finds a transaction too large, behind their code.
const OVER_LIMIT: &str = "the transaction has ";

/// What a call has a process do.
enum Work {
    Transact(Transaction),
    Execute(Command),
}

fn wrong_password() -> Refusal {
    Refusal::new(Why::Stranger, "no such user, or another password, or the user is off")
}

/// Keys with their plain values and versions.
fn plain(reads: Vec<Read>) -> Result<Vec<(Blob, Option<Blob>, u64)>, Refusal> {
    let plain = |Read { key, value, version }: Read| match value {
        Ok(value) => Ok((key, value, version)),
        Err(why) => Err(Refusal::new(Why::Precondition, format!("key {key:?}: {why}"))),
    };
    reads.into_iter().map(plain).collect()
}

/// What is said of a transaction's end.
fn ended(step: Step) -> Answer {
    match step {
        Step::Committed(at) => Ok(Said::Committed(at)),
        Step::Aborted(why) => Ok(Said::Aborted(why)),
        Step::Unknown => Ok(Said::Unknown("the partitions did not say in time how it ended".to_owned())),
        Step::Refused(unfit, text) => Err(Refusal {
            why: match unfit {
                Unfit::NotOpen => Why::Precondition,
                Unfit::Wrong => Why::Invalid,
                Unfit::TooLarge | Unfit::Overloaded => Why::Limit,
            },
            text,
        }),
        Step::Begun { .. } | Step::Snapshot { .. } => {
            debug_assert!(false, "a transaction has begun at its end");
            Ok(Said::Unknown("the process has answered something else; this is a bug".into()))
        }
    }
}
