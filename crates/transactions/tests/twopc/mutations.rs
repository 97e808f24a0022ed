//! Planted bugs are found.

use crate::cluster::{Case, every_bug_is_caught};
use crate::twopc::safety::tune;
use isochrone_core::Span;
use isochrone_sim::FaultSet;
use isochrone_transactions::twopc::{Family, Mutation};

#[test]
fn every_bug_is_caught_by_seeds() {
    let quiet =
        Case { records: 4, think: Span::from_millis(20), ..Case::<Family>::new(FaultSet::NONE, tune) };
    let rough = Case { crashes: 6, isolated: 5, handovers: 10, ..quiet.clone() };
    let cases = Mutation::ALL.map(|bug| {
        let case = match bug {
            Mutation::ReadWithoutLocks => quiet.clone(),
            Mutation::WithdrawWithoutDecision => Case { withdrawals: 40, ..quiet.clone() },
            _ => rough.clone(),
        };
        (bug.name(), case)
    });
    every_bug_is_caught(400, cases);
}
