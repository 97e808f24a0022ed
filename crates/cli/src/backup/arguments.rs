//! The command line of `isochrone backup`.

use crate::arguments::Format;
use clap::{Args, Subcommand};
use isochrone_core::deployment::Address;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct Backup {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs of backups.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Read a whole keyspace out of a running cluster into a file
    Save(Save),
    /// Put what such a file holds into a keyspace, of the same or another cluster, whatever its protocol
    Restore(Restore),
    /// Read such a file alone: whether it is whole, and what is in it
    Verify(Verify),
}

/// Where it is asked, and as whom.
#[derive(Args, Debug)]
pub struct Node {
    /// The Redis port of any node; of several, take one in the region that leads the keyspace
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse)]
    pub endpoint: Address,
    /// Speak TLS, with a node whose certificate this authority has signed, PEM (`ca.pem` of `isochrone cert`)
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Send the password in plain text beyond loopback. Anyone on the way can read it
    #[arg(long)]
    pub insecure: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone backup save --endpoint 10.0.0.1:6379 --ca ca.pem main.backup\n\nIt is no picture of one moment. Each key is saved as it was at some moment of the run, value and deadline together; every\nkey that exists from the beginning to the end is saved, also while keys move between partitions. Where keys must fit each\nother, let their writers wait meanwhile.\n\nA value that is longer than a node tells at once (120 MiB) is read in parts; where it is written meanwhile these are of\ndifferent moments, and it is named. Programs of before parts do not read what this one writes.\n\nValues are passed on as they come, and are not compressed; memory is taken for each key's hash, some 30 bytes.\n\nISOCHRONE_AUTH=user:password logs in. Where users have rules, this one needs +info +client|info +select +scan +multi +exec\n+dump +pexpiretime and all keys (~*), and +@read +watch where values are read in parts: a key that may not be read ends it.\n\nExit status: 0 saved; 1 not, and no file is left; 2 what was asked for cannot be meant, or the file cannot be written."
)]
pub struct Save {
    /// The file to be written; it has its name once all of it is on the disk. - is standard output, and what is told of it
    /// goes to standard error
    pub file: PathBuf,
    #[command(flatten)]
    pub node: Node,
    /// Which keyspace [default: the one in which the endpoint begins, as a rule that of Redis' database 0]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// Write over a file that is there
    #[arg(long)]
    pub force: bool,
    /// How it is told what was saved
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone backup restore main.backup --endpoint 127.0.0.1:7001\n  isochrone backup restore main.backup --endpoint 10.0.0.1:6379 --ca ca.pem --replace --cluster prod\n\nThe whole file is read and checked before anything is written. Keys that are there already stay as they are, unless\n--replace is given; keys that are not in the file always do. Keys whose deadline has passed are left out. What was\ninterrupted is run again with --replace.\n\nA value that is longer than the node takes in a command is put back in parts, into a key of its own\n(isochrone-restore:...) that is renamed when all are there: what --replace is to overwrite stays until then, and if not. What\nis left of such a key goes within an hour. What is longer than `bulk` in [limits], a string or an element, is refused before\nthat, and so is an entry of a stream with more words than `elements`. Such a value is held in memory.\n\nISOCHRONE_AUTH=user:password logs in. Where users have rules, this one needs +info +select +config|get +restore and all\nkeys (~*), and +@read +@write +multi +exec where values are put back in parts.\n\nExit status: 0 all that has not expired is restored; 1 some keys are not, or exist already, or the file is damaged; 2 what\nwas asked for cannot be meant."
)]
pub struct Restore {
    /// What `isochrone backup save` has written
    pub file: PathBuf,
    #[command(flatten)]
    pub node: Node,
    /// Into which keyspace [default: the one of the same name]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// Overwrite keys that are there; wants --cluster
    #[arg(long)]
    pub replace: bool,
    /// The name of the cluster that is meant: with another, nothing is written
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// How it is told what was restored
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone backup verify main.backup\n\nExit status: 0 the file is whole; 1 it is cut short or damaged; 2 it is no backup."
)]
pub struct Verify {
    /// What `isochrone backup save` has written
    pub file: PathBuf,
    /// How it is told what is in it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}
