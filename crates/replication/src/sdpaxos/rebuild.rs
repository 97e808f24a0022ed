//! The assignment log of a new view, from what a majority of voters tells (`specs/sdpaxos.md` 4.4).
//!
//! At five replicas a slot counts as committed when its owner and the sequencer have it. If both are silent,
//! nobody among the other three need have seen it; but every such slot was *its owner's*, so who owns a hole
//! can be inferred, and how many of them matter is bounded by the owner's commands that a voter accepted.

use super::Mutation;
use super::assignment::{Image, NOBODY, Rank, UNKNOWN, runs};
use isochrone_core::Ballot;
use serde::{Deserialize, Serialize};

/// What a voter tells a candidate.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The last view whose log it has installed.
    pub installed: Ballot,
    /// The last view that it had voted in before this one.
    pub prior: Ballot,
    /// Every slot up to here it has executed.
    pub executed: u64,
    /// Its assignment log: all slots that are not known to be executed by a majority.
    pub log: Image,
    /// For each member, the highest number of a command instance that was accepted here.
    pub highest: Vec<u64>,
}

/// Rebuilds the log from the votes of a majority.
pub(crate) fn rebuild(members: usize, votes: &[(Rank, &Report)], mutation: Option<Mutation>) -> Image {
    // There is at least one vote, the candidate's own.
    let Some((_, furthest)) = votes.iter().max_by_key(|(_, report)| report.executed) else {
        return Image { low: 0, counts: vec![0; members], runs: Vec::new() };
    };
    let aborted = mutation == Some(Mutation::OldSequencerAfterAbortedView);
    let latest = votes.iter().map(|(_, report)| report.installed).max().unwrap_or_default();
    let old = match aborted {
        true => votes.iter().map(|(_, report)| report.prior).max().unwrap_or_default().owner.0,
        false => latest.owner.0,
    };

    // What the furthest voter has executed is final; behind that the logs of the latest view count.
    let (low, done) = (furthest.log.low, furthest.executed);
    let mut slots: Vec<Rank> = furthest.log.owners().take(done.saturating_sub(low) as usize).collect();
    let mut ballots = vec![latest; slots.len()];
    for (_, report) in votes.iter().filter(|(_, report)| aborted || report.installed == latest) {
        for (slot, owner) in (report.log.low + 1..).zip(report.log.owners()) {
            if slot <= done || owner == UNKNOWN {
                continue;
            }
            let at = (slot - low - 1) as usize;
            if at >= slots.len() {
                slots.resize(at + 1, UNKNOWN);
                ballots.resize(at + 1, Ballot::ZERO);
            }
            if slots[at] == UNKNOWN || ballots[at] < report.installed {
                (slots[at], ballots[at]) = (owner, report.installed);
            }
        }
    }

    let voted = |member: Rank| votes.iter().any(|(voter, _)| *voter == member);
    let mut missing = (0..members as Rank).filter(|member| !voted(*member) && *member != old);
    if members == 5
        && !voted(old)
        && let (Some(member), None) = (missing.next(), missing.next())
    {
        let bound = votes.iter().filter_map(|(_, report)| report.highest.get(usize::from(member))).max();
        let before = furthest.log.counts.get(usize::from(member)).copied().unwrap_or(0);
        let repeats = mutation == Some(Mutation::LoopRepeats);
        infer(&mut slots, member, before, bound.copied().unwrap_or(0), repeats);
    }
    for owner in &mut slots {
        if *owner == UNKNOWN {
            *owner = NOBODY;
        }
    }
    Image { low, counts: furthest.log.counts.clone(), runs: runs(slots) }
}

