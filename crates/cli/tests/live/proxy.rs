//! A wire between two nodes that can be cut. Each direction between two nodes that one of them dials has its own.

use super::processes::Addresses;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Wires between these nodes: `[from][to]` is the one by which one dials another.
pub fn between(nodes: &[Addresses], wire: impl Fn(SocketAddr) -> Proxy) -> Vec<Vec<Option<Proxy>>> {
    let all = 0..nodes.len();
    let from = |from| all.clone().map(|to| (from != to).then(|| wire(nodes[to].listen))).collect();
    all.clone().map(from).collect()
}

/// The nodes as one sees them that has these wires: the others stand behind them.
pub fn seen(nodes: &[Addresses], wires: &[Option<Proxy>]) -> Vec<Addresses> {
    let behind = |(real, wire): (&Addresses, &Option<Proxy>)| match wire {
        Some(wire) => Addresses { listen: wire.address(), ..real.clone() },
        None => real.clone(),
    };
    nodes.iter().zip(wires).map(behind).collect()
}

/// How a wire is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wire {
    /// Bytes pass.
    Whole = 0,
    /// Connections break, and new ones with them.
    Broken = 1,
    /// Bytes vanish, and nobody is told.
    Silent = 2,
}

/// Forwards connections to one address. It lives as long as the test.
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<AtomicU8>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// To this address.
    pub fn to(target: SocketAddr) -> Proxy {
        Proxy::build(target, None)
    }

    /// The same; it carries so many bytes a second.
    pub fn slow(target: SocketAddr, bytes: u32) -> Proxy {
        Proxy::build(target, Some(bytes))
    }

    fn build(target: SocketAddr, rate: Option<u32>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        if let Some(rate) = rate {
            // What has come in, nothing overtakes any more.
            let most = (rate as usize / 30).clamp(4 << 10, 64 << 10);
            SockRef::from(&listener).set_recv_buffer_size(most).expect("a listener has a buffer");
        }
        let address = listener.local_addr().expect("it is bound");
        let (wire, open) = (Arc::new(AtomicU8::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (flag, list) = (Arc::clone(&wire), Arc::clone(&open));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if flag.load(Ordering::SeqCst) == Wire::Broken as u8 {
                    continue;
                }
                let Ok(onward) = TcpStream::connect(target) else { continue };
                let _ = (socket.set_nodelay(true), onward.set_nodelay(true));
                for (from, to) in [(&socket, &onward), (&onward, &socket)] {
                    let (from, to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
                    let flag = Arc::clone(&flag);
                    thread::spawn(move || carry(from, to, &flag, rate));
                }
                let mut list = list.lock().expect("nobody panics holding it");
                list.extend([socket, onward]);
            }
        });
        Proxy { address, wire, open }
    }

    /// Where to dial.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the wire. What was silent breaks when it is whole again: bytes are missing from it.
    pub fn set(&self, wire: Wire) {
        let before = self.wire.swap(wire as u8, Ordering::SeqCst);
        if wire == Wire::Broken || (before == Wire::Silent as u8 && wire == Wire::Whole) {
            for socket in self.open.lock().expect("nobody panics holding it").drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

/// So much of what sleeps took too long is made up for.
const SLACK: Duration = Duration::from_millis(20);

fn carry(mut from: TcpStream, mut to: TcpStream, wire: &AtomicU8, rate: Option<u32>) {
    let mut bytes = vec![0; rate.map_or(64 << 10, |rate| (rate as usize / 60).clamp(1 << 10, 8 << 10))];
    // When the line is free again: what a sleep takes beyond its time is made up for, or a line would carry much less than its rate.
    let mut free = Instant::now();
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(rate) = rate {
            free = free.max(Instant::now() - SLACK) + Duration::from_secs_f64(count as f64 / f64::from(rate));
            thread::sleep(free.saturating_duration_since(Instant::now()));
        }
        if wire.load(Ordering::SeqCst) != Wire::Silent as u8 && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
