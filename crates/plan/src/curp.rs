//! CURP over primary-backup without load: the client asks the master, and all witnesses of its copies.
//!
//! Source: `specs/curp.md` 1.4 and 7.2; all copies of the list live, processing and sync at no cost. A copy is a backup
//! and a witness on one node, so the shorter of two ways is the one past the witnesses wherever the triangle
//! inequality holds.

use isochrone_core::deployment::{CURP_COPIES, CURP_COPIES_MAX, Keyspace, ParameterReader};
use isochrone_core::{Matrix, Quorums, RegionId, Span};

use crate::told::reader_of;
use crate::{Client, Group};

/// Whether every command waits until it is synced, where a keyspace does not say.
pub const ALWAYS_SYNCED: bool = false;

/// What a keyspace says of that, with either variant of CURP.
pub fn always_synced(reader: &mut ParameterReader<'_>) -> bool {
    reader.boolean("always_synced", ALWAYS_SYNCED)
}

/// Copies beside the master with which so many replicas survive the crash of any minority, as they do under other protocols:
/// the default, or more where that is too few.
pub fn copies_needed(replicas: usize) -> usize {
    CURP_COPIES.max(Quorums::faults(replicas))
}

/// Copies beside the master that a keyspace has, or would have if it had `curp`.
fn copies_had(keyspace: &Keyspace) -> usize {
    reader_of(keyspace, "curp").map_or(CURP_COPIES, |mut reader| reader.copies(CURP_COPIES_MAX))
}

/// What the parameters of a keyspace say of how long its clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuned {
    /// Copies beside the master.
    f: usize,
    /// Whether every command waits for all backups.
    always_synced: bool,
}

impl Tuned {
    /// Of a keyspace of `curp` what it says, which the protocol refuses where it is wrong; of any other what `curp` has by
    /// default, but for as many copies as so many replicas need.
    pub(crate) fn of(keyspace: &Keyspace, replicas: usize) -> Tuned {
        match reader_of(keyspace, "curp") {
            Some(mut reader) => {
                Tuned { f: reader.copies(CURP_COPIES_MAX), always_synced: always_synced(&mut reader) }
            }
            None => Tuned { f: copies_needed(replicas), always_synced: ALWAYS_SYNCED },
        }
    }

    /// The same with as many copies as so many replicas need; none where there are as many.
    pub(crate) fn with_enough(self, replicas: usize) -> Option<Tuned> {
        self.survives_only(replicas).map(|_| Tuned { f: copies_needed(replicas), ..self })
    }

    /// The parameter `f` that this keyspace must be given for these figures to hold; none where it has it.
    pub(crate) fn f_to_give(self, keyspace: &Keyspace) -> Option<usize> {
        (self.f != copies_had(keyspace)).then_some(self.f)
    }

    /// How many crashes so many replicas survive, where that is fewer than any minority of them: data are gone with the
    /// master and all copies.
    pub(crate) fn survives_only(self, replicas: usize) -> Option<usize> {
        (self.f < Quorums::faults(replicas)).then_some(self.f)
    }

    /// What a command takes that conflicts with nothing.
    pub(crate) fn commit(self, matrix: &Matrix, client: Client, master: RegionId, group: Group<'_>) -> Span {
        if self.always_synced {
            return self.synced(matrix, client, master, group);
        }
        commit(matrix, client, master, group, self.f)
    }

    /// The same of one that does.
    pub(crate) fn synced(self, matrix: &Matrix, client: Client, master: RegionId, group: Group<'_>) -> Span {
        synced(matrix, client, master, group, self.f)
    }
}

/// So many replicas beside the master: the copies of a group in which nothing has failed. Each is in a region of its own,
/// and not in the master's, as far as that can be had; else the first.
///
/// # Panics
/// If no live replica stands in the master's region.
pub fn copies<'a>(master: RegionId, replicas: impl Into<Group<'a>>, f: usize) -> Vec<usize> {
    let group = replicas.into();
    let leads = group.seat_in(master);
    let mut taken = vec![master];
    let (apart, beside): (Vec<usize>, Vec<usize>) =
        group.live().filter(|seat| *seat != leads).partition(|seat| {
            let region = group.region(*seat);
            let apart = !taken.contains(&region);
            taken.push(region);
            apart
        });
    let mut chosen: Vec<usize> = apart.into_iter().chain(beside).take(f).collect();
    chosen.sort_unstable();
    chosen
}

