//! What a client expects of the network: when a request will be where, and which way is the faster
//! (`specs/domino.md` 3.7, 3.8).

use super::message::Distance;
use super::parameters::{Estimate, Extra, Parameters, Way};
use isochrone_core::{DelayEstimate, Instant, ProcessId, Quorums, SignedSpan, Span, Stamp};

/// One replica as a client sees it.
#[derive(Clone, Hash, Debug)]
struct Target {
    process: ProcessId,
    estimate: DelayEstimate,
    /// What it last said that replication through it takes, and when it said so.
    latency: Option<Span>,
    answered: Option<Instant>,
    /// What another client of the region has measured, while it measures for this one.
    told: Option<(Span, SignedSpan)>,
}

/// Which way a request takes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Choice {
    /// To all replicas, with this stamp.
    Fast(u64),
    /// Through the lane of the replica of this number.
    Led(usize),
}

/// How much more rarely a client probes that was idle for long.
pub(super) const IDLE_FACTOR: u64 = 10;

/// What a client has measured of each replica, and what follows from it.
#[derive(Clone, Hash, Debug)]
pub struct Predictor {
    parameters: KnobsOf,
    targets: Vec<Target>,
    /// The way to the client that measures for this one.
    proxy: DelayEstimate,
    /// Whether the last request went the fast way.
    fast: Option<bool>,
    controller: Controller,
    /// Until then the fast way is not taken: it was slow too often.
    led_until: Instant,
    seen: u32,
    slow: u32,
}

type KnobsOf = crate::order::Knobs<Parameters>;

/// A feedback controller of the extra delay: it rises quickly while requests come late, and falls slowly while
/// none do. The source names it as future work (`specs/domino.md` 3.8).
#[derive(Clone, Hash, Debug, Default)]
struct Controller {
    extra: Span,
    on_time: u32,
}

/// The extra delay rises by this much for each late request at first.
const RAISE: Span = Span::from_millis(1);
/// It is never more than this.
const EXTRA_MAX: Span = Span::from_millis(100);
/// After so many requests on time it falls by a tenth: with it about one request in fifty is late when the
/// network is at its worst for the controller.
const LOWER_AFTER: u32 = 50;

impl Controller {
    fn outcome(&mut self, fast: bool) {
        if fast {
            self.on_time += 1;
            if self.on_time >= LOWER_AFTER {
                self.on_time = 0;
                self.extra = self.extra.saturating_sub(self.extra / 10);
                if self.extra < Span::from_micros(50) {
                    self.extra = Span::ZERO;
                }
            }
        } else {
            self.on_time = 0;
            self.extra = (self.extra + RAISE + self.extra / 4).min(EXTRA_MAX);
        }
    }
}

impl Predictor {
    /// Knows nothing yet of these replicas.
    pub fn new(parameters: Parameters, replicas: impl IntoIterator<Item = ProcessId>) -> Predictor {
        let mut predictor = Predictor {
            parameters: crate::order::Knobs(parameters),
            targets: Vec::new(),
            proxy: DelayEstimate::over(parameters.window),
            fast: None,
            controller: Controller::default(),
            led_until: Instant::ZERO,
            seen: 0,
            slow: 0,
        };
        predictor.follow(replicas);
        predictor
    }

    /// The replicas have changed: what was measured of those that stay is kept.
    pub fn follow(&mut self, replicas: impl IntoIterator<Item = ProcessId>) {
        let window = self.parameters.0.window;
        let mut known = std::mem::take(&mut self.targets);
        for process in replicas {
            let target = known.iter().position(|target| target.process == process);
            self.targets.push(match target {
                Some(at) => known.swap_remove(at),
                None => {
                    let estimate = DelayEstimate::over(window);
                    Target { process, estimate, latency: None, answered: None, told: None }
                }
            });
        }
    }

    /// An answered probe.
    pub fn probed(
        &mut self,
        from: ProcessId,
        now: Instant,
        sent: Stamp,
        received: Stamp,
        rtt: Span,
        latency: Option<Span>,
    ) {
        let Some(target) = self.targets.iter_mut().find(|target| target.process == from) else { return };
        target.estimate.sample(now, sent, received, rtt);
        (target.latency, target.answered) = (latency, Some(now));
    }

    /// What is told to a client that this one measures for, by seat.
    pub fn distances(&self, now: Instant) -> Vec<Option<Distance>> {
        let percentile = self.parameters.0.percentile;
        let distance = |target: &Target| {
            let fresh = self.is_fresh(target, now) && target.estimate.len() >= self.parameters.0.samples;
            let (round_trip, one_way) =
                (target.estimate.round_trip(percentile)?, target.estimate.one_way(percentile)?);
            fresh.then_some(Distance { round_trip, one_way, latency: target.latency })
        };
        self.targets.iter().map(distance).collect()
    }

