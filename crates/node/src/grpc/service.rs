//! Messages to calls, answers to messages.

use super::guard::User;
use super::socket::Peer;
use super::value;
use crate::audit::{self, Act, Audit, Decision};
use crate::gateway::Abort;
use crate::limits::Limits;
use crate::reactor::calls::{Ask, By, Line, Refusal, Said, Token, Why};
use bytes::Bytes;
use isochrone_core::Blob;
use isochrone_proto::Message;
use isochrone_proto::v1::isochrone_server::Isochrone;
use isochrone_proto::v1::value::Kind;
use isochrone_proto::v1::{
    AbortRequest, AbortResponse, Aborted, BeginRequest, BeginResponse, Begun, CommitRequest, CommitResponse,
    Committed, DeleteRequest, DeleteResponse, ExecuteRequest, ExecuteResponse, GetRequest, GetResponse,
    PutRequest, PutResponse, Read, Reason, Snapshot, Unknown, Update, Value, begin_response, commit_response,
};
use std::sync::Arc;
use tonic::codegen::async_trait;
use tonic::{Code, Request, Response, Status};

/// How a call ended that was answered, for those who count, and how long the answer is.
#[derive(Copy, Clone)]
pub(super) struct Ended {
    pub(super) word: &'static str,
    pub(super) bytes: usize,
}

/// The service of one node.
pub(super) struct Service {
    line: Line,
    bulk_bytes: usize,
    elements: usize,
    audit: Option<Audit>,
}

impl Service {
    pub(super) fn new(line: Line, limits: &Limits, audit: Option<Audit>) -> Service {
        Service { line, bulk_bytes: limits.bulk_bytes, elements: limits.elements, audit }
    }

    async fn call(&self, ask: Ask, by: By) -> Result<Said, Status> {
        // Whether the node had taken it up before it ended, nobody can say.
        let gone = |_| Ok(Said::Unknown("the node has ended before it answered".to_owned()));
        self.line.send(ask, by).map_err(status)?.await.unwrap_or_else(gone).map_err(status)
    }

    /// A key, a value or an argument, if it is not too long.
    fn blob(&self, bytes: &Bytes) -> Result<Blob, Status> {
        self.check("bulk", "bytes", bytes.len(), self.bulk_bytes)?;
        Ok(Blob::new(bytes))
    }

    fn blobs(&self, all: &[Bytes]) -> Result<Vec<Blob>, Status> {
        self.check("elements", "keys", all.len(), self.elements)?;
        all.iter().map(|bytes| self.blob(bytes)).collect()
    }

    fn check(&self, limit: &str, what: &str, found: usize, most: usize) -> Result<(), Status> {
        if found <= most {
            return Ok(());
        }
        let text = format!("{found} {what}, and the limit `{limit}` is {most}");
        Err(Status::resource_exhausted(text))
    }

    async fn execute_words(
        &self,
        (user, by): (Arc<str>, By),
        keyspace: String,
        words: Vec<Bytes>,
    ) -> Result<Replied, Status> {
        self.check("elements", "words", words.len(), self.elements)?;
        words.iter().try_for_each(|word| self.check("bulk", "bytes", word.len(), self.bulk_bytes))?;
        match self.call(Ask::Execute { user, keyspace, words }, by).await? {
            Said::Unknown(why) => Ok(Replied::Unknown(Unknown { why })),
            Said::Replied(bytes) => match value::parse(&bytes) {
                Some(value) => Ok(Replied::Value(value)),
                None => Err(Status::internal("the reply is none of RESP3; this is a bug")),
            },
            _ => Err(strange()),
        }
    }

    /// A command of this service's own on one key: an error is about what the key holds.
    async fn simple(
        &self,
        asker: (Arc<str>, By),
        keyspace: String,
        words: Vec<Bytes>,
    ) -> Result<Result<Kind, Unknown>, Status> {
        match self.execute_words(asker, keyspace, words).await? {
            Replied::Unknown(unknown) => Ok(Err(unknown)),
            Replied::Value(Value { kind: Some(Kind::Error(text)) }) => Err(Status::failed_precondition(text)),
            Replied::Value(Value { kind }) => Ok(Ok(kind.ok_or_else(strange)?)),
        }
    }
}

enum Replied {
    Value(Value),
    Unknown(Unknown),
}

/// The user that the guard has let pass, and the message.
fn open<M>(request: Request<M>) -> Result<((Arc<str>, By), M), Status> {
    let asker = request.extensions().get::<User>().map(|User(user, by)| (Arc::clone(user), *by));
    let asker = asker.ok_or_else(|| Status::unauthenticated("nobody has logged in; this is a bug"))?;
    Ok((asker, request.into_inner()))
}

