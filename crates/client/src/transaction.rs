//! Transactions in one closure.

use crate::begin::{self, Open};
use crate::call::{self, Bounds, Meaning, meaning};
use crate::error::{Code, Error, Reason};
use crate::keyspace::{Keyspace, Snapshot, TIME, TRIES, bytes, strange};
use bytes::Bytes;
use isochrone_proto::v1::{self, begin_response, commit_response};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// How long after its deadline the end of a transaction that is being committed is still waited for.
const GRACE: Duration = Duration::from_secs(1);

/// A transaction before it runs.
#[must_use = "it does nothing until it is run"]
pub struct Transaction {
    keyspace: Keyspace,
    reads: BTreeSet<Bytes>,
    writes: BTreeSet<Bytes>,
    finder: Option<(Vec<Bytes>, Box<Finder>)>,
    tries: u32,
    time: Duration,
}

type Finder = dyn Fn(&Snapshot) -> Result<Keys, Error> + Send + Sync;

/// Keys that a transaction reads, and keys that it may write.
#[derive(Clone, Default, Debug)]
pub struct Keys {
    reads: Vec<Bytes>,
    writes: Vec<Bytes>,
}

impl Keys {
    /// None yet.
    pub fn new() -> Keys {
        Keys::default()
    }

    /// Reads these too.
    #[must_use]
    pub fn read(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Keys {
        self.reads.extend(keys.into_iter().map(bytes));
        self
    }

    /// May write these too.
    #[must_use]
    pub fn write(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Keys {
        self.writes.extend(keys.into_iter().map(bytes));
        self
    }
}

/// How a transaction ended.
#[must_use = "only `Committed` has surely taken effect"]
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Outcome<T> {
    /// It took effect.
    Committed {
        /// What the closure has answered.
        value: T,
        /// The version of all it wrote. Where it named keys to write and wrote none, it says nothing; where it named none, the
        /// moment of its snapshot ([`Snapshot::at`]).
        at: u64,
        /// How often it was tried.
        tries: u32,
    },
    /// It took no effect, and never will.
    Aborted {
        /// Why, at last.
        reason: Reason,
        /// How often it was tried.
        tries: u32,
    },
    /// It may have taken effect, take effect later, or never.
    Unknown {
        /// Why that is not known.
        why: String,
    },
}

/// An open transaction, as the closure sees it.
pub struct Txn {
    reads: BTreeMap<Bytes, (Option<Bytes>, u64)>,
    writes: BTreeSet<Bytes>,
    updates: BTreeMap<Bytes, Option<Bytes>>,
}

impl Txn {
    /// The value of a key that was named to be read: what was put in this transaction, or else what was read.
    ///
    /// # Errors
    /// The key was not named.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        let key = key.as_ref();
        if let Some(put) = self.updates.get(key) {
            return Ok(put.clone());
        }
        Ok(self.read(key)?.0.clone())
    }

    /// The value that was read of a key, whatever was put since.
    ///
    /// # Errors
    /// The key was not named to be read.
    pub fn before(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        Ok(self.read(key.as_ref())?.0.clone())
    }

    /// The value as an integer; 0 where there is no value.
    ///
    /// # Errors
    /// The key was not named, or holds no integer.
    pub fn number(&self, key: impl AsRef<[u8]>) -> Result<i64, Error> {
        let key = key.as_ref();
        let Some(value) = self.get(key)? else { return Ok(0) };
        let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| Error::NotANumber(key.to_vec()))
    }

    /// Which version of a key was read; 0 where it was never written.
    ///
    /// # Errors
    /// The key was not named.
    pub fn version(&self, key: impl AsRef<[u8]>) -> Result<u64, Error> {
        Ok(self.read(key.as_ref())?.1)
    }

