//! The network: the node's own addresses, and the way to each of its peers.

use super::{Case, Check, median};
use crate::up::table::millis;
use isochrone_core::deployment::{Address, Node};
use isochrone_node::node::{StartError, bound};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long a name may take to be found, and a machine to answer.
const NAMED: Duration = Duration::from_secs(3);
const ANSWERED: Duration = Duration::from_secs(2);
/// How often each is asked, unless that takes this long.
const TRIES: usize = 5;
const LONGEST: Duration = Duration::from_secs(5);

/// A round trip may differ by this share from the file's, or by so many milliseconds.
const APART: (f64, f64) = (0.2, 2.0);

/// Whether the node can have the addresses that the file gives it.
pub(super) fn addresses(case: &Case) -> Vec<Check> {
    let (me, mut checks) = (case.node(), Vec::new());
    if me.peer.is_none() && case.deployment.nodes().len() > 1 {
        let advice = "give every node listen = \"HOST:PORT\"";
        checks.push(Check::fail("address listen", "none in the file for its peers", advice));
    }
    if me.redis.is_none() && me.grpc.is_none() {
        let advice = "give it redis = \"HOST:PORT\", or grpc";
        checks.push(Check::fail("address redis", "none in the file for clients", advice));
    }
    let mut places = vec![
        ("listen".to_owned(), "peers", me.peer.clone()),
        ("redis".to_owned(), "Redis clients", me.redis.clone()),
    ];
    for keyspace in case.deployment.keyspaces() {
        let own = keyspace.redis_port.zip(me.redis.as_ref());
        let own = own.and_then(|(port, redis)| Address::parse(&with_port(redis, port)).ok());
        let name = format!("redis_port of {}", keyspace.name);
        places.push((name, "Redis clients of one keyspace", own));
    }
    places.push(("grpc".to_owned(), "gRPC clients", me.grpc.clone()));
    places.push(("http".to_owned(), "HTTP", me.http.clone()));
    for (key, what, address) in places {
        let Some(address) = address else { continue };
        let name = format!("address {key}");
        checks.push(match bound((address.host(), address.port())).map(drop) {
            Ok(()) if case.runs() && !is_held(&address) => {
                let found = format!("the node runs, and nothing listens at {address}");
                let advice = "its name leads to another address than when the node started, or the node was started with another \
                              file: start it again";
                Check::warn(name, found, advice)
            }
            Ok(()) if case.runs() => Check::ok(name, format!("{address} is in use, and the node runs")),
            Ok(()) => Check::ok(name, format!("{address} can be had")),
            Err(cause) if cause.kind() == ErrorKind::AddrInUse && case.runs() => {
                Check::ok(name, format!("{address} is in use, and the node runs"))
            }
            Err(cause) => {
                Check::refused(name, StartError::Bind { address: address.to_string(), what, cause })
            }
        });
    }
    checks.extend(loopback(case));
    checks
}

/// Whether somebody listens at one of the addresses that this is here.
fn is_held(address: &Address) -> bool {
    addresses_of(address).iter().any(|at| {
        let held = bound((&at.ip().to_string(), at.port()));
        held.is_err_and(|cause| cause.kind() == ErrorKind::AddrInUse)
    })
}

/// What an address is here, nothing where its name is not known.
fn addresses_of(address: &Address) -> Vec<SocketAddr> {
    (address.host(), address.port()).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
}

/// Told of where `listen` is this machine's loopback and that of another node is not: Debian has a machine's own name at
/// 127.0.1.1, where no other machine reaches it.
fn loopback(case: &Case) -> Option<Check> {
    let local = |address: &Address| addresses_of(address).first().map(|at| at.ip().is_loopback());
    let own = case.node().peer.as_ref().filter(|address| local(address) == Some(true))?;
    let mut others = case.deployment.nodes().iter().filter(|node| node.id != case.me);
    let other = others.find(|node| node.peer.as_ref().and_then(local) == Some(false))?;
    let found = format!("{own} is this machine's loopback here, where {} does not reach it", other.name);
    let advice = "give the name this machine's own address in /etc/hosts, in place of 127.0.1.1 or the like, or write that \
                  address into the file, and start the node again";
    Some(Check::warn("listen on loopback", found, advice))
}

