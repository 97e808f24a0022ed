//! Mencius without load: the client's nearest replica owns the slot, and answers when every earlier slot is settled.
//!
//! Source: `specs/sdpaxos.md` 5.2. How long that takes depends on what the other owners do: an idle one skips its slots
//! when it hears the suggestion, a busy one has filled them already. A delayed commit, an earlier foreign suggestion still
//! under way, adds up to one delay to the busy form; it is no closed form and is left out.

use isochrone_core::{Matrix, Span};

use crate::{Client, Group};

/// While nobody else asks anything: the owner waits for the skips of all live replicas. An upper bound: their heartbeats tell of
/// skips too, and one that is under way already comes sooner.
pub fn idle<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let owner = group.nearest(matrix, client);
    let farthest = group.trips(matrix, owner).last().copied().unwrap_or_default();
    group.reach(matrix, client, owner) + farthest
}

/// While all owners are equally busy: nobody's slots are missing, so the owner waits for a majority only. A lower bound: where
/// a suggestion of another is longer under way than that takes, it is waited for.
pub fn busy<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let owner = group.nearest(matrix, client);
    group.reach(matrix, client, owner) + group.phase2(matrix, owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{commits, domino_na, sdpaxos};

    #[test]
    fn idle_is_the_table_of_the_specification() {
        // specs/sdpaxos.md 6.3.
        let (matrix, at) = sdpaxos();
        assert_eq!(commits(&at(3), |client| idle(&matrix, client, &at(3))), [52, 68, 68]);
        assert_eq!(commits(&at(5), |client| idle(&matrix, client, &at(5))), [146, 133, 197, 229, 229]);
    }

    #[test]
    fn busy_needs_only_a_majority() {
        let (matrix, at) = sdpaxos();
        assert_eq!(commits(&at(3), |client| busy(&matrix, client, &at(3))), [20, 20, 52]);
        assert_eq!(commits(&at(5), |client| busy(&matrix, client, &at(5))), [52, 68, 68, 125, 146]);
    }

    #[test]
    fn a_revoked_owner_is_not_waited_for() {
        // Without SEL nobody waits for it; without CA and SEL, OR is 68 from OH and 125 from IRE.
        let (matrix, at) = sdpaxos();
        let replicas = at(5);
        let four = Group::from(&replicas).without(&[4]);
        assert_eq!(commits(&replicas[..4], |client| idle(&matrix, client, four)), [139, 125, 84, 139]);
        let three = Group::from(&replicas).without(&[0, 4]);
        assert_eq!(commits(&replicas[1..4], |client| busy(&matrix, client, three)), [125, 84, 125]);
    }

    #[test]
    fn a_client_elsewhere_goes_to_the_nearest_replica() {
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC"]);
        // IA: 31 to VA, whose farthest is WA at 67 and whose majority is QC at 38.
        let ia = matrix.region("IA").unwrap();
        assert_eq!(idle(&matrix, ia, &replicas), Span::from_millis(31 + 67));
        assert_eq!(busy(&matrix, ia, &replicas), Span::from_millis(31 + 38));
    }
}
