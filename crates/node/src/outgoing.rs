//! Messages on their way to other nodes: encoded once, straight into the receiver's buffer, and dropped
//! where that is full, as a network may.

use crate::hub::News;
use crate::transport::frame;
use isochrone_core::wire::encode_into;
use isochrone_core::{Instant, NodeId, ProcessId, Random, Repeats, Urgency, Wire};

/// Bytes that may wait for one peer before what waits. They are small: so many wait only where nothing leaves.
const URGENT_BYTES: usize = 1 << 20;

/// The buffers of all peers, by node number.
#[derive(Default)]
pub struct Outgoing {
    peers: Vec<Option<PeerQueue>>,
    /// Those for whom messages wait, in the order of the first: what a process sends first is to leave first. Emptied by who
    /// takes them.
    pub order: Vec<NodeId>,
    /// Messages to nodes that are no peers.
    pub misaddressed: u64,
}

/// What waits for one peer since the last flush, and what became of the rest.
pub struct PeerQueue {
    /// Whole frames, one behind the other.
    pub frames: Vec<u8>,
    /// Those that go before what waits in the link.
    pub urgent: Vec<u8>,
    /// Bytes that earlier flushes have left in the link; set by its owner.
    pub backlog: usize,
    /// Whether the link takes anything at all; false while it waits to dial again.
    pub open: bool,
    /// The chance that a message is lost on purpose, where a network is emulated.
    pub loss: f64,
    /// Messages taken.
    pub sent: u64,
    /// Messages dropped because the queue was full.
    pub dropped_full: u64,
    /// Messages dropped because there was no link.
    pub dropped_closed: u64,
    /// Messages lost on purpose.
    pub dropped_emulated: u64,
    /// Messages dropped because they exceed a frame.
    pub dropped_large: u64,
    /// Messages dropped because they were sent before, and others wait.
    pub dropped_repeats: u64,
    queue_bytes: usize,
    frame_bytes: usize,
    /// Bytes of frames that wait in the link, as the peer takes them more slowly than they come.
    waiting: usize,
    repeats: Repeats<ProcessId>,
    random: Random,
}

impl PeerQueue {
    /// What the link has taken out and could not send yet. Told at the end of each turn, when it has taken out everything.
    pub fn wait(&mut self, bytes: usize, now: Instant) {
        self.waiting = bytes;
        self.repeats.turn(bytes, now);
    }

    /// The link is lost, and with it what waits.
    pub fn lose(&mut self) {
        self.waiting = 0;
        self.repeats.lose();
    }
}

impl Outgoing {
    /// Adds or replaces a peer, with the most bytes its queue and one frame may have.
    pub fn add(&mut self, node: NodeId, queue_bytes: usize, frame_bytes: usize, random: Random) {
        let index = usize::from(node.0);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        self.peers[index] = Some(PeerQueue {
            frames: Vec::new(),
            urgent: Vec::new(),
            backlog: 0,
            open: true,
            loss: 0.0,
            sent: 0,
            dropped_full: 0,
            dropped_closed: 0,
            dropped_emulated: 0,
            dropped_large: 0,
            dropped_repeats: 0,
            queue_bytes,
            frame_bytes,
            waiting: 0,
            repeats: Repeats::default(),
            random,
        });
    }

