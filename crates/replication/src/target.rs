//! Whom a client asks that asks one replica, and when it had better ask another.
//!
//! A target is *heard* when it answers anything, and *gets on* when it answers a command. Not heard for a while it is silent:
//! first it is asked whether it lives, then another is turned to. Where nobody leads, one that is heard and gets on with
//! nothing is left as well, later. Whoever was told *much* may not have taken it in yet, and another would need as long: all are
//! asked then, and whichever answers first is turned to.
//!
//! Where one leads, who was turned away from may live and lead, and not reach this client: another hands on what it says then
//! ([`Message::Pass`](crate::message::Message::Pass)), as long as it is named as *unheard*. It is asked now and then whether it lives: an answer that
//! comes from itself has been asked for directly, so the way is there again in both directions.

use crate::service::Service;
use isochrone_core::{Instant, ProcessId, Span};
use std::sync::Arc;

/// The replica that is asked, and its clocks.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Target {
    /// Nearest first.
    replicas: Arc<[ProcessId]>,
    /// Whether one replica leads: then whoever answers is asked from then on. Else it is the nearest.
    led: bool,
    /// How long it may be silent, and how long a command is tried at all.
    retry: Span,
    limit: Span,
    process: ProcessId,
    /// When it was last heard, was turned to, or was asked for the first that is outstanding.
    heard: Instant,
    /// When it last got on, was turned to, or was asked for the first that is waited for.
    moved: Instant,
    /// When it was turned to from another one; the first was not.
    turned: Instant,
    /// When the nearest is tried again, once it was turned away from; and how long after that.
    home: Option<(Instant, Span)>,
    /// Where one leads, those that were turned away from since one was heard that takes commands.
    unheard: Vec<ProcessId>,
    /// When these are asked next whether they live.
    trial: Instant,
}

/// What is to be done about a target.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Step {
    /// It goes on as it does.
    Stay,
    /// It is asked whether it lives.
    Question,
    /// All are, and whichever answers first is turned to.
    AskAround,
    /// The next one is turned to.
    TurnAway,
}

/// The longest wait before a nearest replica that was silent is tried again.
const HOME_MAX: Span = Span::from_secs(30);

impl Target {
    /// Of these replicas the one that leads, or else the nearest.
    pub(crate) fn new(
        replicas: Arc<[ProcessId]>,
        leader: Option<ProcessId>,
        Service { retry, limit, .. }: Service,
    ) -> Target {
        let process = leader.unwrap_or(replicas[0]);
        let (heard, moved, turned, trial) = (Instant::ZERO, Instant::ZERO, Instant::ZERO, Instant::ZERO);
        let (led, home, unheard) = (leader.is_some(), None, Vec::new());
        Target { replicas, led, retry, limit, process, heard, moved, turned, home, unheard, trial }
    }

    pub(crate) fn process(&self) -> ProcessId {
        self.process
    }

    pub(crate) fn replicas(&self) -> &[ProcessId] {
        &self.replicas
    }

    pub(crate) fn is_led(&self) -> bool {
        self.led
    }

    /// It is asked for one more command, beside so many outstanding ones of which so many are waited for. Whether the nearest is
    /// turned to for that, which is tried once in a while.
    pub(crate) fn ask(&mut self, outstanding: usize, waited: usize, now: Instant) -> bool {
        if outstanding == 0 {
            self.heard = now;
        }
        if waited == 0 {
            self.moved = now;
        }
        self.home.is_some_and(|(at, _)| now >= at) && self.turn_to(self.replicas[0], now)
    }

    /// A replica has answered. It may not be the target any more.
    pub(crate) fn hear(&mut self, from: ProcessId, now: Instant) {
        if from == self.process {
            self.heard = now;
        }
    }

    /// A replica says that it takes commands, or has answered some, which where one leads is thought to say the same. Whether it
    /// is turned to for that.
    pub(crate) fn hear_taker(&mut self, from: ProcessId, much: bool, now: Instant) -> bool {
        let turns = if self.led {
            self.unheard.clear();
            self.turn_to(from, now)
        } else {
            from != self.process && self.asks_around(much, now) && self.turn_over(from, now)
        };
        self.hear(from, now);
        turns
    }

    /// A replica hands on what one says that takes commands, and is not heard itself. Whether it is turned to for that: all were asked
    /// because the target, which was told much, is silent, and it had as much time again to answer.
    pub(crate) fn hear_by_way(&mut self, from: ProcessId, now: Instant) -> bool {
        let turns = from != self.process && self.is_silent(self.retry * 2, now) && self.turn_over(from, now);
        self.hear(from, now);
        turns
    }

    /// Whether one leads, and the target was not heard for so long.
    fn is_silent(&self, time: Span, now: Instant) -> bool {
        self.led && now.since(self.heard) >= time
    }