    /// Gives a key a value, where the transaction commits.
    ///
    /// # Errors
    /// The key was not named to be written.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.update(key.as_ref(), Some(bytes(value)))
    }

    /// Deletes a key, where the transaction commits.
    ///
    /// # Errors
    /// The key was not named to be written.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.update(key.as_ref(), None)
    }

    fn read(&self, key: &[u8]) -> Result<&(Option<Bytes>, u64), Error> {
        self.reads.get(key).ok_or_else(|| Error::Undeclared { key: key.to_vec(), what: "read" })
    }

    fn update(&mut self, key: &[u8], value: Option<Bytes>) -> Result<(), Error> {
        let Some(known) = self.writes.get(key) else {
            return Err(Error::Undeclared { key: key.to_vec(), what: "write" });
        };
        self.updates.insert(known.clone(), value);
        Ok(())
    }
}

/// What one try has come to.
enum Tried<T> {
    Ended(Outcome<T>),
    Again(Reason),
    /// What the closures have answered it with.
    Failed(Error),
}

impl Transaction {
    pub(crate) fn new(keyspace: Keyspace) -> Transaction {
        let (reads, writes) = (BTreeSet::new(), BTreeSet::new());
        Transaction { keyspace, reads, writes, finder: None, tries: TRIES, time: TIME }
    }

