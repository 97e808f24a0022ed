//! When members come forward to lead, where one of them does.

use isochrone_core::{Ballot, Instant, Random, ReplicaId, Span};

/// How long the member at place `own` hears nobody lead before it asks whether others hear as little: at least
/// `silence`, later by turns. Members come in the order of their places behind the leader's, each within a
/// random part of its turn, so that two seldom campaign at once.
pub(crate) fn patience(silence: Span, own: usize, leader: usize, count: usize, random: &mut Random) -> Span {
    let count = count.max(1);
    let rank = (own + count - leader + count - 1) % count;
    let turn = silence / 4;
    let within = Span::from_nanos(random.below(turn.as_nanos()));
    silence + turn * rank as u64 + within
}

/// How long who polled or campaigned in vain waits before it tries again: not a whole patience, since nobody
/// leads. Drawn apart, further with each failure, so that two do not meet for ever.
pub(crate) fn recess(silence: Span, failures: u32, random: &mut Random) -> Span {
    Span::from_nanos(random.below(silence.as_nanos() * u64::from(failures.min(4))))
}

/// How long a candidate waits for promises where the first attempt takes `wait`: doubled for each that failed.
pub(crate) fn campaign(wait: Span, failures: u32) -> Span {
    wait * (1 << failures.min(3))
}

/// Leaders that fell silent shortly one after another, as this member sees it. A leader that is busy for longer than silence is
/// borne (a large value has to be encoded and written) and is replaced leaves the same work to the next, which is replaced in turn,
/// for ever: so the silence that is borne doubles with each. A leader lost after a time of quiet is followed as soon as ever.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Losses {
    /// How often the silence was doubled.
    doubled: u32,
    last: Option<Instant>,
}

impl Losses {
    /// A leader was silent for as long as is borne.
    pub(crate) fn lost(&mut self, silence: Span, now: Instant) {
        self.forget(silence, now);
        if self.last.replace(now).is_some() {
            self.doubled = (self.doubled + 1).min(4);
        }
    }

    /// Losses of long ago count no more. Returns whether less silence is borne for it.
    pub(crate) fn forget(&mut self, silence: Span, now: Instant) -> bool {
        let old = self.last.is_some_and(|last| now.since(last) >= silence * 64);
        let less = old && self.doubled > 0;
        if old {
            *self = Losses::default();
        }
        less
    }

    /// The silence that is borne, where it is `silence` as a rule.
    pub(crate) fn bears(&self, silence: Span) -> Span {
        silence * (1 << self.doubled)
    }
}

/// Whom a member of a group that is led follows, and for how long it bears that nobody is heard to lead.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Watch {
    /// The silence that is borne as a rule.
    rule: Span,
    /// The ballot of the leader that is followed.
    pub(crate) leader: Option<Ballot>,
    /// The ballot of the candidate that was heard last.
    candidate: Option<Ballot>,
    /// The ballot of the one that was given up last, while none of those that were is heard to live.
    given_up: Option<Ballot>,
    /// When one of them was, or this member gave an attempt of its own up.
    pub(crate) heard: Instant,
    /// How long to hear nothing before polling.
    pub(crate) patience: Span,
    /// Polls and campaigns that failed since a leader was heard.
    pub(crate) failures: u32,
    losses: Losses,
}

impl Watch {
    /// Of a member that follows nobody.
    pub(crate) fn new(rule: Span) -> Watch {
        Watch {
            rule,
            leader: None,
            candidate: None,
            given_up: None,
            heard: Instant::ZERO,
            patience: rule,
            failures: 0,
            losses: Losses::default(),
        }
    }

    /// For how long a leader that is followed, or a candidate, may say nothing; and a leader's followers, who bear as much.
    pub(crate) fn silence(&self) -> Span {
        self.losses.bears(self.rule)
    }

