//! Zipf's law over many features: its exponent from how often samples share one, and fast draws.

use super::{RecipeError, Size};
use isochrone_core::Random;

/// The steepest exponent that is tried.
const STEEPEST: f64 = 3.0;

/// The exponent under which two random samples share a feature with this probability, by bisection.
pub(super) fn exponent(features: u32, size: Size, wanted: f64) -> Result<f64, RecipeError> {
    let ranks = Ranks::of(features);
    let (mut low, mut high) = (0.0, STEEPEST);
    let (least, most) = (ranks.sharing(low, size), ranks.sharing(high, size));
    if !(least..=most).contains(&wanted) {
        return Err(RecipeError::Sharing { wanted, least, most });
    }
    // Each round gains a bit; 40 are beyond what sampling could tell.
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if ranks.sharing(middle, size) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(0.5 * (low + high))
}

/// Ranks from 1 in groups of like popularity: the first thousand by themselves, then groups a hundredth of their rank
/// wide. The sums below are over groups, so that their cost hardly grows with the number of features.
struct Ranks {
    /// Logarithm of the middle rank, and how many ranks.
    groups: Vec<(f64, f64)>,
}

impl Ranks {
    fn of(features: u32) -> Ranks {
        let (mut groups, mut first) = (Vec::new(), 1_u64);
        while first <= u64::from(features) {
            let wide = (first / 100).max(1).min(u64::from(features) + 1 - first);
            let wide = if first < 1000 { 1 } else { wide };
            groups.push(((first as f64 + (wide - 1) as f64 / 2.0).ln(), wide as f64));
            first += wide;
        }
        Ranks { groups }
    }

    /// The probability that two samples share a feature. A sample has feature u with probability
    /// q_u = 1 - E[(1 - p_u)^size], which for 1 + Poisson(m - 1) draws is 1 - (1 - p_u) exp(-(m - 1) p_u); features are
    /// nearly independent of one another, so that no feature is shared with probability Π (1 - q_u²).
    fn sharing(&self, exponent: f64, size: Size) -> f64 {
        let weights = || self.groups.iter().map(|(rank, wide)| ((-exponent * rank).exp(), *wide));
        let whole: f64 = weights().map(|(weight, wide)| weight * wide).sum();
        let none: f64 = weights()
            .map(|(weight, wide)| {
                let p = weight / whole;
                let has = match size {
                    Size::Exactly(size) => 1.0 - (1.0 - p).powi(size as i32),
                    Size::Mean(mean) => 1.0 - (1.0 - p) * (-(mean - 1.0) * p).exp(),
                };
                wide * (-has * has).ln_1p()
            })
            .sum();
        1.0 - none.exp()
    }
}

/// Draws features in constant time (Walker and Vose): a cell is chosen with equal probability, and one of its two
/// features by comparing with its threshold. Ranks are given to features at random, and stand in the cells already.
#[derive(Debug)]
pub(super) struct Alias {
    /// Without cells, all features are as likely.
    cells: Vec<Cell>,
    features: u32,
}

#[derive(Copy, Clone, Debug)]
struct Cell {
    /// Out of 2^32.
    threshold: u32,
    below: u32,
    above: u32,
}

impl Alias {
    /// Of Zipf's law with this exponent over so many features.
    pub(super) fn zipf(features: u32, exponent: f64, random: &mut Random) -> Alias {
        if exponent == 0.0 {
            return Alias { cells: Vec::new(), features };
        }
        let mut of_rank: Vec<u32> = (0..features).collect();
        for at in (1..features as usize).rev() {
            of_rank.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut weights: Vec<f64> = (1..=features).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let scale = f64::from(features) / weights.iter().sum::<f64>();
        weights.iter_mut().for_each(|weight| *weight *= scale);
        let cell = |feature| Cell { threshold: u32::MAX, below: feature, above: feature };
        let mut cells: Vec<Cell> = of_rank.iter().map(|&feature| cell(feature)).collect();
        // Weights fall with the rank: the light ones are the last, and each takes from the lightest that is not.
        let light_from = weights.partition_point(|weight| *weight >= 1.0);
        let mut light: Vec<usize> = (light_from..weights.len()).collect();
        let mut heavy: Vec<usize> = (0..light_from).collect();
        while let (Some(small), Some(&large)) = (light.pop(), heavy.last()) {
            cells[small].threshold = (weights[small] * 4_294_967_296.0) as u32;
            cells[small].above = of_rank[large];
            weights[large] -= 1.0 - weights[small];
            if weights[large] < 1.0 {
                heavy.pop();
                light.push(large);
            }
        }
        Alias { cells, features }
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        if self.cells.is_empty() {
            return random.below(u64::from(self.features)) as u32;
        }
        // The product's upper part is the cell; its lower part is uniform within the cell.
        let product = u128::from(random.below(1 << 62) << 2) * self.cells.len() as u128;
        let cell = self.cells[(product >> 64) as usize];
        if ((product >> 32) as u32) < cell.threshold { cell.below } else { cell.above }
    }
}
