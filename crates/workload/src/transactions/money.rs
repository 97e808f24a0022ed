//! Programs over accounts: those of SmallBank, and of a bank whose total never changes.

use isochrone_core::Blob;
use isochrone_transactions::Read;

/// What an account holds that was never written, cents.
pub(super) const INITIAL: i64 = 10_000;

/// What becomes of balances; the reads are those that the workload declares, in its order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Money {
    /// Reads only.
    Balance,
    /// Adds to the one account.
    Deposit(i64),
    /// Adds to the one account, or takes; gives up where nothing would be left.
    Savings(i64),
    /// Reads savings and checking of one customer and checking of another: the first two go to the third.
    Amalgamate,
    /// Reads savings and checking, takes from checking; a cent more where both together do not suffice.
    Check(i64),
    /// From the first to the second; gives up where the first has not enough.
    Transfer(i64),
    /// Reads all accounts, and writes what it has read where any are declared: they are to hold this together.
    Audit { total: i64 },
}

impl Money {
    /// What an account holds.
    pub(super) fn balance(self, read: &Read) -> i64 {
        stored(read).unwrap_or(INITIAL)
    }

    /// The new balances of the keys declared for writing, in their order; `None` where it gives up.
    pub(super) fn written(self, balances: &[i64]) -> Option<Vec<i64>> {
        match (self, balances) {
            (Money::Balance, _) => Some(Vec::new()),
            (Money::Deposit(sum), [account]) => Some(vec![account + sum]),
            (Money::Savings(sum), [account]) => (account + sum >= 0).then(|| vec![account + sum]),
            (Money::Amalgamate, [savings, checking, other]) => Some(vec![0, 0, other + savings + checking]),
            (Money::Check(sum), [savings, checking]) => {
                let fee = i64::from(savings + checking < sum);
                Some(vec![checking - sum - fee])
            }
            (Money::Transfer(sum), [from, to]) => (*from >= sum).then(|| vec![from - sum, to + sum]),
            (Money::Audit { .. }, all) => Some(all.to_vec()),
            // Each program is made with the keys it reads.
            _ => None,
        }
    }

    pub(super) fn verify(self, balances: &[i64]) -> Option<String> {
        let Money::Audit { total } = self else { return None };
        let sum: i64 = balances.iter().sum();
        (sum != total)
            .then(|| format!("{} accounts hold {sum} together, and began with {total}", balances.len()))
    }
}

/// The balance that was read, if there was one.
pub(super) fn stored(read: &Read) -> Option<i64> {
    let text = String::from_utf8_lossy(read.value.as_ref()?);
    // Behind the balance stands who wrote it.
    Some(text.split('~').next().and_then(|sum| sum.parse().ok()).unwrap_or(i64::MIN))
}

/// A balance as it is stored: with who wrote it, so that no two writes are of one value.
pub(super) fn shown(balance: i64, writer: &str) -> Blob {
    format!("{balance}~{writer}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_store::versions::Version;

    fn read(value: Option<Blob>) -> Read {
        Read { key: "a".into(), value, version: Version::NONE }
    }

    #[test]
    fn balances_are_read_as_they_were_written() {
        assert_eq!(Money::Balance.balance(&read(None)), INITIAL);
        for balance in [0, 7, -12] {
            assert_eq!(Money::Balance.balance(&read(Some(shown(balance, "s1.2.0")))), balance);
        }
    }

    #[test]
    fn programs_do_what_smallbank_says() {
        assert_eq!(Money::Deposit(5).written(&[1]), Some(vec![6]));
        assert_eq!(Money::Savings(-5).written(&[4]), None);
        assert_eq!(Money::Amalgamate.written(&[1, 2, 3]), Some(vec![0, 0, 6]));
        assert_eq!(Money::Check(5).written(&[2, 2]), Some(vec![-4]));
        assert_eq!(Money::Check(5).written(&[3, 2]), Some(vec![-3]));
        assert_eq!(Money::Transfer(5).written(&[5, 0]), Some(vec![0, 5]));
        assert_eq!(Money::Transfer(6).written(&[5, 0]), None);
    }

    #[test]
    fn an_audit_sees_a_missing_cent() {
        let audit = Money::Audit { total: 2 * INITIAL };
        assert_eq!(audit.verify(&[INITIAL + 1, INITIAL - 1]), None);
        assert!(audit.verify(&[INITIAL, INITIAL - 1]).is_some());
    }
}
