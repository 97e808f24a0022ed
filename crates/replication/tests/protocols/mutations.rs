//! Planted bugs are found, each within 2,000 seeds from the case's first.

use crate::cluster::{Case, Ran};
use isochrone_replication::Family;

/// Whether something broke; slowness and a history that was not decided are no catch.
pub fn caught(ran: &Ran) -> bool {
    ran.broken().is_some_and(|text| !text.contains("Undecided") && !text.contains("Stuck"))
}

/// Plants each bug in its case and looks for the first seed that shows it, which must hold without it.
pub fn every_bug_is_caught<F: Family>(cases: impl IntoIterator<Item = (&'static str, Case<F>)>) {
    let mut missed = Vec::new();
    for (bug, sound) in cases {
        let case = Case { bug: Some(bug), ..sound.clone() };
        match (case.first..case.first + 2_000).map(|seed| (seed, case.run(seed))).find(|(_, ran)| caught(ran))
        {
            Some((seed, ran)) => {
                assert!(!caught(&sound.run(seed)), "seed {seed} breaks without {bug}");
                println!("{bug:<28} seed {seed:>4}: {:.160}", ran.broken().unwrap_or_default());
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}
