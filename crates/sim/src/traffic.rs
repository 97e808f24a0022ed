//! What crosses the network, by kind of message.

use crate::flow::name_of;
use crate::trace::label;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Messages of one kind between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// How many were sent.
    pub messages: u64,
    /// How many of them to another region.
    pub across: u64,
    /// Their encoded size in all, without what a connection adds.
    pub bytes: u64,
}

/// Messages between nodes by kind: the name of each in the code, which the page of its protocol explains. Empty unless it
/// was asked for ([`Record::Traffic`](crate::Record::Traffic)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Traffic(BTreeMap<String, Load>);

impl Traffic {
    /// Counts a message.
    pub(crate) fn count(&mut self, message: &impl Debug, across: bool, bytes: usize) {
        let label = label(message);
        let name = name_of(&label);
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Load::default());
        }
        if let Some(load) = self.0.get_mut(name) {
            load.messages += 1;
            load.across += u64::from(across);
            load.bytes += bytes as u64;
        }
    }

    /// Adds what another run counted.
    pub fn merge(&mut self, other: &Traffic) {
        for (name, load) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            sum.messages += load.messages;
            sum.across += load.across;
            sum.bytes += load.bytes;
        }
    }

    /// The kinds by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Load)> {
        self.0.iter().map(|(name, load)| (name.as_str(), *load))
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    enum Message {
        Log(Inner),
        Order { epoch: u32, message: Inner },
        Tell { text: String },
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed")]
    enum Inner {
        Accept { slot: u64 },
        Ask(u64),
    }

    #[test]
    fn messages_go_by_their_innermost_name() {
        let mut traffic = Traffic::default();
        traffic.count(&Message::Log(Inner::Accept { slot: 1 }), true, 10);
        traffic.count(&Message::Log(Inner::Accept { slot: 2 }), false, 20);
        traffic.count(&Message::Order { epoch: 0, message: Inner::Ask(7) }, false, 5);
        traffic.count(&Message::Tell { text: "message: x".repeat(1 << 20) }, true, 1 << 20);
        let mut twice = traffic.clone();
        twice.merge(&traffic);
        let told: Vec<_> =
            twice.iter().map(|(name, load)| (name, load.messages, load.across, load.bytes)).collect();
        assert_eq!(told, [("Accept", 4, 2, 60), ("Ask", 2, 0, 10), ("Tell", 2, 2, 2 << 20)]);
    }
}
