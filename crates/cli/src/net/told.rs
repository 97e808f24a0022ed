//! What `isochrone up` tells of the network that it emulates: it writes this, `isochrone net` reads and prints it.

use serde::{Deserialize, Serialize};

/// The network between the regions of a cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Network {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// Where something was asked for: the regions that were cut off or healed by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) changed: Option<Vec<String>>,
    /// In the deployment's order.
    pub(crate) regions: Vec<Region>,
    /// Each two regions, in that order.
    pub(crate) links: Vec<Link>,
}

/// A region.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Region {
    /// Its name.
    pub(crate) region: String,
    /// Whether it is cut off from all others.
    pub(crate) cut: bool,
}

/// What stands between two regions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Link {
    /// A region.
    pub(crate) from: String,
    /// Another.
    pub(crate) to: String,
    /// From one to the other and back while the link is whole, milliseconds.
    pub(crate) round_trip_ms: f64,
    /// Whether no message passes.
    pub(crate) cut: bool,
}

impl Network {
    /// Whether it is of a cluster, and tells of each two of its regions.
    pub(crate) fn is_whole(&self) -> bool {
        let regions = self.regions.len();
        regions > 0 && self.links.len() == regions * (regions - 1) / 2
    }
}
