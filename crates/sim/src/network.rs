//! The network between nodes.

use crate::fault::{FaultKind, Histogram};
use isochrone_core::{Instant, Random, Repeats, Span, Urgency};
use std::collections::VecDeque;

/// What is added to a one-way delay, drawn for each message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Jitter {
    /// Nothing: delays are exact.
    #[default]
    None,
    /// Anything up to this much, equally likely.
    Uniform(Span),
    /// Exponential with this mean: often little, now and then several times the mean.
    Exponential(Span),
    /// Heavy-tailed (Pareto, shape 2): half the messages get less than 0.41 of this scale, one in a
    /// hundred gets 9 of it, one in ten thousand 99.
    Pareto(Span),
}

impl Jitter {
    /// One draw, nanoseconds. Only operations that every machine rounds alike are used.
    pub(crate) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Jitter::None => 0,
            Jitter::Uniform(most) => random.below(most.as_nanos() + 1),
            Jitter::Exponential(mean) => (mean.as_nanos() as f64 * -ln(1.0 - random.unit())) as u64,
            Jitter::Pareto(scale) => {
                (scale.as_nanos() as f64 * (1.0 / (1.0 - random.unit()).sqrt() - 1.0)) as u64
            }
        }
    }
}

/// The natural logarithm of `x` in (0, 1], to about 1e-9. The library's may differ between machines,
/// and a trace may not.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1_023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1_023 << 52);
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let mut sum = 0.0;
    for odd in (0..10).rev() {
        sum = sum * square + 1.0 / f64::from(2 * odd + 1);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * ratio * sum
}

/// A delay that the caller decides: from node, to node, true time of sending (nanoseconds), randomness
/// to the one-way delay. For traces and schedules.
pub type DelayHook = Box<dyn FnMut(usize, usize, u64, &mut Random) -> Span + Send>;

/// One direction between two nodes.
#[derive(Clone, Debug, Default)]
struct Link {
    delay: u64,
    /// Arrival of the newest message of the connection.
    last: u64,
    /// The connection is broken until then, and what is sent is lost.
    down_until: u64,
    /// How many cuts lie on it.
    cuts: u32,
    /// Set while a cut lies on it that the connection survives: when that ends.
    held_until: u64,
    /// Added to every delay while a fault lasts.
    extra: u64,
}

/// What becomes of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// When it arrives, if it does.
    pub(crate) arrival: Option<u64>,
    /// When a double of it arrives, if one does.
    pub(crate) double: Option<u64>,
}

/// What was sent from one node to another and waits for the line, as a node's queue for that peer knows it.
#[derive(Clone, Debug, Default)]
struct Waiting {
    repeats: Repeats<u32>,
    /// When messages leave, and how long they are, oldest first.
    leaving: VecDeque<(u64, usize)>,
    bytes: usize,
    /// When the last turn began.
    turn: u64,
}

