//! Calls: what clients without a session ask of the shard, from other threads. The gRPC server makes them.
//!
//! A call comes through a bounded queue and gets one answer. Transactions that are open between two calls are listed
//! here, with the user that began them and the connection, until they end, their time is over, or the connection closes.

mod line;
#[cfg(test)]
mod tests;

pub(crate) use line::{Answer, Ask, Call, Connection, Line, Refusal, Said, Token, Why};

use super::verifier::{Asker, Party, network};
use super::{Origin, Reactor, TICK};
use crate::gateway::{self, Abort, KeyspaceView, Outcome, Read, Secret, Step, Transaction, Unfit};
use crate::redis::acl::{DEFAULT, Entry, Reason, Verdict, Within};
use crate::redis::call::{self, After, Objection};
use bytes::Bytes;
use isochrone_core::command::Command;
use isochrone_core::{Blob, CommandId, Instant, ProcessId, Span};
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
    drawn: u64,
    open: BTreeMap<u64, Open>,
    /// For each keyspace, how long a transaction may be open.
    time_limits: Vec<Span>,
    /// The protocols that have transactions.
    transactional: Vec<&'static str>,
    /// Those that wait for a password to be checked.
    logins: BTreeMap<Party, Vec<Waiting>>,
    swept: Instant,
}

/// A login that waits: the user, and who is told.
type Waiting = (Arc<str>, oneshot::Sender<Answer>);

/// A transaction between two calls.
#[derive(Clone)]
pub(crate) struct Open {
    txn: CommandId,
    of: ProcessId,
    /// The keyspace, as a place among all.
    keyspace: usize,
    user: Arc<str>,
    on: Connection,
    since: Instant,
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
    Begins(Arc<str>, Connection),
    Commits(u64, Open),
    Aborts,
    Executes(After),
}

/// What is said where there was no answer in time.
const LATE: &str = "no answer in time";

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
        let begins = matches!(self.stage, Stage::Begins(..));
        if let Some(answer) = self.answer.take() {
            // Whoever is gone need not be told.
            let _ = answer.send(match &self.stage {
                Stage::Begins(..) => Err(Refusal::new(
                    Why::TryAgain,
                    format!("{LATE}: a partition may be cut off or have no majority"),
                )),
                _ if self.reads => Err(Refusal::new(Why::TryAgain, LATE)),
                _ => Ok(Said::Unknown(format!("{LATE}; it may or may not take effect"))),
            });
        }
        begins
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
            drawn: 0,
            open: BTreeMap::new(),
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
}

impl Reactor {
    /// Takes up what was asked since the last round.
    pub(super) fn take_calls(&mut self, now: Instant) {
        for (party, accepted) in std::mem::take(&mut self.clients.verdicts_of_calls) {
            self.logged_in(party, accepted);
        }
        // As many as may wait: what comes meanwhile is for the next round.
        for _ in 0..WAITING {
            let Ok(Call { ask, answer }) = self.calls.queue.try_recv() else { break };
            let now = self.shard.look_at(self.clock);
            self.take_call(ask, answer, now);
        }
        if now >= self.calls.swept + TICK {
            self.calls.swept = now;
            self.sweep_open(now);
        }
    }