/// The same host at another port.
fn with_port(address: &Address, port: u16) -> String {
    match address.host() {
        host if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

/// What came of asking a machine.
#[derive(Debug)]
struct Way {
    /// Whether it is this one.
    here: bool,
    times: Vec<Duration>,
    /// Whether it said that nobody listens there.
    refused: bool,
    /// How often it did not answer.
    silent: usize,
}

/// Why a machine could not be asked.
#[derive(Debug)]
enum Lost {
    /// Its name leads to no address.
    Name(String),
    /// No address that it has answers.
    Way(String),
}

/// How long the way to each peer and back takes, by the first two packets of a connection.
pub(super) fn round_trips(case: &Case) -> Vec<Check> {
    let peers: Vec<&Node> = case.deployment.nodes().iter().filter(|node| node.id != case.me).collect();
    if peers.is_empty() {
        return Vec::new();
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let found = format!("cannot be measured: {cause}");
            return vec![Check::fail("round trips", found, "see what this machine has run out of")];
        }
    };
    let checks = runtime.block_on(async {
        let asked: Vec<_> =
            peers.iter().map(|peer| peer.peer.clone().map(|at| tokio::spawn(ask(at)))).collect();
        let mut checks = Vec::with_capacity(asked.len());
        for (peer, asked) in peers.into_iter().zip(asked) {
            checks.push(match (&peer.peer, asked) {
                (Some(address), Some(asked)) => {
                    let way = asked.await.unwrap_or_else(|error| Err(Lost::Way(error.to_string())));
                    judge(peer, address, says(case, peer), missed(case, peer), way)
                }
                _ => {
                    let advice = "give every node listen = \"HOST:PORT\"";
                    Check::fail(named(peer), "the file does not say where it is reached", advice)
                }
            });
        }
        checks
    });
    // A look-up of a name that hangs is left to itself.
    runtime.shutdown_background();
    checks
}

fn named(peer: &Node) -> String {
    format!("round trip to {}", peer.name)
}

/// What the file says of the way to a peer and back, milliseconds, if it says anything.
fn says(case: &Case, peer: &Node) -> Option<f64> {
    let Case { deployment, me, .. } = case;
    let given = deployment.network().given || deployment.node(*me).region == peer.region;
    given.then(|| (deployment.one_way(*me, peer.id) + deployment.one_way(peer.id, *me)).as_millis_f64())
}

/// Whether a peer is a member of a keyspace, for all that this node tells.
fn missed(case: &Case, peer: &Node) -> bool {
    let keyspaces = || case.told.iter().flat_map(|told| &told.keyspaces);
    let members = || keyspaces().flat_map(|keyspace| &keyspace.members);
    members().next().is_none() || members().any(|names| names.is_empty() || names.contains(&peer.name))
}

async fn ask(address: Address) -> Result<Way, Lost> {
    let host = address.host().to_owned();
    let found = match timeout(NAMED, lookup_host((host.clone(), address.port()))).await {
        Err(_) => {
            let why = format!("no name server says within {} s where {host} is", NAMED.as_secs());
            return Err(Lost::Name(why));
        }
        Ok(Err(cause)) => return Err(Lost::Name(format!("cannot find {host}: {cause}"))),
        Ok(Ok(found)) => found.collect::<Vec<_>>(),
    };
    let (begin, mut failed) = (Instant::now(), format!("{host} has no address"));
    // As the node does where a name has several.
    for address in found {
        if begin.elapsed() > LONGEST {
            break;
        }
        match connect(address, begin).await {
            Ok(way) => return Ok(way),
            Err(why) if address.ip().to_string() == host => failed = why,
            Err(why) => failed = format!("{address}: {why}"),
        }
    }
    Err(Lost::Way(failed))
}

async fn connect(address: SocketAddr, begin: Instant) -> Result<Way, String> {
    let mut way = Way { here: is_here(address), times: Vec::new(), refused: false, silent: 0 };
    for _ in 0..TRIES {
        // Another address of its name may answer.
        if begin.elapsed() > LONGEST || (way.times.is_empty() && way.silent == 2) {
            break;
        }
        let start = Instant::now();
        match timeout(ANSWERED, TcpStream::connect(address)).await {
            Ok(Ok(_)) => way.times.push(start.elapsed()),
            // It takes as long to be told so.
            Ok(Err(cause)) if cause.kind() == ErrorKind::ConnectionRefused => {
                way.times.push(start.elapsed());
                way.refused = true;
            }
            Ok(Err(cause)) if cause.kind() != ErrorKind::TimedOut => return Err(cause.to_string()),
            _ => way.silent += 1,
        }
    }
    if way.times.is_empty() { Err(format!("no answer within {} s", ANSWERED.as_secs())) } else { Ok(way) }
}

/// Whether an address is one of this machine: packets to it would be its own. None is sent.
fn is_here(address: SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        socket.local_addr()
    };
    address.ip().is_loopback() || from().is_ok_and(|from| from.ip() == address.ip())
}

