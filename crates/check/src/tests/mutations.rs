//! Every planted error is found by the crate's own suite (`trust.md` R21).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{cases, explanations, fixtures, transactions};
use crate::planted::{Mutation, with};

/// Runs the whole suite; the first complaint.
fn suite() -> Result<(), String> {
    cases::verdicts()?;
    cases::budgets()?;
    cases::sessions()?;
    explanations::sound()?;
    transactions::verdicts()?;
    fixtures::differences()
}

#[test]
fn every_planted_error_is_found() {
    assert_eq!(suite(), Ok(()), "the suite complains without a planted error");
    let missed: Vec<Mutation> = Mutation::ALL
        .iter()
        .copied()
        // A panic of the checker is a complaint as well.
        .filter(|mutation| matches!(with(*mutation, || catch_unwind(AssertUnwindSafe(suite))), Ok(Ok(()))))
        .collect();
    assert!(missed.is_empty(), "planted and not found: {missed:?}");
    assert!(Mutation::ALL.len() >= 20);
}

#[test]
fn porcupines_verdicts_alone_find_most_planted_errors() {
    let found = Mutation::ALL
        .iter()
        .filter(|mutation| {
            let result = with(**mutation, || catch_unwind(AssertUnwindSafe(fixtures::differences)));
            !matches!(result, Ok(Ok(())))
        })
        .count();
    assert!(found >= 20, "the fixtures alone find {found} of {}", Mutation::ALL.len());
}