    /// Reads these keys too.
    pub fn read(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Transaction {
        self.reads.extend(keys.into_iter().map(bytes));
        self
    }

    /// May write these keys too. A key that is to be changed depending on what it holds is to be read as well.
    pub fn write(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Transaction {
        self.writes.extend(keys.into_iter().map(bytes));
        self
    }

    /// For keys that depend on values, as behind a secondary index: a first transaction reads `by`, `which` says by what
    /// it has found which keys to read and to write besides, and the transaction reads `by` again with them. Where it has
    /// changed meanwhile, all begins anew ([`Reason::FoundChanged`]).
    ///
    /// ```no_run
    /// # use isochrone_client::{Client, Error, Keys, Outcome};
    /// # async fn example(users: isochrone_client::Keyspace) -> Result<(), Error> {
    /// // `name:ana` holds the key under which Ana's visits are counted.
    /// let outcome = users
    ///     .transaction()
    ///     .find(["name:ana"], |found| match found.get("name:ana") {
    ///         Some(key) => Ok(Keys::new().read([key]).write([key])),
    ///         None => Err(Error::own("there is no Ana")),
    ///     })
    ///     .run(async |txn| {
    ///         let key = txn.get("name:ana")?.unwrap_or_default();
    ///         let visits = txn.number(&key)? + 1;
    ///         txn.put(&key, visits.to_string())?;
    ///         Ok(visits)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(
        mut self,
        by: impl IntoIterator<Item = impl AsRef<[u8]>>,
        which: impl Fn(&Snapshot) -> Result<Keys, Error> + Send + Sync + 'static,
    ) -> Transaction {
        self.finder = Some((by.into_iter().map(bytes).collect(), Box::new(which)));
        self
    }

    /// Tries at most so often; 64 times where nothing is said.
    pub fn tries(mut self, most: u32) -> Transaction {
        self.tries = most.max(1);
        self
    }

    /// Takes at most so long, all tries together, and up to 10 s more where a connection must be made; 20 s where nothing is
    /// said. The closure is not interrupted: where the time passes while it runs, what it has put is committed all the same if
    /// that takes a second at most, and it is not tried again. A single try can take no longer than the keyspace's `time_limit`.
    pub fn within(mut self, time: Duration) -> Transaction {
        self.time = time;
        self
    }

    /// Runs the transaction: begins it, hands what was read to `body`, and commits what `body` has put; again, where it
    /// was aborted, after a pause. An error of `body` ends the transaction without effect.
    ///
    /// Where the future must be [`Send`], as in a spawned task or a handler of a server, a closure that captures something is
    /// `async move` and owns all of that: for one that borrows, the compiler says "implementation of `Send` is not general
    /// enough".
    ///
    /// ```no_run
    /// # use isochrone_client::{Error, Keyspace, Outcome};
    /// # async fn example(bank: Keyspace, key: String) {
    /// let task = tokio::spawn(async move {
    ///     bank.transaction()
    ///         .read([&key])
    ///         .write([&key])
    ///         .run(async move |txn| {
    ///             let visits = txn.number(&key)? + 1;
    ///             txn.put(&key, visits.to_string())?;
    ///             Ok(visits)
    ///         })
    ///         .await
    /// });
    /// let outcome: Result<Outcome<i64>, Error> = task.await.expect("it does not panic");
    /// # drop(outcome);
    /// # }
    /// ```
    ///
    /// To drop the future, as a timeout does, gives the transaction up: the node is told in the background, as long as the
    /// runtime runs, and lets go of the keys. Where it was dropped after `body` has answered, it may have been committed all
    /// the same.
    ///
    /// # Errors
    /// It had no effect: `body` has failed, the keyspace has no transactions, a limit was met, or no node has answered, as where
    /// others hold its keys for all of its time.
    pub async fn run<T>(
        self,
        mut body: impl AsyncFnMut(&mut Txn) -> Result<T, Error>,
    ) -> Result<Outcome<T>, Error> {
        let bounds = Bounds::of(self.tries, self.time);
        let mut tries = 0;
        loop {
            let reason = match self.try_once(bounds, &mut tries, &mut body).await {
                Ok(Tried::Ended(Outcome::Committed { value, at, .. })) => {
                    return Ok(Outcome::Committed { value, at, tries });
                }
                Ok(Tried::Ended(outcome)) => return Ok(outcome),
                Ok(Tried::Again(reason)) => reason,
                Ok(Tried::Failed(error)) => return Err(error),
                Err(Error::GaveUp { reason, .. }) => return Ok(Outcome::Aborted { reason, tries }),
                Err(Error::Refused { code: Code::Aborted, .. }) => {
                    return Ok(Outcome::Aborted { reason: Reason::Unavailable, tries });
                }
                Err(error) => return Err(error),
            };
            if !bounds.again(tries).await {
                return Ok(Outcome::Aborted { reason, tries });
            }
        }
    }

    async fn try_once<T>(
        &self,
        bounds: Bounds,
        tries: &mut u32,
        body: &mut impl AsyncFnMut(&mut Txn) -> Result<T, Error>,
    ) -> Result<Tried<T>, Error> {
        let (mut reads, mut writes) = (self.reads.clone(), self.writes.clone());
        let mut found = None;
        if let Some((by, which)) = &self.finder {
            let seen = self.keyspace.snapshot_within(by.clone(), bounds, &mut 0).await?;
            let keys = match which(&seen) {
                Ok(keys) => keys,
                Err(error) => return Ok(Tried::Failed(error)),
            };
            reads.extend(by.iter().cloned().chain(keys.reads));
            writes.extend(keys.writes);
            found = Some(seen);
        }
        let message = v1::BeginRequest {
            keyspace: self.keyspace.name(),
            reads: reads.into_iter().collect(),
            writes: writes.iter().cloned().collect(),
            name: Bytes::new(),
        };
        let (outcome, open) = begin::begin(&self.keyspace.nodes, bounds, tries, message).await?;
        let (reads, begun, at) = match outcome {
            begin_response::Outcome::Begun(v1::Begun { reads, .. }) => (reads, Some(open), 0),
            begin_response::Outcome::Snapshot(v1::Snapshot { reads, at }) => (reads, None, at),
            begin_response::Outcome::Aborted(aborted) => {
                return Ok(Tried::Again(Reason::of(aborted.reason())));
            }
        };
        let Snapshot { reads, .. } = Snapshot::of(reads, at);
        let same = |seen: &Snapshot| seen.reads.iter().all(|(key, read)| reads.get(key) == Some(read));
        if !found.as_ref().is_none_or(same) {
            give_up(begun).await;
            return Ok(Tried::Again(Reason::FoundChanged));
        }
        let mut txn = Txn { reads, writes, updates: BTreeMap::new() };
        let value = match body(&mut txn).await {
            Ok(value) => value,
            Err(error) => {
                give_up(begun).await;
                return Ok(Tried::Failed(error));
            }
        };
        match begun {
            // It has only read, and its reads are of one moment already.
            None => Ok(Tried::Ended(Outcome::Committed { value, at, tries: 0 })),
            Some(begun) => self.commit(begun, txn, bounds, value).await,
        }
    }

    async fn commit<T>(&self, begun: Open, txn: Txn, bounds: Bounds, value: T) -> Result<Tried<T>, Error> {
        let updates = txn.updates.into_iter().map(|(key, value)| v1::Update { key, value }).collect();
        let message = v1::CommitRequest { txn: begun.txn(), updates };
        let (time, since) = (bounds.left() + GRACE, Instant::now());
        let answer = call::only_once(time, begun.caller.clone().commit(call::within(message, time))).await;
        let status = match answer {
            Ok(v1::CommitResponse { outcome }) => {
                begun.ended();
                return Ok(match outcome {
                    Some(commit_response::Outcome::Committed(v1::Committed { at })) => {
                        Tried::Ended(Outcome::Committed { value, at, tries: 0 })
                    }
                    Some(commit_response::Outcome::Aborted(aborted)) => {
                        Tried::Again(Reason::of(aborted.reason()))
                    }
                    Some(commit_response::Outcome::Unknown(v1::Unknown { why })) => {
                        Tried::Ended(Outcome::Unknown { why })
                    }
                    None => Tried::Ended(Outcome::Unknown { why: strange().to_string() }),
                });
            }
            Err(status) => status,
        };
        // Here it may be open still. Once the node commits it, to give it up changes nothing.
        match meaning(&status) {
            Meaning::TryAgain(_) | Meaning::Unsent(_) => Ok(Tried::Again(Reason::Unavailable)),
            // Its time was over, or the node has started anew: it was never asked to commit.
            Meaning::Refused(_) if status.code() == tonic::Code::FailedPrecondition => {
                begun.ended();
                Ok(Tried::Again(Reason::HeartbeatLost))
            }
            // Too much was put, as a rule.
            Meaning::Refused(error) => {
                begun.give_up().await;
                Err(error)
            }
            Meaning::Lost(why) => {
                if call::is_down(&status, since.elapsed()) {
                    self.keyspace.nodes.avoid(begun.place);
                }
                Ok(Tried::Ended(Outcome::Unknown { why }))
            }
        }
    }
}

async fn give_up(begun: Option<Open>) {
    if let Some(begun) = begun {
        begun.give_up().await;
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("reads", &self.reads)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_reads_its_own_writes_and_touches_only_what_it_has_named() {
        let value = |text: &'static str| Some(Bytes::from(text));
        let mut txn = Txn {
            reads: [(Bytes::from("a"), (value("7"), 3)), (Bytes::from("b"), (None, 0))].into(),
            writes: [Bytes::from("a")].into(),
            updates: BTreeMap::new(),
        };
        assert_eq!((txn.number("a").unwrap(), txn.number("b").unwrap()), (7, 0));
        assert_eq!((txn.version("a").unwrap(), txn.version("b").unwrap()), (3, 0));
        txn.put("a", "x").unwrap();
        assert_eq!(txn.get("a").unwrap(), value("x"));
        assert_eq!(txn.number("a").unwrap_err().to_string(), "key \"a\" holds no number");
        txn.delete("a").unwrap();
        assert_eq!(txn.get("a").unwrap(), None);
        let unread = txn.get("c").unwrap_err().to_string();
        assert_eq!(unread, "key \"c\" was not named in read; name it when the transaction is built");
        assert!(txn.put("b", "1").unwrap_err().to_string().contains("was not named in write"));
    }
}
