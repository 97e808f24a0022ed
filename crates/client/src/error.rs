//! What can go wrong.

use isochrone_proto::v1;
use std::fmt;
use thiserror::Error;
use tonic::Status;

/// Why something was not done. Nothing took effect, unless the variant says otherwise.
#[derive(Debug, Error)]
pub enum Error {
    /// No node has answered: none can be reached, or none has answered in the time of the call, as where others hold its keys
    /// for long, or there is no majority.
    #[error("no node answers: {0}")]
    Unreachable(String),
    /// The client is not set up so that it can work.
    #[error("{0}")]
    Setup(String),
    /// A node has refused it. The message says what would be right.
    #[error("{message}")]
    Refused {
        /// In which way.
        code: Code,
        /// In the node's words.
        message: String,
    },
    /// The closure has touched a key that its transaction does not name.
    #[error("key \"{}\" was not named in {what}; name it when the transaction is built", .key.escape_ascii())]
    Undeclared {
        /// The key.
        key: Vec<u8>,
        /// `read` or `write`.
        what: &'static str,
    },
    /// A value that was to be a number is none.
    #[error("key \"{}\" holds no number", .0.escape_ascii())]
    NotANumber(Vec<u8>),
    /// It was aborted each time, until its tries or its time were over.
    #[error("no effect after {tries} tries: {reason}")]
    GaveUp {
        /// Why, at last.
        reason: Reason,
        /// How often it was tried.
        tries: u32,
    },
    /// The closure's own reason not to commit.
    #[error(transparent)]
    Own(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// The closure's own reason not to commit: the transaction takes no effect, and is not tried again.
    pub fn own(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Own(error.into())
    }

    /// Of a status after which nothing took effect.
    pub(crate) fn refused(status: &Status) -> Error {
        Error::Refused { code: Code::of(status.code()), message: status.message().to_owned() }
    }
}

/// An error with what has caused it.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    with_causes(error.to_string(), error.source())
}

/// A text with what has caused that, each said once.
pub(crate) fn with_causes(mut text: String, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        cause = error.source();
    }
    text
}

/// In which way a call was refused.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[non_exhaustive]
pub enum Code {
    /// It makes no sense.
    Invalid,
    /// There is no such keyspace.
    NotFound,
    /// What it is about is not so: the protocol has no transactions, the key holds a collection.
    Precondition,
    /// A limit was met.
    Limit,
    /// It was asked again until its tries or its time were over, and may be asked again later: others on the same keys were
    /// before it, there is no majority, or the node starts or stops.
    Aborted,
    /// The user is not known, or the password is another.
    Unauthenticated,
    /// The user may not.
    Denied,
    /// Anything else.
    Other,
}

impl Code {
    fn of(code: tonic::Code) -> Code {
        match code {
            tonic::Code::InvalidArgument => Code::Invalid,
            tonic::Code::NotFound => Code::NotFound,
            tonic::Code::FailedPrecondition => Code::Precondition,
            tonic::Code::ResourceExhausted | tonic::Code::OutOfRange => Code::Limit,
            tonic::Code::Aborted => Code::Aborted,
            tonic::Code::Unauthenticated => Code::Unauthenticated,
            tonic::Code::PermissionDenied => Code::Denied,
            _ => Code::Other,
        }
    }
}

/// Why a transaction took no effect.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// Another that touches the same keys was under way.
    Conflict,
    /// What it had read was not the latest.
    StaleRead,
    /// Its client was not heard of for too long, or it was open for too long.
    HeartbeatLost,
    /// A partition could not be reached in time, or no node could.
    Unavailable,
    /// A partition did not know of it.
    Presumed,
    /// It asked for a moment that a partition cannot serve: too far ahead, or too long ago.
    OutOfTime,
    /// What it was found by has changed ([`Transaction::find`](crate::Transaction::find)).
    FoundChanged,
    /// Another one of the protocol's.
    Other,
}

impl Reason {
    pub(crate) fn of(reason: v1::Reason) -> Reason {
        match reason {
            v1::Reason::Conflict => Reason::Conflict,
            v1::Reason::StaleRead => Reason::StaleRead,
            v1::Reason::HeartbeatLost => Reason::HeartbeatLost,
            v1::Reason::Unavailable => Reason::Unavailable,
            v1::Reason::Presumed => Reason::Presumed,
            v1::Reason::OutOfTime => Reason::OutOfTime,
            v1::Reason::Unspecified | v1::Reason::Client => Reason::Other,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Conflict => "others change the same keys",
            Reason::StaleRead => "what it had read was not the latest",
            Reason::HeartbeatLost => "it was open for too long",
            Reason::Unavailable => "a partition or the nodes could not be reached",
            Reason::Presumed => "a partition did not know of it",
            Reason::OutOfTime => "it asked for a moment that a partition cannot serve",
            Reason::FoundChanged => "what it was found by changes",
            Reason::Other => "the protocol has aborted it",
        })
    }
}