    /// What the client that measures for this one has answered, after `rtt`: sent by the own wall clock, received by
    /// its. Its one-way delays begin at its clock, so the offset of the two is added.
    pub fn told(
        &mut self,
        now: Instant,
        sent: Stamp,
        received: Stamp,
        rtt: Span,
        distances: Vec<Option<Distance>>,
    ) {
        if distances.iter().flatten().count() < Quorums::majority(self.targets.len()) {
            // It is cut off, or has just begun: no better than silent.
            return;
        }
        self.proxy.sample(now, sent, received, rtt);
        // Both are known from here on. Half of a round trip within a region is far below 292 years.
        let (way, trip) = (self.proxy.one_way(50).unwrap_or(0), self.proxy.round_trip(50).unwrap_or(rtt));
        let offset = way.saturating_sub((trip / 2).as_nanos() as SignedSpan);
        for (target, distance) in self.targets.iter_mut().zip(distances) {
            target.told = distance.map(|told| (told.round_trip, told.one_way.saturating_add(offset)));
            if let Some(Distance { latency, .. }) = distance {
                (target.latency, target.answered) = (latency, Some(now));
            }
        }
    }

    /// Whether another client measures for this one; else it forgets what that has told.
    pub fn is_told(&mut self, now: Instant) -> bool {
        self.proxy.expire(now);
        let timeout = self.parameters.0.probe_timeout;
        let told = self.proxy.newest().is_some_and(|newest| now.since(newest) < timeout);
        if !told {
            self.targets.iter_mut().for_each(|target| target.told = None);
        }
        told
    }

    /// The predicted round trip to a replica; none where it is silent or not measured enough.
    pub fn round_trip(&self, seat: usize, now: Instant) -> Option<Span> {
        let target = self.live(seat, now)?;
        match target.told {
            Some((round_trip, _)) => Some(round_trip),
            None => target.estimate.round_trip(self.parameters.0.percentile),
        }
    }

    /// By how much a replica's clock at arrival is predicted to lie behind the own clock at sending.
    pub fn one_way(&self, seat: usize, now: Instant) -> Option<SignedSpan> {
        match self.parameters.0.estimate {
            Estimate::OneWay => {
                let target = self.live(seat, now)?;
                let told = target.told.map(|(_, one_way)| one_way);
                told.or_else(|| target.estimate.one_way(self.parameters.0.percentile))
            }
            // A round trip is far below the 292 years that fit.
            Estimate::HalfRoundTrip => Some((self.round_trip(seat, now)? / 2).as_nanos() as SignedSpan),
        }
    }

    /// What is added to stamps now.
    pub fn extra(&self) -> Span {
        match self.parameters.0.extra {
            Extra::Fixed(extra) => extra,
            Extra::Auto => self.controller.extra,
        }
    }

    /// How a fast request ended: by fast votes alone or not.
    pub fn outcome(&mut self, fast: bool, now: Instant) {
        self.controller.outcome(fast);
        self.seen += 1;
        self.slow += u32::from(!fast);
        let Parameters { slow_window, slow_threshold, slow_backoff, .. } = self.parameters.0;
        if self.seen >= slow_window {
            if self.slow * 100 > self.seen * slow_threshold {
                self.led_until = now + slow_backoff;
            }
            (self.seen, self.slow) = (0, 0);
        }
    }

    /// The replica whose lane is fastest, and how long it takes; none where nothing is measured.
    pub fn leader(&self, now: Instant) -> Option<(Span, usize)> {
        let through =
            |seat: usize| Some((self.round_trip(seat, now)? + self.targets.get(seat)?.latency?, seat));
        (0..self.targets.len()).filter_map(through).min()
    }

    /// The stamp at which a fast quorum should have a request sent now, and how long its commit takes.
    pub fn fast(&self, now: Instant, wall: Stamp) -> Option<(Span, u64)> {
        let (n, seats) = (self.targets.len(), 0..self.targets.len());
        let (quorum, majority) = (self.parameters.0.quorums(n).fast(), Quorums::majority(n));
        let prompt: Vec<usize> = seats.filter(|seat| self.is_prompt(*seat, now)).collect();
        let mut trips: Vec<Span> = prompt.iter().filter_map(|seat| self.round_trip(*seat, now)).collect();
        let mut ways: Vec<SignedSpan> = prompt.iter().filter_map(|seat| self.one_way(*seat, now)).collect();
        trips.sort_unstable();
        ways.sort_unstable();
        let (trip, way) = (*trips.get(quorum - 1)?, *ways.get(quorum - 1)?);
        // A clock far ahead of most would put the stamp far ahead too, and execution with it.
        let spread = u64::try_from(way.saturating_sub(*ways.get(majority - 1)?)).unwrap_or(0);
        if spread > self.parameters.0.lag_max.as_nanos() + trip.as_nanos() {
            return None;
        }
        let arrival = i128::from(wall.as_nanos()) + i128::from(way) + i128::from(self.extra().as_nanos());
        Some((trip, u64::try_from(arrival).ok()?))
    }

