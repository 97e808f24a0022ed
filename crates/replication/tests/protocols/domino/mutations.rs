//! Planted bugs are found. Those that need a rare meeting of clocks or epochs are shown step by step beside the
//! code: `clock-not-monotone`, `reserve-not-journalled`, `epochs-together`, `high-threshold`,
//! `propose-in-sealed` and `adopt-any`; `propose-twice` in walks over orders of messages.

use super::commit::{broken, tune_commit};
use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::domino::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Option<Case<Family>> {
    let with = |replicas, faults: &str, crashes, hot| {
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { crashes, hot, rounds, ..Case::new(replicas, faults, tune) }
    };
    Some(match mutation {
        Mutation::ExecuteEarly => with(3, "none", 0, true),
        Mutation::VoteBeforeDurable => with(3, "power_loss,disk_slow", 8, true),
        Mutation::DropSession => with(3, "power_loss,snapshot,loss", 10, false),
        _ => return None,
    })
}

#[test]
fn every_planted_bug_that_histories_show_is_caught() {
    let wanted = std::env::var("ISOCHRONE_BUG").ok();
    let named = |mutation: &Mutation| wanted.as_deref().is_none_or(|name| name == mutation.name());
    let planted = Mutation::ALL.into_iter().filter(named);
    every_bug_is_caught(planted.filter_map(|mutation| Some((mutation.name(), case(mutation)?))));
}

#[test]
fn a_clock_announced_before_the_votes_that_it_covers_is_caught() {
    let sound = Case { hot: true, ..Case::new(3, FaultSet::NONE, tune_commit) };
    let case = Case { bug: Some(Mutation::ClockBeforeVote.name()), ..sound.clone() };
    let found = (0..2_000).find_map(|seed| Some((seed, broken(&case, seed)?)));
    let Some((seed, text)) = found else { panic!("not caught") };
    println!("clock-before-vote seed {seed}: {text:.160}");
    assert_eq!(broken(&sound, seed), None);
}