impl Waiting {
    /// A turn begins. What was sent in the last one waits from its end on; until now messages have left, and the node has had
    /// other turns.
    fn turn(&mut self, begins: u64) {
        /// How often it has one at least.
        const OFTEN: u64 = 10_000_000;
        if self.turn < begins {
            self.tell();
        }
        while self.turn < begins {
            let first = self.leaving.front().map_or(begins, |(leaves, _)| *leaves);
            self.turn = first.clamp(self.turn, begins.min(self.turn + OFTEN));
            while let Some((_, bytes)) = self.leaving.pop_front_if(|(leaves, _)| *leaves <= self.turn) {
                self.bytes -= bytes;
            }
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.repeats.turn(self.bytes, Instant::from_nanos(self.turn));
    }

    /// A message of so many bytes is sent at this time, which leaves then.
    fn send(&mut self, sender: u32, bytes: usize, at: u64, leaves: u64) {
        self.repeats.queue(Some(sender), bytes);
        let before = self.leaving.back().map(|(before, _)| *before);
        if before.is_some() || leaves > at {
            self.leaving.push_back((leaves.max(before.unwrap_or(0)), bytes));
            self.bytes += bytes;
        }
    }

    /// The connection is lost.
    fn lose(&mut self) {
        self.repeats.lose();
        self.leaving.clear();
        self.bytes = 0;
    }
}

/// The network: a matrix of links, and what is wrong with it at the moment.
pub(crate) struct Network {
    nodes: usize,
    links: Vec<Link>,
    jitter: Jitter,
    /// How many of a million messages are lost whether there are faults or not.
    pub(crate) steady_loss: u64,
    pub(crate) hook: Option<DelayHook>,
    /// Bytes a second that leave each node, 0 for no bound, and when its line is free again.
    rates: Vec<u64>,
    healthy_rate: u64,
    free: Vec<u64>,
    /// What waits on each link.
    waiting: Vec<Waiting>,
    shared: bool,
    /// Faults of the moment; probabilities a million.
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    /// While set, a message may be delayed by up to this much and connections do not keep order.
    pub(crate) disorder: u64,
    any_rate: bool,
    cuts: u32,
    random: Random,
}

impl Network {
    pub(crate) fn new(
        delays: &[Vec<Span>],
        jitter: Jitter,
        bandwidth: Option<u64>,
        shared: bool,
        random: Random,
    ) -> Network {
        let nodes = delays.len();
        let links = delays.iter().flatten();
        let links = links.map(|delay| Link { delay: delay.as_nanos(), ..Link::default() }).collect();
        let healthy_rate = bandwidth.unwrap_or(0);
        Network {
            nodes,
            links,
            jitter,
            steady_loss: 0,
            hook: None,
            rates: vec![healthy_rate; nodes],
            healthy_rate,
            free: vec![0; nodes],
            waiting: vec![Waiting::default(); nodes * nodes],
            shared,
            loss: 0,
            duplicate: 0,
            disorder: 0,
            any_rate: healthy_rate > 0,
            cuts: 0,
            random,
        }
    }

    /// Whether the size of messages matters now.
    pub(crate) fn weighs(&self) -> bool {
        self.any_rate
    }

    /// Sends `bytes` of a process from one node to another at time `at`, in a turn of the sender that began at `turn`.
    #[expect(clippy::too_many_arguments, reason = "what a message is to the network")]
    pub(crate) fn route(
        &mut self,
        sender: u32,
        from: usize,
        to: usize,
        turn: u64,
        at: u64,
        bytes: usize,
        urgency: Urgency,
        faults: &mut Histogram,
    ) -> Route {
        /// A backlog longer than this overflows the sender's queue, which drops.
        const BACKLOG: u64 = 2_000_000_000;
        /// What nobody overtakes any more, since the system has it: as much as a node leaves it of a fast line. Of a slow one it is less.
        const LEAVING: usize = 64 << 10;
        let index = from * self.nodes + to;
        let waiting = &mut self.waiting[index];
        let (mut leaves, mut overtakes, mut given) = (at, false, None);
        if self.rates[from] > 0 {
            waiting.turn(turn);
            let free = self.free[from].max(at);
            let system = transmission(LEAVING, self.rates[from]);
            overtakes = urgency == Urgency::Urgent && bytes <= Urgency::SMALL && free > at + system;
            let held = urgency == Urgency::Repeat && waiting.repeats.holds(sender);
            if !overtakes && (free - at > BACKLOG || held) {
                return Route::default();
            }
            let takes = transmission(bytes, self.rates[from]);
            leaves = if overtakes { at + system } else { free } + takes;
            self.free[from] = free + takes;
            if !overtakes {
                given = Some(leaves.saturating_sub(system));
            }
        }
        let link = &mut self.links[index];
        if link.cuts > 0 && link.held_until <= at {
            return Route::default();
        }
        if at < link.down_until {
            faults.add(FaultKind::Loss);
            return Route::default();
        }
        if self.steady_loss > 0 && self.random.below(1_000_000) < self.steady_loss {
            faults.add(FaultKind::Loss);
            return Route::default();
        }
        let delay = match &mut self.hook {
            Some(hook) => hook(from, to, at, &mut self.random).as_nanos(),
            None => link.delay,
        };
        let delay = delay + link.extra;
        if self.loss > 0 && self.random.below(1_000_000) < self.loss {
            faults.add(FaultKind::Loss);
            if self.disorder == 0 {
                // A connection has no gaps while it lasts: it ends here and comes back a round trip and a
                // drawn wait later. Its successor may overtake what is still under way on it.
                link.down_until = at + 2 * delay + self.random.below(100_000_000);
                link.last = 0;
                waiting.lose();
            }
            return Route::default();
        }
        if let Some(given) = given {
            waiting.send(sender, bytes, at, given);
        }
        if link.cuts > 0 {
            leaves = leaves.max(link.held_until);
        }
        let mut arrival = leaves + delay + self.jitter.draw(&mut self.random);
        if overtakes {
            // Neither waits for those before it nor do those behind it wait for it.
        } else if self.disorder > 0 {
            arrival += self.random.below(self.disorder);
            if arrival < link.last {
                faults.add(FaultKind::Reorder);
            }
            link.last = link.last.max(arrival);
        } else {
            arrival = arrival.max(link.last);
            link.last = arrival;
        }
        let mut double = None;
        if self.duplicate > 0 && self.random.below(1_000_000) < self.duplicate {
            faults.add(FaultKind::Duplicate);
            double = Some(arrival + self.random.below(2 * delay + 50_000_000));
        }
        Route { arrival: Some(arrival), double }
    }

