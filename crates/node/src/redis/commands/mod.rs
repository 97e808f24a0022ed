//! The commands on data, a chapter a file: each a row of the table and the function that understands it.

pub(crate) mod bitmaps;
pub(crate) mod hashes;
pub(crate) mod hyperloglog;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod places;
pub(crate) mod server;
pub(crate) mod sets;
pub(crate) mod sort;
pub(crate) mod sorted_sets;
pub(crate) mod streams;
pub(crate) mod strings;

use super::complaint::Complaint;
use super::shape::Plan;

/// What understanding a request gives.
pub(crate) type Understood = Result<Plan, Complaint>;
