//! What predictions are worth.

use super::loss::Loss;

/// 1 / (1 + exp(-x)): the probability of class 1 under [`Loss::Logistic`].
pub fn sigmoid(decision: f64) -> f64 {
    if decision >= 0.0 {
        1.0 / (1.0 + (-decision).exp())
    } else {
        let small = decision.exp();
        small / (1.0 + small)
    }
}

/// How well decisions tell the class of samples labelled -1 and 1.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Classified {
    /// Share of samples on the right side of 0. A decision of exactly 0 counts as class 1.
    pub accuracy: f64,
    /// Mean of -log p(label), with [`sigmoid`] as p: of meaning where decisions are log-odds, as logistic regression's.
    pub log_loss: f64,
    /// Probability that a sample of class 1 is decided higher than one of class -1, ties counting half; NaN where a class
    /// is missing.
    pub area_under_curve: f64,
    /// Of what was decided to be of class 1, the share that is; NaN where nothing was.
    pub precision: f64,
    /// Of what is of class 1, the share that was decided so; NaN where nothing is.
    pub recall: f64,
}

impl Classified {
    /// Of decisions, for samples with these labels; NaN everywhere where there are none.
    pub fn of(decisions: &[f64], labels: &[f64]) -> Classified {
        let n = labels.len() as f64;
        let (mut right, mut log_loss) = (0_u64, 0.0);
        let (mut told, mut are, mut both) = (0_u64, 0_u64, 0_u64);
        for (&decision, &label) in decisions.iter().zip(labels) {
            let (positive, is) = (decision >= 0.0, label > 0.0);
            right += u64::from(positive == is);
            told += u64::from(positive);
            are += u64::from(is);
            both += u64::from(positive && is);
            log_loss += Loss::Logistic.value(decision, if is { 1.0 } else { -1.0 });
        }
        Classified {
            accuracy: right as f64 / n,
            log_loss: log_loss / n,
            area_under_curve: area_under_curve(decisions, labels),
            precision: both as f64 / told as f64,
            recall: both as f64 / are as f64,
        }
    }
}

/// By the ranks of the samples of class 1 (Mann and Whitney), ties sharing the mean of their ranks.
fn area_under_curve(decisions: &[f64], labels: &[f64]) -> f64 {
    let mut ranked: Vec<(f64, bool)> =
        decisions.iter().copied().zip(labels.iter().map(|&label| label > 0.0)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = ranked.iter().filter(|one| one.1).count() as f64;
    let negatives = ranked.len() as f64 - positives;
    let (mut sum, mut from) = (0.0, 0);
    while from < ranked.len() {
        let tied = ranked[from..].iter().take_while(|one| one.0 == ranked[from].0);
        let (count, of_class_1) = tied.fold((0, 0), |(all, ones), one| (all + 1, ones + usize::from(one.1)));
        // Without an equal, not even itself: a NaN.
        let count = count.max(1);
        sum += of_class_1 as f64 * (from as f64 + (count + 1) as f64 / 2.0);
        from += count;
    }
    (sum - positives * (positives + 1.0) / 2.0) / (positives * negatives)
}

/// How far predictions are from labels that are numbers.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Regressed {
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean of the absolute errors.
    pub mean_absolute_error: f64,
    /// Share of the labels' variance that the predictions explain: 1 is all, 0 no more than their mean; NaN where the
    /// labels do not vary.
    pub r2: f64,
}

impl Regressed {
    /// Of predictions, for samples with these labels; NaN everywhere where there are none.
    pub fn of(predictions: &[f64], labels: &[f64]) -> Regressed {
        let n = labels.len() as f64;
        let mean = labels.iter().sum::<f64>() / n;
        let (mut squares, mut absolute, mut spread) = (0.0, 0.0, 0.0);
        for (&told, &label) in predictions.iter().zip(labels) {
            squares += (told - label) * (told - label);
            absolute += (told - label).abs();
            spread += (label - mean) * (label - mean);
        }
        let r2 = if spread == 0.0 { f64::NAN } else { 1.0 - squares / spread };
        Regressed { rmse: (squares / n).sqrt(), mean_absolute_error: absolute / n, r2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_hand() {
        let labels = [1.0, 1.0, -1.0, -1.0, 1.0];
        let told = Classified::of(&[2.0, 0.5, 0.5, -1.0, -3.0], &labels);
        assert_eq!((told.accuracy, told.precision, told.recall), (0.6, 2.0 / 3.0, 2.0 / 3.0));
        // Of six pairs: 2 > 0.5, 2 > -1, 0.5 = 0.5 (half), 0.5 > -1; the last one below both.
        assert!((told.area_under_curve - 3.5 / 6.0).abs() < 1e-12, "{told:?}");
        let by_hand: f64 = [2.0_f64, 0.5, -0.5, 1.0, -3.0].iter().map(|m| (1.0 + (-m).exp()).ln()).sum();
        assert!((told.log_loss - by_hand / 5.0).abs() < 1e-12);
        assert!(Classified::of(&[1.0], &[1.0]).area_under_curve.is_nan());
        assert!(Classified::of(&[], &[]).accuracy.is_nan());
    }

    #[test]
    fn a_decision_that_is_not_a_number_ends() {
        assert_eq!(Classified::of(&[f64::NAN, 1.0], &[1.0, -1.0]).accuracy, 0.0);
    }

    #[test]
    fn numbers_by_hand() {
        let told = Regressed::of(&[1.0, 2.0, 5.0], &[1.0, 2.0, 3.0]);
        assert!((told.rmse - (4.0_f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!((told.mean_absolute_error, told.r2), (2.0 / 3.0, -1.0));
        assert!(Regressed::of(&[1.0], &[1.0]).r2.is_nan());
    }

    #[test]
    fn probabilities_are_between_0_and_1() {
        for (decision, probability) in [(0.0, 0.5), (1e3, 1.0), (-1e3, 0.0)] {
            assert_eq!(sigmoid(decision), probability);
        }
        assert!((sigmoid(1.5) + sigmoid(-1.5) - 1.0).abs() < 1e-15);
    }
}
