//! Which commands a log has had lately: what is there needs no witness.

use isochrone_core::CommandId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The names of the last commands, as many as are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    order: VecDeque<CommandId>,
    /// Never iterated.
    names: FxHashSet<CommandId>,
}

impl Recent {
    /// Takes one in, and forgets the oldest beyond so many.
    pub(crate) fn insert(&mut self, id: CommandId, most: usize) {
        if self.names.insert(id) {
            self.order.push_back(id);
            if self.order.len() > most
                && let Some(oldest) = self.order.pop_front()
            {
                self.names.remove(&oldest);
            }
        }
    }

    /// Whether it was one of the last.
    pub(crate) fn contains(&self, id: CommandId) -> bool {
        self.names.contains(&id)
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Recent::default();
    }
}

impl Hash for Recent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order.hash(state);
    }
}
