//! Which repeats come to nothing on a connection that carries less than is sent ([`Effects::repeating`](crate::Effects::repeating)):
//! those of a sender who has something there that waits, or may not have been answered yet. They would be queued behind what they
//! repeat, and soon the line would carry nothing else.

use crate::{Instant, Span, Urgency};
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// How long an answer to what has left may take at least, before that is sent again where much is sent; and at most.
const GRACE: Span = Span::from_millis(300);
const GRACE_MAX: Span = Span::from_secs(5);
/// What waits no longer than this does not keep anybody from sending again: every peer takes in what is much a little later.
const BRIEF: Span = Span::from_millis(30);
/// ... unless it is so many bytes: a turn that has much to say may itself last longer than senders wait for answers.
const MUCH: usize = 1 << 20;

/// What a host knows of the queue of one connection. It says what comes into the queue and, at the end of each turn, how much
/// waits there, and asks about each repeat. A turn is what is done without looking at the clock. Messages leave in the order in
/// which they came, so that a count of bytes says which have left.
#[derive(Clone, Debug)]
pub struct Repeats<S> {
    /// Bytes that ever came.
    queued: u64,
    /// Since when some wait.
    since: Option<Instant>,
    /// Whether some have for more than a moment, ...
    slow: bool,
    /// ... or did so lately.
    waits: bool,
    until: Instant,
    turn: u64,
    senders: FxHashMap<S, Sender>,
    /// How long what has left may not be answered yet, ...
    grace: Span,
    /// ... until when none is given less, ...
    given: Instant,
    /// ... which is how long it took to leave: how much had come when it was begun to measure that, and when that was.
    measured: Option<(u64, Instant)>,
    /// How many had left at a time, and so long before that or earlier.
    left: (Instant, u64),
    left_before: u64,
}

/// How many bytes of a queue had come in all, ...
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// ... when it had sent its last message, ...
    sent: u64,
    /// ... the last of those that waited, ...
    last: u64,
    /// ... and the one behind which a repeat was dropped first.
    first: Option<u64>,
    /// The turn in which repeats passed, and how many had come before: others of that turn do too.
    passed: Option<(u64, u64)>,
}

impl Sender {
    /// What it has sent waits. What waited before, and has left, lets no repeat of this pass.
    fn waits(&mut self, queued: u64, left_before: u64) {
        if self.last <= left_before {
            self.first = None;
        }
        self.last = queued;
    }
}

impl<S> Default for Repeats<S> {
    fn default() -> Repeats<S> {
        Repeats {
            queued: 0,
            since: None,
            slow: false,
            waits: false,
            until: Instant::ZERO,
            turn: 0,
            senders: FxHashMap::default(),
            grace: GRACE,
            given: Instant::ZERO,
            measured: None,
            left: (Instant::ZERO, 0),
            left_before: 0,
        }
    }
}

impl<S: Eq + Hash> Repeats<S> {
    /// A message of so many bytes has come into the queue: one that a process sent, or one of the host's own, which is never
    /// repeated.
    pub fn queue(&mut self, sender: Option<S>, bytes: usize) {
        self.queued += bytes as u64;
        if let Some(sender) = sender {
            let sender = self.senders.entry(sender).or_default();
            sender.sent = self.queued;
            if self.slow {
                sender.waits(self.queued, self.left_before);
            }
        }
    }

