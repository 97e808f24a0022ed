//! What handling a message costs, as measured from the runtime.

use isochrone_core::Span;
use isochrone_sim::Cost;

/// The processor cost that `sim --cpu` and `reproduce` take: one core of the machine E2 of `docs/benchmarks.md`, journals
/// not synced, measured with `bench/cpu/run.sh` (a follower of Multi-Paxos spends 2.44 us on a command of 16 bytes and
/// 5.89 us on one of 1,000).
pub(crate) const COST: Cost =
    Cost { fixed: Span::from_nanos(1_220), send: Span::from_nanos(1_220), picos_per_byte: 3_500 };