/// An answer, and its word for those who count.
fn say<M: Message>(message: M, word: &'static str) -> Result<Response<M>, Status> {
    let bytes = message.encoded_len();
    let mut response = Response::new(message);
    response.extensions_mut().insert(Ended { word, bytes });
    Ok(response)
}

fn known(unknown: Option<&Unknown>) -> &'static str {
    if unknown.is_some() { "unknown" } else { "ok" }
}

fn strange() -> Status {
    Status::internal("the node has answered something else; this is a bug")
}

#[async_trait]
impl Isochrone for Service {
    async fn begin(&self, request: Request<BeginRequest>) -> Result<Response<BeginResponse>, Status> {
        // Without a peer (there is always one), a transaction would end by its time alone.
        let on = request.extensions().get::<Peer>().map(|peer| peer.connection.clone()).unwrap_or_default();
        let ((user, by), BeginRequest { keyspace, reads, writes, name: named }) = open(request)?;
        let named = if named.is_empty() { None } else { Some(chosen(&named)?) };
        let (reads, writes) = (self.blobs(&reads)?, self.blobs(&writes)?);
        use begin_response::Outcome;
        let ask = Ask::Begin { user, on, keyspace, reads, writes, name: named };
        let (outcome, word) = match self.call(ask, by).await? {
            Said::Begun { txn, reads } => {
                (Outcome::Begun(Begun { txn: name(txn), reads: shown(reads) }), "begun")
            }
            Said::Snapshot { reads, at } => {
                (Outcome::Snapshot(Snapshot { reads: shown(reads), at }), "snapshot")
            }
            Said::Aborted(abort) => (Outcome::Aborted(aborted(abort)), "aborted"),
            // Nothing was asked to be written yet.
            Said::Unknown(why) => return Err(Status::aborted(why)),
            _ => return Err(strange()),
        };
        say(BeginResponse { outcome: Some(outcome) }, word)
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Result<Response<CommitResponse>, Status> {
        let ((user, by), CommitRequest { txn, updates }) = open(request)?;
        let txn = token(&txn)?;
        self.check("elements", "updates", updates.len(), self.elements)?;
        let update = |Update { key, value }: &Update| {
            Ok((self.blob(key)?, value.as_ref().map(|value| self.blob(value)).transpose()?))
        };
        let updates = updates.iter().map(update).collect::<Result<_, Status>>()?;
        use commit_response::Outcome;
        let (outcome, word) = match self.call(Ask::Commit { user, txn, updates }, by).await? {
            Said::Committed(at) => (Outcome::Committed(Committed { at }), "committed"),
            Said::Aborted(abort) => (Outcome::Aborted(aborted(abort)), "aborted"),
            Said::Unknown(why) => (Outcome::Unknown(Unknown { why }), "unknown"),
            _ => return Err(strange()),
        };
        say(CommitResponse { outcome: Some(outcome) }, word)
    }

    async fn abort(&self, request: Request<AbortRequest>) -> Result<Response<AbortResponse>, Status> {
        let ((user, by), AbortRequest { txn, name }) = open(request)?;
        let ask = match (txn.is_empty(), name.is_empty()) {
            (true, false) => Ask::AbortNamed { user, name: chosen(&name)? },
            (_, true) => Ask::Abort { user, txn: token(&txn)? },
            (false, false) => {
                return Err(Status::invalid_argument("both txn and name are given; give one of them"));
            }
        };
        match self.call(ask, by).await? {
            // Where nobody could be told, it ends by itself, and was never asked to commit.
            Said::Aborted(_) | Said::Unknown(_) => say(AbortResponse {}, "ok"),
            _ => Err(strange()),
        }
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let (asker, GetRequest { keyspace, key }) = open(request)?;
        match self.simple(asker, keyspace, vec!["GET".into(), key]).await? {
            Ok(Kind::Bytes(value)) => say(GetResponse { value: Some(value) }, "ok"),
            Ok(Kind::Null(_)) => say(GetResponse { value: None }, "ok"),
            Ok(_) => Err(strange()),
            // It has changed nothing, whatever became of it.
            Err(Unknown { why }) => Err(Status::aborted(why)),
        }
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let (asker, PutRequest { keyspace, key, value }) = open(request)?;
        let unknown = self.simple(asker, keyspace, vec!["SET".into(), key, value]).await?.err();
        let word = known(unknown.as_ref());
        say(PutResponse { unknown }, word)
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        let (asker, DeleteRequest { keyspace, key }) = open(request)?;
        let (existed, unknown) = match self.simple(asker, keyspace, vec!["DEL".into(), key]).await? {
            Ok(kind) => (kind == Kind::Integer(1), None),
            Err(unknown) => (false, Some(unknown)),
        };
        let word = known(unknown.as_ref());
        say(DeleteResponse { unknown, existed }, word)
    }

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<ExecuteResponse>, Status> {
        let ((user, by), ExecuteRequest { keyspace, words }) = open(request)?;
        let told = self.audit.as_ref().zip(words.first().and_then(|word| empties(word)));
        let act = told.map(|(to, name)| {
            let (user, keyspace) = (Some(user.to_string()), Some(audit::text(keyspace.as_bytes())));
            let address = by.address.map(|address| address.to_string());
            audit::Pending::new(
                to,
                Act { user, address, keyspace, ..Act::new("grpc", name, Decision::Allowed) },
            )
        });
        let replied = self.execute_words((user, by), keyspace, words).await;
        if let Some(act) = act {
            match &replied {
                Ok(Replied::Value(Value { kind: Some(Kind::Error(why)) })) => {
                    act.ends(Decision::Failed, Some(why.clone()));
                }
                Ok(Replied::Value(_)) => act.ends(Decision::Allowed, None),
                Ok(Replied::Unknown(unknown)) => act.ends(Decision::Failed, Some(unknown.why.clone())),
                // Where it was denied tells of it.
                Err(status) if status.code() == Code::PermissionDenied => act.forget(),
                Err(status) => act.ends(Decision::Failed, Some(status.message().to_owned())),
            }
        }
        let (reply, unknown) = match replied? {
            Replied::Value(value) => (Some(value), None),
            Replied::Unknown(unknown) => (None, Some(unknown)),
        };
        let word = known(unknown.as_ref());
        say(ExecuteResponse { unknown, reply }, word)
    }
}

/// The name of a command that empties a keyspace.
fn empties(word: &[u8]) -> Option<&'static str> {
    ["FLUSHALL", "FLUSHDB"].into_iter().find(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// The status of a call that had no effect.
pub(super) fn status(Refusal { why, text }: Refusal) -> Status {
    match why {
        Why::Invalid => Status::invalid_argument(text),
        Why::NotFound => Status::not_found(text),
        Why::Precondition => Status::failed_precondition(text),
        Why::TryAgain => Status::aborted(text),
        Why::Limit => Status::resource_exhausted(text),
        Why::Stranger => Status::unauthenticated(text),
        Why::Denied => Status::permission_denied(text),
    }
}

fn name(txn: Token) -> Bytes {
    [txn.life.to_le_bytes(), txn.number.to_le_bytes()].concat().into()
}

fn token(name: &[u8]) -> Result<Token, Status> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let parts = name.split_at_checked(8).and_then(|(life, count)| Some((number(life)?, number(count)?)));
    let (life, number) = parts
        .ok_or_else(|| Status::invalid_argument("txn is not what Begin has answered; send that as it is"))?;
    Ok(Token { life, number })
}

/// How long the names are that clients choose: so long that two do not choose the same.
const CHOSEN: std::ops::RangeInclusive<usize> = 16..=64;

/// A name that a client has chosen.
fn chosen(name: &[u8]) -> Result<Blob, Status> {
    if CHOSEN.contains(&name.len()) {
        return Ok(Blob::new(name));
    }
    let text = format!(
        "name has {} bytes, and {} to {} are right; draw 16 at random",
        name.len(),
        CHOSEN.start(),
        CHOSEN.end()
    );
    Err(Status::invalid_argument(text))
}

fn shown(reads: Vec<(Blob, Option<Blob>, u64)>) -> Vec<Read> {
    let bytes = |blob: &Blob| Bytes::copy_from_slice(blob);
    let read = |(key, value, version): (Blob, Option<Blob>, u64)| Read {
        key: bytes(&key),
        value: value.as_ref().map(bytes),
        version,
    };
    reads.into_iter().map(read).collect()
}

fn aborted(abort: Abort) -> Aborted {
    let reason = match abort {
        Abort::Conflict => Reason::Conflict,
        Abort::StaleRead => Reason::StaleRead,
        Abort::Client => Reason::Client,
        Abort::HeartbeatLost => Reason::HeartbeatLost,
        Abort::Presumed => Reason::Presumed,
        Abort::Unavailable => Reason::Unavailable,
        Abort::OutOfTime => Reason::OutOfTime,
    };
    Aborted { reason: reason.into() }
}