    fn take_call(&mut self, ask: Ask, answer: oneshot::Sender<Answer>, now: Instant) {
        let taken = match ask {
            Ask::Login { named, from } => return self.login(named, from, answer, now),
            Ask::Begin { user, on, keyspace, reads, writes } => {
                self.begin(&user, &keyspace, reads, writes).map(|(keyspace, of, transaction)| {
                    (keyspace, of, Work::Transact(transaction), Stage::Begins(user, on))
                })
            }
            Ask::Commit { user, txn, updates } => self.commit(&user, txn, updates),
            Ask::Abort { user, txn } => self.open_of(&user, txn).map(|open| {
                self.calls.open.remove(&txn.number);
                (open.keyspace, open.of, Work::Transact(Transaction::Abort { txn: open.txn }), Stage::Aborts)
            }),
            Ask::Execute { user, keyspace, words } => self.execute(&user, &keyspace, &words),
        };
        let (keyspace, of, work, stage) = match taken {
            Ok(taken) => taken,
            // Whoever is gone need not be told, here and below.
            Err(refusal) => return drop(answer.send(Err(refusal))),
        };
        let ticket = self.origins.ticket();
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
            Err(error) => drop(answer.send(Err(Refusal::new(Why::Precondition, error.to_string())))),
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
        self.calls.open.remove(&txn.number);
        let work = Work::Transact(Transaction::Commit { txn: open.txn, updates });
        Ok((open.keyspace, open.of, work, Stage::Commits(txn.number, open)))
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
        let call::Call { name, operation, after } =
            self.clients.understand(words, keyspace, user, stamp).map_err(|objection| match objection {
                Objection::Wrong(text) => Refusal::new(Why::Invalid, text),
                Objection::Denied(text) => Refusal::new(Why::Denied, text),
            })?;
        *self.clients.counters.commands.entry(name).or_default() += 1;
        Ok((place, of, Work::Execute(Command::new(stamp, operation)), Stage::Executes(after)))
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
        let (said, begun) = match (pending.stage, outcome) {
            (Stage::Executes(after), Outcome::Done(response)) => {
                (Ok(Said::Replied(after.reply(response, &mut self.clients.hub, now))), None)
            }
            (Stage::Begins(user, on), Outcome::Transaction(step)) => {
                let (of, keyspace) = (pending.of, pending.keyspace);
                let open = |txn| Open { txn, of, keyspace, user, on, since: now };
                self.begun(*step, open)
            }
            (Stage::Commits(number, open), Outcome::Transaction(step)) => {
                // What was not taken up has not ended; it may be asked again, or given up.
                let again = matches!(*step, Step::Refused(Unfit::Wrong | Unfit::TooLarge, _));
                if again {
                    self.calls.open.insert(number, open);
                }
                (ended(*step), None)
            }
            (Stage::Aborts, Outcome::Transaction(_)) => (Ok(Said::Aborted(Abort::Client)), None),
            (_, Outcome::Refused(text)) => {
                let text = text.strip_prefix("TRYAGAIN ").map(str::to_owned).unwrap_or(text);
                // An error code of its own: the command makes no sense for this keyspace.
                let why = if text.starts_with("ERR ") { Why::Precondition } else { Why::TryAgain };
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
    }

    /// What is said of a transaction's beginning, and under which number it is open.
    fn begun(&mut self, step: Step, open: impl FnOnce(CommandId) -> Open) -> (Answer, Option<u64>) {
        match step {
            Step::Begun { txn, reads } => {
                self.calls.drawn += 1;
                let number = self.calls.drawn;
                self.calls.open.insert(number, open(txn));
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
        let Some(open) = self.calls.open.remove(&number) else { return };
        let ticket = self.origins.ticket();
        // A process that is gone has forgotten it.
        let _ = self.shard.transact(open.of, ticket, Transaction::Abort { txn: open.txn });
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
        match users.judge(&user, password.expose()) {
            Verdict::Accepted => return drop(answer.send(Ok(Said::User(user.into())))),
            Verdict::Refused => {
                self.clients.counters.login_failures += 1;
                self.note_login(&user, from);
                return drop(answer.send(Err(wrong_password())));
            }
            Verdict::Ask => {}
        }
        let party = (network(from), self.clients.print(&user, &password));
        let name: Arc<str> = user.as_str().into();
        if let Some(others) = self.calls.logins.get_mut(&party) {
            // Those that were cancelled meanwhile are among them.
            let most = self.clients.limits().requests;
            if others.len() < most {
                return others.push((name, answer));
            }
            *self.clients.counters.limited.entry("login_checks").or_default() += 1;
            let text = format!("{most} calls wait for this password to be checked; try again shortly");
            return drop(answer.send(Err(Refusal::new(Why::Limit, text))));
        }
        if self.clients.verify(Asker::Calls(party), from, user, password, now) {
            self.calls.logins.insert(party, vec![(name, answer)]);
        } else {
            let text = "too many passwords wait to be checked; try again shortly";
            drop(answer.send(Err(Refusal::new(Why::Limit, text))));
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
        for (user, answer) in self.calls.logins.remove(&party).unwrap_or_default() {
            let admitted = accepted && self.clients.hub.users.admits(&user);
            if !admitted {
                self.note_login(&user, party.0);
            }
            let said = if admitted { Ok(Said::User(user)) } else { Err(wrong_password()) };
            drop(answer.send(said));
        }
    }
}

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
