//! How the elements of a collection are sorted.

use super::Limit;
use serde::{Deserialize, Serialize};

/// What `SORT` does with a list, a set or a sorted set.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Sort {
    /// By what.
    pub by: SortBy,
    /// The greatest first.
    pub descending: bool,
    /// A page of what has been sorted; a negative offset is 0, a negative count gives all.
    pub limit: Option<Limit>,
    /// What is given of each element, in this order; where nothing is said, itself.
    pub gets: Vec<Got>,
}

/// By what elements are sorted.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum SortBy {
    /// As numbers; equal ones by their bytes.
    Number,
    /// By their bytes.
    Bytes,
    /// Not at all: as the collection has them. A set that is stored is sorted by bytes all the same, so that what is
    /// stored has an order.
    Nothing,
}

/// What is given of an element.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Got {
    /// Itself.
    Element,
    /// Nothing: nil, or where it is stored an empty string.
    Nothing,
}
