//! The steps of a celery chord: a callback that runs once all tasks of a group have left their results. Each is a
//! script of `celery/backends/redis.py` (5.7), as one operation.

use super::Score;
use crate::{Blob, Stamp};
use serde::{Deserialize, Serialize};

/// A step of a chord, with its keys.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Chord {
    /// Records the result of a task, once, and claims the callback when it was the last. How many results there are,
    /// the difference to the size and the size as they are written (nil where they are not), and whether the callback
    /// is claimed; -1 and zeros where it has run.
    Part {
        /// The results: a sorted set by the tasks' places in the group, or a list.
        results: Blob,
        /// How many tasks more or fewer than `size` there are.
        difference: Blob,
        /// How many tasks there are.
        size: Blob,
        /// The tasks that are recorded.
        recorded: Blob,
        /// The group's own result.
        group: Blob,
        /// Who has claimed the callback.
        claim: Blob,
        /// The task, and its place.
        member: Blob,
        /// Its result.
        value: Blob,
        /// Its place, where results are in order.
        score: Option<Score>,
        /// When the first four expire, if they do.
        expires: Option<Stamp>,
        /// When the group's result does.
        group_expires: Option<Stamp>,
        /// Until when the callback is claimed.
        claimed_until: Stamp,
        /// The claimer.
        token: Blob,
    },
    /// Holds on to a claim, or takes up one that has expired while the chord is not done. 1 or 0.
    Extend {
        /// Who has claimed the callback.
        claim: Blob,
        /// How many tasks there are: gone where the chord is done.
        size: Blob,
        /// The claimer.
        token: Blob,
        /// Until when.
        until: Stamp,
    },
    /// Deletes what belongs to the chord, where this claimer holds it, and leaves word that it is done. 1 or 0.
    Finish {
        /// Who has claimed the callback.
        claim: Blob,
        /// What is deleted.
        keys: Vec<Blob>,
        /// The claimer.
        token: Blob,
        /// Until when it is known to be done.
        done_until: Option<Stamp>,
    },
}

impl Chord {
    /// All keys that a step may change.
    pub fn keys(&self) -> impl Iterator<Item = &Blob> {
        let (fixed, more): ([Option<&Blob>; 6], &[Blob]) = match self {
            Chord::Part { results, difference, size, recorded, group, claim, .. } => {
                ([results, difference, size, recorded, group, claim].map(Some), &[])
            }
            Chord::Extend { claim, size, .. } => ([Some(claim), Some(size), None, None, None, None], &[]),
            Chord::Finish { claim, keys, .. } => ([Some(claim), None, None, None, None, None], keys),
        };
        fixed.into_iter().flatten().chain(more)
    }
}
