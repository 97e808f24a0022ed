//! Messages on their way to other nodes: encoded once, straight into the receiver's buffer, and dropped
//! where that is full, as a network may.

use crate::hub::News;
use crate::transport::frame;
use isochrone_core::wire::encode_into;
use isochrone_core::{Instant, NodeId, ProcessId, Random, Span, Urgency, Wire};
use rustc_hash::FxHashMap;

/// Bytes that may wait for one peer before what waits. They are small: so many wait only where nothing leaves.
const URGENT_BYTES: usize = 1 << 20;

/// How long an answer to what has left may take at least, before that is sent again where much is sent; and at most.
const GRACE: Span = Span::from_millis(300);
const GRACE_MAX: Span = Span::from_secs(5);
/// What waits no longer than this does not keep anybody from sending again: every peer takes in what is much a little later.
const BRIEF: Span = Span::from_millis(30);
/// ... unless it is so many bytes: a turn that has much to say may itself last longer than senders wait for answers.
const MUCH: usize = 1 << 20;

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
    /// Since when some do.
    since: Option<Instant>,
    /// Whether some have for more than a moment, ...
    slow: bool,
    /// ... or did so lately.
    waits: bool,
    until: Instant,
    /// How often it was told what waits: once for each turn of the shard.
    turn: u64,
    /// Bytes that ever came into `frames`.
    taken: u64,
    senders: FxHashMap<ProcessId, Sender>,
    /// How long what has left may not be answered yet, ...
    grace: Span,
    /// ... which is how long it took to leave: how much had been taken when it was begun to measure that, and when that was.
    measured: Option<(u64, Instant)>,
    /// How many had left at a time, and so long before that or earlier.
    left: (Instant, u64),
    left_before: u64,
    random: Random,
}

/// How many bytes of a queue had been taken in all, ...
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// ... when it had sent its last message, ...
    sent: u64,
    /// ... the last of those that waited, ...
    last: u64,
    /// ... and the one behind which a repeat was dropped first.
    first: Option<u64>,
    /// The turn in which repeats passed, and how much had been taken before: others of that turn do too.
    passed: Option<(u64, u64)>,
}

impl Sender {
    /// What it has sent waits. What waited before, and has left, lets no repeat of this pass.
    fn waits(&mut self, taken: u64, left_before: u64) {
        if self.last <= left_before {
            self.first = None;
        }
        self.last = taken;
    }
}

impl PeerQueue {
    /// What the link has taken out and could not send yet. Told at the end of each turn.
    pub fn wait(&mut self, bytes: usize, now: Instant) {
        self.turn += 1;
        self.waiting = bytes;
        let left = self.taken - self.frames.len() as u64 - bytes as u64;
        self.since = if bytes > 0 { self.since.or(Some(now)) } else { None };
        if let Some((_, begun)) = self.measured.take_if(|(mark, _)| *mark <= left) {
            // Who needs so long to be told needs as long to answer, or to tell others: what is sent again for nothing would take as
            // long once more.
            self.grace = now.since(begun).clamp(GRACE, GRACE_MAX);
            self.until = self.until.max(now + self.grace * 2);
        }
        if bytes > 0 {
            self.measured.get_or_insert((self.taken, now));
        }
        let slow = bytes >= MUCH || self.since.is_some_and(|since| now.since(since) >= BRIEF);
        if slow {
            if !std::mem::replace(&mut self.slow, true) {
                let behind = self.senders.values_mut().filter(|sender| sender.sent > left);
                behind.for_each(|sender| sender.waits(sender.sent, self.left_before));
            }
            self.until = self.until.max(now + self.grace * 2);
        }
        self.slow = slow;
        self.waits = now < self.until;
        if self.left.0 + self.grace <= now {
            self.left_before = self.left.1;
            self.left = (now, left);
        }
    }

    /// The link is lost, and with it all that has left and may not have come: nothing holds a repeat up.
    pub fn lose(&mut self) {
        (self.waiting, self.since, self.slow, self.waits) = (0, None, false, false);
        (self.until, self.grace, self.measured) = (Instant::ZERO, GRACE, None);
    }

