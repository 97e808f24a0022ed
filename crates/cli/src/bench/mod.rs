//! `isochrone bench`: loads any Redis endpoint, or all gateways of a deployment, and prints what it measured; with
//! transactions the gRPC endpoints.

pub(crate) mod engine;
mod history;
pub(crate) mod transactions;
pub(crate) mod wire;

use crate::arguments::{Bench, Format};
use crate::output::{Row, apart, bar, print_json, print_text, table};
use crate::sim::RATE_MAX;
use crate::{Status, Usage, protocols};
use anyhow::{Context, bail};
use engine::{Load, Measured};
use isochrone_core::deployment::Limit;
use isochrone_core::{Deployment, Span};
use isochrone_plan::Client;
use isochrone_workload::{Pace, Workload, words};
use serde::Serialize;
use std::net::{SocketAddr, ToSocketAddrs};

/// The longest argument of a command that the Redis protocol has, bytes.
const BULK_MAX: u64 = 512 << 20;

/// What `--format json` prints.
#[derive(Serialize)]
struct Report {
    /// The keyspace's protocol; unknown behind a bare endpoint.
    protocol: Option<String>,
    workload: &'static str,
    clients: u32,
    pipeline: u32,
    operations: u64,
    throughput_per_second: f64,
    errors: u64,
    unknown: u64,
    first_error: Option<String>,
    regions: Vec<Row>,
}

/// Runs the verb.
pub(crate) fn run(arguments: Bench) -> anyhow::Result<Status> {
    if let (Some(file), Some(history)) = (&arguments.file, &arguments.history) {
        apart(file, "history", history)?;
    }
    let mut workload = match Workload::named(&arguments.workload) {
        Ok(workload) => workload,
        Err(unknown) => match isochrone_workload::transactions::Workload::named(&arguments.workload) {
            Ok(workload) => return transactions::bench(&arguments, workload),
            Err(other) => bail!(Usage(format!("{unknown}; {other}"))),
        },
    };
    if arguments.keyspace.is_some() {
        bail!(Usage("--keyspace is for transactions; commands go to the keyspace in which the endpoint begins\n  give that keyspace a \
             `redis_port`, and name it with --endpoint"
                .to_owned()));
    }
    workload.conflict = arguments.conflict.unwrap_or(0);
    workload.records = arguments.records.unwrap_or(workload.records);
    let targets = Targets::of(&arguments)?;
    workload.value_size = value_size(&arguments, workload.value_size, targets.bulk)?;
    if arguments.history.is_some() {
        workload.prefix = own_prefix()?;
    }
    let pace = match rate(&arguments)? {
        None => Pace::Closed { think: Span::ZERO },
        Some(rate) => Pace::Open { rate: rate / f64::from(arguments.clients) },
    };
    let load = Load {
        endpoints: targets.endpoints.clone(),
        clients: arguments.clients,
        pipeline: arguments.pipeline,
        pace,
        workload,
        duration: arguments.duration,
        seed: arguments.seed,
        auth: auth(&arguments),
        reconnect: arguments.reconnect,
    };
    let mut recorder = arguments.history.as_deref().map(history::Recording::at).transpose()?;
    // One by one: together they may be larger than this machine.
    let mut batches = load.workload.load().peekable();
    if batches.peek().is_some() {
        let (address, _) = load.endpoints[0];
        let batches = batches.inspect(|batch| {
            if let Some(recorder) = &mut recorder {
                recorder.loaded(u64::from(load.clients), batch);
            }
        });
        wire::load(address, load.auth.as_ref(), batches.map(|batch| words(&batch)))
            .with_context(|| format!("loading {} records", load.workload.records))?;
    }
    let progress = bar("measuring", 1000);
    let measured = engine::run(
        &load,
        |seen| {
            if let Some(recorder) = &mut recorder {
                recorder.see(&seen);
            }
        },
        |share| progress.set_position((share * 1000.0) as u64),
    )?;
    progress.finish_and_clear();
    if let Some(recorder) = recorder {
        recorder.finish()?;
    }
    let report = report(&arguments, &load, &targets, measured);
    match arguments.format {
        Format::Json => print_json(&report)?,
        Format::Text => {
            let Report { workload, operations, throughput_per_second, errors, unknown, .. } = &report;
            print_text(&format!(
                "{workload}: {operations} operations, {throughput_per_second:.0} a second, {errors} errors, {unknown} \
                 unknown\n\n{}\n",
                table(&report.regions)
            ))?;
            if let Some(error) = &report.first_error {
                print_text(&format!("first error: {error}\n"))?;
            }
        }
    }
    if report.operations == 0 {
        bail!("nothing was answered without an error within the measured part of the run");
    }
    Ok(if report.errors == 0 { Status::Held } else { Status::Failed })
}

/// Less than one request in eleven days.
const RATE_MIN: f64 = 1e-6;

/// The requests a second that were asked for, of all clients.
fn rate(arguments: &Bench) -> Result<Option<f64>, Usage> {
    match arguments.rate {
        Some(rate) if !(RATE_MIN..=RATE_MAX).contains(&rate) => Err(Usage(format!(
            "--rate {rate}: a rate is requests a second, from {RATE_MIN} to {RATE_MAX}"
        ))),
        Some(_) if arguments.pipeline != 1 => Err(Usage(
            "--pipeline is for a closed loop; with --rate a request leaves when it is due, however many are under way\n  leave \
             one of them out"
                .to_owned(),
        )),
        rate => Ok(rate),
    }
}

