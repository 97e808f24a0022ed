//! `isochrone node`: one node of a deployment, for real.

use crate::arguments::{Format, Node as Arguments};
use crate::stop::Stop;
use crate::{Status, Usage, log, output, protocols};
use isochrone_core::Deployment;
use isochrone_core::deployment::Node;
use isochrone_node::journal::{Expect, JournalError};
use isochrone_node::node::{self, DEFAULT_SNAPSHOT_BYTES, NodeConfig, Sockets, StartError};
use isochrone_node::reactor::Failure;
use isochrone_node::redis::RedisGateway;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether the node still runs, while no signal comes.
const GLANCE: Duration = Duration::from_millis(100);

/// The environment variable with the token that orders over HTTP must show, and who gives them.
pub(crate) const TOKEN: &str = "ISOCHRONE_ADMIN_TOKEN";

/// The token that a node of this process is started with.
pub(crate) fn admin_token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

/// Runs the verb.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    let Arguments { file, name, data, expect_data, insecure, format } = arguments;
    log::start("info", format)?;
    let deployment = Arc::new(Deployment::load(&file, &protocols::known().insecure(insecure))?);
    let me = find(&deployment, &name)?.clone();
    let shown = file.display();
    if me.peer.is_none() && deployment.nodes().len() > 1 {
        return Err(Usage(format!(
            "{shown}: node {name:?} has no address for its peers\n  give every node listen = \"HOST:PORT\""
        ))
        .into());
    }
    if me.redis.is_none() && me.grpc.is_none() {
        return Err(Usage(format!(
            "{shown}: node {name:?} has no address for clients\n  give it redis = \"HOST:PORT\", or grpc"
        ))
        .into());
    }
    let expect = if expect_data { Expect::Existing } else { Expect::Anything };
    let sockets = Sockets::bind(&deployment, me.id).map_err(start)?;
    serve(deployment, &me, data, expect, sockets, format, || Ok(()))
}

/// Runs one node until it is told to stop. `started` is called once the data has been found to be its own.
pub(crate) fn serve(
    deployment: Arc<Deployment>,
    me: &Node,
    data: PathBuf,
    expect: Expect,
    sockets: Sockets,
    format: Format,
    started: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Status> {
    if deployment.security().insecure {
        tracing::warn!(
            "INSECURE: plain text beyond loopback is allowed: anyone on the way reads and changes everything"
        );
    }
    if !deployment.fsync() {
        tracing::warn!("UNSAFE: fsync is off, a power failure of a majority loses acknowledged writes");
    }
    let stop = Stop::listen()?;
    let config = NodeConfig {
        deployment: Arc::clone(&deployment),
        node: me.id,
        data,
        expect,
        sockets,
        peers: BTreeMap::new(),
        emulation: None,
        admin_token: admin_token(),
        network: None,
        snapshot_bytes: DEFAULT_SNAPSHOT_BYTES,
    };
    let handle = node::Node::start(config, &protocols::served(), Box::new(RedisGateway)).map_err(start)?;
    started()?;
    let ready = Ready::of(&deployment, me, &handle);
    match format {
        Format::Json => output::print_json(&ready)?,
        Format::Text => output::print_text(&ready.line())?,
    }
    while handle.running() {
        if stop.within(GLANCE) {
            tracing::info!("a signal asks this node to stop");
            handle.stop().map_err(ended)?;
            tracing::info!("stopped in order");
            return Ok(Status::Held);
        }
    }
    handle.wait().map_err(ended)?;
    Ok(Status::Held)
}

/// The one line on standard output: the node serves, its quorum or no quorum.
#[derive(Debug, Serialize)]
struct Ready<'a> {
    /// Always true.
    ready: bool,
    cluster: &'a str,
    node: &'a str,
    /// Where Redis clients connect, keyspace by keyspace.
    redis: &'a [SocketAddr],
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    /// UNSAFE where acknowledged writes may be lost in a power failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
}

impl<'a> Ready<'a> {
    fn of(deployment: &'a Deployment, me: &'a Node, handle: &'a node::NodeHandle) -> Ready<'a> {
        Ready {
            ready: true,
            cluster: deployment.cluster(),
            node: &me.name,
            redis: handle.redis_addresses(),
            grpc: handle.grpc_address(),
            http: handle.http_address(),
            durability: (!deployment.fsync()).then_some("UNSAFE"),
        }
    }

    /// For people.
    fn line(&self) -> String {
        let mut line = format!("{} of {} is ready", self.node, self.cluster);
        for redis in self.redis {
            line += &format!(", redis {redis}");
        }
        if let Some(grpc) = self.grpc {
            line += &format!(", grpc {grpc}");
        }
        if let Some(http) = self.http {
            line += &format!(", http {http}");
        }
        if self.durability.is_some() {
            line += ", UNSAFE: fsync is off";
        }
        line + "\n"
    }
}

/// The node of this name.
pub(crate) fn find<'d>(deployment: &'d Deployment, name: &str) -> anyhow::Result<&'d Node> {
    deployment.node_named(name).ok_or_else(|| {
        let known: Vec<_> = deployment.nodes().iter().map(|node| node.name.as_str()).collect();
        let wrong = format!("--name {name}: {} has no such node", deployment.file());
        Usage(format!("{wrong}\n  use one of {}", known.join(", "))).into()
    })
}

