//! Gives a node an order over HTTP, once.
//!
//! Nodes take orders from their own machine only, so it is asked from loopback: an address of this machine is reached from there
//! whichever it is, and one of another machine is not, before the token has left in plain text.

use crate::output::say;
use crate::status::ask::{block, cause};
use crate::status::told::Told;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use isochrone_core::deployment::Address;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

/// A node that has not taken a connection for so long does not.
const PATIENCE: Duration = Duration::from_secs(5);
/// A page on which nothing depends comes within so long, or is left out.
const GLANCE: Duration = Duration::from_secs(2);
/// How often it is told that an order takes its time.
const EVERY: Duration = Duration::from_secs(5);
/// Nodes tell what an order has changed within so long.
const SETTLE: Duration = Duration::from_secs(3);
/// An orderly stop takes no longer; a service that does is killed by then.
const STOP: Duration = Duration::from_secs(30);
/// How long it is waited between two looks.
const BETWEEN: Duration = Duration::from_millis(20);
/// The largest answer that is read, bytes: a list of ranges, of thousands of partitions at most.
const ANSWER_MAX: usize = 16 << 20;

/// A node, and where it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) node: String,
    pub(super) http: Address,
}

/// What a node is told to do.
pub(super) struct Order {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: String,
    /// For how long an answer is waited for.
    pub(super) patience: Duration,
    /// The keys that move meanwhile, of which it is told how far they are.
    pub(super) moving: Option<Moving>,
}

/// Keys that move from one partition to another.
pub(super) struct Moving {
    pub(super) keyspace: String,
    pub(super) from: u16,
    pub(super) to: u16,
}

/// Why a node cannot be given an order: nothing was sent.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Unsent {
    /// It is on another machine.
    Elsewhere,
    /// Nobody listens there.
    Nobody,
    /// What the system says.
    Other(String),
}

/// What came of an order that was sent.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The node has answered so.
    Said(StatusCode, String),
    /// It has not: nobody knows whether it does what it was told.
    Lost(String),
}

/// An order that was sent.
pub(super) struct Given {
    pub(super) place: Place,
    pub(super) answer: Answer,
    pub(super) took: Duration,
}

/// How a node ends that was told to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Nobody listens any more.
    Gone,
    /// It runs anew.
    Again,
    /// It has not ended.
    Late,
}

/// Gives the order to the first of these that takes a connection, and to no other, whatever comes of it; or says why none does.
pub(super) fn give(
    places: &[Place],
    order: &Order,
    token: &HeaderValue,
) -> anyhow::Result<Result<Given, Vec<Unsent>>> {
    block(give_to_one(places, order, token))?
}

async fn give_to_one(
    places: &[Place],
    order: &Order,
    token: &HeaderValue,
) -> anyhow::Result<Result<Given, Vec<Unsent>>> {
    let mut unsent = Vec::with_capacity(places.len());
    for place in places {
        let request = request(order, &place.http, Some(token))?;
        match connect(&place.http).await {
            Ok(stream) => {
                let start = Instant::now();
                let answer = answer(stream, request, order, &place.http).await;
                return Ok(Ok(Given { place: place.clone(), answer, took: start.elapsed() }));
            }
            Err(why) => unsent.push(why),
        }
    }
    Ok(Err(unsent))
}

/// How this node tells that it stands, once that is as it should be; else as it tells after a while.
pub(super) fn settled(http: &Address, should: impl Fn(&Told) -> bool) -> anyhow::Result<Option<Told>> {
    block(async {
        let end = Instant::now() + SETTLE;
        loop {
            let told = told(http).await;
            if told.as_ref().is_some_and(&should) || Instant::now() >= end {
                return told;
            }
            sleep(BETWEEN).await;
        }
    })
}

/// Waits until a node has ended that was told to, and had run for so many seconds.
pub(super) fn ended(http: &Address, uptime_seconds: u64) -> anyhow::Result<End> {
    block(async {
        let end = Instant::now() + STOP;
        loop {
            // A page that does not come tells nothing: it may be that of a node which is ending.
            if connect(http).await.is_err_and(|why| why == Unsent::Nobody) {
                return End::Gone;
            }
            let told = told(http).await;
            if told.is_some_and(|told| !told.stopping && told.uptime_seconds < uptime_seconds) {
                return End::Again;
            }
            if Instant::now() >= end {
                return End::Late;
            }
            sleep(BETWEEN).await;
        }
    })
}

