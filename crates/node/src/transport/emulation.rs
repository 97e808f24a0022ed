//! The emulated wide area of a local cluster: one-way delay, jitter, loss and cuts for each ordered pair of
//! nodes, changeable while it runs. The sending side holds each flush back until it is due, so a link
//! stays first in first out as a connection does.

use isochrone_core::{NodeId, Span};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What happens to messages on the way from one node to another.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Delay {
    /// How long they travel.
    pub one_way: Span,
    /// How much longer, at most; all lengths up to it are equally likely.
    pub jitter: Span,
    /// The chance to be lost, from 0 to 1.
    pub loss: f64,
    /// Nothing arrives, and what is on its way is lost.
    pub cut: bool,
}

/// The delays of a cluster, shared by its nodes and whoever changes them. Reading costs an atomic load
/// unless something has changed.
#[derive(Clone)]
pub struct Emulation(Arc<Shared>);

struct Shared {
    nodes: usize,
    generation: AtomicU64,
    delays: RwLock<Vec<Delay>>,
}

impl Emulation {
    /// A cluster of this many nodes whose messages travel as `delay` says of sender and receiver.
    pub fn new(nodes: usize, mut delay: impl FnMut(NodeId, NodeId) -> Delay) -> Emulation {
        let mut delays = Vec::with_capacity(nodes * nodes);
        for from in 0..nodes {
            for to in 0..nodes {
                // A deployment has at most 2^16 nodes: they are numbered by u16.
                delays.push(delay(NodeId(from as u16), NodeId(to as u16)));
            }
        }
        Emulation(Arc::new(Shared { nodes, generation: AtomicU64::new(1), delays: RwLock::new(delays) }))
    }

    /// How many nodes it knows.
    pub fn nodes(&self) -> usize {
        self.0.nodes
    }

    /// The delay from one node to another; none where either is unknown.
    pub fn get(&self, from: NodeId, to: NodeId) -> Delay {
        let delays = self.0.delays.read().unwrap_or_else(PoisonError::into_inner);
        self.index(from, to).map_or(Delay::default(), |index| delays[index])
    }

    /// Changes the delay from one node to another.
    pub fn change(&self, from: NodeId, to: NodeId, change: impl FnOnce(&mut Delay)) {
        if let Some(index) = self.index(from, to) {
            let mut delays = self.0.delays.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut delays[index]);
            self.0.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Cuts (or restores) the way from one node to another, one direction only.
    pub fn cut(&self, from: NodeId, to: NodeId, cut: bool) {
        self.change(from, to, |delay| delay.cut = cut);
    }

    /// Cuts (or restores) every way to and from a node.
    pub fn isolate(&self, node: NodeId, cut: bool) {
        for other in (0..self.0.nodes).map(|other| NodeId(other as u16)).filter(|other| *other != node) {
            self.cut(node, other, cut);
            self.cut(other, node, cut);
        }
    }

    /// Whether a node is cut off from every other, both ways.
    pub fn isolated(&self, node: NodeId) -> bool {
        self.0.nodes > 1
            && (0..self.0.nodes)
                .map(|other| NodeId(other as u16))
                .filter(|other| *other != node)
                .all(|other| self.get(node, other).cut && self.get(other, node).cut)
    }

    /// Restores every way that was cut.
    pub fn heal(&self) {
        let mut delays = self.0.delays.write().unwrap_or_else(PoisonError::into_inner);
        delays.iter_mut().for_each(|delay| delay.cut = false);
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Rises with every change.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn index(&self, from: NodeId, to: NodeId) -> Option<usize> {
        let (from, to) = (usize::from(from.0), usize::from(to.0));
        (from < self.0.nodes && to < self.0.nodes).then_some(from * self.0.nodes + to)
    }
}
