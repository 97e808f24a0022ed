//! Where data is read or written: a keyspace of a cluster, as a node tells.

use super::arguments::Node;
use super::wire::{Connection, Reply};
use crate::Usage;
use crate::output::clean_line;
use anyhow::bail;
use isochrone_core::deployment::Address;
use std::time::Instant;

/// Where the login is looked for, as by `isochrone bench`: user:password, or a password alone.
const AUTH: &str = "ISOCHRONE_AUTH";

/// What to do where a keyspace answers nothing.
const MISSED: &str = "`isochrone status` says who is missed; where most of its replicas are lost, see docs/operations.md, \
                      \"When a majority is lost for good\"";

/// A keyspace that is selected on a connection.
pub(super) struct Place {
    /// The cluster's name.
    pub(super) cluster: String,
    /// The node that answers.
    pub(super) node: String,
    /// The keyspace's name.
    pub(super) keyspace: String,
    /// Its protocol.
    pub(super) protocol: String,
    /// About how many keys it has; 0 where the node has no replica of it.
    pub(super) keys: u64,
    /// The node's clock when it was asked, milliseconds since 1970.
    told_ms: u64,
    asked: Instant,
}

/// Connects, logs in, and selects a keyspace: that of this name, or the one in which the connection begins.
///
/// # Errors
/// There is no such keyspace, or no node of Isochrone; or what asks has not the `rights` for that.
pub(super) fn open(node: &Node, keyspace: Option<&str>, rights: &str) -> anyhow::Result<(Connection, Place)> {
    let login = login(node, std::env::var(AUTH).ok().as_deref())?;
    let mut connection = Connection::open(&node.endpoint, node.ca.as_deref())?;
    if let Some((user, password)) = &login {
        ask(&mut connection, rights, &["AUTH", user, password])?;
    }
    let selected: Option<u64> = match keyspace {
        Some(_) => None,
        None => {
            let told = ask(&mut connection, rights, &["CLIENT", "INFO"])?;
            told.split_whitespace().find_map(|field| field.strip_prefix("db=")?.parse().ok())
        }
    };
    let asked = Instant::now();
    let told = ask(&mut connection, rights, &["INFO", "server", "isochrone", "keyspace"])?;
    let Told { cluster, node: name, now_ms, keyspaces } = Told::of(&told);
    if cluster.is_empty() {
        bail!(Usage(format!(
            "{}: no node of Isochrone answers there; INFO names no cluster\n  name the Redis port of a node; \
             of a Redis, MIGRATE and RESTORE move the data (docs/redis.md, \"Moving in\")",
            node.endpoint
        )));
    }
    let found = keyspaces.iter().find(|listed| match keyspace {
        Some(name) => listed.name == name,
        None => Some(listed.index) == selected,
    });
    let Some(listed) = found else {
        let names: Vec<_> = keyspaces.iter().map(|listed| listed.name.as_str()).collect();
        bail!(Usage(format!(
            "{}: cluster {cluster} has no keyspace {:?}\n  name one of its own with --keyspace: {}",
            node.endpoint,
            keyspace.unwrap_or_default(),
            names.join(", ")
        )));
    };
    ask(&mut connection, rights, &["SELECT", &listed.index.to_string()])?;
    let place = Place {
        cluster,
        node: name,
        keyspace: listed.name.clone(),
        protocol: listed.protocol.clone(),
        keys: listed.keys,
        told_ms: now_ms,
        asked,
    };
    Ok((connection, place))
}