    /// A turn ends at this time, and of what has come so many bytes wait.
    pub fn turn(&mut self, waiting: usize, now: Instant) {
        self.turn += 1;
        let left = self.queued - waiting as u64;
        self.since = if waiting > 0 { self.since.or(Some(now)) } else { None };
        if let Some((_, begun)) = self.measured.take_if(|(mark, _)| *mark <= left) {
            // Who needs so long to be told needs as long to answer, or to tell others: what is sent again for nothing would take as
            // long once more. What is small and left soon behind it says nothing of that.
            let took = now.since(begun).clamp(GRACE, GRACE_MAX);
            if took >= self.grace || now >= self.given {
                (self.grace, self.given) = (took, now + took * 2);
            }
            self.until = self.until.max(now + self.grace * 2);
        }
        if waiting > 0 {
            self.measured.get_or_insert((self.queued, now));
        }
        let slow = waiting >= MUCH || self.since.is_some_and(|since| now.since(since) >= BRIEF);
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

    /// The connection is lost, and with it all that has left and may not have come: nothing holds a repeat up.
    pub fn lose(&mut self) {
        (self.since, self.slow, self.waits) = (None, false, false);
        (self.until, self.grace, self.given, self.measured) = (Instant::ZERO, GRACE, Instant::ZERO, None);
    }

    /// Whether a repeat of this sender comes to nothing: something that it has sent waits, or did and may not have been answered
    /// yet. Those of one turn pass, as long as they are small, when what they waited behind has left, though there be others by
    /// then.
    pub fn holds(&mut self, sender: S) -> bool {
        let Some(sender) = self.senders.get_mut(&sender) else { return false };
        if let Some((turn, before)) = sender.passed
            && turn == self.turn
            && self.queued - before < Urgency::SMALL as u64
        {
            return false;
        }
        let behind = self.waits && sender.last > self.left_before;
        let holds = behind && *sender.first.get_or_insert(sender.last) > self.left_before;
        if !holds {
            (sender.first, sender.passed) = (None, Some((self.turn, self.queued)));
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u8 = 7;
    /// Bytes of a message.
    const SIZE: usize = 100;

    /// The queue of a connection that is told of nine seconds after its host began.
    struct Queue {
        repeats: Repeats<u8>,
        now: Instant,
    }

    impl Queue {
        fn new() -> Queue {
            Queue { repeats: Repeats::default(), now: Instant::ZERO + Span::from_secs(9) }
        }

        /// Time passes, and a turn ends. All that has come waits, or has left.
        fn turn(&mut self, passes: Span, waits: bool) {
            self.now = self.now + passes;
            let waiting = if waits { self.repeats.queued as usize } else { 0 };
            self.repeats.turn(waiting, self.now);
        }

        /// Whether a repeat passes, which then is in the queue.
        fn repeats(&mut self, sender: u8) -> bool {
            let passes = !self.repeats.holds(sender);
            if passes {
                self.repeats.queue(Some(sender), SIZE);
            }
            passes
        }
    }

    #[test]
    fn who_has_something_there_repeats_nothing_until_it_has_left_and_was_not_answered() {
        let mut queue = Queue::new();
        queue.repeats.queue(Some(ME), SIZE);
        queue.repeats.queue(None, SIZE);
        queue.turn(Span::ZERO, true);
        queue.turn(BRIEF, true);
        assert!(!queue.repeats.holds(8), "who has nothing there repeats nothing");
        assert!(!queue.repeats(ME), "what it was sent before waits");
        queue.turn(Span::from_millis(100), false);
        assert!(!queue.repeats(ME), "it has left, and may be answered");
        (0..3).for_each(|_| queue.turn(GRACE, false));
        assert!(queue.repeats(ME), "and was not");
    }

    #[test]
    fn what_waits_for_a_moment_holds_nothing_up_and_repeats_of_one_turn_pass_together() {
        let mut queue = Queue::new();
        let mut turn = |waits: bool, passes: Span, repeats: usize| {
            queue.turn(passes, waits);
            (0..repeats).filter(|_| queue.repeats(ME)).count()
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
        let mut queue = Queue::new();
        let mut repeats = || {
            queue.repeats.queue(Some(ME), MUCH / 2);
            queue.turn(Span::ZERO, true);
            queue.repeats(ME)
        };
        assert!(repeats(), "a peer may be a moment late");
        assert!(!repeats());
    }

    #[test]
    fn what_took_long_to_leave_is_given_as_long_to_be_answered_but_not_where_the_connection_is_lost() {
        let mut queue = Queue::new();
        let tenth = Span::from_millis(100);
        let mut repeats = |waits: bool| {
            queue.turn(tenth, waits);
            queue.repeats(ME)
        };
        assert!(repeats(false), "nothing was said before");
        for _ in 1..30 {
            repeats(true);
        }
        // Three seconds on its way.
        for tenths in 30..60 {
            assert!(!repeats(false), "{tenths}");
        }
        assert!((60..100).any(|_| repeats(false)), "it is said again in the end");
        for _ in 0..30 {
            repeats(true);
        }
        assert!(!repeats(false));
        queue.repeats.lose();
        queue.turn(tenth, false);
        assert!(queue.repeats(ME), "it never came");
    }

    #[test]
    fn what_leaves_soon_behind_what_took_long_takes_no_time_from_it() {
        let mut queue = Queue::new();
        let tenth = Span::from_millis(100);
        queue.repeats.queue(Some(ME), SIZE);
        // Two seconds on its way, ...
        (0..20).for_each(|_| queue.turn(tenth, true));
        queue.turn(tenth, false);
        for tenths in 1..20 {
            // ... and behind it what others say waits for a turn each.
            queue.repeats.queue(Some(8), SIZE);
            queue.now = queue.now + tenth;
            queue.repeats.turn(SIZE, queue.now);
            assert!(!queue.repeats(ME), "{tenths}");
        }
        assert!((0..60).any(|_| {
            queue.turn(tenth, false);
            queue.repeats(ME)
        }));
        for _ in 0..3 {
            queue.repeats.queue(Some(8), SIZE);
            queue.repeats.turn(SIZE, queue.now);
            queue.turn(tenth, false);
        }
        assert_eq!(queue.repeats.grace, GRACE, "once its time is over, what took less counts");
    }

    #[test]
    fn what_was_held_and_answered_lets_no_repeat_of_the_next_pass() {
        let mut queue = Queue::new();
        let tenth = Span::from_millis(100);
        for _ in 0..3 {
            queue.repeats.queue(Some(ME), SIZE);
            for step in 0..20 {
                queue.now = queue.now + tenth;
                queue.repeats.turn(1, queue.now);
                assert!(step == 0 || !queue.repeats(ME), "{}", queue.now);
            }
            // It leaves, and is answered: nothing is said again.
            (0..200).for_each(|_| queue.turn(tenth, false));
        }
    }
}
