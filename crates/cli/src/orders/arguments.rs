//! The command line of the orders that a running cluster takes.

use crate::arguments::Format;
use clap::{Args, Subcommand};
use isochrone_core::deployment::Address;
use std::path::PathBuf;

/// Which cluster it is, and how it is told what came of it.
#[derive(Args, Debug)]
pub struct Target {
    /// The deployment: nodes are where its `http` are [default: those that answer from 127.0.0.1:8001 on, where `up` has its]
    pub file: Option<PathBuf>,
    /// Where a node's `http` is, without a deployment; may be given several times
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse, conflicts_with = "file")]
    pub http: Vec<Address>,
    /// The token with which the node was started, alone in a file [default: ISOCHRONE_ADMIN_TOKEN of the environment]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How it is told what came of it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Which partitions an order about replicas is for.
#[derive(Args, Debug)]
pub struct Partitions {
    /// Which keyspace [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// Which of its partitions [default: all of which that node has a replica, or is to have one]
    #[arg(long, value_name = "N")]
    pub partition: Option<u16>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone move-leader cluster.toml --to or1\n  isochrone move-leader cluster.toml --keyspace bank --partition 2 --to or1\n\nNothing is lost: commands that come meanwhile wait, for some round trips. Run it on the machine of a member, with the\ntoken with which that node was started in ISOCHRONE_ADMIN_TOKEN; it passes the order on to whoever leads. An order is sent\nonce, whatever comes of it.\n\nExit status: 0 it leads, also where it did before; 1 refused, or nobody knows; 2 what was asked for cannot be meant."
)]
pub struct MoveLeader {
    #[command(flatten)]
    pub target: Target,
    /// The node that is to lead: one that has a replica
    #[arg(long, value_name = "NODE")]
    pub to: String,
    #[command(flatten)]
    pub partitions: Partitions,
}

#[derive(Args, Debug)]
pub struct Replica {
    /// What to do.
    #[command(subcommand)]
    pub verb: ReplicaVerb,
}

/// The orders about replicas.
#[derive(Subcommand, Debug)]
pub enum ReplicaVerb {
    /// Take a node in as a replica of a keyspace: one that runs, and is among the keyspace's `spares`
    Add(Add),
    /// Let a node go that is a replica of a keyspace, also one that is lost
    Remove(Remove),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone replica add cluster.toml --node va2\n\nRun it on the machine of a member, with the token with which that node was started in ISOCHRONE_ADMIN_TOKEN. It ends once the\nnew replica has all data. Where that takes longer than ten seconds nobody tells here, and it goes on: `isochrone status`\nshows the replicas, and the same order once more does no harm.\n\nExit status: 0 it is a replica, also where it was before; 1 refused, or nobody knows; 2 what was asked for cannot be meant."
)]
pub struct Add {
    #[command(flatten)]
    pub target: Target,
    /// The node that is to have a replica
    #[arg(long, value_name = "NODE")]
    pub node: String,
    #[command(flatten)]
    pub partitions: Partitions,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone replica remove cluster.toml --node va1 --cluster shop\n\nWithout --cluster the name is asked for, where there is a terminal. Run it on the machine of another member, with the token\nwith which that node was started in ISOCHRONE_ADMIN_TOKEN. Leave the node in the deployment file. Where no majority would\nlive without it, the order is refused, as far as that is known.\n\nExit status: 0 it is no replica, also where it was none before; 1 refused, or nobody knows; 2 what was asked for cannot be meant."
)]
pub struct Remove {
    #[command(flatten)]
    pub target: Target,
    /// The node whose replica goes
    #[arg(long, value_name = "NODE")]
    pub node: String,
    #[command(flatten)]
    pub partitions: Partitions,
    /// The name of the cluster that is meant: with another, nothing is sent
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

#[derive(Args, Debug)]
pub struct Range {
    /// What to do.
    #[command(subcommand)]
    pub verb: RangeVerb,
}

/// The orders about keys of partitions.
#[derive(Subcommand, Debug)]
pub enum RangeVerb {
    /// Show which partition of a keyspace serves which keys, as a node knows it
    List(List),
    /// Move keys from one partition of a keyspace to another, while they are read and written
    Move(Move),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone range list cluster.toml --keyspace main\n\nRun it on the machine of a node, with the token with which that was started in ISOCHRONE_ADMIN_TOKEN.\n\nExit status: 0 they are shown; 1 not; 2 what was asked for cannot be meant."
)]
pub struct List {
    #[command(flatten)]
    pub target: Target,
    /// Which keyspace [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone range move cluster.toml --from 0 --to 2\n  isochrone range move cluster.toml --from 0 --to 2 --key '{user7}'\n  isochrone range move cluster.toml --from 0 --to 2 --first 0000000000000000 --last 2aaaaaaaaaaaaaaa\n  isochrone range move bank.toml --from 0 --to 1 --first-key m --end-key q\n\nRun it on the machine of a node, with the token with which that was started in ISOCHRONE_ADMIN_TOKEN: this node drives the\nmove. It takes as long as there are keys, and is told of every five seconds on standard error; after ten minutes nobody\ntells here, and it goes on: `isochrone range list` shows how far it is. The same order once more moves what is left.\n\nExit status: 0 they have moved, also where there were none; 1 refused, or nobody knows; 2 what was asked for cannot be meant."
)]
pub struct Move {
    #[command(flatten)]
    pub target: Target,
    /// Which keyspace [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// The partition that serves the keys
    #[arg(long, value_name = "N")]
    pub from: u16,
    /// The partition that is to serve them
    #[arg(long, value_name = "N")]
    pub to: u16,
    #[command(flatten)]
    pub extent: Extent,
}