    /// When the receiver's line has taken in a message that arrives now: later where one budget serves
    /// both directions.
    pub(crate) fn take_in(&mut self, to: usize, at: u64, bytes: usize) -> u64 {
        if !self.shared || self.rates[to] == 0 {
            return at;
        }
        self.free[to] = self.free[to].max(at) + transmission(bytes, self.rates[to]);
        self.free[to]
    }

    /// Whether one budget serves both directions of each node.
    pub(crate) fn shares(&self) -> bool {
        self.shared && self.any_rate
    }

    /// Whether a message that arrives now is lost to a cut.
    pub(crate) fn swallowed(&self, from: usize, to: usize, at: u64) -> bool {
        if self.cuts == 0 {
            return false;
        }
        let link = &self.links[from * self.nodes + to];
        link.cuts > 0 && link.held_until <= at
    }

    /// Lays a cut on one direction, or takes one off. With `held_until` the connection survives, and what
    /// is sent arrives after that time.
    pub(crate) fn cut(&mut self, from: usize, to: usize, on: bool, held_until: u64) {
        let index = from * self.nodes + to;
        let link = &mut self.links[index];
        if on {
            link.cuts += 1;
            self.cuts += 1;
            link.held_until = if held_until == 0 { 0 } else { link.held_until.max(held_until) };
            if held_until == 0 {
                self.waiting[index].lose();
            }
        } else {
            link.cuts -= 1;
            self.cuts -= 1;
            if link.cuts == 0 {
                if link.held_until == 0 {
                    link.last = 0;
                }
                link.held_until = 0;
            }
        }
    }

    /// Makes one direction slower by this much.
    pub(crate) fn delay(&mut self, from: usize, to: usize, extra: Span) {
        self.links[from * self.nodes + to].extra = extra.as_nanos();
    }

    /// Sets the bytes a second of a node's line; `None` for what it was at the start.
    pub(crate) fn throttle(&mut self, node: usize, rate: Option<u64>) {
        self.rates[node] = rate.unwrap_or(self.healthy_rate);
        self.any_rate = self.rates.iter().any(|rate| *rate > 0);
    }

    /// A node lost its connections.
    pub(crate) fn reset(&mut self, node: usize) {
        for other in 0..self.nodes {
            for index in [node * self.nodes + other, other * self.nodes + node] {
                self.links[index].last = 0;
                self.waiting[index].lose();
            }
        }
        self.free[node] = 0;
    }