    /// Behind this most replicas refuse a stamp that is sent now, by what is measured of their clocks.
    pub fn horizon(&self, now: Instant, wall: Stamp) -> u64 {
        let seats = 0..self.targets.len();
        let mut ways: Vec<SignedSpan> = seats.filter_map(|seat| self.one_way(seat, now)).collect();
        ways.sort_unstable();
        let most = ways.get(Quorums::majority(self.targets.len()) - 1).or(ways.last());
        let Some(way) = most else { return u64::MAX };
        let future = self.parameters.0.future_max.as_nanos();
        let reached = i128::from(wall.as_nanos()) + i128::from(*way) + i128::from(future);
        u64::try_from(reached.max(0)).unwrap_or(u64::MAX)
    }

    /// The way for a request sent now; `fallback` is the replica to ask where nothing is known.
    pub fn choose(&mut self, now: Instant, wall: Stamp, fallback: usize) -> Choice {
        let fast = self.fast(now, wall);
        let led = self.leader(now);
        let hysteresis = self.parameters.0.hysteresis;
        let takes_fast = match (self.parameters.0.way, fast, led) {
            (Way::Led, ..) | (_, None, _) => false,
            (Way::Fast, Some(_), _) => true,
            (Way::Auto, Some(_), _) if now < self.led_until => false,
            (Way::Auto, Some(_), None) => true,
            (Way::Auto, Some((fast, _)), Some((led, _))) => match self.fast {
                Some(true) => fast < led + hysteresis,
                Some(false) => fast + hysteresis < led,
                None => fast < led,
            },
        };
        self.fast = Some(takes_fast);
        match (fast, led) {
            (Some((_, stamp)), _) if takes_fast => Choice::Fast(stamp),
            (_, Some((_, seat))) => Choice::Led(seat),
            _ => Choice::Led(fallback),
        }
    }

    /// A replica that answers and was measured enough.
    fn live(&self, seat: usize, now: Instant) -> Option<&Target> {
        let target = self.targets.get(seat)?;
        let measured = target.told.is_some() || target.estimate.len() >= self.parameters.0.samples;
        (self.is_fresh(target, now) && measured).then_some(target)
    }

    fn is_fresh(&self, target: &Target, now: Instant) -> bool {
        let timeout = self.parameters.0.probe_timeout;
        target.answered.is_some_and(|answered| now.since(answered) < timeout)
    }

    /// Whether probes are answered about as fast as before: else something waits on the way there, of which those that were
    /// answered know nothing yet.
    fn is_prompt(&self, seat: usize, now: Instant) -> bool {
        let answered = self.targets.get(seat).and_then(|target| target.answered);
        let (Some(answered), Some(trip)) = (answered, self.round_trip(seat, now)) else { return false };
        // So rarely are they sent at most.
        let rare = self.parameters.0.probe * IDLE_FACTOR;
        now.since(answered) <= rare + self.parameters.0.probe * 2 + trip * 2
    }

