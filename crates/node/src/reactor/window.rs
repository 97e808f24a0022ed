//! How many commands of a keyspace a node has under way at once. What is more waits unread in the sockets of clients,
//! where it costs nothing: inside, it would stand in the way of votes and signs of life, be asked for again because nobody
//! has answered, and be told as unknown in the end, so that the more is asked the less is done.

use isochrone_core::{Instant, Span};

/// Fewer are never too many, or what [`SLOWEST`] would have under way, if that is less.
const LEAST: usize = 2_048;
/// No node is taken for slower than this, in commands a second.
const SLOWEST: f64 = 8_192.0;
/// By how much the wait for others may lengthen the way of a command, beyond [`ROUNDS`] round trips.
const WAIT: Span = Span::from_millis(250);
/// The same where commands are transactions: those that meet others under way are aborted and tried again, or read the
/// directory anew, so that the more wait the less is done.
const WAIT_OF_TRANSACTIONS: Span = Span::from_millis(20);
/// Round trips to the farthest node that a command may take.
const ROUNDS: u64 = 3;
/// Over how long it is counted what is carried out.
const MEMORY: Span = Span::from_secs(1);

/// The commands of one keyspace under way: as many as are carried out while one of them may take.
pub(crate) struct Window {
    under_way: usize,
    room: usize,
    least: usize,
    /// How long one may take.
    stay: Span,
    looked: Instant,
    carried_out: u64,
    per_second: f64,
}

impl Window {
    /// Of a node whose farthest peer is this round trip away, and whose commands there may be transactions.
    pub(crate) fn new(round_trip: Span, transacts: bool) -> Window {
        let wait = if transacts { WAIT_OF_TRANSACTIONS } else { WAIT };
        let stay = round_trip * ROUNDS + wait;
        let least = LEAST.min((SLOWEST * stay.as_secs_f64()) as usize);
        let (looked, carried_out, per_second) = (Instant::ZERO, 0, 0.0);
        Window { under_way: 0, room: least, least, stay, looked, carried_out, per_second }
    }

    pub(crate) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// One is under way no more.
    pub(crate) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// One was carried out. What is refused is refused at once, and says nothing of how many can be.
    pub(crate) fn carried_out(&mut self) {
        self.carried_out += 1;
    }

    /// Whether more may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.under_way < self.room
    }

    /// So many may be under way.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Time has passed.
    pub(crate) fn look(&mut self, now: Instant) {
        let past = now.since(self.looked);
        if past == Span::ZERO {
            return;
        }
        let latest = self.carried_out as f64 / past.as_secs_f64();
        let share = (past.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        self.per_second += (latest - self.per_second) * share;
        (self.looked, self.carried_out) = (now, 0);
        self.room = self.least.max((self.per_second * self.stay.as_secs_f64()) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a cluster that answers so many a second, each after a while at least, asked by whoever has room: the commands under
    /// way and how long the last one took, after a minute.
    fn settled(round_trip: Span, per_second: f64, least: Span) -> (usize, f64) {
        let (mut window, mut waiting) = (Window::new(round_trip, false), std::collections::VecDeque::new());
        let (mut took, mut credit) = (0.0, 0.0);
        for step in 0..60_000 {
            let now = Instant::from_nanos(step * 1_000_000);
            credit = (credit + per_second / 1_000.0).min(per_second);
            while let Some(asked) =
                waiting.front().copied().filter(|asked| *asked + least <= now && credit >= 1.0)
            {
                credit -= 1.0;
                took = now.since(asked).as_secs_f64();
                waiting.pop_front();
                window.end();
                window.carried_out();
            }
            while window.has_room() {
                waiting.push_back(now);
                window.begin();
            }
            if step % 100 == 0 {
                window.look(now);
            }
        }
        (waiting.len(), took)
    }

    #[test]
    fn what_is_under_way_waits_for_others_a_quarter_of_a_second_at_most() {
        let (under_way, took) = settled(Span::from_millis(1), 50_000.0, Span::from_millis(1));
        assert!((0.2..0.3).contains(&took), "{took} s, {under_way}");
        // A few are let in however slow it is.
        assert_eq!(settled(Span::from_millis(1), 100.0, Span::from_millis(1)).0, LEAST);
    }

    #[test]
    fn what_is_refused_makes_no_room() {
        let mut window = Window::new(Span::from_millis(1), false);
        for step in 1..100 {
            for _ in 0..100_000 {
                window.begin();
                window.end();
            }
            window.look(Instant::from_nanos(step * 100_000_000));
        }
        assert_eq!(window.room(), LEAST);
    }

    #[test]
    fn transactions_wait_for_fewer_others_and_no_shorter_for_distances() {
        let room = |round_trip| Window::new(Span::from_millis(round_trip), true).room();
        assert_eq!((room(0), room(10), room(100)), (163, 409, LEAST));
    }

    #[test]
    fn a_distance_is_no_wait() {
        // All that 50,000 a second need over 300 ms, though it begins with few.
        let (under_way, took) = settled(Span::from_millis(300), 50_000.0, Span::from_millis(300));
        assert!(under_way > 15_000, "{under_way}");
        assert!(took < 1.3, "{took} s");
    }
}
