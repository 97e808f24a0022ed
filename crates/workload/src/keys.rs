//! Which record a request touches.

use isochrone_core::Random;

/// Draws record numbers. The distributions are those of YCSB (Cooper et al., SoCC '10, section 5).
#[derive(Clone, Debug)]
pub enum Chooser {
    /// Every record equally often.
    Uniform,
    /// Record popularity falls as a power of its rank; ranks are scattered over the key space.
    Zipf(Zipf),
    /// As Zipf, with the newest records the most popular.
    Latest(Zipf),
    /// One after the other, of every so many: records that no other session touches. Record 0 is left out.
    Own {
        /// The next.
        next: u64,
        /// To the one after it: how many sessions there are.
        step: u64,
        /// The first.
        first: u64,
    },
}

impl Chooser {
    /// Zipf with YCSB's constant, 0.99.
    pub fn zipf(records: u64) -> Chooser {
        Chooser::Zipf(Zipf::new(records, 0.99))
    }

    /// Zipf with this exponent, between 0 and 1.
    pub fn skewed(records: u64, exponent: f64) -> Chooser {
        Chooser::Zipf(Zipf::new(records, exponent))
    }

    /// The records that belong to session `number` of `total`.
    pub fn own(number: u32, total: u32) -> Chooser {
        let first = u64::from(number) + 1;
        Chooser::Own { next: first, step: u64::from(total.max(1)), first }
    }

    /// Latest with YCSB's constant, 0.99.
    pub fn latest(records: u64) -> Chooser {
        Chooser::Latest(Zipf::new(records, 0.99))
    }

    /// A record number below `records`, the count of records inserted so far (at least 1).
    pub fn draw(&mut self, records: u64, random: &mut Random) -> u64 {
        match self {
            Chooser::Uniform => random.below(records),
            Chooser::Zipf(zipf) => scatter(zipf.draw(random)) % records,
            Chooser::Own { next, step, first } => {
                let drawn = *next;
                *next += *step;
                if *next >= records {
                    *next = *first;
                }
                drawn
            }
            Chooser::Latest(zipf) => {
                zipf.grow(records);
                records - 1 - zipf.draw(random).min(records - 1)
            }
        }
    }
}

/// Ranks with P(rank) proportional to 1 / (rank + 1)^theta, by the method of Gray et al., "Quickly
/// generating billion-record synthetic databases", SIGMOD '94: constant time a draw.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// A distribution over `ranks` ranks (at least 1), with 0 < `theta` < 1.
    pub fn new(ranks: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf { ranks: 0, theta, zeta: 0.0, alpha: 1.0 / (1.0 - theta), eta: 0.0 };
        zipf.grow(ranks.max(1));
        zipf
    }

    /// Widens the distribution to `ranks` ranks; it never narrows. Cost: one power per new rank, and no more than
    /// 100,000.
    pub fn grow(&mut self, ranks: u64) {
        if ranks <= self.ranks {
            return;
        }
        let summed = ranks.min(self.ranks + SUMMED_MAX);
        for rank in self.ranks + 1..=summed {
            self.zeta += 1.0 / (rank as f64).powf(self.theta);
        }
        if summed < ranks {
            self.zeta += tail(summed, ranks, self.theta);
        }
        self.ranks = ranks;
        let zeta_two = 1.0 + 0.5f64.powf(self.theta);
        self.eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - self.theta)) / (1.0 - zeta_two / self.zeta);
    }

    /// A rank, 0 the most popular.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.ranks == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = (self.ranks as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64;
        rank.min(self.ranks - 1)
    }
}

/// Ranks whose terms are added up one by one; the sum of those behind them is known by Euler and Maclaurin.
const SUMMED_MAX: u64 = 100_000;

/// The sum of 1 / rank^theta over the ranks above `from` up to `to`. With `from` of a hundred thousand the first term
/// left out is below 10^-18.
fn tail(from: u64, to: u64, theta: f64) -> f64 {
    let power = |rank: u64, exponent: f64| (rank as f64).powf(exponent);
    let integral = (power(to, 1.0 - theta) - power(from, 1.0 - theta)) / (1.0 - theta);
    let ends = (power(to, -theta) - power(from, -theta)) / 2.0;
    let slopes = -theta * (power(to, -theta - 1.0) - power(from, -theta - 1.0)) / 12.0;
    integral + ends + slopes
}

/// Spreads neighbouring ranks over the key space (the finaliser of SplitMix64, a bijection).
fn scatter(rank: u64) -> u64 {
    let mut x = rank.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_ranks_are_as_frequent_as_their_law_says() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = Random::seeded(7);
        let mut counts = vec![0u64; 1000];
        let draws = 400_000;
        for _ in 0..draws {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        for rank in [0usize, 1] {
            let expected = 1.0 / ((rank + 1) as f64).powf(0.99) / zipf.zeta;
            let measured = counts[rank] as f64 / f64::from(draws);
            assert!((measured / expected - 1.0).abs() < 0.03, "rank {rank}: {measured} for {expected}");
        }
        // Gray's approximation is only close in the middle: a decade of ranks together is exact enough.
        let expected: f64 =
            (10..100).map(|rank| 1.0 / f64::from(rank + 1).powf(0.99)).sum::<f64>() / zipf.zeta;
        let measured = counts[10..100].iter().sum::<u64>() as f64 / f64::from(draws);
        assert!((measured / expected - 1.0).abs() < 0.05, "ranks 10..100: {measured} for {expected}");
    }

    #[test]
    fn growing_by_steps_equals_growing_at_once() {
        let mut stepwise = Zipf::new(10, 0.99);
        (11..=500).for_each(|ranks| stepwise.grow(ranks));
        let whole = Zipf::new(500, 0.99);
        assert!((stepwise.zeta - whole.zeta).abs() < 1e-9 && (stepwise.eta - whole.eta).abs() < 1e-9);
    }

    #[test]
    fn ten_million_ranks_are_summed_without_adding_them_up() {
        let exact = |ranks: u64, theta: f64| (1..=ranks).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        for theta in [0.5, 0.75, 0.99] {
            let (found, exact) = (Zipf::new(400_000, theta).zeta, exact(400_000, theta));
            assert!((found / exact - 1.0).abs() < 1e-12, "{theta}: {found} for {exact}");
        }
    }

    #[test]
    fn sessions_with_records_of_their_own_never_meet() {
        let mut random = Random::seeded(1);
        let mut seen = std::collections::BTreeMap::new();
        for number in 0..3 {
            let mut own = Chooser::own(number, 3);
            for _ in 0..100 {
                let record = own.draw(50, &mut random);
                assert!((1..50).contains(&record));
                assert_eq!(*seen.entry(record).or_insert(number), number);
            }
        }
        assert!(seen.len() > 40);
    }

    #[test]
    fn every_draw_lies_below_the_count_of_records() {
        let mut random = Random::seeded(1);
        for mut chooser in [Chooser::Uniform, Chooser::zipf(50), Chooser::latest(50)] {
            for records in [1, 2, 50, 77] {
                assert!((0..2000).all(|_| chooser.draw(records, &mut random) < records));
            }
        }
    }

    #[test]
    fn latest_prefers_the_newest() {
        let mut random = Random::seeded(3);
        let mut latest = Chooser::latest(1000);
        let newest = (0..1000).filter(|_| latest.draw(1000, &mut random) >= 990).count();
        assert!(newest > 300, "{newest} of 1000 draws among the newest ten");
    }
}
