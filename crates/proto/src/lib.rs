//! The messages and the service of `proto/isochrone/v1/isochrone.proto`, as code: what the node serves and the client
//! library calls. What they mean is said there.
//!
//! `generated.rs` and `descriptors.bin` are written by `make proto`, and checked in so that nobody who builds needs a compiler
//! for them.

#![forbid(unsafe_code)]

pub mod health;
#[cfg(test)]
mod tests;

/// What all messages have in common, such as how long they are.
pub use prost::Message;

/// Version 1.
#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub, reason = "generated")]
pub mod v1 {
    include!("generated.rs");
}

/// Calls that begin with these bytes carry a user and a password: the value of the metadata `authorization` is this word,
/// a blank, and both in base64 with a colon between them.
pub const BASIC: &str = "Basic";

/// An encoded `google.protobuf.FileDescriptorSet` of the files of `proto/`, comments included: what gRPC's reflection tells.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
