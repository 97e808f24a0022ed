//! Messages stay small: the simulator's speed hangs on it (`cargo bench -p isochrone-sim`).

use crate::machine::{Command, Reply};
use isochrone_replication::message::{Entry, Message, Record};
use isochrone_replication::multipaxos::log;
use std::mem::size_of;

/// What is queued and moved for every message; a change here is a change of the simulator's speed.
#[test]
fn messages_keep_their_size() {
    assert_eq!(size_of::<log::Message<Entry<Command>>>(), 48);
    assert_eq!(size_of::<Message<Command, Reply, log::Message<Entry<Command>>>>(), 88);
    assert_eq!(size_of::<Record<log::Record<Entry<Command>>>>(), 56);
}