/// A node that was started with a directory that it must not have is not to be started with it again.
fn ended(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Disowned { .. } => Usage(failure.to_string()).into(),
        // Started again it would find none of its data, and begin as new.
        Failure::Journal(error) if error.is_removed() => Usage(error.to_string()).into(),
        Failure::Journal(_) | Failure::Io(_) => failure.into(),
    }
}

/// What was asked for wrongly is told apart from what went wrong.
pub(crate) fn start(error: StartError) -> anyhow::Error {
    let usage = match error {
        StartError::Config(errors) => return errors.into(),
        StartError::Bind { address, what, cause } => return bind(&address, what, &cause),
        StartError::Journal(
            error @ (JournalError::OtherCluster { .. }
            | JournalError::OtherNode { .. }
            | JournalError::NewerFormat { .. }
            | JournalError::NotIsochrone { .. }
            | JournalError::NoDirectory { .. }
            | JournalError::NoPlace { .. }
            | JournalError::Missing { .. }
            | JournalError::Older { .. }
            | JournalError::OtherDirectory { .. }
            | JournalError::Denied { .. }
            | JournalError::ReadOnly { .. }
            | JournalError::Locked { .. }),
        ) => error.to_string(),
        error @ (StartError::Security(_)
        | StartError::Layout { .. }
        | StartError::Audit { .. }
        | StartError::OtherCluster { .. }
        | StartError::OtherNode { .. }) => error.to_string(),
        other => return other.into(),
    };
    Usage(usage).into()
}

/// Why a socket cannot be had. What passes by itself, as on a machine that boots, is not about what was asked for: whoever
/// keeps the node up is to start it again.
fn bind(address: &str, what: &str, cause: &std::io::Error) -> anyhow::Error {
    let (wrong, right, passes) = match cause.kind() {
        ErrorKind::AddrInUse => (
            "in use by another program".to_owned(),
            "stop the other program (is this node running already?), or change the address in the deployment file",
            false,
        ),
        ErrorKind::AddrNotAvailable => (
            "not an address of this machine".to_owned(),
            "start the node on its own machine, once that has the address (`ip address` shows which it has); or correct it in the deployment file",
            true,
        ),
        ErrorKind::PermissionDenied => (
            cause.to_string(),
            "ports below 1024 need a privilege; choose another in the deployment file",
            false,
        ),
        _ if is_unresolved(address, cause) => (
            format!("the name does not resolve: {cause}"),
            "see whether this machine's resolver answers (`getent hosts NAME`); or correct the name in the deployment file",
            true,
        ),
        _ => (cause.to_string(), "correct the address in the deployment file", false),
    };
    let text = format!("{address}, for {what}: {wrong}\n  {right}");
    if passes { anyhow::Error::msg(text) } else { Usage(text).into() }
}

/// Whether what a socket cannot be had for is that its name does not resolve. What the system says of a socket has a number, what
/// the resolver says of a name has none.
pub(crate) fn is_unresolved(address: &str, cause: &std::io::Error) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host.parse::<IpAddr>().is_err() && cause.raw_os_error().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_node::node::bound;

    #[test]
    fn what_a_machine_that_boots_lacks_is_no_mistake_in_the_file() {
        let refused = |host: &str, cause| {
            let error = start(StartError::Bind { address: format!("{host}:7000"), what: "peers", cause });
            (crate::is_usage(&error), error.to_string())
        };
        // No resolver is asked for a label of 64 letters.
        let long = "x".repeat(64);
        let (usage, text) = refused(&long, bound((long.as_str(), 7000)).unwrap_err());
        assert!(!usage, "{text}");
        assert!(text.starts_with(&format!("{long}:7000, for peers: the name does not resolve: ")), "{text}");
        assert!(text.contains("resolver"), "{text}");
        // Of TEST-NET-1.
        let (usage, text) = refused("192.0.2.1", bound(("192.0.2.1", 0)).unwrap_err());
        assert!(
            !usage && text.contains("not an address of this machine\n") && text.contains("ip address"),
            "{text}"
        );
        let kinds = [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::Unsupported];
        for (host, kind) in ["localhost", "127.0.0.1", "127.0.0.1"].into_iter().zip(kinds) {
            let (usage, text) = refused(host, kind.into());
            assert!(usage, "{text}");
        }
    }
}