/// Waits for the answer, and tells meanwhile how far it is.
async fn answer(stream: TcpStream, request: Request<Full<Bytes>>, order: &Order, http: &Address) -> Answer {
    let start = Instant::now();
    let mut exchange = pin!(exchange(stream, request));
    loop {
        let left = order.patience.saturating_sub(start.elapsed());
        match timeout(EVERY.min(left), exchange.as_mut()).await {
            Ok(Ok((status, body))) => {
                return Answer::Said(status, String::from_utf8_lossy(&body).trim_end().to_owned());
            }
            Ok(Err(why)) => return Answer::Lost(why),
            Err(_) if start.elapsed() >= order.patience => {
                return Answer::Lost(format!("no answer within {} s", order.patience.as_secs()));
            }
            Err(_) => {
                if let Some(moving) = &order.moving {
                    let page = page(http, "/metrics").await.unwrap_or_default();
                    say(far(&String::from_utf8_lossy(&page), moving, start.elapsed()));
                }
            }
        }
    }
}

/// How far a move is, by a node's page of metrics.
fn far(page: &str, moving: &Moving, elapsed: Duration) -> String {
    let Moving { keyspace, from, to } = moving;
    let keys = |partition: &u16| {
        let series = format!(
            "isochrone_protocol_stands{{keyspace=\"{keyspace}\",partition=\"{partition}\",what=\"keys\"}} "
        );
        page.lines().find_map(|line| line.strip_prefix(&series)?.trim().parse::<u64>().ok())
    };
    let seconds = elapsed.as_secs();
    match (keys(from), keys(to)) {
        (Some(left), Some(there)) => {
            format!("{seconds} s: partition {from} has {left} keys, partition {to} has {there}")
        }
        (Some(left), None) => format!("{seconds} s: partition {from} has {left} keys"),
        (None, Some(there)) => format!("{seconds} s: partition {to} has {there} keys"),
        // The node has a replica of neither, or more series than fit on its page.
        (None, None) => format!("{seconds} s: it goes on"),
    }
}

/// How a node tells that it stands.
async fn told(http: &Address) -> Option<Told> {
    serde_json::from_slice(&page(http, "/status").await?).ok()
}

/// A page that is shown to everybody, where it comes soon.
async fn page(http: &Address, path: &str) -> Option<Bytes> {
    let order = Order {
        method: Method::GET,
        path: path.to_owned(),
        body: String::new(),
        patience: GLANCE,
        moving: None,
    };
    let request = request(&order, http, None).ok()?;
    let asked = async { exchange(connect(http).await.ok()?, request).await.ok() };
    match timeout(order.patience, asked).await {
        Ok(Some((StatusCode::OK, body))) => Some(body),
        _ => None,
    }
}

fn request(
    order: &Order,
    http: &Address,
    token: Option<&HeaderValue>,
) -> anyhow::Result<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(order.method.clone())
        .uri(order.path.as_str())
        .header(HOST, http.to_string())
        .header(CONNECTION, "close");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token.clone());
    }
    Ok(request.body(Full::new(Bytes::from(order.body.clone())))?)
}

async fn exchange(stream: TcpStream, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| cause(&error))?;
    // What goes wrong with it is told to whoever waits for the answer.
    drop(tokio::spawn(connection));
    let (head, body) = sender.send_request(request).await.map_err(|error| cause(&error))?.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| error.to_string())?;
    Ok((head.status, body.to_bytes()))
}

async fn connect(http: &Address) -> Result<TcpStream, Unsent> {
    let connect = async { connect_to_any(lookup_host((http.host(), http.port())).await?).await };
    match timeout(PATIENCE, connect).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(cause)) => Err(unsent(&cause)),
        Err(_) => Err(Unsent::Other(format!("no connection within {} s", PATIENCE.as_secs()))),
    }
}

async fn connect_to_any(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match connect_to(address).await {
            Ok(stream) => return Ok(stream),
            // Where nobody listens at one of them, it is this machine, and others may be none of it.
            Err(cause) if failed.kind() != io::ErrorKind::ConnectionRefused => failed = cause,
            Err(_) => {}
        }
    }
    Err(failed)
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let (socket, here) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, SocketAddr::from((Ipv6Addr::LOCALHOST, 0))),
    };
    socket.bind(here)?;
    socket.connect(address).await
}

