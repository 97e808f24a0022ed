//! Keys that nobody touches go, too, when their time is over.
//!
//! Only a command deletes a key, by its stamp (specs/curp.md 7.3), so that all replicas delete the same. What no command touches
//! would stay for ever. So one of the nodes that hold a keyspace asks for the deletion of what is overdue there, as a client
//! would: the one that leads, or where nobody does the first that is reached. A node whose clock is fast
//! and that is not this one deletes nothing early.

use super::{Origin, Origins, Reactor};
use crate::events::Event;
use crate::hub::Hub;
use isochrone_core::command::{Command, Keys, Operation, Response};
use isochrone_core::notify::Flags;
use isochrone_core::{Blob, Instant, KeyspaceId, ProcessId, Span};
use std::collections::btree_map::Entry;

/// How long what is overdue is left to whoever touches it: longer than clocks should differ.
const GRACE: Span = Span::from_secs(1);
/// Keys that go with one command, and bytes of them: what a replica deletes in a millisecond or two.
const KEYS: usize = 1024;
/// See [`KEYS`].
const BYTES: usize = 256 << 10;
/// Commands under way at a time. Over a wide area each takes a third of a second, and what clients let expire must not come
/// faster than it goes.
const COMMANDS: usize = 8;

/// Those of each of so many states: one at least, and together no more than of one alone, since one thread executes all.
fn share(states: usize) -> usize {
    (COMMANDS / states.max(1)).max(1)
}

impl Reactor {
    /// Asks for the deletion of what is overdue, where that is this node's part and not under way.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        let stamp = self.shard.io().stamp;
        let states = self.reporter.to_sweep(&self.peers);
        let most = share(states.len());
        let wanted = self.clients.hub.wanted().has(Flags::EXPIRED);
        for (of, keyspace) in states {
            let Some(by) = self.clients.host(keyspace).filter(|_| !self.origins.sweeping.contains_key(&of))
            else {
                continue;
            };
            let keys = self.shard.overdue(of, stamp - GRACE, most * KEYS);
            for keys in commands(&keys).take(most) {
                let ticket = self.origins.ticket();
                let keys = Keys::from(keys);
                let told = wanted.then(|| (keyspace, keys.clone()));
                let command = Command::new(stamp, deletion(keys, told.is_some()));
                if let Err(error) = self.shard.execute(by, ticket, command) {
                    tracing::debug!(%error, "nothing overdue is deleted");
                    break;
                }
                *self.origins.sweeping.entry(of).or_default() += 1;
                self.origins.waiting.insert(ticket, Origin::Sweep { of, by, asked: now, told });
            }
        }
    }
}

/// Deletes what is over of these keys, and says which that was where it is to be `told`.
fn deletion(keys: Keys, told: bool) -> Operation {
    let sweep = Operation::Sweep { keys: keys.clone() };
    if !told {
        return sweep;
    }
    Operation::Transaction { watched: [].into(), operations: [sweep, Operation::Expired { keys }].into() }
}

/// Tells which of these keys such a command says that it has deleted.
pub(super) fn tell(hub: &mut Hub, keyspace: KeyspaceId, keys: &[Blob], response: Response) {
    let Response::Array(mut parts) = response else { return };
    let Some(Response::Array(over)) = parts.pop() else { return };
    let over = keys.iter().zip(over).filter(|(_, over)| *over == Response::Integer(1));
    over.for_each(|(key, _)| hub.happened(keyspace, Event::Expired, key));
}

/// The keys of each command: one at least, however long.
fn commands(mut keys: &[Blob]) -> impl Iterator<Item = &[Blob]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = keys.iter().take(KEYS).take_while(|key| {
            bytes += key.len();
            bytes <= BYTES
        });
        let (these, rest) = keys.split_at(fits.count().max(1).min(keys.len()));
        keys = rest;
        (!these.is_empty()).then_some(these)
    })
}

impl Origins {
    /// One command has deleted what was overdue in the state of this process, or has not.
    pub(super) fn swept(&mut self, of: ProcessId) {
        if let Entry::Occupied(mut under_way) = self.sweeping.entry(of) {
            *under_way.get_mut() -= 1;
            if *under_way.get() == 0 {
                under_way.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::{Notice, Topic};
    use isochrone_core::command::{Condition, Expiry};
    use isochrone_core::{Stamp, StateMachine as _};
    use isochrone_store::Store;

    #[test]
    fn many_states_share_what_one_alone_may_have_under_way() {
        assert_eq!([0, 1, 3, 8, 64].map(share), [8, 8, 2, 1, 1]);
    }

    #[test]
    fn what_was_over_is_told_where_somebody_wants_it() {
        let (mut store, mut hub) = (Store::default(), Hub::default());
        let at = |seconds| Stamp::ZERO + Span::from_secs(seconds);
        let set = |key: &Blob, until: u64| {
            let (condition, expiry) = (Condition::Always, Expiry::At(at(until)));
            let operation =
                Operation::Set { key: key.clone(), value: "v".into(), condition, expiry, get: false };
            Command::new(at(1), operation)
        };
        let [over, later] = ["over", "later"].map(Blob::from);
        store.apply(&set(&over, 10));
        store.apply(&set(&later, 20));
        let keys: Keys = [later.clone(), over.clone()].into();
        hub.set_numbers([(KeyspaceId(1), 2)]);
        hub.set_notifies(Flags::parse(b"Kx").unwrap());
        hub.subscribe(1, Topic::Pattern, &"*".into());
        let mut told = |keys: &Keys, seconds| {
            let answer = store.apply(&Command::new(at(seconds), deletion(keys.clone(), true)));
            tell(&mut hub, KeyspaceId(1), keys, answer);
            hub.hear(Instant::ZERO);
            let channels = hub.take_mail().into_iter().map(|(_, notice)| match notice {
                Notice::Message { channel, .. } => channel,
                other => panic!("{other:?}"),
            });
            channels.collect::<Vec<_>>()
        };
        assert_eq!(told(&keys, 11), [Blob::from("__keyspace@2__:over")]);
        assert_eq!(told(&keys, 12), Vec::<Blob>::new());
        assert_eq!(told(&keys, 21), [Blob::from("__keyspace@2__:later")]);
        assert!(matches!(deletion(keys, false), Operation::Sweep { .. }));
    }

    #[test]
    fn what_is_overdue_goes_by_commands_of_so_many_keys_and_bytes() {
        let sizes = |keys: &[Blob]| commands(keys).map(<[Blob]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        let short = vec![Blob::from(&b"k"[..]); 2 * KEYS + 1];
        assert_eq!(sizes(&short), [KEYS, KEYS, 1]);
        let half = Blob::from(vec![0; BYTES / 2]);
        let long = Blob::from(vec![0; BYTES + 1]);
        assert_eq!(sizes(&[half.clone(), half.clone(), half.clone(), long, half]), [2, 1, 1, 1]);
    }
}