/// From the client's call to its answer, where nothing conflicts: the longer of the round trips to the master and to
/// the farthest witness, or [`synced`], whichever is less.
///
/// # Panics
/// If no live replica stands in the master's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    master: RegionId,
    replicas: impl Into<Group<'a>>,
    f: usize,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let synced = synced(matrix, client, master, group, f);
    let witnesses = copies(master, group, f).into_iter().map(|seat| group.reach(matrix, client, seat));
    match witnesses.max() {
        Some(farthest) => farthest.max(read(matrix, client, master, group)).min(synced),
        None => synced,
    }
}

/// The same for a command that conflicts: round trips to the master, and from it to its farthest backup.
///
/// # Panics
/// If no live replica stands in the master's region.
pub fn synced<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    master: RegionId,
    replicas: impl Into<Group<'a>>,
    f: usize,
) -> Span {
    let group = replicas.into();
    let seat = group.seat_in(master);
    let backups = copies(master, group, f).into_iter().map(|copy| group.trip(matrix, seat, copy));
    group.reach(matrix, client.into(), seat) + backups.max().unwrap_or_default()
}

/// The same for a read under leases at the master: the round trip to it.
///
/// # Panics
/// If no live replica stands in the master's region.
pub fn read<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    master: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let group = replicas.into();
    group.reach(matrix, client.into(), group.seat_in(master))
}

/// The same for a read where copies are read at as well: the round trip to the nearest of them and the master.
///
/// # Panics
/// If no live replica stands in the master's region.
pub fn nearby_read<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    master: RegionId,
    replicas: impl Into<Group<'a>>,
    f: usize,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let near = copies(master, group, f).into_iter().map(|seat| group.reach(matrix, client, seat));
    near.fold(read(matrix, client, master, group), Span::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{commits, sdpaxos};

    /// As the manager chooses them (`copies_are_in_regions_of_their_own_as_long_as_there_are_enough` there).
    #[test]
    fn copies_are_in_regions_of_their_own_as_long_as_there_are_enough() {
        let [a, b, c] = [0, 1, 2].map(RegionId);
        let five = [a, a, b, b, c];
        assert_eq!(copies(a, &five, 2), [2, 4], "not beside the master, and not two together");
        assert_eq!(copies(b, &five, 2), [0, 4]);
        assert_eq!(copies(a, &five, 1), [2]);
        assert_eq!(copies(a, &five, 3), [1, 2, 4], "the first of those that share a region");
        assert_eq!(copies(a, &[a, a, b], 2), [1, 2]);
        assert_eq!(copies(a, Group::from(&five).without(&[2]), 2), [3, 4]);
        assert_eq!(copies(a, &[a, b, c], 2), [1, 2]);
    }

    #[test]
    fn the_farthest_copy_counts_and_never_more_than_the_synced_way() {
        let (matrix, at) = sdpaxos();
        let replicas = at(3);
        let master = replicas[0];
        let rtt = |a: RegionId, b: RegionId| if a == b { 0 } else { matrix.rtt(a, b).as_nanos() / 1_000_000 };
        for f in [0, 1, 2] {
            let far = &replicas[1..1 + f];
            let fast = commits(&replicas, |client| commit(&matrix, client, master, &replicas, f));
            let slow = commits(&replicas, |client| synced(&matrix, client, master, &replicas, f));
            let near = commits(&replicas, |client| nearby_read(&matrix, client, master, &replicas, f));
            for (at, client) in replicas.iter().enumerate() {
                let witnesses = far.iter().map(|copy| rtt(*client, *copy)).max().unwrap_or(0);
                let backups = far.iter().map(|copy| rtt(master, *copy)).max().unwrap_or(0);
                assert_eq!(slow[at], rtt(*client, master) + backups, "{f} copies, client {at}");
                let nearest = far.iter().map(|copy| rtt(*client, *copy)).min();
                assert_eq!(near[at], nearest.unwrap_or(u64::MAX).min(rtt(*client, master)), "{f}, {at}");
                assert_eq!(fast[at], witnesses.max(rtt(*client, master)).min(slow[at]), "{f}, {at}");
            }
        }
    }
}
