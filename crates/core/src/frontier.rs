//! How far everyone has come: the k-th of several rising reports.

use crate::ReplicaId;

/// The highest report of each replica; one that has not reported stands at the default.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Frontier<P> {
    reports: Vec<(ReplicaId, P)>,
}

impl<P: Copy + Ord + Default> Frontier<P> {
    /// A frontier over these replicas.
    pub fn over(replicas: impl IntoIterator<Item = ReplicaId>) -> Frontier<P> {
        Frontier { reports: replicas.into_iter().map(|replica| (replica, P::default())).collect() }
    }

    /// Takes a report; lower than an earlier one, or of somebody else, it changes nothing.
    pub fn report(&mut self, replica: ReplicaId, point: P) {
        if let Some((_, known)) = self.reports.iter_mut().find(|(known, _)| *known == replica) {
            *known = point.max(*known);
        }
    }

    /// What this replica has reported.
    pub fn of(&self, replica: ReplicaId) -> Option<P> {
        self.reports.iter().find(|(known, _)| *known == replica).map(|(_, point)| *point)
    }

    /// The point that at least `k` have reached: the k-th highest report. The default for k beyond all.
    pub fn kth(&self, k: usize) -> P {
        let mut points: Vec<P> = self.reports.iter().map(|(_, point)| *point).collect();
        points.sort_unstable_by(|a, b| b.cmp(a));
        k.checked_sub(1).and_then(|index| points.get(index).copied()).unwrap_or_default()
    }

    /// The point that all have reached.
    pub fn least(&self) -> P {
        self.reports.iter().map(|(_, point)| *point).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kth_is_what_k_have_reached() {
        let mut frontier = Frontier::over([0, 1, 2].map(ReplicaId));
        frontier.report(ReplicaId(0), 5);
        frontier.report(ReplicaId(1), 3);
        frontier.report(ReplicaId(1), 2);
        frontier.report(ReplicaId(9), 99);
        assert_eq!([1, 2, 3, 4, 0].map(|k| frontier.kth(k)), [5, 3, 0, 0, 0]);
        assert_eq!(frontier.least(), 0);
        frontier.report(ReplicaId(2), 4);
        assert_eq!((frontier.least(), frontier.kth(2), frontier.of(ReplicaId(2))), (3, 4, Some(4)));
    }
}
