//! What the configuration manager of a group knows, as a state machine: which master and which copies there are,
//! and which are to be next (`specs/curp.md` 3.12 to 3.14).
//!
//! There is one *committed* configuration, the one that clients are told of and that a recovery starts from, and at
//! most one that is *next*: another master (a recovery), or other copies under the same master. The next one becomes
//! the committed one in a single step, once its master has said that it is ready (D-49). Until then the committed one
//! is the truth, whatever was begun.

use isochrone_core::command::{Access, Touch};
use isochrone_core::{Blob, Export, Footprint, Malformed, NodeId, StateMachine, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::order::Reign;

/// A master, and where its backups and witnesses stand.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Configuration {
    /// The number of the master's incarnation, never used twice, which is also the epoch that fences backups; and the
    /// version of the list of copies under it.
    pub reign: Reign,
    /// Where the master is.
    pub master: NodeId,
    /// Each of these holds a backup and a witness (D-41).
    pub copies: Arc<[NodeId]>,
}

impl Configuration {
    /// Whether this node takes part.
    pub fn names(&self, node: NodeId) -> bool {
        self.master == node || self.copies.contains(&node)
    }

    /// The node of the master, then those of the copies.
    pub(super) fn members(&self) -> impl Iterator<Item = NodeId> {
        std::iter::once(self.master).chain(self.copies.iter().copied())
    }

    fn is_well_formed(&self) -> bool {
        let twice = |at: usize| self.copies[..at].contains(&self.copies[at]);
        !self.copies.contains(&self.master) && !(0..self.copies.len()).any(twice)
    }
}

/// The state. See the module.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Registry {
    /// Rises with every change.
    pub version: u64,
    /// What counts; none before the first master serves.
    pub committed: Option<Configuration>,
    /// What has been begun to follow it.
    pub next: Option<Configuration>,
    /// The highest number given to a master.
    masters: u64,
    /// The highest version given to a list of the committed master.
    lists: u64,
    /// The reign whose master has said that it serves nobody any more.
    yielded: Option<Reign>,
    /// Nodes that are to hold no copy, by the word of an operator.
    retired: BTreeSet<NodeId>,
}

/// What the manager that leads has the others agree on.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Command {
    /// The master is given up: this one is to recover what it had.
    Recover {
        /// The version that this was decided from.
        version: u64,
        /// Who is to be the master: one of the copies.
        master: NodeId,
        /// Its copies.
        copies: Arc<[NodeId]>,
    },
    /// The master serves nobody any more, by its own word: this one is to go on. As [`Command::Recover`], but nobody
    /// need wait until a lease is over.
    HandOver {
        /// The version that this was decided from, and the master's word given by.
        version: u64,
        /// Who is to be the master: one of the copies.
        master: NodeId,
        /// Its copies.
        copies: Arc<[NodeId]>,
    },
    /// The master goes on, with these copies; also one that was to hand over, and one that was given up while none of
    /// those that could take over lives. Where a recovery was begun, the master goes on under a number of its own, since
    /// whoever was to recover may live, and fence its copies.
    Replace {
        /// The version that this was decided from.
        version: u64,
        /// The copies.
        copies: Arc<[NodeId]>,
    },
    /// This node is to hold no copy any more, and none is put there.
    Retire {
        /// The version that this was decided from.
        version: u64,
        /// Which node.
        node: NodeId,
    },
    /// This node may hold a copy again.
    Admit {
        /// The version that this was decided from.
        version: u64,
        /// Which node.
        node: NodeId,
    },
    /// The next configuration is ready: it counts from here on.
    Commit {
        /// Its reign.
        reign: Reign,
    },
    /// Changes nothing.
    Look,
}

/// What comes of it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It is so.
    Done,
    /// It was decided from something that is no longer so, or makes no sense: nothing has changed.
    Refused,
    /// The state.
    State(Registry),
}

impl Registry {
    /// Whether a recovery has been begun and is not over; also that of the master itself, which goes on.
    pub fn recovers(&self) -> bool {
        let now = self.committed.as_ref().map_or(0, |committed| committed.reign.0);
        self.next.as_ref().is_some_and(|next| next.reign.0 > now)
    }

