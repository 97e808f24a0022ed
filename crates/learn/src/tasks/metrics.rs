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
    /// Share of samples on the right side of 0. A decision of exactly 0 counts as class -1.
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
    /// Of decisions, for samples with these labels, each of which counts as often as its importance says (none: once each); NaN
    /// everywhere where nothing counts.
    pub fn of(decisions: &[f64], labels: &[f64], importances: &[f64]) -> Classified {
        let (mut all, mut right, mut log_loss) = (0.0, 0.0, 0.0);
        let (mut told, mut are, mut both) = (0.0, 0.0, 0.0);
        for ((&decision, &label), count) in decisions.iter().zip(labels).zip(counts(importances)) {
            let (positive, is) = (decision > 0.0, label > 0.0);
            let counted = |holds: bool| if holds { count } else { 0.0 };
            all += count;
            right += counted(positive == is);
            told += counted(positive);
            are += counted(is);
            both += counted(positive && is);
            log_loss += count * Loss::Logistic.value(decision, if is { 1.0 } else { -1.0 });
        }
        Classified {
            accuracy: right / all,
            log_loss: log_loss / all,
            area_under_curve: area_under_curve(decisions, labels, importances),
            precision: both / told,
            recall: both / are,
        }
    }
}

/// How often each sample counts.
fn counts(importances: &[f64]) -> impl Iterator<Item = f64> {
    let once = if importances.is_empty() { usize::MAX } else { 0 };
    importances.iter().copied().chain(std::iter::repeat_n(1.0, once))
}

/// The share of pairs of both classes that are in order (Mann and Whitney): from the lowest decision up, what is of class 1 is
/// above all of the other class so far, and of equals above half.
fn area_under_curve(decisions: &[f64], labels: &[f64], importances: &[f64]) -> f64 {
    let samples = decisions.iter().zip(labels).zip(counts(importances));
    let mut ranked: Vec<(f64, bool, f64)> =
        samples.map(|((&decision, &label), count)| (decision, label > 0.0, count)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut in_order, mut below, mut positives) = (0.0, 0.0, 0.0);
    let mut rest = &ranked[..];
    while let [first, ..] = rest {
        // Without an equal, not even itself: a NaN.
        let tied = rest.iter().take_while(|one| one.0 == first.0).count().max(1);
        let (equal, above) = rest.split_at(tied);
        let of = |class: bool| equal.iter().filter(|one| one.1 == class).map(|one| one.2).sum::<f64>();
        in_order += of(true) * (below + of(false) / 2.0);
        below += of(false);
        positives += of(true);
        rest = above;
    }
    in_order / (positives * below)
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
    /// Of predictions, for samples with these labels and importances, as [`Classified::of`].
    pub fn of(predictions: &[f64], labels: &[f64], importances: &[f64]) -> Regressed {
        let (mut all, mut sum) = (0.0, 0.0);
        for (&label, count) in labels.iter().zip(counts(importances)) {
            all += count;
            sum += count * label;
        }
        let mean = sum / all;
        let (mut squares, mut absolute, mut spread) = (0.0, 0.0, 0.0);
        for ((&told, &label), count) in predictions.iter().zip(labels).zip(counts(importances)) {
            squares += count * (told - label) * (told - label);
            absolute += count * (told - label).abs();
            spread += count * (label - mean) * (label - mean);
        }
        let r2 = if spread == 0.0 { f64::NAN } else { 1.0 - squares / spread };
        Regressed { rmse: (squares / all).sqrt(), mean_absolute_error: absolute / all, r2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_hand() {
        let labels = [1.0, 1.0, -1.0, -1.0, 1.0];
        let told = Classified::of(&[2.0, 0.5, 0.5, -1.0, -3.0], &labels, &[]);
        assert_eq!((told.accuracy, told.precision, told.recall), (0.6, 2.0 / 3.0, 2.0 / 3.0));
        // Of six pairs: 2 > 0.5, 2 > -1, 0.5 = 0.5 (half), 0.5 > -1; the last one below both.
        assert!((told.area_under_curve - 3.5 / 6.0).abs() < 1e-12, "{told:?}");
        let by_hand: f64 = [2.0_f64, 0.5, -0.5, 1.0, -3.0].iter().map(|m| (1.0 + (-m).exp()).ln()).sum();
        assert!((told.log_loss - by_hand / 5.0).abs() < 1e-12);
        assert!(Classified::of(&[1.0], &[1.0], &[]).area_under_curve.is_nan());
        assert!(Classified::of(&[], &[], &[]).accuracy.is_nan());
    }

    #[test]
    fn a_decision_that_is_not_a_number_ends() {
        assert_eq!(Classified::of(&[f64::NAN, 1.0], &[1.0, -1.0], &[]).accuracy, 0.0);
    }

    #[test]
    fn numbers_by_hand() {
        let told = Regressed::of(&[1.0, 2.0, 5.0], &[1.0, 2.0, 3.0], &[]);
        assert!((told.rmse - (4.0_f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!((told.mean_absolute_error, told.r2), (2.0 / 3.0, -1.0));
        assert!(Regressed::of(&[1.0], &[1.0], &[]).r2.is_nan());
    }

    /// Whole importances are repetitions; one of 0 is as if the sample were not there.
    #[test]
    fn samples_count_as_often_as_they_are_important() {
        let (decisions, labels) = ([2.0, 0.5, 0.5, -1.0, -3.0, 0.0], [1.0, 1.0, -1.0, -1.0, 1.0, -1.0]);
        let importances = [1.0, 3.0, 2.0, 0.0, 1.0, 5.0];
        let often = |numbers: &[f64]| -> Vec<f64> {
            let each = numbers.iter().zip(importances);
            each.flat_map(|(&number, count)| std::iter::repeat_n(number, count as usize)).collect()
        };
        let same = |one: &[f64], other: &[f64]| {
            assert!(
                one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-12),
                "{one:?} {other:?}"
            );
        };
        let figures = |told: Classified| {
            [told.accuracy, told.log_loss, told.area_under_curve, told.precision, told.recall]
        };
        let repeated = Classified::of(&often(&decisions), &often(&labels), &[]);
        same(&figures(Classified::of(&decisions, &labels, &importances)), &figures(repeated));
        // The five on the border, too, are of the lower class.
        assert_eq!(repeated.accuracy, 9.0 / 12.0);
        let figures = |told: Regressed| [told.rmse, told.mean_absolute_error, told.r2];
        let repeated = Regressed::of(&often(&decisions), &often(&labels), &[]);
        same(&figures(Regressed::of(&decisions, &labels, &importances)), &figures(repeated));
        assert!(Classified::of(&decisions, &labels, &[0.0; 6]).accuracy.is_nan());
    }

    #[test]
    fn probabilities_are_between_0_and_1() {
        for (decision, probability) in [(0.0, 0.5), (1e3, 1.0), (-1e3, 0.0)] {
            assert_eq!(sigmoid(decision), probability);
        }
        assert!((sigmoid(1.5) + sigmoid(-1.5) - 1.0).abs() < 1e-15);
    }
}