    /// Whoever of these leads is to answer by way of others.
    pub(crate) fn unheard(&self, now: Instant) -> Vec<ProcessId> {
        let mut unheard = self.unheard.clone();
        if self.is_silent(self.retry, now) && !unheard.contains(&self.process) {
            unheard.push(self.process);
        }
        unheard
    }

    /// Those of them that are to be asked now whether they live.
    pub(crate) fn try_unheard(&mut self, now: Instant) -> Vec<ProcessId> {
        if self.unheard.is_empty() || now < self.trial {
            return Vec::new();
        }
        self.trial = now + self.retry;
        self.unheard.clone()
    }

    /// A replica has answered a command.
    pub(crate) fn get_on(&mut self, from: ProcessId, now: Instant) {
        if from == self.process {
            self.moved = now;
            // It has served, long after it was tried: what was before counts no more.
            self.home.take_if(|(at, _)| from == self.replicas[0] && now >= *at + HOME_MAX);
        }
    }

    /// What is to be done about it, where anything is `due` to be asked for again, it was told `much` that is not answered, and the
    /// `oldest` outstanding command was asked for then.
    pub(crate) fn step(&self, due: bool, much: bool, oldest: Option<Instant>, now: Instant) -> Step {
        let silence = now.since(self.heard);
        if self.asks_around(much, now) {
            Step::AskAround
        } else if due && silence >= self.retry {
            Step::TurnAway
        } else if silence >= self.retry / 2 && oldest.is_some_and(|oldest| self.is_trusted(much, oldest, now))
        {
            Step::Question
        } else {
            Step::Stay
        }
    }

    /// Whether it is asked on as long as it is heard. Where nobody leads, one that gets on with nothing may be heard for long; but much
    /// may be long on its way, and would be as long once more by way of another. Whoever is turned to late gets less time, so
    /// that some is left for a third.
    fn is_trusted(&self, much: bool, oldest: Instant, now: Instant) -> bool {
        let in_time = now.since(oldest) < self.limit / 2 || now.since(self.turned) < self.limit / 4;
        self.led || much || in_time
    }

    /// Whether it was told much, and is silent or stuck: whichever other answers first is turned to. Nobody is told as much
    /// before, but for the nearest ([`Target::ask`]).
    pub(crate) fn asks_around(&self, much: bool, now: Instant) -> bool {
        much && (now.since(self.heard) >= self.retry || self.is_stuck(now))
    }

    /// Whether it has got on with nothing for so long that it had better be left, although it is heard: it may be taking in a peer's
    /// state. Some time is left for another.
    fn is_stuck(&self, now: Instant) -> bool {
        !self.led && now.since(self.moved) >= self.limit * 3 / 4
    }

    /// The next replica may know more than one that is silent. Whether there is another.
    pub(crate) fn turn_away(&mut self, now: Instant) -> bool {
        let at = self.replicas.iter().position(|replica| *replica == self.process);
        let next = at.map_or(0, |at| (at + 1) % self.replicas.len());
        self.turn_over(self.replicas[next], now)
    }

    /// This one is asked in the place of a silent one.
    fn turn_over(&mut self, replica: ProcessId, now: Instant) -> bool {
        let known = self.unheard.contains(&self.process) || self.unheard.len() >= self.replicas.len();
        if self.led && replica != self.process && !known {
            self.unheard.push(self.process);
            self.trial = now + self.retry;
        }
        let turns = self.turn_to(replica, now);
        self.heard = now;
        if !self.led && replica != self.replicas[0] {
            // Each try of a nearest replica that stays silent costs a wait, so they become rare.
            let pause = self.home.map_or(self.retry, |(_, pause)| (pause * 2).min(HOME_MAX));
            self.home = Some((now + pause, pause));
        }
        turns
    }

