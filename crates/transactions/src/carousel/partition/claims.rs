//! Which keys of a partition are claimed by transactions that are prepared and not ended (5.1).

use crate::carousel::message::Part;
use crate::request::TxnId;
use isochrone_core::{Blob, Few};
use std::collections::{BTreeMap, BTreeSet};

/// Claims by key. Two conflict where one of them writes.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Claims {
    keys: BTreeMap<Blob, Few<(TxnId, bool)>>,
    owners: BTreeSet<TxnId>,
}

impl Claims {
    /// Claims what a transaction touches, unless it has.
    pub(super) fn add(&mut self, txn: TxnId, part: &Part) {
        if self.owners.insert(txn) {
            for (keys, writes) in [(&part.reads, false), (&part.writes, true)] {
                for key in keys.iter() {
                    self.keys.entry(key.clone()).or_default().push((txn, writes));
                }
            }
        }
    }

    /// Gives up what a transaction has claimed.
    pub(super) fn remove(&mut self, txn: TxnId, part: &Part) {
        if self.owners.remove(&txn) {
            for key in part.reads.iter().chain(part.writes.iter()) {
                if let Some(claims) = self.keys.get_mut(key) {
                    claims.retain(|(owner, _)| *owner != txn);
                    if claims.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
        }
    }

    /// Whether another transaction has a claim that conflicts with what this one touches.
    pub(super) fn conflict(&self, txn: TxnId, part: &Part) -> bool {
        let claimed = |key: &Blob, any: bool| {
            self.keys.get(key).is_some_and(|claims| {
                claims.as_slice().iter().any(|(owner, writes)| *owner != txn && (any || *writes))
            })
        };
        part.reads.iter().any(|key| claimed(key, false)) || part.writes.iter().any(|key| claimed(key, true))
    }

    /// Whether anybody may be about to write a key.
    pub(super) fn written(&self, key: &Blob) -> bool {
        self.keys.get(key).is_some_and(|claims| claims.as_slice().iter().any(|(_, writes)| *writes))
    }

    /// Whether nothing is claimed.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
