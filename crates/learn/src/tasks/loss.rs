//! What a prediction costs, and which way is down.

use std::fmt;
use std::str::FromStr;

/// The largest derivative that a step is taken by, as in scikit-learn: a model that diverges stays finite for longer, and
/// what is wrong shows as a large loss rather than as NaN everywhere.
const STEEPEST: f64 = 1e12;

/// The loss of one sample: by the margin m = y p where labels y are -1 or 1, by the error p - y where they are numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Loss {
    /// max(0, 1 - m): the linear support vector machine.
    Hinge,
    /// max(0, 1 - m)²: punishes far misses more, and is smooth.
    SquaredHinge,
    /// log(1 + exp(-m)): logistic regression, the only one whose predictions are probabilities.
    Logistic,
    /// (p - y)² / 2: least squares.
    Squared,
}

impl Loss {
    /// All of them.
    pub const ALL: [Loss; 4] = [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic, Loss::Squared];

    /// The loss of a prediction.
    pub fn value(self, prediction: f64, label: f64) -> f64 {
        let margin = label * prediction;
        match self {
            Loss::Hinge => (1.0 - margin).max(0.0),
            Loss::SquaredHinge => {
                let short = (1.0 - margin).max(0.0);
                short * short
            }
            // Neither branch takes the exponential of a large positive number.
            Loss::Logistic if margin > 0.0 => (-margin).exp().ln_1p(),
            Loss::Logistic => margin.exp().ln_1p() - margin,
            Loss::Squared => 0.5 * (prediction - label) * (prediction - label),
        }
    }

    /// Its derivative by the prediction, at most 1e12 either way.
    #[inline(always)]
    pub fn derivative(self, prediction: f64, label: f64) -> f64 {
        let margin = label * prediction;
        match self {
            Loss::Hinge if margin < 1.0 => -label,
            Loss::SquaredHinge if margin < 1.0 => (-2.0 * label * (1.0 - margin)).clamp(-STEEPEST, STEEPEST),
            Loss::Hinge | Loss::SquaredHinge => 0.0,
            // The exponential may be infinite; the quotient is 0 then, as it should be.
            Loss::Logistic => -label / (1.0 + margin.exp()),
            Loss::Squared => (prediction - label).clamp(-STEEPEST, STEEPEST),
        }
    }

    /// Whether labels are the classes -1 and 1.
    pub fn classifies(self) -> bool {
        self != Loss::Squared
    }

    /// Its name: what [`FromStr`] takes.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Hinge => "hinge",
            Loss::SquaredHinge => "squared-hinge",
            Loss::Logistic => "logistic",
            Loss::Squared => "squared",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// No loss is called that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no loss is called `{0}`; there are hinge, squared-hinge, logistic and squared")]
pub struct UnknownLoss(pub String);

impl FromStr for Loss {
    type Err = UnknownLoss;

    /// Also takes the underscore that Python's names have.
    fn from_str(name: &str) -> Result<Loss, UnknownLoss> {
        let dashed = name.replace('_', "-");
        Loss::ALL.into_iter().find(|loss| loss.name() == dashed).ok_or_else(|| UnknownLoss(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_are_those_of_the_values() {
        for loss in Loss::ALL {
            for label in [-1.0, 1.0, 0.25] {
                if loss.classifies() && label == 0.25 {
                    continue;
                }
                // None of these is on the kink of the hinge, where there is no derivative.
                for prediction in [-7.3, -1.2, -0.4, 0.0, 0.3, 0.9, 1.7, 12.0] {
                    let h = 1e-6;
                    let slope =
                        (loss.value(prediction + h, label) - loss.value(prediction - h, label)) / (2.0 * h);
                    let told = loss.derivative(prediction, label);
                    assert!(
                        (slope - told).abs() < 1e-6,
                        "{loss} at {prediction} for {label}: {slope} {told}"
                    );
                }
            }
        }
    }

    #[test]
    fn far_predictions_stay_finite() {
        for loss in Loss::ALL {
            for prediction in [-1e6, 1e6] {
                assert!(loss.value(prediction, 1.0).is_finite(), "{loss}");
                assert!(loss.derivative(prediction, 1.0).is_finite(), "{loss}");
            }
        }
        assert_eq!(Loss::Logistic.value(-1e6, 1.0), 1e6);
        assert_eq!(Loss::Logistic.value(1e6, 1.0), 0.0);
        // The tail keeps its precision: log(1 + x) is not 0 for small x.
        assert!((Loss::Logistic.value(40.0, 1.0) / (-40.0_f64).exp() - 1.0).abs() < 1e-12);
        assert_eq!(Loss::Squared.derivative(1e300, 0.0), 1e12);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for loss in Loss::ALL {
            assert_eq!(loss.to_string().parse(), Ok(loss));
        }
        assert_eq!("squared_hinge".parse(), Ok(Loss::SquaredHinge));
        assert_eq!(
            "huber".parse::<Loss>().unwrap_err().to_string(),
            "no loss is called `huber`; there are hinge, squared-hinge, logistic and squared"
        );
    }
}
