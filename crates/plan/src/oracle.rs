//! The matrices of the published tables, for tests.

use isochrone_core::topology::Cells;
use isochrone_core::{Matrix, RegionId, Span};

use crate::Client;

fn load(text: &str) -> Matrix {
    Matrix::parse(text, "matrix.csv", Cells::RoundTrip, Span::ZERO).unwrap()
}

fn named(matrix: Matrix, replicas: &[&str]) -> (Matrix, Vec<RegionId>) {
    let replicas = replicas.iter().map(|name| matrix.region(name).unwrap()).collect();
    (matrix, replicas)
}

/// Nine sites of North America, and these replicas.
pub(crate) fn domino_na(replicas: &[&str]) -> (Matrix, Vec<RegionId>) {
    named(load(include_str!("../../../reference/rtt/domino-na.csv")), replicas)
}

/// Six sites around the globe, and these replicas.
pub(crate) fn domino_globe(replicas: &[&str]) -> (Matrix, Vec<RegionId>) {
    named(load(include_str!("../../../reference/rtt/domino-globe.csv")), replicas)
}

/// The EC2 matrix of SDPaxos, and its first so many regions: 3 are CA, OR, OH; 5 all of them.
pub(crate) fn sdpaxos() -> (Matrix, impl Fn(usize) -> Vec<RegionId>) {
    (load(include_str!("../../../reference/rtt/sdpaxos-ec2.csv")), |count| {
        (0..count as u16).map(RegionId).collect()
    })
}

/// Commit latencies in whole milliseconds of clients in these regions, at the replica where there is one: the published
/// tables take the diagonal as nothing.
pub(crate) fn commits(clients: &[RegionId], commit: impl Fn(Client) -> Span) -> Vec<u64> {
    let at = |region: &RegionId| commit(Client::At(*region)).as_nanos() / 1_000_000;
    clients.iter().map(at).collect()
}