/// Gives holes to the member that nobody has heard of, up to its `bound`-th command and not beyond. It has
/// `before` slots before the first of these.
fn infer(slots: &mut Vec<Rank>, member: Rank, before: u64, bound: u64, repeats: bool) {
    let mut owned = before + slots.iter().filter(|owner| **owner == member).count() as u64;
    let mut first = repeats;
    loop {
        let hole = slots.iter().position(|owner| *owner == UNKNOWN);
        let needed = bound.checked_sub(before + 1).and_then(|nth| {
            slots.iter().enumerate().filter(|(_, owner)| **owner == member).nth(nth as usize)
        });
        let precedes = matches!((hole, needed), (Some(hole), Some((at, _))) if hole < at);
        if !(owned < bound || precedes || first) {
            break;
        }
        first = false;
        match hole {
            Some(at) => slots[at] = member,
            None => slots.push(member),
        }
        owned += 1;
    }
    if repeats {
        return;
    }
    // A slot behind the last command that may be ready: whoever comes back would put a later command there,
    // before commands that were answered meanwhile.
    let mut count = before;
    for owner in slots.iter_mut().filter(|owner| **owner == member) {
        count += 1;
        if count > bound {
            *owner = NOBODY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::ReplicaId;

    const U: Rank = UNKNOWN;
    const X: Rank = NOBODY;

    fn view(round: u32, owner: u8) -> Ballot {
        Ballot { round, owner: ReplicaId(owner) }
    }

    fn report(installed: Ballot, owners: &[Rank], highest: [u64; 5]) -> Report {
        let log = Image { low: 0, counts: vec![0; 5], runs: runs(owners.iter().copied()) };
        Report { installed, prior: installed, executed: 0, log, highest: highest.to_vec() }
    }

    fn rebuilt(votes: &[(Rank, Report)], mutation: Option<Mutation>) -> Vec<Rank> {
        let votes: Vec<_> = votes.iter().map(|(rank, report)| (*rank, report)).collect();
        rebuild(5, &votes, mutation).owners().collect()
    }

    fn figure_6(accepted: u64) -> Vec<(Rank, Report)> {
        let v = view(1, 0);
        let highest = [1, accepted, 1, 1, 1];
        vec![
            (2, report(v, &[0, U, 2], highest)),
            (3, report(v, &[U, U, U, 3], [0, 0, 0, 1, 0])),
            (4, report(v, &[U, U, U, U, 4], [0, 0, 0, 0, 1])),
        ]
    }

    #[test]
    fn f1_the_hole_is_the_missing_replicas() {
        assert_eq!(rebuilt(&figure_6(1), None), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn f2_a_command_that_no_voter_accepted_leaves_its_slot_to_nobody() {
        assert_eq!(rebuilt(&figure_6(0), None), [0, X, 2, 3, 4]);
    }

    fn f5() -> Vec<(Rank, Report)> {
        // Slots R4, R2, R4; the voters hold 1 and 3 only, C(4,2) at R1.
        let v = view(1, 0);
        vec![
            (1, report(v, &[4, U, 4], [0, 0, 0, 0, 2])),
            (2, report(v, &[4, U, 4], [0, 0, 1, 0, 1])),
            (3, report(v, &[4, U, 4], [0, 0, 0, 0, 1])),
        ]
    }

    #[test]
    fn f5_no_slot_is_left_for_a_command_to_come() {
        assert_eq!(rebuilt(&f5(), None), [4, 4, X]);
        assert_eq!(rebuilt(&f5(), Some(Mutation::LoopRepeats)), [4, 4, 4], "one slot too many");
        // No holes, and as many slots as commands: nothing is added.
        let v = view(1, 0);
        let whole: Vec<_> = (1..4).map(|rank| (rank, report(v, &[4, 2, 4], [0, 0, 1, 0, 2]))).collect();
        assert_eq!(rebuilt(&whole, None), [4, 2, 4]);
        assert_eq!(rebuilt(&whole, Some(Mutation::LoopRepeats)), [4, 2, 4, 4]);
    }

    #[test]
    fn f6_with_a_fourth_voter_or_the_old_sequencer_nothing_is_inferred() {
        let mut votes = f5();
        votes.push((4, report(view(1, 0), &[4, U, 4], [0, 0, 0, 0, 2])));
        assert_eq!(rebuilt(&votes, None), [4, X, 4]);
        let mut votes = f5();
        votes[0].0 = 0;
        assert_eq!(rebuilt(&votes, None), [4, X, 4]);
    }

    #[test]
    fn f4_the_old_sequencer_is_the_one_of_the_last_installed_view() {
        // Slot 5 is R2's, known to R0 and R2 only; R2 won view 2 with R3 and R4 and died before telling anyone.
        let v = view(1, 0);
        let mut votes = vec![
            (1, report(v, &[0, 1, 3, 4], [1, 1, 1, 1, 1])),
            (3, report(v, &[0, 1, 3, 4], [1, 1, 1, 1, 1])),
            (4, report(v, &[0, 1, 3, 4], [1, 1, 1, 1, 1])),
        ];
        votes[1].1.prior = view(2, 2);
        votes[2].1.prior = view(2, 2);
        assert_eq!(rebuilt(&votes, None), [0, 1, 3, 4, 2]);
        let wrong = rebuilt(&votes, Some(Mutation::OldSequencerAfterAbortedView));
        assert_eq!(wrong, [0, 1, 3, 4], "a ready command is lost");
    }

    #[test]
    fn what_the_furthest_voter_has_executed_is_final() {
        let v = view(1, 0);
        let mut ahead = report(view(1, 0), &[2, 2, X], [0, 0, 2, 0, 0]);
        ahead.executed = 3;
        let behind = report(view(3, 1), &[2, 2, X, 4], [0, 0, 2, 0, 1]);
        assert_eq!(rebuilt(&[(2, ahead), (3, behind), (1, report(v, &[U], [0; 5]))], None), [2, 2, X, 4]);
    }

    /// 4.4 on random states: executed slots and ready commands keep their order, and nobody gets a surplus.
    #[test]
    fn ready_commands_keep_their_slots_in_random_states() {
        let mut random = isochrone_core::Random::seeded(7);
        for _ in 0..20_000 {
            let slots = random.between(1, 8) as usize;
            let owners: Vec<Rank> = (0..slots).map(|_| random.below(5) as Rank).collect();
            let v = view(1, 0);
            // Which replicas hold which slots: the sequencer R0 all, an owner its own where the message came.
            let mut known = vec![vec![U; slots]; 5];
            known[0].clone_from(&owners);
            for (at, owner) in owners.iter().enumerate() {
                for (replica, slots) in known.iter_mut().enumerate().skip(1) {
                    let own = usize::from(*owner) == replica;
                    if random.chance(if own { 0.7 } else { 0.25 }) {
                        slots[at] = *owner;
                    }
                }
                if *owner == 0 {
                    // The sequencer's own slots count once a majority has them; make that so for half of them.
                    for holder in known.iter_mut().skip(1).take(if random.chance(0.5) { 2 } else { 0 }) {
                        holder[at] = 0;
                    }
                }
            }
            let count = |rank: usize, upto: usize| {
                owners[..upto].iter().filter(|owner| usize::from(**owner) == rank).count() as u64
            };
            // R1 is gone with R0; its commands up to some number were accepted by somebody among the voters.
            let accepted = random.below(count(1, slots) + 1);
            let holder = 2 + random.below(3) as usize;
            let votes: Vec<(Rank, Report)> = (2..5)
                .map(|rank| {
                    let mut highest = [0; 5];
                    (2..5).for_each(|other| highest[other] = count(other, slots));
                    highest[1] = if rank == holder { accepted } else { 0 };
                    (rank as Rank, report(v, &known[rank], highest))
                })
                .collect();
            let log = rebuilt(&votes, None);
            assert!(log.iter().filter(|owner| **owner == 1).count() as u64 <= accepted, "I8");
            // R1's i-th command is ready if it was accepted and R1 knows every slot up to its i-th.
            let prefix = known[1].iter().take_while(|owner| **owner != U).count();
            let ready = count(1, prefix).min(accepted);
            let end = owners
                .iter()
                .enumerate()
                .filter(|(_, owner)| **owner == 1)
                .nth(ready.saturating_sub(1) as usize);
            if let (Some((end, _)), true) = (end, ready > 0) {
                // Foreign slots before it that were not committed may be lost; R1's own places come no later.
                let places = |log: &[Rank]| log.iter().filter(|owner| **owner == 1).count() as u64;
                assert!(places(&log[..log.len().min(end + 1)]) >= ready, "{owners:?} {log:?}");
            }
        }
    }
}
