//! The `isochrone` command.

// But in `allocator`.
#![deny(unsafe_code)]

mod allocator;
mod arguments;
mod audit;
mod backup;
mod bench;
mod calibrated;
mod cert;
mod chart;
mod check;
mod doctor;
mod learn;
mod log;
mod man;
mod net;
mod node;
mod orders;
mod output;
mod parse;
mod plan;
mod redis;
mod reproduce;
mod sim;
mod status;
mod stop;
mod transactions;
mod up;
mod upgrade;

use arguments::Verb;
use isochrone_core::ConfigErrors;
use isochrone_protocols as protocols;
use isochrone_workload::UnknownWorkload;
use std::process::ExitCode;

/// How a verb ended; the exit status says it to scripts. Bad usage is 2, whether a flag or a file is wrong.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// It finished, and what was to hold held: 0.
    Held,
    /// A violation, a missed expectation: 1.
    Failed,
    /// It could not be decided within the limit: 3.
    Undecided,
}

/// What was asked for cannot be meant: a flag or a name is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Whether an error is about what was asked for, not about what happened.
fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || error.is::<ConfigErrors>()
        || error.is::<UnknownWorkload>()
        || error.is::<isochrone_check::HistoryError>()
        || error.is::<isochrone_check::CheckError>()
        || error.is::<isochrone_check::Unsupported>()
        || learn::is_usage(error)
}

fn main() -> ExitCode {
    let arguments = match parse::arguments() {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    let done = match arguments.verb {
        Verb::Up(arguments) => up::run(arguments),
        Verb::Node(arguments) => node::run(arguments),
        Verb::Redis(arguments) => redis::run(arguments),
        Verb::Status(arguments) => status::run(arguments),
        Verb::MoveLeader(arguments) => orders::move_leader(arguments),
        Verb::Replica(arguments) => orders::replica(arguments),
        Verb::Range(arguments) => orders::range(arguments),
        Verb::Stop(arguments) => orders::stop(arguments),
        Verb::Doctor(arguments) => doctor::run(arguments),
        Verb::Net(arguments) => net::run(arguments),
        Verb::Upgrade(arguments) => upgrade::run(arguments),
        Verb::Backup(arguments) => backup::run(arguments),
        Verb::Audit(arguments) => audit::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Sim(arguments) => sim::run(arguments),
        Verb::Bench(arguments) => bench::run(arguments),
        Verb::Reproduce(arguments) => reproduce::run(arguments),
        Verb::Check(arguments) => check::run(arguments),
        Verb::Learn(arguments) => learn::run(arguments),
        Verb::Cert(arguments) => cert::run(arguments),
        Verb::Password(arguments) => cert::password(&arguments),
        Verb::Man(arguments) => man::run(arguments),
        Verb::Completions(arguments) => {
            let mut text = Vec::new();
            clap_complete::generate(arguments.shell, &mut parse::command(), "isochrone", &mut text);
            output::print_text(&String::from_utf8_lossy(&text)).map(|()| Status::Held)
        }
    };
    match done {
        Ok(Status::Held) => ExitCode::SUCCESS,
        Ok(Status::Failed) => ExitCode::from(1),
        Ok(Status::Undecided) => ExitCode::from(3),
        Err(error) => {
            // Some of it is what strangers said.
            output::say(output::clean(&format!("isochrone: {error:#}")));
            ExitCode::from(if is_usage(&error) { 2 } else { 1 })
        }
    }
}
