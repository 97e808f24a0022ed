//! A keyspace: single keys, commands, snapshots, and where transactions begin.

use crate::begin;
use crate::call::{self, Bounds};
use crate::client::{Caller, Nodes};
use crate::error::{Error, Reason};
use crate::reply::Reply;
use crate::transaction::Transaction;
use bytes::Bytes;
use isochrone_proto::v1::{self, begin_response};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often anything is tried where nothing else is said, and for how long.
pub(crate) const TRIES: u32 = 64;
pub(crate) const TIME: Duration = Duration::from_secs(20);

/// A keyspace.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) name: Arc<str>,
}

/// Keys as they were at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(crate) reads: BTreeMap<Bytes, (Option<Bytes>, u64)>,
    at: u64,
}

/// What became of a single command that changes something.
#[must_use = "where it is `Unknown`, nobody knows whether it has taken effect"]
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Written<T> {
    /// It took effect.
    Done(T),
    /// It may have taken effect, or not; why that is not known.
    Unknown(String),
}

impl Snapshot {
    pub(crate) fn of(reads: Vec<v1::Read>, at: u64) -> Snapshot {
        let read = |v1::Read { key, value, version }| (key, (value, version));
        Snapshot { reads: reads.into_iter().map(read).collect(), at }
    }

    /// The value of a key, if it had one and was asked for.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Bytes> {
        self.reads.get(key.as_ref())?.0.as_ref()
    }

    /// Its version; 0 where it was never written.
    pub fn version(&self, key: impl AsRef<[u8]>) -> u64 {
        self.reads.get(key.as_ref()).map_or(0, |(_, version)| *version)
    }

    /// The moment: everything up to this version, and nothing behind it.
    pub fn at(&self) -> u64 {
        self.at
    }
}

impl Keyspace {
    pub(crate) fn new(nodes: Arc<Nodes>, name: String) -> Keyspace {
        Keyspace { nodes, name: name.into() }
    }

    /// A transaction, to be built and run.
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// Reads keys as they are at one moment: a transaction that only reads. With what guarantee, the protocol says.
    ///
    /// # Errors
    /// The keyspace has no transactions, or no moment could be agreed on in time.
    pub async fn snapshot(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Snapshot, Error> {
        let reads: Vec<Bytes> = keys.into_iter().map(bytes).collect();
        self.snapshot_within(reads, Bounds::of(TRIES, TIME), &mut 0).await
    }

    pub(crate) async fn snapshot_within(
        &self,
        reads: Vec<Bytes>,
        bounds: Bounds,
        tries: &mut u32,
    ) -> Result<Snapshot, Error> {
        loop {
            let (keyspace, reads) = (self.name(), reads.clone());
            let message = v1::BeginRequest { keyspace, reads, writes: Vec::new(), name: Bytes::new() };
            let (outcome, _open) = begin::begin(&self.nodes, bounds, tries, message).await?;
            match outcome {
                begin_response::Outcome::Snapshot(v1::Snapshot { reads, at }) => {
                    return Ok(Snapshot::of(reads, at));
                }
                begin_response::Outcome::Aborted(aborted) => {
                    if !bounds.again(*tries).await {
                        return Err(Error::GaveUp { reason: Reason::of(aborted.reason()), tries: *tries });
                    }
                }
                begin_response::Outcome::Begun(_) => return Err(strange()),
            }
        }
    }

    /// Reads a key, as `GET` does. Of any keyspace.
    ///
    /// # Errors
    /// There is no such keyspace, the key holds a collection, or no node answers.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        let message = v1::GetRequest { keyspace: self.name(), key: bytes(key) };
        let get = async |mut caller: Caller, message| caller.get(message).await;
        Ok(call::repeat(&self.nodes, Bounds::of(TRIES, TIME), message, get).await?.value)
    }

    /// Sets a key, as `SET` does. Of any keyspace.
    ///
    /// # Errors
    /// It had no effect: there is no such keyspace, the user may not, it was aborted until its time was up, 20 s and up
    /// to 10 s more where a connection must be made, or no node can be reached.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Written<()>, Error> {
        let message = v1::PutRequest { keyspace: self.name(), key: bytes(key), value: bytes(value) };
        let put = async |mut caller: Caller, message| caller.put(message).await;
        let answer = call::change(&self.nodes, Bounds::of(TRIES, TIME), message, put).await?;
        Ok(answer.map_or_else(Written::Unknown, |answer| written(answer.unknown, ())))
    }

    /// Deletes a key, as `DEL` does, and says whether there was one. Of any keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<Written<bool>, Error> {
        let message = v1::DeleteRequest { keyspace: self.name(), key: bytes(key) };
        let delete = async |mut caller: Caller, message| caller.delete(message).await;
        let answer = call::change(&self.nodes, Bounds::of(TRIES, TIME), message, delete).await?;
        Ok(answer.map_or_else(Written::Unknown, |answer| written(answer.unknown, answer.existed)))
    }

    /// Executes a Redis command on the data of the keyspace: `["INCRBY", "visits", "2"]`. Of any keyspace.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; and a command that makes no sense, or not here. What a key holds is no error: see
    /// [`Reply::Error`].
    pub async fn execute(
        &self,
        words: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Written<Reply>, Error> {
        let words = words.into_iter().map(bytes).collect();
        let message = v1::ExecuteRequest { keyspace: self.name(), words };
        let execute = async |mut caller: Caller, message| caller.execute(message).await;
        let answer = call::change(&self.nodes, Bounds::of(TRIES, TIME), message, execute).await?;
        Ok(answer.map_or_else(Written::Unknown, |v1::ExecuteResponse { unknown, reply }| {
            written(unknown, reply.map_or(Reply::Null, Reply::of))
        }))
    }

    pub(crate) fn name(&self) -> String {
        self.name.as_ref().to_owned()
    }
}

fn written<T>(unknown: Option<v1::Unknown>, value: T) -> Written<T> {
    unknown.map_or(Written::Done(value), |unknown| Written::Unknown(unknown.why))
}

pub(crate) fn bytes(of: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(of.as_ref())
}

pub(crate) fn strange() -> Error {
    Error::Refused {
        code: crate::error::Code::Other,
        message: "the node has answered what this client does not know; is it of a later version?".to_owned(),
    }
}
