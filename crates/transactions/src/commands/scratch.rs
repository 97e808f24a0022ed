//! Executes commands on what a transaction has read.

use super::keys::{Keys, add};
use crate::request::{Read, Update};
use isochrone_core::command::{Command, Response};
use isochrone_core::{Blob, StateMachine as _};
use isochrone_store::Store;

/// What commands come to.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(super) struct Executed {
    /// A reply each.
    pub replies: Vec<Response>,
    /// What is to be written, ascending by key: what was changed, also a key that is gone since its time was over.
    pub updates: Vec<Update>,
}

/// Executes commands one after the other on what was read of these keys.
///
/// # Errors
/// A key that holds what is no entry.
pub(super) fn execute<'a>(
    commands: impl Iterator<Item = &'a Command>,
    keys: &Keys,
    reads: &[Read],
) -> Result<Executed, Blob> {
    let mut before = Store::default();
    for read in reads {
        if let Some(entry) = &read.value {
            before.enter(&read.key, entry).map_err(|_| read.key.clone())?;
        }
    }
    let mut store = before.clone();
    let (mut replies, mut written) = (Vec::new(), Keys::default());
    for command in commands {
        let reply = store.apply(command);
        // What is written unread is written unless the whole transaction was not executed.
        if reply != Response::NilArray {
            // Commands on all keys were refused.
            let _ = add(&mut written, &command.operation);
        }
        replies.push(reply);
    }
    let changed = |key: &Blob| match keys.get(key).is_some_and(|used| used.reads) {
        true => !store.agrees(&before, key),
        false => written.get(key).is_some_and(|used| used.writes),
    };
    let changed = keys.keys().filter(|key| changed(key));
    let updates = changed.map(|key| Update { key: key.clone(), value: store.entry(key) }).collect();
    Ok(Executed { replies, updates })
}