impl Place {
    /// The node's clock now, milliseconds since 1970; it may be a round trip less.
    pub(super) fn now_ms(&self) -> u64 {
        let since = self.asked.elapsed().as_millis();
        self.told_ms.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// An error that a node has answered, and what to do about it.
pub(super) fn refused(at: &str, what: &str, text: &str, rights: &str) -> anyhow::Error {
    let hint = match text.split(' ').next() {
        Some("NOAUTH" | "WRONGPASS") => {
            format!("\n  give a login in the environment: {AUTH}=user:password")
        }
        Some("NOPERM") => format!("\n  the user needs {rights}"),
        Some("TRYAGAIN" | "NOLEADER" | "UNKNOWN") => format!("\n  {MISSED}"),
        _ => String::new(),
    };
    anyhow::anyhow!("{at}: {what}: {text}{hint}")
}

/// Asks for a text, or a mere yes.
fn ask(connection: &mut Connection, rights: &str, words: &[&str]) -> anyhow::Result<String> {
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match connection.ask(&bytes)? {
        Reply::Text(text) => Ok(text),
        Reply::Bulk(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Reply::Error(text) => {
            Err(refused(connection.at(), words.first().copied().unwrap_or_default(), &text, rights))
        }
        _ => Err(connection.strange()),
    }
}

/// User and password.
///
/// # Errors
/// The password would be read by others on the way.
fn login(node: &Node, given: Option<&str>) -> Result<Option<(String, String)>, Usage> {
    let Some(pair) = given.filter(|pair| !pair.is_empty()) else { return Ok(None) };
    let Node { endpoint, ca, insecure } = node;
    if ca.is_none() && !insecure && !Address::is_loopback(endpoint) {
        return Err(Usage(format!(
            "{endpoint}: the password of {AUTH} would go there in plain text\n  name the authority of the node's certificate with --ca; or \
             say --insecure"
        )));
    }
    let (user, password) = pair.split_once(':').unwrap_or(("default", pair));
    Ok(Some((user.to_owned(), password.to_owned())))
}

/// What INFO tells.
#[derive(PartialEq, Eq, Debug, Default)]
struct Told {
    cluster: String,
    node: String,
    now_ms: u64,
    keyspaces: Vec<Listed>,
}

/// A keyspace there.
#[derive(PartialEq, Eq, Debug)]
struct Listed {
    index: u64,
    name: String,
    protocol: String,
    /// What the replicas of this node hold.
    keys: u64,
}

impl Told {
    fn of(text: &str) -> Told {
        let mut told = Told::default();
        let mut held: Vec<(u64, u64)> = Vec::new();
        for (field, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let numbered = |prefix: &str| field.strip_prefix(prefix)?.parse::<u64>().ok();
            match field {
                "cluster" => told.cluster = clean_line(value),
                "node" => told.node = clean_line(value),
                "server_time_usec" => told.now_ms = value.parse::<u64>().unwrap_or(0) / 1_000,
                _ => {
                    let part = |name: &str| {
                        let mut parts = value.split(',').filter_map(|part| part.split_once('='));
                        parts.find(|(found, _)| *found == name).map(|(_, value)| clean_line(value))
                    };
                    if let Some(index) = numbered("keyspace")
                        && let Some(name) = part("name")
                    {
                        let protocol = part("protocol").unwrap_or_default();
                        told.keyspaces.push(Listed { index, name, protocol, keys: 0 });
                    }
                    if let Some(index) = numbered("db")
                        && let Some(keys) = part("keys").and_then(|keys| keys.parse().ok())
                    {
                        held.push((index, keys));
                    }
                }
            }
        }
        for listed in &mut told.keyspaces {
            let found = held.iter().find(|(index, _)| *index == listed.index);
            listed.keys = found.map_or(0, |(_, keys)| *keys);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_tells_which_keyspaces_there_are() {
        let text = "# Server\r\nredis_version:7.2.4\r\nserver_time_usec:1795954780028074\r\n\r\n# Keyspace\r\n\
                    db3:keys=7,expires=1,avg_ttl=0\r\n\r\n# Isochrone\r\ncluster:pro\u{1b}d\r\nnode:n1\r\nregion:R\r\nkeyspaces:2\r\n\
                    keyspace0:name=main,protocol=curp,guarantee=linearizable,replicas=1,leader=here,leads=1\r\n\
                    keyspace3:name=bank,protocol=2pc,guarantee=strictly serializable,replicas=3\r\n";
        let listed = |index, name: &str, protocol: &str, keys| Listed {
            index,
            name: name.to_owned(),
            protocol: protocol.to_owned(),
            keys,
        };
        let expected = Told {
            cluster: "pro?d".to_owned(),
            node: "n1".to_owned(),
            now_ms: 1_795_954_780_028,
            keyspaces: vec![listed(0, "main", "curp", 0), listed(3, "bank", "2pc", 7)],
        };
        assert_eq!(Told::of(text), expected);
        assert_eq!(Told::of("# Server\r\nredis_version:7.2.4\r\n").cluster, "");
    }

    #[test]
    fn a_password_does_not_leave_the_machine_in_plain_text() {
        let node = |endpoint: &str, insecure| Node {
            endpoint: Address::parse(endpoint).unwrap(),
            ca: None,
            insecure,
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(login(&node("127.0.0.1:1", false), Some("ann:a:b")).unwrap(), pair("ann", "a:b"));
        assert_eq!(login(&node("127.0.0.1:1", false), Some("secret")).unwrap(), pair("default", "secret"));
        assert_eq!(login(&node("10.0.0.1:1", false), None).unwrap(), None);
        assert_eq!(login(&node("10.0.0.1:1", true), Some("secret")).unwrap(), pair("default", "secret"));
        let error = login(&node("10.0.0.1:1", false), Some("ann:secret")).unwrap_err().to_string();
        assert!(error.starts_with("10.0.0.1:1: the password") && !error.contains("secret"), "{error}");
    }
}
