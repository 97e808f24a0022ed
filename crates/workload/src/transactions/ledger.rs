//! Programs over accounts that transactions open and close: what an audit finds is a matter of the predicate, and the
//! total never changes.
//!
//! A closed account is no key. The first one holds what is in no other: everything, until it is written; it stays open.

use super::money;
use isochrone_transactions::Read;

/// What becomes of accounts; the reads are those that the workload declares, in its order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Ledger {
    /// So many percent of one of two accounts go to the other, which opens it where it is closed; all of it, and the
    /// one is closed. From the second where the first is closed; gives up where both are.
    Move { percent: i64, first: Option<usize>, total: i64 },
    /// Reads all accounts, and writes what it has read where any are declared, which opens the closed ones: they are to
    /// hold this together.
    Audit { total: i64 },
}

impl Ledger {
    /// What the accounts hold; nothing where they are closed.
    pub(super) fn balances(self, reads: &[Read]) -> Vec<Option<i64>> {
        let (first, total) = match self {
            Ledger::Move { first, total, .. } => (first, total),
            Ledger::Audit { total } => (Some(0), total),
        };
        let begun = |at| if first == Some(at) { Some(total) } else { None };
        reads.iter().enumerate().map(|(at, read)| money::stored(read).or(begun(at))).collect()
    }

    /// What the keys declared for writing hold then, in their order, nothing where the account is closed; `None` where
    /// it gives up.
    pub(super) fn written(self, balances: &[Option<i64>]) -> Option<Vec<Option<i64>>> {
        match self {
            Ledger::Move { percent, first, .. } => {
                let from = balances.iter().position(Option::is_some)?;
                let held = balances[from].unwrap_or(0);
                let closes = percent == 100 && first != Some(from);
                let sum = if closes { held } else { held * percent.min(50) / 100 };
                let moved = balances.iter().enumerate().map(|(at, held)| match at == from {
                    true => held.filter(|_| !closes).map(|held| held - sum),
                    false => Some(held.unwrap_or(0) + sum),
                });
                Some(moved.collect())
            }
            Ledger::Audit { .. } => Some(balances.iter().map(|held| Some(held.unwrap_or(0))).collect()),
        }
    }

    pub(super) fn verify(self, balances: &[Option<i64>]) -> Option<String> {
        let Ledger::Audit { total } = self else { return None };
        let open: Vec<i64> = balances.iter().flatten().copied().collect();
        let sum: i64 = open.iter().sum();
        (sum != total)
            .then(|| format!("{} open accounts hold {sum} together, and began with {total}", open.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_store::versions::Version;

    const TOTAL: i64 = 100;

    fn moved(percent: i64, first: Option<usize>, balances: [Option<i64>; 2]) -> Option<Vec<Option<i64>>> {
        Ledger::Move { percent, first, total: TOTAL }.written(&balances)
    }

    #[test]
    fn money_moves_and_accounts_open_and_close() {
        assert_eq!(moved(10, None, [Some(50), Some(7)]), Some(vec![Some(45), Some(12)]));
        assert_eq!(moved(10, None, [Some(50), None]), Some(vec![Some(45), Some(5)]));
        assert_eq!(moved(100, None, [Some(50), Some(7)]), Some(vec![None, Some(57)]));
        assert_eq!(moved(100, None, [Some(50), None]), Some(vec![None, Some(50)]));
        assert_eq!(moved(100, None, [None, Some(50)]), Some(vec![Some(50), None]));
        assert_eq!(moved(100, None, [None, None]), None);
        // The first account stays.
        assert_eq!(moved(100, Some(0), [Some(50), None]), Some(vec![Some(25), Some(25)]));
    }

    #[test]
    fn the_first_account_begins_with_everything() {
        let closed = Read { key: "a".into(), value: None, version: Version::NONE };
        let audit = Ledger::Audit { total: TOTAL };
        let balances = audit.balances(&[closed.clone(), closed]);
        assert_eq!(balances, [Some(TOTAL), None]);
        assert_eq!(audit.verify(&balances), None);
        assert_eq!(audit.written(&balances), Some(vec![Some(TOTAL), Some(0)]));
        assert!(audit.verify(&[Some(TOTAL), Some(1)]).is_some());
    }
}