    /// Whether a replica has answered of late.
    pub fn answers(&self, seat: usize, now: Instant) -> bool {
        self.targets.get(seat).is_some_and(|target| self.is_fresh(target, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Tuning;
    use isochrone_core::NodeId;

    fn process(node: u16) -> ProcessId {
        ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
    }

    /// Three replicas with these round trips, replication latencies and clock offsets, milliseconds.
    fn predictor(rows: [(u64, u64, i64); 3], extra: Extra) -> (Predictor, Instant, Stamp) {
        let parameters = Parameters { extra, ..Parameters::for_rtt(Span::from_millis(100)) };
        let mut predictor = Predictor::new(parameters, (0..3).map(process));
        let ms = Span::from_millis;
        let wall = |at: u64| Stamp::ZERO + Span::from_secs(1_000) + ms(at);
        for k in 0..20 {
            for (seat, (rtt, latency, offset)) in rows.iter().enumerate() {
                let received = wall(k * 10 + rtt / 2).as_nanos().saturating_add_signed(offset * 1_000_000);
                let now = Instant::ZERO + ms(k * 10 + rtt);
                let from = process(seat as u16);
                let received = Stamp::from_nanos(received);
                predictor.probed(from, now, wall(k * 10), received, ms(*rtt), Some(ms(*latency)));
            }
        }
        (predictor, Instant::ZERO + ms(400), wall(400))
    }

    #[test]
    fn the_faster_way_is_taken_and_ties_go_to_a_leader() {
        let fixed = Extra::Fixed(Span::from_millis(8));
        let (mut far, now, wall) = predictor([(40, 38, 0), (60, 30, 0), (50, 38, 0)], fixed);
        assert_eq!(far.leader(now), Some((Span::from_millis(78), 0)));
        let stamp = wall.as_nanos() + 38_000_000;
        assert_eq!(far.choose(now, wall, 0), Choice::Fast(stamp), "30 ms to the farthest and 8 extra");
        let (mut near, now, wall) = predictor([(0, 60, 0), (60, 60, 0), (60, 60, 0)], fixed);
        assert_eq!(near.choose(now, wall, 0), Choice::Led(0));
    }

    #[test]
    fn a_constant_offset_of_a_clock_changes_nothing_but_the_stamp() {
        let none = Extra::Fixed(Span::ZERO);
        let (plain, now, wall) = predictor([(40, 99, 0), (60, 99, 0), (50, 99, 0)], none);
        let (skewed, ..) = predictor([(40, 99, -500), (60, 99, 200), (50, 99, 0)], none);
        assert_eq!(plain.fast(now, wall), Some((Span::from_millis(60), wall.as_nanos() + 30_000_000)));
        assert_eq!(skewed.fast(now, wall), Some((Span::from_millis(60), wall.as_nanos() + 230_000_000)));
        let (far, ..) = predictor([(40, 99, 0), (60, 99, 5_000), (50, 99, 0)], none);
        assert_eq!(far.fast(now, wall), None, "nobody waits five seconds");
    }

    #[test]
    fn who_is_silent_is_infinitely_far() {
        let (mut predictor, now, wall) =
            predictor([(40, 38, 0), (60, 30, 0), (50, 38, 0)], Extra::Fixed(Span::ZERO));
        let later = now + Span::from_secs(2);
        assert_eq!((predictor.fast(later, wall), predictor.leader(later)), (None, None));
        assert_eq!(predictor.choose(later, wall, 2), Choice::Led(2));
    }

    /// What another client of the region has measured, whose clock is half a second ahead, is as good as what was measured
    /// here, and no better than silence where it does not hear a majority.
    #[test]
    fn what_a_neighbour_has_measured_is_taken_over_by_the_own_clock() {
        let ms = Span::from_millis;
        let (measures, now, wall) =
            predictor([(40, 38, 0), (60, 30, 7), (50, 38, -3)], Extra::Fixed(Span::ZERO));
        let of_its_clock = |distance: Option<Distance>| {
            distance.map(|told| Distance { one_way: told.one_way - 500_000_000, ..told })
        };
        let told: Vec<_> = measures.distances(now).into_iter().map(of_its_clock).collect();
        let mut asks = Predictor::new(measures.parameters.0, (0..3).map(process));
        assert!(!asks.is_told(now));
        let received = wall + ms(500) + Span::from_micros(400);
        asks.told(now, wall, received, Span::from_micros(800), vec![told[0], None, None]);
        assert!(!asks.is_told(now), "one of three is no majority");
        asks.told(now, wall, received, Span::from_micros(800), told);
        assert!(asks.is_told(now));
        assert_eq!(asks.fast(now, wall), measures.fast(now, wall));
        assert_eq!(asks.leader(now), measures.leader(now));
        let later = now + asks.parameters.0.probe_timeout;
        assert!(!asks.is_told(later), "a silent one measures for nobody");
        assert_eq!(asks.fast(later, wall), None);
    }

    #[test]
    fn the_controller_follows_the_rate_of_fast_commits() {
        let mut controller = Controller::default();
        (0..20).for_each(|_| controller.outcome(false));
        assert_eq!(controller.extra, EXTRA_MAX);
        (0..5_000).for_each(|_| controller.outcome(true));
        assert_eq!(controller.extra, Span::ZERO, "with nothing late nothing is added");
        // One in ten comes late while less than 6 ms are added: it settles about there.
        let mut added = Vec::new();
        for k in 0..5_000 {
            controller.outcome(k % 10 != 0 || controller.extra >= Span::from_millis(6));
            added.push(controller.extra);
        }
        let settled = &added[1_000..];
        assert!(settled.iter().all(|extra| *extra >= Span::from_millis(5) && *extra <= Span::from_millis(9)));
    }

    #[test]
    fn a_fast_way_that_is_slow_too_often_is_left_for_a_while() {
        let (mut predictor, now, wall) =
            predictor([(40, 38, 0), (60, 30, 0), (50, 38, 0)], Extra::Fixed(Span::ZERO));
        for k in 0..200 {
            predictor.outcome(k % 2 == 0, now);
        }
        assert!(matches!(predictor.choose(now, wall, 0), Choice::Led(0)));
        predictor.led_until = now;
        assert!(matches!(predictor.choose(now, wall, 0), Choice::Fast(_)));
    }
}
