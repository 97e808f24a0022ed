//! Where as many replicas would better stand.

use isochrone_core::deployment::Keyspace;
use isochrone_core::{Deployment, FastQuorums, Matrix, RegionId};

use crate::Demand;
use crate::advice::{best, compared};
use crate::forecast::Row;

/// More placements than this are not all tried; the search then changes one replica at a time.
const ALL_MAX: u128 = 2_000;

/// The placement with the lowest mean, if it is lower than `now` (the sum that the present one is ranked by), and its
/// rows. One replica in each of as many regions that have nodes; none where the deployment has too few such regions.
pub(crate) fn better(
    deployment: &Deployment,
    matrix: &Matrix,
    replicas: &[RegionId],
    quorums: FastQuorums,
    keyspace: &Keyspace,
    demand: &Demand,
    now: Option<u128>,
) -> Option<(Vec<RegionId>, Vec<Row>)> {
    let sites: Vec<RegionId> =
        matrix.regions().filter(|region| deployment.nodes_in(*region).next().is_some()).collect();
    if sites.len() < replicas.len() {
        return None;
    }
    let rows = |placement: &[RegionId]| compared(matrix, placement, quorums, keyspace, demand, None);
    let rank = |placement: &[RegionId]| best(&rows(placement)).rank.unwrap_or(u128::MAX);
    let found = if combinations(sites.len(), replicas.len()) <= ALL_MAX {
        all(&sites, replicas.len()).into_iter().min_by_key(|placement| rank(placement))?
    } else {
        descend(&sites, replicas, &rank)
    };
    (Some(rank(&found)) < now).then(|| {
        let rows = rows(&found);
        (found, rows)
    })
}

fn combinations(of: usize, take: usize) -> u128 {
    (0..take as u128).fold(1, |product, at| product * (of as u128 - at) / (at + 1))
}

/// Every choice of `take` sites, each in the order of the sites.
fn all(sites: &[RegionId], take: usize) -> Vec<Vec<RegionId>> {
    if take == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for (at, first) in sites.iter().enumerate() {
        for rest in all(&sites[at + 1..], take - 1) {
            found.push(std::iter::once(*first).chain(rest).collect());
        }
    }
    found
}

/// Moves one replica at a time to where it helps most, until none helps.
fn descend(sites: &[RegionId], from: &[RegionId], rank: &dyn Fn(&[RegionId]) -> u128) -> Vec<RegionId> {
    let mut best = from.to_vec();
    best.sort_unstable();
    best.dedup();
    let spare: Vec<RegionId> = sites.iter().copied().filter(|site| !best.contains(site)).collect();
    best.extend(spare.into_iter().take(from.len() - best.len()));
    let mut lowest = rank(&best);
    loop {
        let moves = (0..best.len()).flat_map(|at| sites.iter().map(move |site| (at, *site)));
        let moved = moves.filter(|(_, site)| !best.contains(site)).map(|(at, site)| {
            let mut placement = best.clone();
            placement[at] = site;
            (rank(&placement), placement)
        });
        match moved.min() {
            Some((found, placement)) if found < lowest => (lowest, best) = (found, placement),
            _ => return best,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_choices_are_as_many_as_there_are() {
        let sites: Vec<RegionId> = (0..9).map(RegionId).collect();
        for take in [1, 3, 5, 7] {
            let found = all(&sites, take);
            assert_eq!(found.len() as u128, combinations(9, take));
            assert!(found.iter().all(|placement| placement.len() == take && placement.is_sorted()));
        }
    }

    #[test]
    fn a_descent_ends_where_no_move_helps() {
        let sites: Vec<RegionId> = (0..12).map(RegionId).collect();
        let rank = |placement: &[RegionId]| placement.iter().map(|site| u128::from(site.0).abs_diff(7)).sum();
        let mut found = descend(&sites, &[RegionId(0), RegionId(0), RegionId(1)], &rank);
        found.sort_unstable();
        assert_eq!(found, [RegionId(6), RegionId(7), RegionId(8)]);
    }
}