/// Holds what was measured against what the file says, milliseconds.
fn judge(peer: &Node, address: &Address, says: Option<f64>, missed: bool, way: Result<Way, Lost>) -> Check {
    let (name, to) = (named(peer), &peer.name);
    let Way { here, times, refused, silent } = match way {
        Ok(way) => way,
        Err(lost) => {
            let (why, advice) = match lost {
                Lost::Name(why) => {
                    let advice = format!(
                        "see whether this machine's resolver answers (`getent hosts {}`); or correct the name in the \
                         deployment file",
                        address.host()
                    );
                    (why, advice)
                }
                Lost::Way(why) => {
                    let advice = format!(
                        "see that the machine of {to} is up, that `listen` is right in the file, and that firewalls let \
                         TCP port {} through",
                        address.port()
                    );
                    (why, advice)
                }
            };
            let found = format!("cannot be reached at {address}: {why}");
            return match missed {
                true => Check::fail(name, found, advice),
                false => {
                    let found = format!("{found}; it is a member of no keyspace");
                    Check::warn(name, found, format!("right where {to} was removed for good; else {advice}"))
                }
            };
        }
    };
    let measured = median(&times).as_secs_f64() * 1e3;
    let mut found = format!("{} ms", millis(Some(measured)));
    let mut advice = Vec::new();
    match says {
        None => found += "; the file gives none",
        Some(says) => {
            found += &format!(", {} in the file", millis(Some(says)));
            let apart = (measured - says).abs();
            if here {
                found += ", which cannot be compared: it is on this machine";
            } else if apart > APART.1 && apart > says * APART.0 {
                let right = "`isochrone plan` reckons with the file: correct its matrix, or see which way packets take";
                advice.push(right.to_owned());
            }
        }
    }
    if silent > 0 {
        found += &format!("; {silent} of {} tries went unanswered", silent + times.len());
        advice.push("packets are lost on the way".to_owned());
    }
    if refused {
        found += &format!("; no node listens at {address}");
        advice.push(format!(
            "right where {to} is not started yet; else see that it runs, and that no firewall refuses port {}",
            address.port()
        ));
    }
    if advice.is_empty() { Check::ok(name, found) } else { Check::warn(name, found, advice.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{case, three_at, three_nodes};
    use super::super::{Told, Verdict};
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;

    fn way(millis: &[u64]) -> Way {
        let times = millis.iter().map(|millis| Duration::from_millis(*millis)).collect();
        Way { here: false, times, refused: false, silent: 0 }
    }

    fn judged(says: Option<f64>, way: Result<Way, Lost>) -> (Verdict, String, String) {
        let deployment = three_nodes("");
        let (peer, address) = (&deployment.nodes()[1], Address::parse("10.1.0.1:7000").unwrap());
        let check = judge(peer, &address, says, true, way);
        assert_eq!(check.name, "round trip to or1");
        (check.verdict, check.found, check.advice.unwrap_or_default())
    }

    #[test]
    fn a_round_trip_is_told_where_it_is_off_by_a_fifth_and_two_milliseconds() {
        for (says, measured, verdict) in [
            (73.0, 73, Verdict::Ok),
            (73.0, 87, Verdict::Ok),
            (73.0, 88, Verdict::Warn),
            (73.0, 58, Verdict::Warn),
            (0.5, 2, Verdict::Ok),
            (0.5, 3, Verdict::Warn),
        ] {
            let (found, text, _) = judged(Some(says), Ok(way(&[measured, measured, 900])));
            assert_eq!(found, verdict, "{text}");
        }
        let (verdict, found, advice) = judged(Some(73.0), Ok(way(&[140])));
        assert_eq!((verdict, found.as_str()), (Verdict::Warn, "140.0 ms, 73.0 in the file"));
        assert!(advice.contains("isochrone plan"), "{advice}");
    }

    #[test]
    fn what_is_on_this_machine_or_not_in_the_file_is_not_compared() {
        let (verdict, found, _) = judged(Some(73.0), Ok(Way { here: true, ..way(&[0]) }));
        assert_eq!(
            (verdict, found.as_str()),
            (Verdict::Ok, "0.00 ms, 73.0 in the file, which cannot be compared: it is on this machine")
        );
        let (verdict, found, _) = judged(None, Ok(way(&[140])));
        assert_eq!((verdict, found.as_str()), (Verdict::Ok, "140.0 ms; the file gives none"));
    }

    #[test]
    fn who_refuses_answers_and_who_is_silent_fails() {
        let (verdict, found, advice) =
            judged(Some(73.0), Ok(Way { refused: true, silent: 2, ..way(&[73, 73, 73]) }));
        assert_eq!(
            (verdict, found.as_str()),
            (
                Verdict::Warn,
                "73.0 ms, 73.0 in the file; 2 of 5 tries went unanswered; no node listens at 10.1.0.1:7000"
            )
        );
        assert!(advice.contains("right where or1 is not started yet"), "{advice}");
        let (verdict, found, advice) = judged(Some(73.0), Err(Lost::Way("no answer within 2 s".to_owned())));
        assert_eq!(verdict, Verdict::Fail);
        assert_eq!(found, "cannot be reached at 10.1.0.1:7000: no answer within 2 s");
        assert!(advice.contains("TCP port 7000"), "{advice}");
        let (_, found, advice) = judged(Some(73.0), Err(Lost::Name("cannot find or1: no".to_owned())));
        assert_eq!(found, "cannot be reached at 10.1.0.1:7000: cannot find or1: no");
        assert!(advice.contains("`getent hosts 10.1.0.1`") && !advice.contains("firewall"), "{advice}");
    }

    #[test]
    fn who_is_a_member_of_nothing_may_be_gone() {
        let told = |members: Vec<Vec<&str>>| -> Option<Told> {
            let told = json!({"node": "va1", "keyspaces": [{"name": "main", "members": members}]});
            Some(serde_json::from_value(told).unwrap())
        };
        let missed = |told| {
            let case = case(three_nodes(""), told, None);
            missed(&case, &case.deployment.nodes()[1])
        };
        assert!(missed(None), "nothing is known");
        assert!(missed(told(vec![])));
        assert!(missed(told(vec![vec!["fr1", "va1"], vec![]])), "of one partition nothing is known");
        assert!(missed(told(vec![vec!["fr1", "va1"], vec!["or1"]])));
        assert!(!missed(told(vec![vec!["fr1", "va1"], vec!["fr1"]])));

        let deployment = three_nodes("");
        let (peer, address) = (&deployment.nodes()[1], Address::parse("10.1.0.1:7000").unwrap());
        let lost = Lost::Way("no answer within 2 s".to_owned());
        let check = judge(peer, &address, Some(73.0), false, Err(lost));
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(
            check.found.ends_with("no answer within 2 s; it is a member of no keyspace"),
            "{}",
            check.found
        );
        assert!(check.advice.unwrap().starts_with("right where or1 was removed for good; else see "));
        let way = Way { refused: true, ..way(&[73]) };
        assert_eq!(judge(peer, &address, Some(73.0), false, Ok(way)).verdict, Verdict::Warn);
    }

    #[test]
    fn a_node_that_runs_and_does_not_listen_where_its_name_leads_is_told_of() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        assert!(is_held(&address));
        drop(listener);
        assert!(!is_held(&address));
        // Debian's 127.0.1.1, or a file for one machine.
        let told = |hosts| loopback(&case(three_at(hosts, ""), None, None)).map(|check| check.found);
        assert_eq!(
            told(["127.0.1.1", "127.0.0.1", "10.2.0.1"]).unwrap(),
            "127.0.1.1:7000 is this machine's loopback here, where fr1 does not reach it"
        );
        assert_eq!(told(["127.0.0.1", "127.0.0.2", "127.0.0.3"]), None);
        assert_eq!(told(["10.0.0.1", "127.0.0.2", "10.2.0.1"]), None);
    }

    #[test]
    fn a_machine_answers_by_taking_a_connection_and_by_refusing_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(ask(Address::parse(&address.to_string()).unwrap())).unwrap()
        };
        let way = asked();
        assert_eq!((way.here, way.times.len(), way.refused, way.silent), (true, TRIES, false, 0));
        drop(listener);
        let way = asked();
        assert_eq!((way.here, way.times.len(), way.refused, way.silent), (true, TRIES, true, 0));
        assert!(!is_here("192.0.2.1:7000".parse().unwrap()), "an address for documents only");
    }
}