    /// Leaders that live were lost soon one after another: what each has had others send may be on its way still.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.silence() > self.rule
    }

    /// Draws how long this member is patient. Seats come in the order of `places`.
    pub(crate) fn draw(
        &mut self,
        me: ReplicaId,
        places: impl Iterator<Item = ReplicaId>,
        random: &mut Random,
    ) {
        let leader = self.leader.or(self.candidate).map(|ballot| ballot.owner);
        let (mut own, mut followed, mut count) = (0, 0, 0);
        for (at, seat) in places.enumerate() {
            count += 1;
            own = if seat == me { at } else { own };
            followed = if Some(seat) == leader { at } else { followed };
        }
        self.patience = patience(self.silence(), own, followed, count, random);
    }

    /// Losses of long ago count no more. Returns whether less silence is borne for it.
    pub(crate) fn forget(&mut self, now: Instant) -> bool {
        self.losses.forget(self.rule, now)
    }

    /// How much of the patience is left.
    pub(crate) fn left(&self, now: Instant) -> Span {
        self.patience.saturating_sub(now.since(self.heard))
    }

    /// The leader that was followed, if any, or the candidate, has been silent for as long as is borne.
    pub(crate) fn give_up(&mut self, promised: Ballot) {
        let candidate = self.candidate.take().filter(|candidate| *candidate == promised);
        self.given_up = self.leader.take().or(candidate).or(self.given_up);
    }

    /// The owner of this ballot says that it leads in it, or wants to. Where it was given up, it was silent and lives; one that has
    /// died says so no more, and who follows the next one need not be more patient.
    pub(crate) fn lives(&mut self, ballot: Ballot, now: Instant) {
        if self.given_up.take_if(|given_up| ballot <= *given_up).is_some() {
            self.losses.lost(self.rule, now);
        }
    }

    /// This member led in this ballot, and leads no more since it hears too few.
    pub(crate) fn cut_off(&mut self, ballot: Ballot) {
        self.given_up = Some(ballot);
    }

    /// Somebody answers what was said in this ballot of this member. Where it took itself for cut off the answer was only late.
    pub(crate) fn answered(&mut self, ballot: Ballot, now: Instant) {
        if self.given_up.take_if(|given_up| *given_up == ballot).is_some() {
            self.losses.lost(self.rule, now);
        }
    }

    /// This member led, or was being promised, and another came before what it had taken over was decided: it was busy with that for
    /// longer than is borne, and would depose the next one over the same work as soon.
    pub(crate) fn deposed(&mut self, now: Instant) {
        self.losses.lost(self.rule, now);
    }

    /// A candidate was promised this ballot.
    pub(crate) fn promised(&mut self, ballot: Ballot, now: Instant) {
        if now.since(self.heard) >= self.silence() {
            self.give_up(ballot);
        }
        self.candidate = Some(ballot);
    }

    /// The ballot of the candidate that is followed, where no leader is.
    pub(crate) fn candidate(&self, promised: Ballot) -> Option<Ballot> {
        self.candidate.filter(|candidate| *candidate == promised && self.leader.is_none())
    }

    /// Whether somebody else than `rival` leads, as far as is heard, or is a candidate, which may have to wait for the promises of
    /// some. A candidate that polls itself is none any more.
    pub(crate) fn hears(&self, rival: ReplicaId, promised: Ballot, now: Instant) -> bool {
        let candidate = self.candidate.filter(|candidate| *candidate == promised);
        let follows = self.leader.or(candidate).is_some_and(|followed| followed.owner != rival);
        follows && now.since(self.heard) < self.silence()
    }

    /// A poll or campaign has not come through: the next one comes sooner than a leader would be given up.
    pub(crate) fn fail(&mut self, now: Instant, random: &mut Random) {
        self.failures += 1;
        self.patience = recess(self.rule, self.failures, random);
        self.heard = now;
    }
}

/// How long a candidate waits for promises. They say what was accepted, which may be large and take long: whoever is asked again
/// and says that its promise is on its way is waited for.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Gathering {
    wait: Span,
    begun: Instant,
    until: Instant,
}

impl Gathering {
    /// Begins to wait, where the first attempt takes `wait`.
    pub(crate) fn begin(wait: Span, failures: u32, now: Instant) -> Gathering {
        let wait = campaign(wait, failures);
        Gathering { wait, begun: now, until: now + wait }
    }

    /// The promise of somebody who has not promised yet is on its way.
    pub(crate) fn goes_on(&mut self, now: Instant) {
        self.until = now + self.wait;
    }

    /// Whether promises that are on their way have been waited for as long as `silence`, which is as long as others bear.
    pub(crate) fn is_prolonged(&self, silence: Span, now: Instant) -> bool {
        self.until > self.begun + self.wait && now.since(self.begun) >= silence
    }

