//! What is asked for, at the end of a turn: of the leader, and of each witness beside it.

use super::{Asked, Client, Near, end};
use crate::curp::decision::Attempt;
use crate::curp::program::Program;
use crate::curp::{Bug, Kept, Recording, Records, beside};
use crate::message::{Ask, Message, Requests, in_parts};
use isochrone_core::{Effects, Footprint as _, StateMachine};

/// Takes a command among those that are begun: whether it is clear of those before it.
fn begin<S: StateMachine>(program: &mut Program, asked: &mut Asked<S>) -> bool {
    end(program, asked);
    let keys = asked.keys.as_deref();
    let clear = program.is_clear(keys);
    program.begin(keys);
    asked.begun = true;
    clear
}

impl<S: StateMachine, W: Recording<S::Command>> Client<S, W> {
    pub(super) fn has_nothing_to_ask(&self) -> bool {
        self.fresh.is_empty() && self.again.is_empty() && self.repeats.is_empty()
    }

    /// What there is room for, in order, of what begins an attempt and of what is asked for again; the rest stays.
    pub(super) fn take_fitting(&mut self) -> (Vec<u64>, Vec<u64>) {
        for numbers in [&mut self.fresh, &mut self.again] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let mut room = self.saying.room();
        let (mut fresh, mut again) = (0, 0);
        loop {
            let heads = (self.fresh.get(fresh).copied(), self.again.get(again).copied());
            let Some(next) = heads.0.into_iter().chain(heads.1).min() else { break };
            if !room(self.outstanding.get(next).map(|asked| asked.load)) {
                break;
            }
            fresh += usize::from(heads.0 == Some(next));
            again += usize::from(heads.1 == Some(next));
        }
        (self.fresh.drain(..fresh).collect(), self.again.drain(..again).collect())
    }