    /// Whether the committed master has said that it serves nobody any more. It cannot take that back but by another
    /// list, which ends a recovery that was begun on its word.
    pub fn yielded(&self) -> bool {
        self.yielded.is_some() && self.yielded == self.committed.as_ref().map(|committed| committed.reign)
    }

    /// Whether this node is to hold no copy. It may still hold one, until another stands in its place.
    pub fn is_retired(&self, node: NodeId) -> bool {
        self.retired.contains(&node)
    }

    /// Who may become the master: only who has everything that was ever confirmed.
    pub fn may_lead(&self, node: NodeId) -> bool {
        match &self.committed {
            // Nothing was ever confirmed.
            None => true,
            Some(committed) if committed.copies.is_empty() => committed.master == node,
            Some(committed) => committed.copies.contains(&node),
        }
    }

    fn begin(&mut self, next: Configuration) -> Reply {
        if !next.is_well_formed() {
            return Reply::Refused;
        }
        self.version += 1;
        self.next = Some(next);
        Reply::Done
    }

    fn recover(&mut self, master: NodeId, copies: &Arc<[NodeId]>) -> Reply {
        if !self.may_lead(master) {
            return Reply::Refused;
        }
        // A number that was given is never given again, also where nothing comes of it (D-3).
        let reign = Reign(self.masters + 1, 1);
        let reply = self.begin(Configuration { reign, master, copies: copies.clone() });
        if reply == Reply::Done {
            self.masters += 1;
        }
        reply
    }

    fn hand_over(&mut self, master: NodeId, copies: &Arc<[NodeId]>) -> Reply {
        let Some(committed) = &self.committed else { return Reply::Refused };
        let reign = committed.reign;
        let reply = self.recover(master, copies);
        if reply == Reply::Done {
            self.yielded = Some(reign);
        }
        reply
    }

    fn replace(&mut self, copies: &Arc<[NodeId]>) -> Reply {
        let Some(committed) = &self.committed else { return Reply::Refused };
        // A recovery that was begun ends with this: nothing was confirmed under its number. Under a later one nothing
        // that the candidate says counts any more with the copies.
        let recovers = self.recovers();
        let reign = match recovers {
            true => Reign(self.masters + 1, 1),
            false => Reign(committed.reign.0, self.lists + 1),
        };
        let reply = self.begin(Configuration { reign, master: committed.master, copies: copies.clone() });
        if reply == Reply::Done {
            if recovers {
                self.masters += 1
            } else {
                self.lists += 1
            }
            self.yielded = None;
        }
        reply
    }

    fn mark(&mut self, node: NodeId, retired: bool) -> Reply {
        let changed = if retired { self.retired.insert(node) } else { self.retired.remove(&node) };
        self.version += u64::from(changed);
        Reply::Done
    }

    fn commit(&mut self, reign: Reign) -> Reply {
        if self.committed.as_ref().is_some_and(|committed| committed.reign == reign) {
            return Reply::Done;
        }
        match self.next.take_if(|next| next.reign == reign) {
            Some(next) => {
                if self.committed.as_ref().is_none_or(|committed| committed.reign.0 < reign.0) {
                    self.lists = reign.1;
                }
                self.version += 1;
                self.committed = Some(next);
                Reply::Done
            }
            None => Reply::Refused,
        }
    }
}

impl Footprint for Command {
    /// A registry is small: all of it is touched.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        let access = if Registry::reads_only(self) { Access::Read } else { Access::Update };
        visit(Touch::All(access));
    }
}

/// A registry in one chunk.
#[derive(Clone, Debug)]
pub struct View(Blob);

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        (index == 0).then(|| self.0.clone())
    }
}

impl StateMachine for Registry {
    type Command = Command;
    type Reply = Reply;
    type View = View;
    type Before = Self;

