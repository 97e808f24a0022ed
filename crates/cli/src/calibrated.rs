//! What handling a message costs, as measured from the runtime.

use isochrone_core::Span;
use isochrone_sim::Cost;

/// The processor cost that `sim --cpu` and `reproduce` take.
pub(crate) const COST: Cost =
    Cost { fixed: Span::from_nanos(1_500), picos_per_byte: 800, send: Span::from_nanos(1_500) };
