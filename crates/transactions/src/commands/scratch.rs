//! Executes commands on what a transaction has read.

use super::keys::{Keys, add};
use crate::request::{Read, Update};
use isochrone_core::command::{Command, Operation, Response};
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
        note(&mut written, &command.operation, &reply);
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

/// Notes which keys an operation has written, of which some are not read: one that was refused has written none, nor has a
/// transaction that was not executed.
fn note(written: &mut Keys, operation: &Operation, reply: &Response) {
    match (operation, reply) {
        (_, Response::NilArray | Response::Error(_)) => {}
        (Operation::Transaction { operations, .. }, Response::Array(replies)) => {
            operations.iter().zip(replies).for_each(|(operation, reply)| note(written, operation, reply));
        }
        // Commands on all keys were refused.
        _ => drop(add(written, operation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Stamp;
    use isochrone_core::command::{Condition, Expiry, REPLY_MAX};
    use isochrone_store::versions::Version;

    #[test]
    fn what_was_refused_unread_writes_nothing() {
        let set = |key: &str| Operation::Set {
            key: key.into(),
            value: "new".into(),
            condition: Condition::Always,
            expiry: Expiry::Clear,
            get: false,
        };
        let get = Operation::Get { key: "large".into() };
        let operation = Operation::Transaction { watched: [].into(), operations: [get, set("b")].into() };
        let mut held = Store::default();
        let large = Operation::Append { key: "large".into(), value: vec![b'x'; REPLY_MAX].into() };
        held.apply(&Command::new(Stamp::ZERO, large));
        let commands = [set("a"), operation].map(|operation| Command::new(Stamp::ZERO, operation));
        let mut keys = Keys::default();
        commands.iter().for_each(|command| add(&mut keys, &command.operation).unwrap());
        let value = held.entry(b"large");
        let reads = [Read { key: "large".into(), version: Version(1), value }];
        let Executed { replies, updates } = execute(commands.iter(), &keys, &reads).unwrap();
        let [Response::Ok, Response::Array(parts)] = &replies[..] else { panic!("{replies:?}") };
        assert!(matches!(parts[1], Response::Error(_)), "nobody could be told");
        let updated: Vec<&Blob> = updates.iter().map(|update| &update.key).collect();
        assert_eq!(updated, [&Blob::from("a")]);
    }
}