    /// This one is asked from now on. Whether it was not before.
    pub(crate) fn turn_to(&mut self, process: ProcessId, now: Instant) -> bool {
        let turns = self.process != process;
        if turns {
            (self.process, self.heard, self.moved, self.turned) = (process, now, now, now);
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::NodeId;

    fn process(node: u16) -> ProcessId {
        ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
    }

    fn service() -> Service {
        Service::for_rtt(Span::from_millis(1))
    }

    /// The target of a client of three replicas that asks the first, for the first time, at this time.
    fn target(led: bool) -> (Target, Instant) {
        let replicas = [1, 2, 3].map(process);
        let mut target = Target::new(Arc::from(replicas), led.then_some(replicas[0]), service());
        let now = Instant::ZERO + Span::from_secs(100);
        assert!(!target.ask(0, 0, now));
        (target, now)
    }

    #[test]
    fn who_is_silent_is_asked_whether_it_lives_and_then_left_for_the_next() {
        let Service { retry, .. } = service();
        for led in [true, false] {
            let (mut target, begun) = target(led);
            let step = |target: &Target, due, now| target.step(due, false, Some(begun), now);
            assert_eq!(step(&target, false, begun), Step::Stay);
            assert_eq!(step(&target, false, begun + retry / 2), Step::Question);
            assert_eq!(step(&target, true, begun + retry), Step::TurnAway);
            assert_eq!(step(&target, false, begun + retry), Step::Question, "nothing is to be asked for yet");
            assert_eq!(
                target.step(false, false, None, begun + retry),
                Step::Stay,
                "nor is anything outstanding"
            );
            target.hear(process(2), begun + retry);
            assert_eq!(step(&target, true, begun + retry), Step::TurnAway, "another says nothing of it");
            target.hear(process(1), begun + retry);
            assert_eq!(step(&target, true, begun + retry), Step::Stay);
            for next in [2, 3, 1] {
                assert!(target.turn_away(begun + retry * 2));
                assert_eq!(target.process(), process(next));
                assert_eq!(
                    step(&target, true, begun + retry * 2),
                    Step::Stay,
                    "it has not been asked for long"
                );
            }
        }
    }

    #[test]
    fn who_was_told_much_is_left_only_for_one_that_answers() {
        let Service { retry, limit, .. } = service();
        for led in [true, false] {
            let (mut target, begun) = target(led);
            let silent = begun + retry;
            assert_eq!(target.step(true, true, Some(begun), silent), Step::AskAround);
            assert!(target.hear_taker(process(3), true, silent));
            assert_eq!(target.process(), process(3));
            assert_eq!(target.step(true, true, Some(begun), silent), Step::Stay);

            let stuck = silent + limit * 3 / 4;
            target.hear(process(3), stuck);
            assert_eq!(target.asks_around(true, stuck), !led, "who leads is asked on");
            target.get_on(process(1), stuck);
            assert_eq!(target.asks_around(true, stuck), !led, "that another gets on says nothing of it");
            target.get_on(process(3), stuck);
            assert!(!target.asks_around(true, stuck));
        }
    }

    #[test]
    fn whoever_takes_commands_is_turned_to_where_one_leads_and_else_not_before_it_is_wanted() {
        let (mut led, now) = target(true);
        assert!(led.hear_taker(process(2), false, now) && !led.hear_taker(process(2), false, now));
        let (mut nearest, now) = target(false);
        assert!(!nearest.hear_taker(process(2), true, now));
        assert_eq!((led.process(), nearest.process()), (process(2), process(1)));
    }

    #[test]
    fn who_is_heard_and_gets_on_with_nothing_is_trusted_for_half_the_time_and_a_later_one_for_a_quarter() {
        let Service { retry, limit, .. } = service();
        let trusted = |target: &mut Target, begun, now| {
            target.hear(target.process(), now);
            target.step(false, false, Some(begun), now + retry / 2) == Step::Question
        };
        let (mut nearest, begun) = target(false);
        assert!(trusted(&mut nearest, begun, begun + limit / 2 - retry));
        assert!(!trusted(&mut nearest, begun, begun + limit / 2));
        nearest.turn_away(begun + limit / 2);
        assert!(trusted(&mut nearest, begun, begun + limit * 3 / 4 - retry));
        assert!(!trusted(&mut nearest, begun, begun + limit * 3 / 4));
        let (mut leads, begun) = target(true);
        assert!(trusted(&mut leads, begun, begun + limit));
    }

    #[test]
    fn the_nearest_is_tried_again_ever_more_rarely_and_only_with_a_new_command() {
        let Service { retry, .. } = service();
        let (mut target, mut now) = target(false);
        for pause in [retry, retry * 2, retry * 4] {
            assert!(target.turn_away(now));
            assert!(!target.ask(1, 1, now + pause - Span::from_nanos(1)));
            now = now + pause;
            assert!(target.ask(1, 1, now));
            assert_eq!(target.process(), process(1));
            assert!(!target.ask(1, 1, now), "it is asked already");
        }
        for _ in 0..9 {
            target.turn_away(now);
            target.turn_to(process(1), now);
        }
        target.turn_away(now);
        assert!(!target.ask(1, 1, now + HOME_MAX - Span::from_nanos(1)));
        assert!(target.ask(1, 1, now + HOME_MAX));
        now = now + HOME_MAX * 2;
        target.turn_to(process(1), now);
        target.turn_away(now);
        assert!(
            !target.ask(1, 1, now + HOME_MAX - Span::from_nanos(1)),
            "it was tried, and has served nobody"
        );
        now = now + HOME_MAX;
        assert!(target.ask(1, 1, now));
        now = now + HOME_MAX;
        target.get_on(process(1), now);
        target.turn_away(now);
        assert!(target.ask(1, 1, now + retry), "it has served since");
    }
}
