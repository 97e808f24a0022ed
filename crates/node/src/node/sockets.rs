//! The sockets of a node. Those of clients have their addresses early, so that whoever starts a node twice learns it
//! before anything is read, and are listened at only once it serves: until then the system refuses clients, which go to
//! another node instead of waiting at this one.

use super::StartError;
use isochrone_core::NodeId;
use isochrone_core::deployment::{Address, Deployment};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

/// Connections that may wait to be accepted, unless the system allows fewer.
const BACKLOG: i32 = 4096;

/// The sockets of a node, bound before it starts so that whoever binds port 0 learns the port.
#[derive(Default)]
pub struct Sockets {
    /// For peers.
    pub peer: Option<TcpListener>,
    /// For clients. Where nobody listens yet, [`super::Node::start`] does.
    pub redis: Vec<TcpListener>,
    /// For gRPC clients, likewise.
    pub grpc: Option<TcpListener>,
    /// For metrics, health and administration.
    pub http: Option<TcpListener>,
}

impl Sockets {
    /// Binds what the deployment says of a node.
    ///
    /// # Errors
    /// An address is in use or not this machine's.
    pub fn bind(deployment: &Deployment, node: NodeId) -> Result<Sockets, StartError> {
        let node = deployment.node(node);
        let mut redis: Vec<_> = bind(&node.redis, "Redis clients", bound)?.into_iter().collect();
        if let Some(address) = &node.redis {
            for keyspace in deployment.keyspaces() {
                if let Some(port) = keyspace.redis_port {
                    let cause = |cause| {
                        let address = format!("{}:{port}", address.host());
                        StartError::Bind { address, what: "Redis clients of one keyspace", cause }
                    };
                    redis.push(bound((address.host(), port)).map_err(cause)?);
                }
            }
        }
        Ok(Sockets {
            peer: bind(&node.peer, "peers", TcpListener::bind)?,
            redis,
            grpc: bind(&node.grpc, "gRPC clients", bound)?,
            http: bind(&node.http, "HTTP", TcpListener::bind)?,
        })
    }

    /// Listens at the sockets of clients.
    pub(super) fn listen(&self) -> Result<(), StartError> {
        let redis = self.redis.iter().map(|socket| (socket, "Redis clients"));
        for (socket, what) in redis.chain(self.grpc.iter().map(|socket| (socket, "gRPC clients"))) {
            rustix::net::listen(socket, BACKLOG).map_err(|cause| StartError::Bind {
                address: socket.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string()),
                what,
                cause: cause.into(),
            })?;
        }
        Ok(())
    }
}

fn bind<'a>(
    address: &'a Option<Address>,
    what: &'static str,
    bind: impl FnOnce((&'a str, u16)) -> io::Result<TcpListener>,
) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |cause| StartError::Bind { address: address.to_string(), what, cause };
    bind((address.host(), address.port())).map(Some).map_err(failed)
}

/// A socket with this address that nobody listens at yet; of several addresses of a name, with the first that may be had.
///
/// # Errors
/// The address is in use, or not this machine's.
pub fn bound(address: (&str, u16)) -> io::Result<TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match bound_to(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn bound_to(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As the standard library does: connections of the node's last life, long over, must not keep its address from it.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_socket_that_is_bound_refuses_until_it_is_listened_at() {
        let socket = bound(("localhost", 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let sockets = Sockets { redis: vec![socket], ..Sockets::default() };
        sockets.listen().unwrap();
        TcpStream::connect(address).unwrap();
        let taken = bound((&*address.ip().to_string(), address.port())).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        // It may listen already: whoever bound it for another reason has begun.
        sockets.listen().unwrap();
    }
}