    /// Everything works again.
    pub(crate) fn heal(&mut self) {
        for link in &mut self.links {
            (link.cuts, link.extra, link.held_until, link.down_until) = (0, 0, 0, 0);
        }
        (self.loss, self.duplicate, self.disorder, self.cuts) = (0, 0, 0, 0);
        for node in 0..self.nodes {
            self.throttle(node, None);
        }
    }
}

fn transmission(bytes: usize, rate: u64) -> u64 {
    (bytes as u64).saturating_mul(1_000_000_000) / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(jitter: Jitter, bandwidth: Option<u64>) -> Network {
        let delays = vec![vec![Span::from_millis(10); 2]; 2];
        Network::new(&delays, jitter, bandwidth, false, Random::seeded(1))
    }

    #[test]
    fn the_logarithm_is_right() {
        for x in [1e-12, 0.1, 0.5, 0.999_999, 1.0] {
            assert!((ln(x) - x.ln()).abs() < 1e-8, "ln({x}) = {}, not {}", ln(x), x.ln());
        }
    }

    #[test]
    fn jitter_has_the_mean_it_says() {
        let mut random = Random::seeded(3);
        let mean = |jitter: Jitter, random: &mut Random| {
            (0..20_000).map(|_| jitter.draw(random)).sum::<u64>() as f64 / 20_000.0
        };
        let span = Span::from_micros(100);
        assert!((mean(Jitter::Uniform(span), &mut random) - 50_000.0).abs() < 1_500.0);
        assert!((mean(Jitter::Exponential(span), &mut random) - 100_000.0).abs() < 3_000.0);
        assert!(mean(Jitter::Pareto(span), &mut random) > 70_000.0);
    }

    /// Sends from the first node to the second in a turn of its own; when that arrives.
    fn send(network: &mut Network, sender: u32, at: u64, bytes: usize, urgency: Urgency) -> Option<u64> {
        network.route(sender, 0, 1, at, at, bytes, urgency, &mut Histogram::default()).arrival
    }

    #[test]
    fn a_connection_keeps_order_and_a_loss_ends_it() {
        let mut network = network(Jitter::Uniform(Span::from_millis(9)), None);
        let mut last = 0;
        for at in 0..1_000 {
            let arrival = send(&mut network, 7, at * 1_000, 1, Urgency::Ordinary).unwrap();
            assert!(arrival >= last);
            last = arrival;
        }
        network.loss = 1_000_000;
        assert_eq!(send(&mut network, 7, 2_000_000, 1, Urgency::Ordinary), None);
        network.loss = 0;
        let broken = send(&mut network, 7, 3_000_000, 1, Urgency::Ordinary);
        assert_eq!(broken, None, "broken until it reconnects");
        assert!(send(&mut network, 7, 500_000_000, 1, Urgency::Ordinary).is_some());
    }

    #[test]
    fn a_steady_loss_leaves_the_connection_and_its_order_and_does_not_heal() {
        let mut network = network(Jitter::Uniform(Span::from_millis(9)), None);
        network.steady_loss = 300_000;
        let (mut last, mut arrived) = (0, 0);
        for at in 0..1_000 {
            if at == 500 {
                network.heal();
            }
            if let Some(arrival) = send(&mut network, 7, at * 1_000, 1, Urgency::Ordinary) {
                assert!(arrival >= last);
                (last, arrived) = (arrival, arrived + 1);
            }
        }
        assert!((600..800).contains(&arrived), "{arrived}");
    }

    #[test]
    fn a_line_sends_one_byte_after_the_other() {
        let mut network = network(Jitter::None, Some(1_000_000));
        let first = send(&mut network, 7, 0, 1_000, Urgency::Ordinary);
        let second = send(&mut network, 7, 0, 1_000, Urgency::Ordinary);
        assert_eq!((first, second), (Some(11_000_000), Some(12_000_000)));
    }

    #[test]
    fn on_a_full_line_the_urgent_overtake_and_repeats_are_dropped() {
        let mut network = network(Jitter::None, Some(1_000_000));
        let mut send = |sender, millis: u64, bytes, urgency| {
            send(&mut network, sender, millis * 1_000_000, bytes, urgency)
        };
        // Nothing waits: all in order.
        assert_eq!(send(7, 0, 1_000, Urgency::Repeat), Some(11_000_000));
        assert_eq!(send(7, 0, 1_000, Urgency::Urgent), Some(12_000_000));
        // A megabyte is on its way, of which 64 KiB cannot be overtaken any more.
        assert_eq!(send(7, 0, 1_000_000, Urgency::Ordinary), Some(1_012_000_000));
        assert_eq!(send(7, 0, 1_000, Urgency::Urgent), Some(10_000_000 + 65_536_000 + 1_000_000));
        // For longer than a moment.
        assert_eq!(send(7, 40, 1_000, Urgency::Repeat), None);
        assert_eq!(
            send(8, 40, 1_000, Urgency::Repeat),
            Some(1_014_000_000),
            "who has nothing there repeats nothing"
        );
        assert_eq!(send(7, 40, 1_000, Urgency::Ordinary), Some(1_015_000_000), "what overtook took its time");
        // It has gone, and may be answered yet; then no more, though there are others.
        assert_eq!(send(7, 1_300, 1_000_000, Urgency::Ordinary), Some(2_310_000_000));
        assert_eq!(send(7, 1_300, 1_000, Urgency::Repeat), None);
        let again = (131..300).find(|at| send(7, at * 10, 1_000, Urgency::Repeat).is_some()).unwrap() * 10;
        assert!((1_890..2_850).contains(&again), "as long as it took to leave, and twice at most: {again}");
        assert!(send(7, again, 1_000, Urgency::Repeat).is_some(), "in the same turn");
        assert_eq!(send(7, again + 10, 1_000, Urgency::Repeat), None);
    }

    /// As [`Repeats`] wants it, whether anything is asked meanwhile or not.
    #[test]
    fn what_took_long_to_leave_is_given_as_long_to_be_answered() {
        for often in [1_u64, 10] {
            let mut network = network(Jitter::None, Some(1_000_000));
            send(&mut network, 7, 0, 1_000_000, Urgency::Ordinary);
            // It leaves within 0.93 s, after which the system has the rest of it.
            let passes = (3..40_u64).find(|tenth| {
                let asks = tenth % often == 0;
                asks && send(&mut network, 7, tenth * 100_000_000, 1_000, Urgency::Repeat).is_some()
            });
            assert!(passes.is_some_and(|tenth| (19..=30).contains(&tenth)), "{passes:?}");
        }
    }

    #[test]
    fn what_waits_for_a_moment_holds_no_repeat_up() {
        let mut network = network(Jitter::None, Some(1_000_000));
        send(&mut network, 7, 0, 90_000, Urgency::Ordinary);
        assert!(send(&mut network, 7, 20_000_000, 1_000, Urgency::Repeat).is_some());
    }

    #[test]
    fn where_the_connection_is_lost_repeats_pass() {
        let breaks: [fn(&mut Network); 3] = [
            |network| {
                network.loss = 1_000_000;
                assert_eq!(send(network, 8, 100_000_000, 1_000, Urgency::Ordinary), None);
                network.loss = 0;
            },
            |network| {
                network.cut(0, 1, true, 0);
                assert_eq!(send(network, 7, 100_000_000, 1_000, Urgency::Ordinary), None);
                network.cut(0, 1, false, 0);
            },
            |network| network.reset(1),
        ];
        for breaks in breaks {
            let mut network = network(Jitter::None, Some(1_000_000));
            send(&mut network, 7, 0, 1_000_000, Urgency::Ordinary);
            assert_eq!(send(&mut network, 7, 100_000_000, 1_000, Urgency::Repeat), None);
            breaks(&mut network);
            assert!(send(&mut network, 7, 500_000_000, 1_000, Urgency::Repeat).is_some());
        }
    }
}
