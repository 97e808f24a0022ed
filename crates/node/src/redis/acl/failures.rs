//! Wrong passwords, counted by the network that they came from.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Wrong passwords from one network after which each further answer is delayed.
const FREE: u32 = 5;
/// Networks whose failures are remembered.
const TABLE: usize = 1024;

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Failures(BTreeMap<IpAddr, u32>);

impl Failures {
    /// One came from this address.
    pub(crate) fn add(&mut self, from: IpAddr) {
        let from = network(from);
        if self.0.len() >= TABLE && !self.0.contains_key(&from) {
            self.0.pop_first();
        }
        let failures = self.0.entry(from).or_default();
        *failures = failures.saturating_add(1);
    }

    /// Whether answers to logins from this address are delayed. Those to right ones too: if they came at once, no answer would
    /// say as soon that a password is wrong.
    pub(crate) fn delay(&self, from: IpAddr) -> bool {
        self.0.get(&network(from)).is_some_and(|failures| *failures >= FREE)
    }

    /// A right one came from this address.
    pub(crate) fn forgive(&mut self, from: IpAddr) {
        self.0.remove(&network(from));
    }

    /// Where many networks have failures, those of one are forgotten.
    pub(crate) fn fade(&mut self) {
        if self.0.len() > TABLE / 2 {
            self.0.pop_first();
        }
    }
}

/// The addresses that one customer of a network has at hand: of version 6, as many as share 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}