/// Which of the keys that the partition serves; without any of these, all.
#[derive(Args, Debug)]
pub struct Extent {
    /// What lies with this key: all keys of its tag
    #[arg(long, value_name = "KEY", conflicts_with_all = ["first", "last", "first_key", "end_key"])]
    pub key: Option<String>,
    /// From this place of the ring on, 16 hexadecimal digits [default: its first]
    #[arg(long, value_name = "PLACE", value_parser = place, conflicts_with_all = ["first_key", "end_key"])]
    pub first: Option<String>,
    /// Up to and with this place of the ring, 16 hexadecimal digits [default: its last]
    #[arg(long, value_name = "PLACE", value_parser = place, conflicts_with_all = ["first_key", "end_key"])]
    pub last: Option<String>,
    /// From this key on, where partitions are divided by the order of keys [default: the first]
    #[arg(long, value_name = "KEY")]
    pub first_key: Option<String>,
    /// Up to and without this key [default: no end]
    #[arg(long, value_name = "KEY")]
    pub end_key: Option<String>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone stop cluster.toml --node va1 --cluster shop\n\nAs SIGTERM does: it takes no new clients, gives leadership away, answers what is under way, and syncs. Without --cluster the\nname is asked for, where there is a terminal. Run it on the machine of that node, with the token with which it was started in\nISOCHRONE_ADMIN_TOKEN. It ends once the node has.\n\nExit status: 0 it has stopped; 1 not, or nobody knows; 2 what was asked for cannot be meant."
)]
pub struct Stop {
    #[command(flatten)]
    pub target: Target,
    /// The node that is to stop
    #[arg(long, value_name = "NODE")]
    pub node: String,
    /// The name of the cluster that is meant: with another, nothing is sent
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
}

/// A place of the ring, as nodes write it.
fn place(text: &str) -> Result<String, String> {
    if text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("16 hexadecimal digits would be right, as `isochrone range list` shows them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_nodes_write_them() {
        assert_eq!(place("00FF00ff00ff00ff").as_deref(), Ok("00ff00ff00ff00ff"));
        for wrong in ["", "0", "00ff00ff00ff00fg", "+0ff00ff00ff00ff", "00ff00ff00ff00ff0"] {
            let error = place(wrong).expect_err(wrong);
            assert!(error.contains("16 hexadecimal digits"), "{error}");
        }
    }
}