/// Bytes of a value: those that were asked for, if a node takes so many, else the workload's own.
///
/// # Errors
/// They are more than `most`, which is the longest argument of a command, or the workload's values have no length to choose.
fn value_size(arguments: &Bench, own: usize, most: u64) -> Result<usize, Usage> {
    match arguments.value_size {
        Some(_) if own == 0 => Err(Usage(format!(
            "--value-size: the values of {} are numbers, as long as they are\n  leave it out",
            arguments.workload
        ))),
        Some(size) if size as u64 > most => Err(Usage(format!(
            "--value-size {size}: an argument of a command has {most} bytes at most\n  ask for fewer{}",
            if arguments.file.is_some() { ", or raise `bulk` under [limits] of the file" } else { "" }
        ))),
        size => Ok(size.unwrap_or(own)),
    }
}

/// User and password.
fn auth(arguments: &Bench) -> Option<(String, String)> {
    arguments.auth.as_deref().map(|pair| match pair.split_once(':') {
        Some((user, password)) => (user.to_owned(), password.to_owned()),
        None => ("default".to_owned(), pair.to_owned()),
    })
}

/// Stands before the keys of a run whose history is kept: what an earlier run left would look like values that nobody wrote.
fn own_prefix() -> anyhow::Result<String> {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(format!("run{}:", since_1970.as_millis()))
}

struct Targets {
    /// The longest argument of a command, bytes; behind a bare endpoint that of the Redis protocol.
    bulk: u64,
    protocol: Option<String>,
    names: Vec<String>,
    floors: Vec<Option<f64>>,
    endpoints: Vec<(SocketAddr, usize)>,
}

impl Targets {
    fn of(arguments: &Bench) -> anyhow::Result<Targets> {
        if let Some(file) = &arguments.file {
            let deployment = Deployment::load(file, &protocols::known().insecure(true))?;
            return Targets::of_deployment(&deployment);
        }
        let mut targets = Targets {
            bulk: BULK_MAX,
            protocol: None,
            names: Vec::new(),
            floors: Vec::new(),
            endpoints: Vec::new(),
        };
        for (index, endpoint) in arguments.endpoint.iter().enumerate() {
            targets.endpoints.push((resolve(endpoint)?, index));
            targets.names.push(endpoint.clone());
            targets.floors.push(None);
        }
        Ok(targets)
    }

    fn of_deployment(deployment: &Deployment) -> anyhow::Result<Targets> {
        let names = deployment.regions().iter().map(|region| region.name.clone()).collect();
        let keyspace = deployment.keyspace(deployment.redis_keyspace());
        let replicas = isochrone_plan::servers(deployment, keyspace);
        let floors = deployment
            .regions()
            .iter()
            .map(|region| {
                deployment.network().given.then(|| {
                    isochrone_plan::floor(deployment.matrix(), Client::of(region.id, &replicas), &replicas)
                        .as_millis_f64()
                })
            })
            .collect();
        plain(deployment)?;
        let mut endpoints = Vec::new();
        for node in deployment.nodes() {
            let Some(redis) = &node.redis else {
                bail!(Usage(format!(
                    "{}: node {} has no `redis` address; give it one, or name endpoints with --endpoint",
                    deployment.file(),
                    node.name
                )));
            };
            endpoints.push((resolve(&redis.to_string())?, usize::from(node.region.0)));
        }
        let bulk = deployment.limits().get(Limit::Bulk);
        Ok(Targets { bulk, protocol: Some(keyspace.protocol.clone()), names, floors, endpoints })
    }
}

/// Refuses a deployment whose nodes want TLS of their clients.
fn plain(deployment: &Deployment) -> Result<(), Usage> {
    match deployment.security().client {
        Some(_) => Err(Usage(format!(
            "{}: its nodes serve clients with TLS, and bench speaks plain text only\n  measure nodes whose file has no \
             client_cert and client_key",
            deployment.file()
        ))),
        None => Ok(()),
    }
}

fn resolve(endpoint: &str) -> anyhow::Result<SocketAddr> {
    endpoint.to_socket_addrs().ok().and_then(|mut addresses| addresses.next()).ok_or_else(|| {
        Usage(format!("{endpoint:?} is no HOST:PORT that resolves\n  such as 127.0.0.1:7001 would be right"))
            .into()
    })
}

fn report(arguments: &Bench, load: &Load, targets: &Targets, measured: Measured) -> Report {
    let Measured { recorder, errors, unknown, first_error } = measured;
    let regions = targets
        .names
        .iter()
        .enumerate()
        .filter_map(|(index, name)| Row::of(name, recorder.region(index, None)?, targets.floors[index]))
        .collect();
    let operations = recorder.operations();
    Report {
        protocol: targets.protocol.clone(),
        workload: load.workload.name,
        clients: arguments.clients,
        pipeline: arguments.pipeline,
        operations,
        throughput_per_second: (recorder.throughput() * 10.0).round() / 10.0,
        errors,
        unknown,
        first_error,
        regions,
    }
}