    /// Begins attempts: one message to the leader, and one to each witness, with all that has gathered.
    pub(super) fn send_fresh(&mut self, effects: &mut Effects<Self>) {
        if self.has_nothing_to_ask() {
            return;
        }
        let now = effects.now();
        if self.parked {
            for numbers in [&mut self.fresh, &mut self.again, &mut self.repeats] {
                numbers.clear();
            }
            return;
        }
        if self.lost {
            let was_sent = |sequence: &u64| self.outstanding.get(*sequence).is_some_and(|asked| asked.sent);
            for numbers in [&mut self.fresh, &mut self.again, &mut self.repeats] {
                numbers.retain(was_sent);
            }
            if self.has_nothing_to_ask() {
                return;
            }
        }
        if self.view.is_none() {
            self.inquire(effects);
        }
        let (reign, needed) = match &self.view {
            Some(view) if self.unheard.is_empty() => (Some(view.reign), view.needed),
            _ => (None, 0),
        };
        let least = needed.saturating_sub(usize::from(self.planted(Bug::OneAcceptanceLess)));
        // A deployment has at most 7 replicas.
        let quorum = self.view.as_ref().map(|view| (view.witnesses.len() as u32, least as u32));
        let records = reign.is_some()
            && !self.fast.always_synced
            && self.view.as_ref().is_some_and(|view| !beside(self.me.process, view.leader))
            && self.paths.records(needed, &self.fast, now);
        let mix = self.planted(Bug::MixReigns);
        let early = self.planted(Bug::BackupBeforeWitness);
        let (mut asks, mut kept) = (Vec::new(), Vec::new());
        let (mut near, mut reading, mut first, mut until) = (None, Vec::new(), Vec::new(), now);
        let (fresh, again) = self.take_fitting();
        for sequence in fresh {
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            asked.sent = true;
            let reads = S::reads_only(&asked.command) && !asked.touching;
            if reads && asked.near == Near::Untried && !asked.command.touches_all() {
                let to = *near.get_or_insert_with(|| self.nearby.choose(now));
                if let Some(to) = to {
                    let patience = self.nearby.patience(to.node, &self.fast, self.setup.service.retry / 2);
                    asked.near = Near::Asked(to.node, now, now + patience);
                    until = now + patience;
                    asked.attempt = Attempt::new(reign, None, now);
                    let (keys, command) = (Vec::new(), asked.command.clone());
                    let kept = Kept { sequence, keys, command };
                    if early && asked.early.is_none() { &mut first } else { &mut reading }.push(kept);
                    continue;
                }
            }
            asked.near = Near::Over;
            let clear = !reads && begin(&mut self.program, asked);
            let recorded = quorum.filter(|_| records && asked.fits && clear);
            let mut attempt = Attempt::new(reign, recorded, now);
            if let Some((_, 1..)) = recorded
                && let Some(keys) = &asked.keys
            {
                if self.paths.wants_safe(needed) {
                    attempt.ask_safe_at_once();
                }
                kept.push(Kept { sequence, keys: keys.clone(), command: asked.command.clone() });
            }
            if mix {
                attempt.inherit(&asked.attempt);
            }
            asked.attempt = attempt;
            let (command, touching) = (asked.command.clone(), asked.touching);
            asks.push(Ask { sequence, command, touching, synced: asked.attempt.is_safe() && !reads });
        }
        asks.extend(self.ask_safe(again, &asks));
        asks.sort_unstable_by_key(|ask| ask.sequence);
        for ask in &asks {
            if let Some(asked) = self.outstanding.get_mut(ask.sequence) {
                self.saying.take(&mut asked.load);
            }
        }
        let repeats = std::mem::take(&mut self.repeats);
        let repeats = self.ask_safe(repeats, &asks);
        if let Some(witness) = near.flatten() {
            let server = self.setup.replicas.iter().find(|replica| replica.node == witness.node);
            let server = server.copied().unwrap_or(witness);
            self.send_near(witness, reading, effects);
            self.send_near(server, first, effects);
            self.watch_reads(until, effects);
        }
        let (client, below, unheard) = (self.me, self.below(), self.unheard.clone());
        let requests = |asks, said| -> Message<S::Command, S::Reply, W::Message> {
            let (under, forwarded, unheard) = (reign, false, unheard.clone());
            Requests { client, below, under, asks, forwarded, said, unheard }.into()
        };
        if !repeats.is_empty() {
            effects.repeating(|effects| {
                in_parts(repeats, |asks| effects.send(self.target, requests(asks, self.saying.again())));
            });
        }
        if asks.is_empty() {
            return;
        }
        // Witnesses first: they have a disk to wait for before they answer, and the leader has none.
        if let Some(view) = &self.view
            && !kept.is_empty()
        {
            let reign = view.reign;
            for witness in view.witnesses.iter() {
                in_parts(kept.clone(), |kept| {
                    let message = W::records(Records { reign, client, below, kept });
                    effects.send(*witness, Message::Order { epoch: 0, message });
                });
            }
            self.watch(effects);
        }
        in_parts(asks, |asks| effects.send(self.target, requests(asks, self.saying.next())));
    }

    /// Asks for the safe answers of these, each once and not among `asks`, which is in order.
    pub(super) fn ask_safe(
        &mut self,
        mut sequences: Vec<u64>,
        asks: &[Ask<S::Command>],
    ) -> Vec<Ask<S::Command>> {
        sequences.sort_unstable();
        sequences.dedup();
        let fresh =
            |sequence: &u64| asks.binary_search_by_key(sequence, |ask: &Ask<_>| ask.sequence).is_err();
        let ask = |sequence: u64| {
            let asked = self.outstanding.get_mut(sequence)?;
            asked.sent = true;
            let reads = S::reads_only(&asked.command) && !asked.touching;
            let (command, touching) = (asked.command.clone(), asked.touching);
            Some(Ask { sequence, command, touching, synced: !reads })
        };
        sequences.into_iter().filter(fresh).filter_map(ask).collect()
    }
}