    /// Whether a repeat of this process comes to nothing: something that it has sent waits, or did and may not have been answered
    /// yet. Those of one turn pass, as long as they are small, when what they waited behind has left, though there be others by
    /// then.
    fn holds(&mut self, process: ProcessId) -> bool {
        let Some(sender) = self.senders.get_mut(&process) else { return false };
        if let Some((turn, before)) = sender.passed
            && turn == self.turn
            && self.taken - before < Urgency::SMALL as u64
        {
            return false;
        }
        let behind = self.waits && sender.last > self.left_before;
        let holds = behind && *sender.first.get_or_insert(sender.last) > self.left_before;
        if !holds {
            (sender.first, sender.passed) = (None, Some((self.turn, self.taken)));
        }
        holds
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
            since: None,
            slow: false,
            waits: false,
            until: Instant::ZERO,
            turn: 0,
            taken: 0,
            senders: FxHashMap::default(),
            grace: GRACE,
            measured: None,
            left: (Instant::ZERO, 0),
            left_before: 0,
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

    /// Encodes news into the queue of every peer that has a link, or drops them, as messages are.
    pub fn tell(&mut self, news: &News) {
        for peer in self.peers.iter_mut().flatten() {
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
            peer.taken += (peer.frames.len() - begin) as u64;
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
        if urgency == Urgency::Repeat && peer.holds(from) {
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
            peer.taken += (frames.len() - begin) as u64;
            let sender = peer.senders.entry(from).or_default();
            sender.sent = peer.taken;
            if peer.slow {
                sender.waits(peer.taken, peer.left_before);
            }
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
    use isochrone_core::{KeyspaceId, PartitionId, Role};

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
    fn where_frames_wait_the_urgent_go_apart_and_repeats_are_dropped() {
        let (mut outgoing, to) = to_one();
        let mut now = Instant::ZERO + Span::from_secs(9);
        let mut queued = |from: u8, waiting, passes| {
            now = now + passes;
            outgoing.peer(NodeId(1)).unwrap().wait(waiting, now);
            now = now + BRIEF;
            outgoing.peer(NodeId(1)).unwrap().wait(waiting, now);
            for urgency in [Urgency::Ordinary, Urgency::Urgent, Urgency::Repeat] {
                outgoing.send(ProcessId { instance: from, ..to }, to, &7_u32, urgency);
            }
            let peer = outgoing.peer(NodeId(1)).unwrap();
            let lengths = (peer.frames.len(), peer.urgent.len(), peer.dropped_repeats);
            peer.frames.clear();
            peer.urgent.clear();
            lengths
        };
        let (all, ..) = queued(0, 0, Span::ZERO);
        let one = all / 3;
        assert_eq!(queued(0, all, Span::ZERO), (one, one, 1), "the link has what was taken out");
        let mut repeated = |from: u8, waiting, passes| {
            now = now + passes;
            let peer = outgoing.peer(NodeId(1)).unwrap();
            peer.wait(waiting, now);
            outgoing.send(ProcessId { instance: from, ..to }, to, &7_u32, Urgency::Repeat);
            let peer = outgoing.peer(NodeId(1)).unwrap();
            let repeated = peer.frames.len() == one;
            // What was let through leaves no trace.
            peer.taken -= peer.frames.len() as u64;
            peer.frames.clear();
            peer.senders.remove(&ProcessId { instance: 1, ..to });
            repeated
        };
        assert!(repeated(1, one, Span::ZERO), "who has nothing there repeats nothing");
        assert!(!repeated(0, one, Span::ZERO), "what it was sent before waits");
        assert!(!repeated(0, 0, Span::from_millis(100)), "it has left, and may be answered");
        for _ in 0..3 {
            repeated(1, 0, GRACE);
        }
        assert!(repeated(0, 0, Span::ZERO), "and was not");
    }

    #[test]
    fn what_waits_for_a_moment_holds_nothing_up_and_repeats_of_one_turn_pass_together() {
        let (mut outgoing, to) = to_one();
        let mut now = Instant::ZERO + Span::from_secs(9);
        // What it had sent has been taken out and waits, or has left.
        let mut turn = |waits: bool, passes: Span, repeats: usize| {
            now = now + passes;
            let peer = outgoing.peer(NodeId(1)).unwrap();
            peer.frames.clear();
            let waiting = if waits { peer.taken as usize } else { 0 };
            peer.wait(waiting, now);
            let dropped = peer.dropped_repeats;
            for _ in 0..repeats {
                outgoing.send(to, to, &7_u32, Urgency::Repeat);
            }
            repeats - (outgoing.peer(NodeId(1)).unwrap().dropped_repeats - dropped) as usize
        };
        assert_eq!(turn(false, Span::ZERO, 2), 2);
        assert_eq!(turn(true, BRIEF / 2, 2), 2, "a peer may be a moment late");
        assert_eq!(turn(true, BRIEF, 2), 0);
        for _ in 0..20 {
            assert_eq!(turn(true, GRACE, 2), 0, "it does not leave");
        }
        assert_eq!(turn(false, BRIEF, 2), 0, "it may be answered yet");
        turn(false, GRACE_MAX, 0);
        assert_eq!(turn(false, GRACE_MAX, 2), 2, "all that a timer sends again");
    }

    #[test]
    fn what_is_much_is_not_said_again_however_soon_its_sender_would() {
        let (mut outgoing, to) = to_one();
        let mut waiting = 0;
        let mut repeats = || {
            outgoing.send(to, to, &vec![7_u8; MUCH / 2], Urgency::Ordinary);
            let peer = outgoing.peer(NodeId(1)).unwrap();
            waiting += std::mem::take(&mut peer.frames).len();
            peer.wait(waiting, Instant::ZERO + Span::from_secs(9));
            outgoing.send(to, to, &7_u32, Urgency::Repeat);
            !outgoing.peer(NodeId(1)).unwrap().frames.is_empty()
        };
        assert!(repeats(), "a peer may be a moment late");
        assert!(!repeats());
    }

    #[test]
    fn what_took_long_to_leave_is_given_as_long_to_be_answered_but_not_where_the_link_is_lost() {
        let (mut outgoing, to) = to_one();
        let start = Instant::ZERO + Span::from_secs(9);
        let mut repeats = |tenths: u64, waits: bool, lost: bool| {
            let peer = outgoing.peer(NodeId(1)).unwrap();
            peer.frames.clear();
            let waiting = if waits { peer.taken as usize } else { 0 };
            if lost {
                peer.lose();
            }
            peer.wait(waiting, start + Span::from_millis(tenths * 100));
            outgoing.send(to, to, &7_u32, Urgency::Repeat);
            !outgoing.peer(NodeId(1)).unwrap().frames.is_empty()
        };
        assert!(repeats(0, false, false), "nothing was said before");
        for tenths in 1..30 {
            repeats(tenths, true, false);
        }
        // Three seconds on its way.
        for tenths in 30..60 {
            assert!(!repeats(tenths, false, false), "{tenths}");
        }
        let passes = (60..100).find(|tenths| repeats(*tenths, false, false));
        assert!(passes.is_some(), "it is said again in the end");
        for tenths in 101..130 {
            repeats(tenths, true, false);
        }
        assert!(!repeats(130, false, false));
        assert!(repeats(131, false, true), "it never came");
    }

    #[test]
    fn what_was_held_and_answered_lets_no_repeat_of_the_next_pass() {
        let (mut outgoing, to) = to_one();
        let mut now = Instant::ZERO + Span::from_secs(9);
        for _ in 0..3 {
            outgoing.send(to, to, &7_u32, Urgency::Ordinary);
            for step in 0..20 {
                now = now + Span::from_millis(100);
                let peer = outgoing.peer(NodeId(1)).unwrap();
                peer.frames.clear();
                peer.wait(1, now);
                if step > 0 {
                    outgoing.send(to, to, &7_u32, Urgency::Repeat);
                }
                assert!(outgoing.peer(NodeId(1)).unwrap().frames.is_empty(), "{now}");
            }
            // It leaves, and is answered: nothing is said again.
            for _ in 0..200 {
                now = now + Span::from_millis(100);
                let peer = outgoing.peer(NodeId(1)).unwrap();
                peer.frames.clear();
                peer.wait(0, now);
            }
        }
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
