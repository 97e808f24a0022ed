//! Snapshots of a replica's state.

use super::entry::Entry;
use super::message::{Held, Verdict};
use super::occ::Margin;
use super::state::{Past, State};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, ClientId, Export as _, Malformed, Snapshot, wire};
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A chunk of a snapshot.
#[derive(Serialize, Deserialize)]
enum Image {
    Head {
        normal: u64,
        view: u64,
        /// Nothing: snapshots of earlier versions have something in this place.
        unused: Version,
        past: Vec<(ClientId, Past)>,
    },
    Entries(Vec<Kept>),
    Margin(Margin),
    Store(Blob),
    /// [`State::spent`], where that is not zero.
    Spent(u32),
}

/// An entry in a snapshot.
#[derive(Serialize, Deserialize)]
struct Kept {
    held: Held,
    checked: bool,
    verdict: Option<Verdict>,
    executed: bool,
    merged: bool,
}

impl State {
    /// The state in chunks.
    pub fn snapshot(&self) -> Snapshot {
        let past = self.past.iter().map(|(process, past)| (*process, past.clone())).collect();
        let head = Image::Head { normal: self.normal, view: self.view, unused: Version::NONE, past };
        let spent = (self.spent > 0).then_some(Image::Spent(self.spent));
        let keep = |entry: &Entry| Kept {
            held: entry.held(),
            checked: entry.checked,
            verdict: entry.verdict,
            executed: entry.executed,
            merged: entry.merged,
        };
        let mut kept: VecDeque<Kept> = self.entries.values().map(keep).collect();
        let Margin { deleted, reads, floor, unused } = self.data.margin();
        let (mut deleted, mut reads) = (deleted.into_iter(), reads.into_iter());
        let view = self.data.store().export();
        let entries = std::iter::from_fn(move || {
            let taken = fill(|| kept.pop_front());
            (!taken.is_empty()).then_some(Image::Entries(taken))
        });
        let mut first = true;
        let margin = std::iter::from_fn(move || {
            let margin = Margin {
                deleted: fill(|| deleted.next()),
                unused: unused.clone(),
                reads: fill(|| reads.next()),
                floor,
            };
            let more = !margin.deleted.is_empty() || !margin.reads.is_empty();
            (std::mem::take(&mut first) || more).then_some(Image::Margin(margin))
        });
        let mut index = 0;
        let store = std::iter::from_fn(move || {
            let chunk = view.chunk(index)?;
            index += 1;
            Some(Image::Store(chunk))
        });
        let images = std::iter::once(head).chain(spent).chain(entries).chain(margin).chain(store);
        Box::new(images.map(|image| Blob::from(wire::encode(&image))))
    }

    /// Takes in one chunk.
    ///
    /// # Errors
    /// Bytes that are no such chunk.
    pub fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let image = wire::decode::<Image>(chunk);
        match image.map_err(|error| Malformed { what: "tapir chunk", cause: error.to_string() })? {
            Image::Head { normal, view, past, .. } => {
                (self.normal, self.view) = (normal, view);
                self.past = past.into_iter().collect();
            }
            Image::Entries(kept) => {
                for Kept { held, checked, verdict, executed, merged } in kept {
                    self.change(&held.name, |entry| {
                        (entry.vote, entry.accepted, entry.promised) =
                            (held.vote, held.accepted, held.promised);
                        (entry.part, entry.verdict, entry.executed) = (held.part, verdict, executed);
                        (entry.checked, entry.merged) = (checked, merged);
                    });
                }
            }
            Image::Margin(margin) => self.data.absorb(margin),
            Image::Store(chunk) => self.data.absorb_store(&chunk)?,
            Image::Spent(spent) => self.spent = spent,
        }
        Ok(())
    }
}

/// Takes about as much as a chunk may hold.
fn fill<T: Serialize>(mut next: impl FnMut() -> Option<T>) -> Vec<T> {
    let (mut taken, mut size) = (Vec::new(), 0);
    while size < CHUNK_MAX
        && let Some(one) = next()
    {
        size += wire::encoded_size(&one);
        taken.push(one);
    }
    taken
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Image>("tapir");
}
