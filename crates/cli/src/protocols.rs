//! The protocols this program can run, a line each.

use isochrone_core::deployment::Known;

/// What a deployment file may name.
pub(crate) fn known() -> Known {
    Known::names(&["multipaxos"])
}
