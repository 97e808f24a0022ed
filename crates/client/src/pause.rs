//! How long to wait before another try.

use std::time::Duration;

/// Before the second try, at most; twice that before the third, and so on.
const FIRST: Duration = Duration::from_millis(4);
/// Before any.
const LONGEST: Duration = Duration::from_secs(1);

/// The pause before try number `next`, from 2: random, so that those who were in each other's way part.
pub(crate) fn before(next: u32) -> Duration {
    let doublings = next.saturating_sub(2).min(16);
    let most = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    // Without randomness the longest pause is the safe one.
    let share = getrandom::u32().map_or(1.0, |drawn| f64::from(drawn) / f64::from(u32::MAX));
    most.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        for (next, most) in [(2, 4), (3, 8), (6, 64), (20, 1_000), (u32::MAX, 1_000)] {
            let longest = (0..200).map(|_| before(next)).max().unwrap_or_default();
            let most = Duration::from_millis(most);
            assert!(longest <= most && longest >= most.mul_f64(0.8), "{next}: {longest:?}");
        }
    }
}
