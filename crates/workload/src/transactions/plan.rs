//! One transaction: its keys, and what it writes once it has read.

use super::ledger::Ledger;
use super::money::{self, Money};
use isochrone_core::Blob;
use isochrone_transactions::{Read, Update};
use serde::Serialize;
use std::fmt;

/// What a transaction does, as latencies are told apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Retwis: makes a user.
    AddUser,
    /// Retwis: follows or unfollows one.
    Follow,
    /// Retwis: says something.
    PostTweet,
    /// Retwis: reads what others said.
    LoadTimeline,
    /// Reads keys and overwrites all of them.
    ReadModifyWrite,
    /// Reads keys and overwrites one: what write skew is made of.
    ReadWrite,
    /// Overwrites without reading.
    BlindWrite,
    /// Declares keys for writing and writes none, or some.
    WriteSome,
    /// Only reads.
    ReadOnly,
    /// Reads and gives up.
    GiveUp,
    /// SmallBank: what a customer has in both accounts.
    Balance,
    /// SmallBank: pays in.
    DepositChecking,
    /// SmallBank: pays into the savings account, or takes from it.
    TransactSavings,
    /// SmallBank: all that one customer has goes to another.
    Amalgamate,
    /// SmallBank: cashes a cheque.
    WriteCheck,
    /// SmallBank: one customer pays another.
    SendPayment,
    /// Bank: moves money between two accounts.
    Transfer,
    /// Ledger: part or all of an account goes to another, which may open the one and close the other.
    Move,
    /// Bank and ledger: adds up all accounts.
    Audit,
    /// The end of a run: every key is written once more, or read, which meets whatever is stuck.
    Closing,
}

impl Kind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AddUser => "add-user",
            Kind::Follow => "follow",
            Kind::PostTweet => "post-tweet",
            Kind::LoadTimeline => "load-timeline",
            Kind::ReadModifyWrite => "read-modify-write",
            Kind::ReadWrite => "read-write",
            Kind::BlindWrite => "blind-write",
            Kind::WriteSome => "write-some",
            Kind::ReadOnly => "read-only",
            Kind::GiveUp => "give-up",
            Kind::Balance => "balance",
            Kind::DepositChecking => "deposit-checking",
            Kind::TransactSavings => "transact-savings",
            Kind::Amalgamate => "amalgamate",
            Kind::WriteCheck => "write-check",
            Kind::SendPayment => "send-payment",
            Kind::Transfer => "transfer",
            Kind::Move => "move",
            Kind::Audit => "audit",
            Kind::Closing => "closing",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is written, given what was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// To so many of the declared keys, from the first on, a value that nobody has written.
    Fresh { writes: usize, size: usize },
    /// Nothing: it gives up.
    GiveUp,
    /// By what accounts hold.
    Money(Money),
    /// By what accounts hold and whether they are open.
    Ledger(Ledger),
}

/// A transaction to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How its latency is booked.
    pub kind: Kind,
    /// What it reads, each key once.
    pub reads: Vec<Blob>,
    /// What it may write, each key once; nothing for one that only reads.
    pub writes: Vec<Blob>,
    /// Where it reads by a predicate: the prefix of which its reads are all keys, whether anything is there or not.
    pub(super) predicate: Option<Blob>,
    pub(super) program: Program,
}

impl Plan {
    /// What it writes; `None` where it gives up. `writer` names this try: what it writes is unlike all that others
    /// write, or another try of the same plan, so that a checker knows every version by its value.
    pub fn updates(&self, reads: &[Read], writer: &str) -> Option<Vec<Update>> {
        match self.program {
            Program::GiveUp => None,
            Program::Fresh { writes, size } => {
                let write = |(at, key): (usize, &Blob)| {
                    let mut value = format!("{writer}.{at}");
                    while value.len() < size {
                        value.push('x');
                    }
                    Update { key: key.clone(), value: Some(value.into()) }
                };
                Some(self.writes.iter().take(writes).enumerate().map(write).collect())
            }
            Program::Money(program) => {
                let balances: Vec<i64> = reads.iter().map(|read| program.balance(read)).collect();
                Some(self.balances(program.written(&balances)?.into_iter().map(Some), writer))
            }
            Program::Ledger(program) => {
                Some(self.balances(program.written(&program.balances(reads))?.into_iter(), writer))
            }
        }
    }

    /// One balance for each key declared, or the program would not be its own; nothing closes the account.
    fn balances(&self, written: impl Iterator<Item = Option<i64>>, writer: &str) -> Vec<Update> {
        let writes = self.writes.iter().zip(written).enumerate();
        let write = |(at, (key, balance)): (usize, (&Blob, Option<i64>))| Update {
            key: key.clone(),
            value: balance.map(|balance| money::shown(balance, &format!("{writer}.{at}"))),
        };
        writes.map(write).collect()
    }

    /// What is wrong with what it read, known of a transaction that committed.
    pub fn verify(&self, reads: &[Read]) -> Option<String> {
        match self.program {
            Program::Money(program) => {
                let balances: Vec<i64> = reads.iter().map(|read| program.balance(read)).collect();
                program.verify(&balances)
            }
            Program::Ledger(program) => program.verify(&program.balances(reads)),
            Program::Fresh { .. } | Program::GiveUp => None,
        }
    }
}