fn unsent(cause: &io::Error) -> Unsent {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, InvalidInput, NetworkUnreachable,
    };
    match cause.kind() {
        ConnectionRefused => Unsent::Nobody,
        // What systems say of a way from loopback to another machine; Linux calls the address invalid.
        InvalidInput | AddrNotAvailable | NetworkUnreachable | HostUnreachable => Unsent::Elsewhere,
        _ => Unsent::Other(cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn place(port: u16) -> Place {
        Place { node: "n".to_owned(), http: Address::loopback(port) }
    }

    fn order() -> Order {
        Order {
            method: Method::POST,
            path: "/admin/move-leader".to_owned(),
            body: "{}".to_owned(),
            patience: Duration::from_secs(10),
            moving: None,
        }
    }

    fn token() -> HeaderValue {
        HeaderValue::from_static("Bearer secret")
    }

    /// Takes one connection, reads a request to the end of its body and says this; the request.
    fn node(says: &'static str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = Vec::new();
            let mut byte = [0];
            while !heard.ends_with(b"\r\n\r\n{}") {
                stream.read_exact(&mut byte).unwrap();
                heard.push(byte[0]);
            }
            stream.write_all(says.as_bytes()).unwrap();
            String::from_utf8(heard).unwrap()
        });
        (port, heard)
    }

    /// A port of this machine on which nobody listens.
    fn nobody() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn who_takes_no_connection_is_passed_over_and_one_alone_is_given_the_order() {
        let (port, heard) = node("HTTP/1.1 409 Conflict\r\ncontent-length: 5\r\n\r\nnone\n");
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        let places = [place(nobody()), place(port), place(other.local_addr().unwrap().port())];
        let given = give(&places, &order(), &token()).unwrap().unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(given.answer, Answer::Said(StatusCode::CONFLICT, "none".to_owned()));
        assert_eq!(given.place, places[1]);
        let heard = heard.join().unwrap();
        assert!(heard.starts_with("POST /admin/move-leader HTTP/1.1\r\n"), "{heard}");
        assert!(heard.contains("authorization: Bearer secret\r\n"), "{heard}");
        assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "it was asked as well");
    }

    #[test]
    fn an_order_whose_answer_is_lost_is_given_to_nobody_else() {
        let (port, heard) = node("");
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        let places = [place(port), place(other.local_addr().unwrap().port())];
        let given = give(&places, &order(), &token()).unwrap().unwrap_or_else(|why| panic!("{why:?}"));
        assert!(matches!(given.answer, Answer::Lost(_)), "{:?}", given.answer);
        heard.join().unwrap();
        assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "it was asked as well");
    }

    #[test]
    fn another_machine_is_given_nothing() {
        // An address that is nobody's, and reserved for texts.
        let elsewhere = Place { node: "far".to_owned(), http: Address::parse("192.0.2.200:9000").unwrap() };
        let unsent = give(&[elsewhere, place(nobody())], &order(), &token()).unwrap().err();
        assert_eq!(unsent, Some(vec![Unsent::Elsewhere, Unsent::Nobody]));
    }

    /// Such as `localhost` where the system has no IPv6.
    #[test]
    fn a_name_of_several_addresses_is_of_this_machine_where_one_of_them_is() {
        let (here, elsewhere) =
            (SocketAddr::from((Ipv4Addr::LOCALHOST, nobody())), "192.0.2.200:9000".parse().unwrap());
        for addresses in [[here, elsewhere], [elsewhere, here]] {
            let cause = block(connect_to_any(addresses.into_iter())).unwrap().unwrap_err();
            assert_eq!(unsent(&cause), Unsent::Nobody, "{addresses:?}: {cause}");
        }
    }

    #[test]
    fn how_far_a_move_is_stands_on_the_page_of_metrics() {
        let page = "isochrone_protocol_stands{keyspace=\"main\",partition=\"0\",what=\"keys\"} 44415\n\
                    isochrone_protocol_stands{keyspace=\"main\",partition=\"2\",what=\"keys_expired\"} 7\n\
                    isochrone_protocol_stands{keyspace=\"main\",partition=\"2\",what=\"keys\"} 55175\n";
        let far = |keyspace: &str, from, to| {
            far(page, &Moving { keyspace: keyspace.to_owned(), from, to }, Duration::from_secs(5))
        };
        assert_eq!(far("main", 2, 0), "5 s: partition 2 has 55175 keys, partition 0 has 44415");
        assert_eq!(far("main", 2, 1), "5 s: partition 2 has 55175 keys");
        assert_eq!(far("main", 1, 2), "5 s: partition 2 has 55175 keys");
        assert_eq!(far("other", 2, 0), "5 s: it goes on");
    }
}