    /// Forgets a peer and what waits for it.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(usize::from(node.0)) {
            *peer = None;
        }
    }

    /// The queue of one peer.
    pub fn peer(&mut self, node: NodeId) -> Option<&mut PeerQueue> {
        self.peers.get_mut(usize::from(node.0))?.as_mut()
    }

    /// Encodes news into the queue of every peer that has a link and that they concern, or drops them, as messages are.
    pub fn tell(&mut self, news: &News, concerns: impl Fn(NodeId) -> bool) {
        for (node, peer) in (0..=u16::MAX).map(NodeId).zip(&mut self.peers) {
            let Some(peer) = peer.as_mut().filter(|_| concerns(node)) else { continue };
            let begin = peer.frames.len();
            let lost = peer.loss > 0.0 && peer.random.chance(peer.loss);
            if !peer.open || lost || begin + peer.backlog >= peer.queue_bytes {
                continue;
            }
            frame::news(&mut peer.frames, news);
            if peer.frames.len() - begin > peer.frame_bytes {
                peer.frames.truncate(begin);
            }
            frame::part(&mut peer.frames, begin);
            peer.repeats.queue(None, peer.frames.len() - begin);
        }
    }

    /// Encodes a message into its receiver's queue, or drops and counts it.
    pub fn send<M: Wire>(&mut self, from: ProcessId, to: ProcessId, message: &M, urgency: Urgency) {
        let Some(peer) = self.peers.get_mut(usize::from(to.node.0)).and_then(Option::as_mut) else {
            self.misaddressed += 1;
            return;
        };
        if !peer.open {
            peer.dropped_closed += 1;
            return;
        }
        if peer.loss > 0.0 && peer.random.chance(peer.loss) {
            peer.dropped_emulated += 1;
            return;
        }
        if urgency == Urgency::Repeat && peer.repeats.holds(from) {
            peer.dropped_repeats += 1;
            return;
        }
        let idle = peer.frames.is_empty() && peer.urgent.is_empty();
        let mut overtakes = peer.waiting > 0 && urgency == Urgency::Urgent;
        let (frames, full) = if overtakes {
            let full = peer.urgent.len() >= URGENT_BYTES;
            (&mut peer.urgent, full)
        } else {
            let full = peer.frames.len() + peer.backlog >= peer.queue_bytes;
            (&mut peer.frames, full)
        };
        if full {
            peer.dropped_full += 1;
            return;
        }
        let mut begin = frames.len();
        frame::message(frames, from, to, |out| encode_into(message, out));
        let size = frames.len() - begin;
        if size > peer.frame_bytes {
            frames.truncate(begin);
            peer.dropped_large += 1;
            tracing::error!(%from, %to, size, limit = peer.frame_bytes, "a message exceeds `peer_frame` of [limits] and was dropped");
            return;
        }
        let PeerQueue { frames, urgent, .. } = peer;
        if overtakes && size > Urgency::SMALL {
            // It would leave in parts, and these among those of another.
            frames.extend(urgent.drain(std::mem::replace(&mut begin, frames.len())..));
            overtakes = false;
        }
        if !overtakes {
            frame::part(frames, begin);
            peer.repeats.queue(Some(from), frames.len() - begin);
        }
        peer.sent += 1;
        if idle {
            self.order.push(to.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::notify::Flags;
    use isochrone_core::{KeyspaceId, PartitionId, Role, Span};

    /// A queue for one peer, and a process there.
    fn to_one() -> (Outgoing, ProcessId) {
        let mut outgoing = Outgoing::default();
        outgoing.add(NodeId(1), 1 << 20, 1 << 20, Random::seeded(1));
        let (keyspace, partition, role) = (KeyspaceId(1), PartitionId(0), Role(0));
        (outgoing, ProcessId { node: NodeId(1), keyspace, partition, role, instance: 0 })
    }

    #[test]
    fn who_is_sent_to_first_is_first_in_order() {
        let mut outgoing = Outgoing::default();
        for node in [1, 2, 3] {
            outgoing.add(NodeId(node), 1 << 10, 1 << 10, Random::seeded(1));
        }
        let of = |node| ProcessId {
            node: NodeId(node),
            keyspace: KeyspaceId(1),
            partition: PartitionId(0),
            role: Role(0),
            instance: 0,
        };
        for to in [3, 1, 3, 9] {
            outgoing.send(of(0), of(to), &7_u32, Urgency::Ordinary);
        }
        assert_eq!(outgoing.order, [NodeId(3), NodeId(1)]);
    }

    #[test]
    fn news_go_to_those_they_concern() {
        let mut outgoing = Outgoing::default();
        for node in [1, 2] {
            outgoing.add(NodeId(node), 1 << 10, 1 << 10, Random::seeded(1));
        }
        outgoing.tell(&News::Wants { classes: Flags::EXPIRED }, |node| node == NodeId(2));
        let told = [0, 1, 2, 3].map(|node| outgoing.peer(NodeId(node)).map(|peer| !peer.frames.is_empty()));
        assert_eq!(told, [None, Some(false), Some(true), None]);
    }

    #[test]
    fn where_frames_wait_the_urgent_go_apart_and_repeats_are_dropped_unless_the_link_is_lost() {
        let (mut outgoing, to) = to_one();
        let mut now = Instant::ZERO + Span::from_secs(9);
        let mut queued = |waiting, lost| {
            let peer = outgoing.peer(NodeId(1)).unwrap();
            // For longer than a moment.
            for _ in 0..2 {
                peer.wait(waiting, now);
                now = now + Span::from_millis(100);
            }
            if lost {
                peer.lose();
            }
            for urgency in [Urgency::Ordinary, Urgency::Urgent, Urgency::Repeat] {
                outgoing.send(to, to, &7_u32, urgency);
            }
            let peer = outgoing.peer(NodeId(1)).unwrap();
            let lengths = (peer.frames.len(), peer.urgent.len(), peer.dropped_repeats);
            peer.frames.clear();
            peer.urgent.clear();
            lengths
        };
        let (all, ..) = queued(0, false);
        let one = all / 3;
        assert_eq!(queued(all, false), (one, one, 1), "the link has what was taken out");
        assert_eq!(queued(all, true), (all, 0, 1), "nothing waits");
    }

    #[test]
    fn what_is_urgent_and_large_waits_in_parts_like_others() {
        let (mut outgoing, to) = to_one();
        outgoing.send(to, to, &7_u32, Urgency::Ordinary);
        let peer = outgoing.peer(NodeId(1)).unwrap();
        peer.frames.clear();
        peer.wait(1, Instant::ZERO);
        let most = vec![7_u8; Urgency::SMALL - 64];
        outgoing.send(to, to, &most, Urgency::Urgent);
        let peer = outgoing.peer(NodeId(1)).unwrap();
        let urgent = peer.urgent.len();
        assert_eq!(frame::whole(&peer.urgent, usize::MAX), urgent);
        assert!(urgent > most.len() && peer.frames.is_empty());
        outgoing.send(to, to, &vec![7_u8; Urgency::SMALL], Urgency::Urgent);
        let peer = outgoing.peer(NodeId(1)).unwrap();
        assert_eq!(peer.urgent.len(), urgent);
        assert!(frame::whole(&peer.frames, 1) < peer.frames.len(), "in parts");
    }
}
