//! Tasks that are ready to use: linear models, and the factorisation of a matrix; and what their predictions are worth.
//!
//! | task | parameters of a sample | loss |
//! |---|---|---|
//! | [`Linear`] | a number for each of its features | [`Loss`]: hinge, squared hinge, logistic, squared |
//! | [`Against`] | the same, for one class against the rest | the same |
//! | [`Factorisation`] | a vector for its row and one for its column | squared |
//! | [`Tallied`] | those of another task, whose losses are summed up on the way | the other's |
//!
//! Regularisation is separable, as in the work that the specification builds on (`specs/cop.md` 5): the penalty of a
//! parameter is spread over the d_u samples that touch it, so that a sample's step stays within its own features. Over
//! an epoch the shares add up to the whole penalty.

mod against;
mod factorisation;
mod linear;
mod loss;
mod metrics;
mod tallied;

pub use against::{Against, Class};
pub use factorisation::{Factorisation, NotPairs};
pub use linear::{Linear, decide, decisions};
pub use loss::{Loss, UnknownLoss};
pub use metrics::{Classified, Regressed, sigmoid};
pub use tallied::{Predicts, Tallied};