    /// Whether it has been waited for long enough.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_next_behind_the_leader_is_patient_for_the_shortest_time() {
        let (silence, turn) = (Span::from_millis(400), Span::from_millis(100));
        let mut random = Random::seeded(1);
        // The leader is at 3; it comes last itself.
        for (own, rank) in [(4, 0), (0, 1), (1, 2), (2, 3), (3, 4)] {
            let least = silence + turn * rank;
            for _ in 0..20 {
                let patience = patience(silence, own, 3, 5, &mut random);
                assert!(patience >= least && patience < least + turn, "{own}: {patience}");
            }
        }
    }

    #[test]
    fn leaders_lost_one_after_another_make_for_more_patience_and_a_time_of_quiet_for_less() {
        let (silence, mut now, mut losses) = (Span::from_millis(100), Instant::ZERO, Losses::default());
        for times in [1, 2, 4, 8, 16, 16] {
            losses.lost(silence, now);
            assert_eq!(losses.bears(silence), silence * times);
            now = now + silence * 63;
            assert!(!losses.forget(silence, now), "{times}");
        }
        now = now + silence;
        assert!(losses.forget(silence, now));
        assert_eq!(losses.bears(silence), silence);
        losses.lost(silence, now);
        losses.lost(silence, now + silence * 64);
        assert_eq!(losses.bears(silence), silence, "neither was soon after the other");
    }

    #[test]
    fn only_those_that_live_make_for_more_patience() {
        let (rule, now) = (Span::from_millis(100), Instant::from_nanos(1));
        let ballot = |round| Ballot { round, owner: ReplicaId(1) };
        let mut watch = Watch::new(rule);
        let mut silence = |given_up: u32, heard: &[u32]| {
            watch.leader = Some(ballot(given_up));
            watch.give_up(ballot(given_up));
            heard.iter().for_each(|round| watch.lives(ballot(*round), now));
            watch.silence()
        };
        assert_eq!(silence(1, &[2, 2]), rule, "it has died");
        assert_eq!(silence(3, &[4, 4]), rule, "and so has the next");
        assert_eq!(silence(5, &[6, 5, 5]), rule, "the first that lives");
        assert_eq!(silence(7, &[5, 5]), rule * 2, "one of those before lives, told twice");
        assert_eq!(silence(8, &[9, 8]), rule * 4);
        let mut candidate = Watch::new(rule);
        for times in [1, 2] {
            candidate.promised(ballot(times), now);
            candidate.give_up(ballot(times));
            candidate.lives(ballot(times), now);
            assert_eq!(candidate.silence(), rule * u64::from(times));
        }
        let mut busy = Watch::new(rule);
        for times in [1, 2, 4] {
            busy.deposed(now);
            assert_eq!(busy.silence(), rule * times, "this one was busy itself");
        }
        let mut leader = Watch::new(rule);
        for times in [1, 2] {
            leader.cut_off(ballot(times));
            leader.answered(ballot(times - 1), now);
            leader.lives(ballot(times + 1), now);
            assert_eq!(leader.silence(), rule, "of another reign, and by another");
            (0..2).for_each(|_| leader.answered(ballot(times), now));
            assert_eq!((leader.silence(), leader.is_unsteady()), (rule * u64::from(times), times > 1));
        }
        candidate.promised(ballot(3), now);
        candidate.give_up(ballot(4));
        candidate.lives(ballot(3), now);
        assert_eq!(candidate.silence(), rule * 2, "it was not followed any more");
    }

    #[test]
    fn who_gathers_promises_for_long_knows_that_some_are_on_their_way() {
        let (wait, silence) = (Span::from_millis(300), Span::from_millis(400));
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut gathering = Gathering::begin(wait, 0, at(100));
        assert!(!gathering.is_prolonged(silence, at(900)), "nobody has said so");
        gathering.goes_on(at(350));
        assert!(!gathering.is_prolonged(silence, at(499)), "it took no longer than any other");
        assert!(gathering.is_prolonged(silence, at(500)));
        assert_eq!([649, 650].map(|ms| gathering.is_over(at(ms))), [false, true]);
    }

    #[test]
    fn failures_make_attempts_longer_and_rarer_up_to_a_bound() {
        let (span, mut random) = (Span::from_millis(100), Random::seeded(2));
        for (failures, times) in [(1, 1), (2, 2), (4, 4), (40, 4)] {
            let longest = (0..200).map(|_| recess(span, failures, &mut random)).max().unwrap_or_default();
            assert!(longest < span * times && longest > span * times / 2, "{failures}: {longest}");
        }
        for (failures, times) in [(0, 1), (1, 2), (3, 8), (40, 8)] {
            assert_eq!(campaign(span, failures), span * times);
        }
    }
}
