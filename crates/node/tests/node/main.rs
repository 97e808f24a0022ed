//! The node's tests: the contract suite over bare shards, and whole nodes over loopback.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

mod contract;
mod differential;
mod grammar;
mod live;
mod redis;
mod toy;
