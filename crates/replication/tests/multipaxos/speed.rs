//! Messages stay small: the simulator's speed hangs on it (`cargo bench -p isochrone-sim`).

use crate::machine::{Command, Reply};
use isochrone_replication::multipaxos::{self, log};
use std::mem::size_of;

/// What is queued and moved for every message; a change here is a change of the simulator's speed.
#[test]
fn messages_keep_their_size() {
    assert_eq!(size_of::<log::Message<multipaxos::Entry<Command>>>(), 48);
    assert_eq!(size_of::<multipaxos::Message<Command, Reply>>(), 56);
    assert_eq!(size_of::<multipaxos::Record<Command>>(), 48);
}
