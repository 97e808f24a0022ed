//! The command line of `isochrone net`.

use crate::arguments::Format;
use clap::{Args, Subcommand};
use isochrone_core::deployment::Address;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone net\n  isochrone net cut Euro\n  isochrone net heal\n\nThis is the network that `isochrone up` emulates on this machine. What is cut here is shown in its live table, whose key p\nheals it, and the other way round. Nodes that run for real emulate none: between them there is nothing to cut."
)]
pub struct Net {
    /// What to do; `show` where nothing is said.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Where a node of that cluster has its `http` [default: the first that answers from 127.0.0.1:8001 on]
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse, global = true)]
    pub http: Option<Address>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    pub format: Format,
}

/// What is done with the network.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Show the regions and what stands between them: the round trip, or that they are cut off (what `net` alone does)
    Show,
    /// Cut a region off from all others: no message comes in or out
    Cut {
        /// Its name
        region: String,
    },
    /// Heal a region that was cut off, or all
    Heal {
        /// Its name [default: all that are cut off]
        region: Option<String>,
    },
}
