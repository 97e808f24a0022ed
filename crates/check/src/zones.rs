//! Registers whose every value is written once, decided without a search.
//!
//! If a key sees only reads and unconditional writes, and no value is written twice, each read names the write that it
//! read. The write of a value and its reads form a *cluster*, and in any order that explains the history a cluster is
//! a block. Of a cluster only two times matter: its earliest answer (`low`) and its latest invocation (`high`): cluster
//! A must come before cluster B if and only if `A.low < B.high`. An order exists if and only if no two clusters must
//! each come before the other, and no read returned before its write was invoked. The first value, nil, is a cluster
//! whose write was answered before all time.
//!
//! A key under many clients at once (the head of a Zipf distribution) is decided so in O(n log n), where the search
//! would try the orders of its concurrent writes.
//!
//! Source: Gibbons and Korach, "Testing shared memories" (1997), section 4: forward zones must not overlap, and no
//! backward zone may lie within a forward zone.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::model::{Access, Model};
use crate::planted::{Mutation, planted};
use crate::search::{Found, Known, Unknown};

/// Decides a component of one key, if all its operations read or write a register and no value is written twice.
pub(crate) fn decide<M: Model>(
    model: &M,
    known: &[Known<'_, M::Op>],
    unknown: &[Unknown<M::Op>],
) -> Option<Found> {
    let mut clusters = vec![Cluster { invoked: 0, low: None, high: 0, returned: None, is_read: false }];
    let mut written: FxHashMap<&str, usize> = FxHashMap::default();
    let mut reads: Vec<(Option<Cow<'_, str>>, u64, u64)> = Vec::new();
    let known_accesses = known.iter().map(|operation| {
        let access = model.access(&operation.op, operation.observed);
        (access, operation.invoked, Some(operation.returned))
    });
    let unknown_writes = unknown.iter().filter(|operation| !model.reads(&operation.op, None));
    let unknown_accesses =
        unknown_writes.map(|operation| (model.access(&operation.op, None), operation.invoked, None));
    for (access, invoked, returned) in known_accesses.chain(unknown_accesses) {
        match (access?, returned) {
            (Access::Write(value), _) => {
                let cluster = Cluster { invoked, low: returned, high: invoked, returned, is_read: false };
                clusters.push(cluster);
                if written.insert(value, clusters.len() - 1).is_some() {
                    return None;
                }
            }
            (Access::Read(value), Some(returned)) => reads.push((value, invoked, returned)),
            (Access::Read(_), None) => {}
        }
    }
    for (value, invoked, returned) in reads {
        let place = match &value {
            None => 0,
            Some(value) => match written.get(&**value) {
                Some(place) => *place,
                None => return Some(Found::Nothing),
            },
        };
        let cluster = &mut clusters[place];
        if returned < cluster.invoked && !planted(Mutation::ReadBeforeItsWrite) {
            return Some(Found::Nothing);
        }
        cluster.is_read = true;
        cluster.high = cluster.high.max(invoked);
        // The low of the first value stays before all time.
        if place > 0 {
            cluster.low = Some(cluster.low.map_or(returned, |low| low.min(returned)));
        }
    }
    // An unknown write that nobody read need not happen.
    let first = clusters.remove(0);
    let happened = clusters.into_iter().filter(|cluster| cluster.is_read || cluster.returned.is_some());
    let zones: Vec<(u64, u64)> =
        happened.filter_map(|cluster| cluster.low.map(|low| (low, cluster.high))).collect();
    // Whatever must come before a read of the first value contradicts it.
    if first.is_read && zones.iter().any(|(low, _)| *low < first.high) {
        return Some(Found::Nothing);
    }
    Some(if are_ordered(&zones) { Found::Order } else { Found::Nothing })
}

/// The write of a value, and its reads. Times are nanoseconds.
struct Cluster {
    /// When the write was invoked.
    invoked: u64,
    /// When the write returned, if it did.
    returned: Option<u64>,
    /// The earliest answer of the cluster, if there is one.
    low: Option<u64>,
    /// The latest invocation of the cluster.
    high: u64,
    is_read: bool,
}

/// Whether no two zones (low, high) must each come before the other.
fn are_ordered(zones: &[(u64, u64)]) -> bool {
    let mut forward: Vec<(u64, u64)> = zones.iter().copied().filter(|(low, high)| low < high).collect();
    forward.sort_unstable();
    let overlap = forward.windows(2).any(|pair| pair[1].0 < pair[0].1);
    if overlap && !planted(Mutation::ZonesOverlap) {
        return false;
    }
    // Forward zones are disjoint here, so only the last one that begins before a backward zone can hold it.
    let mut backward = zones.iter().filter(|(low, high)| low >= high);
    let holds = |(low, high): &(u64, u64)| {
        let place = forward.partition_point(|zone| zone.0 < *high);
        place > 0 && *low < forward[place - 1].1
    };
    !backward.any(holds) || planted(Mutation::ZoneWithinZone)
}