    fn apply(&mut self, command: &Command) -> Reply {
        match command {
            Command::Recover { version, .. }
            | Command::HandOver { version, .. }
            | Command::Replace { version, .. }
            | Command::Retire { version, .. }
            | Command::Admit { version, .. }
                if *version != self.version =>
            {
                Reply::Refused
            }
            Command::Recover { master, copies, .. } => self.recover(*master, copies),
            Command::HandOver { master, copies, .. } => self.hand_over(*master, copies),
            Command::Replace { copies, .. } => self.replace(copies),
            Command::Retire { node, .. } => self.mark(*node, true),
            Command::Admit { node, .. } => self.mark(*node, false),
            Command::Commit { reign } => self.commit(*reign),
            Command::Look => Reply::State(self.clone()),
        }
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }

    fn reads_only(command: &Command) -> bool {
        matches!(command, Command::Look)
    }

    fn read(&self, command: &Command) -> Option<Reply> {
        Self::reads_only(command).then(|| Reply::State(self.clone()))
    }

    fn export(&self) -> View {
        View(Blob::from(wire::encode(self)))
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        *self = wire::decode(chunk)
            .map_err(|error| Malformed { what: "registry chunk", cause: error.to_string() })?;
        Ok(())
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Registry>("curp-registry");
    isochrone_core::shape::hold::<Reply>("curp-registry-reply");
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Random;

    fn nodes(numbers: &[u16]) -> Arc<[NodeId]> {
        numbers.iter().copied().map(NodeId).collect()
    }

    /// Whatever is asked in whatever order: numbers are never given twice, the committed reign only rises, a master
    /// comes from the copies committed before it, and a commit changes nothing but which configuration counts.
    #[test]
    fn what_was_confirmed_is_with_every_master_to_come() {
        for seed in 0..500 {
            let mut random = Random::seeded(seed);
            let (mut registry, mut given) = (Registry::default(), BTreeSet::new());
            for _ in 0..60 {
                let before = registry.clone();
                let count = random.below(3) as usize;
                let copies: Vec<u16> = (0..count).map(|_| random.below(4) as u16).collect();
                let version = registry.version.saturating_sub(u64::from(random.chance(0.2)));
                let command = match random.below(5) {
                    4 => {
                        let node = NodeId(random.below(4) as u16);
                        let retire = random.chance(0.5);
                        if retire {
                            Command::Retire { version, node }
                        } else {
                            Command::Admit { version, node }
                        }
                    }
                    number @ (0 | 3) => {
                        let master = NodeId(random.below(4) as u16);
                        let copies = nodes(&copies);
                        match number {
                            0 => Command::Recover { version, master, copies },
                            _ => Command::HandOver { version, master, copies },
                        }
                    }
                    1 => Command::Replace { version, copies: nodes(&copies) },
                    _ => match &registry.next {
                        Some(next) if random.chance(0.7) => Command::Commit { reign: next.reign },
                        _ => Command::Commit { reign: Reign(random.below(4), random.below(4)) },
                    },
                };
                let reply = registry.apply(&command);
                if reply == Reply::Refused {
                    assert_eq!(registry, before, "{command:?}");
                    continue;
                }
                let now = |registry: &Registry| registry.committed.as_ref().map(|c| c.reign);
                assert!(now(&registry) >= now(&before));
                match command {
                    Command::Recover { master, .. } | Command::HandOver { master, .. } => {
                        // A word that was given stands until another master counts, or another list is begun.
                        let by_hand = matches!(command, Command::HandOver { .. });
                        assert_eq!(registry.yielded(), by_hand || before.yielded());
                        let next = registry.next.as_ref().unwrap();
                        assert!(given.insert(next.reign), "{next:?} was given before");
                        assert!(registry.recovers() && Some(next.reign) > now(&registry));
                        if let Some(committed) = &before.committed {
                            let alone = committed.copies.is_empty() && committed.master == master;
                            assert!(committed.copies.contains(&master) || alone);
                        }
                        assert_eq!(registry.committed, before.committed);
                    }
                    Command::Replace { .. } => {
                        let next = registry.next.as_ref().unwrap();
                        assert!(given.insert(next.reign), "{next:?} was given before");
                        assert_eq!((registry.recovers(), registry.yielded()), (before.recovers(), false));
                        let committed = registry.committed.as_ref().unwrap();
                        assert_eq!(next.master, committed.master);
                        let latest = before.next.as_ref().filter(|_| before.recovers());
                        assert!(next.reign > latest.map_or(committed.reign, |latest| latest.reign));
                        assert_eq!(next.reign.0 == committed.reign.0, latest.is_none());
                        assert_eq!(registry.committed, before.committed);
                    }
                    Command::Commit { reign } if registry != before => {
                        assert_eq!(registry.committed, before.next);
                        assert_eq!((now(&registry), &registry.next), (Some(reign), &None));
                    }
                    Command::Retire { node, .. } | Command::Admit { node, .. } => {
                        let retired = matches!(command, Command::Retire { .. });
                        assert_eq!(registry.is_retired(node), retired);
                        let moved = u64::from(before.is_retired(node) != retired);
                        assert_eq!(registry.version, before.version + moved, "asked again, it is so already");
                        assert_eq!((&registry.committed, &registry.next), (&before.committed, &before.next));
                    }
                    Command::Commit { .. } | Command::Look => assert_eq!(registry, before),
                }
                let mut copy = Registry::default();
                copy.absorb(&registry.export().chunk(0).unwrap()).unwrap();
                assert_eq!(copy, registry);
            }
        }
    }

    #[test]
    fn of_a_list_and_a_recovery_only_what_was_begun_last_may_count() {
        let mut registry = Registry::default();
        let mut ask = |command: Command| (registry.apply(&command), registry.clone());
        let (_, state) = ask(Command::Recover { version: 0, master: NodeId(0), copies: nodes(&[1]) });
        assert_eq!(state.next.as_ref().unwrap().reign, Reign(1, 1));
        ask(Command::Commit { reign: Reign(1, 1) });
        let (reply, state) = ask(Command::Replace { version: 2, copies: nodes(&[2]) });
        assert_eq!((reply, state.next.as_ref().unwrap().reign), (Reply::Done, Reign(1, 2)));
        let (reply, state) = ask(Command::Replace { version: 3, copies: nodes(&[1, 2]) });
        assert_eq!((reply, state.next.as_ref().unwrap().reign), (Reply::Done, Reign(1, 3)));
        assert_eq!(ask(Command::Commit { reign: Reign(1, 2) }).0, Reply::Refused, "it was replaced");
        // Until the new list counts, only the old one's copies may lead.
        assert_eq!(
            ask(Command::Recover { version: 4, master: NodeId(2), copies: nodes(&[0]) }).0,
            Reply::Refused
        );
        let (reply, state) = ask(Command::Recover { version: 4, master: NodeId(1), copies: nodes(&[0]) });
        assert_eq!((reply, state.next.as_ref().unwrap().reign), (Reply::Done, Reign(2, 1)));
        assert_eq!(ask(Command::Commit { reign: Reign(1, 3) }).0, Reply::Refused, "the master was given up");
        let (reply, state) = ask(Command::Replace { version: 5, copies: nodes(&[2]) });
        assert_eq!((reply, state.next.as_ref().unwrap().reign), (Reply::Done, Reign(3, 1)));
        assert_eq!(state.next.as_ref().unwrap().master, NodeId(0), "the master goes on");
        assert_eq!(
            ask(Command::Commit { reign: Reign(2, 1) }).0,
            Reply::Refused,
            "the recovery was given up"
        );
        let (reply, state) = ask(Command::Recover { version: 6, master: NodeId(1), copies: nodes(&[0]) });
        assert_eq!(
            (reply, state.next.as_ref().unwrap().reign),
            (Reply::Done, Reign(4, 1)),
            "no number twice"
        );
        assert_eq!(ask(Command::Commit { reign: Reign(3, 1) }).0, Reply::Refused);
        assert_eq!(ask(Command::Commit { reign: Reign(4, 1) }).0, Reply::Done);
        assert_eq!(ask(Command::Commit { reign: Reign(4, 1) }).0, Reply::Done, "asked again");
    }
}
