//! Who leads: how a client hears of it, seeks it, and begins anew under a later reign.

use super::{Client, Near, PROBES};
use crate::client::SWEEPS;
use crate::curp::nearby::Nearby;
use crate::curp::paths::Paths;
use crate::curp::{Recording, View};
use crate::message::{Message, Note, Requests};
use crate::order::Reign;
use crate::stream::Said;
use isochrone_core::{Effects, Fact, Instant, ProcessId, StateMachine};

impl<S: StateMachine, W: Recording<S::Command>> Client<S, W> {
    /// Somebody leads: everything outstanding is asked for, in order.
    pub(super) fn found(&mut self) {
        if !std::mem::take(&mut self.lost) {
            return;
        }
        self.parked = false;
        for (sequence, asked) in self.outstanding.iter() {
            if asked.sent { &mut self.again } else { &mut self.fresh }.push(sequence);
        }
    }

    /// Nobody is known to lead.
    pub(super) fn lose(&mut self) {
        // Elsewhere whoever is asked next may lead as well.
        self.lost |= W::SYNCS_ALL;
    }

    /// Asks for nothing, of whoever is to be asked: who leads says so, and nothing can come of it. Not too often.
    pub(super) fn probe(&mut self, effects: &mut Effects<Self>) {
        let (now, pause) = (effects.now(), self.setup.service.retry / PROBES);
        if self.probed.is_some_and(|probed| now.since(probed) < pause) {
            return;
        }
        self.probed = Some(now);
        self.question(self.target, effects);
        self.inquire(effects);
    }

    fn question(&self, replica: ProcessId, effects: &mut Effects<Self>) {
        let (client, below, under, asks) = (self.me, self.below(), self.under(), Vec::new());
        let (forwarded, said, unheard) = (false, Said::Freely, self.unheard.clone());
        let question = Requests { client, below, under, asks, forwarded, said, unheard };
        effects.urgently(|effects| effects.send(replica, question.into()));
    }

    /// The only reign under which commands are to be taken, if any.
    pub(super) fn under(&self) -> Option<Reign> {
        self.view.as_ref().filter(|_| self.unheard.is_empty()).map(|view| view.reign)
    }

    /// The next replica may know more than one that is silent, or reach it where this client does not.
    pub(super) fn turn_away(&mut self, now: Instant) {
        let replicas = &self.setup.replicas;
        let at = replicas.iter().position(|replica| *replica == self.target);
        let next = replicas[at.map_or(0, |at| (at + 1) % replicas.len())];
        let known = self.unheard.contains(&self.target) || self.unheard.len() >= replicas.len();
        if next != self.target && !known {
            self.unheard.push(self.target);
            self.trial = now + self.setup.service.retry;
        }
        self.turn_to(next, now);
        self.answered = now;
    }

    /// Asks those that are not heard once in a while: one that leads and answers itself was reached, and reaches this client.
    pub(super) fn try_unheard(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if !self.unheard.is_empty() && now >= self.trial {
            self.trial = now + self.setup.service.retry;
            self.unheard.iter().for_each(|replica| self.question(*replica, effects));
        }
    }

    /// Who leads is asked from now on, unless it is not heard: then whoever hands on what it says stays the one that is.
    pub(super) fn follow(&mut self, leader: ProcessId, now: Instant) {
        if !self.unheard.contains(&leader) {
            self.turn_to(leader, now);
        }
    }

    pub(super) fn on_redirect(
        &mut self,
        from: ProcessId,
        reign: Reign,
        leader: Option<ProcessId>,
        sequences: &[u64],
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let known = self.view.as_ref().map(|view| view.reign);
        let later = known.is_none_or(|known| known < reign);
        if from == self.target && leader.is_some() {
            self.answered = now;
        }
        if later {
            self.heard_of(reign, leader, effects);
            if self.view.as_ref().map(|view| view.reign) != known {
                // Everything begins anew.
                return;
            }
        }
        let elsewhere = leader.filter(|leader| *leader != from && Some(reign) >= known);
        match elsewhere {
            // It is asked already, as far as it can be.
            Some(leader) if self.unheard.contains(&leader) => {}
            Some(leader) => {
                self.turn_to(leader, now);
                for sequence in sequences {
                    if let Some(asked) = self.outstanding.get_mut(*sequence) {
                        asked.attempts += 1;
                        asked.due = now + self.setup.service.retry;
                        self.again.push(*sequence);
                    }
                }
            }
            // Nobody leads yet, or under a reign that is not known whole: again soon.
            None if from == self.target => {
                self.parked |= !sequences.is_empty();
                self.lose();
            }
            None => {}
        }
    }

    /// Somebody else is asked from now on: for everything that is outstanding first, in order.
    pub(super) fn turn_to(&mut self, process: ProcessId, now: Instant) {
        if self.target != process {
            (self.target, self.answered) = (process, now);
            self.saying.begin();
            self.say_anew();
        }
    }

    /// In the turn that has begun.
    pub(super) fn say_anew(&mut self) {
        self.again.extend(self.outstanding.iter().map(|(sequence, _)| sequence));
    }

    /// Somebody speaks of a reign. If it is later than the one known, its view is made or asked for.
    pub(super) fn heard_of(&mut self, reign: Reign, leader: Option<ProcessId>, effects: &mut Effects<Self>) {
        if self.view.as_ref().is_some_and(|view| view.reign >= reign) {
            return;
        }
        match leader.and_then(|leader| W::view(&self.setup, reign, leader)) {
            Some(view) => self.adopt(view, effects),
            None => self.inquire(effects),
        }
    }

    /// Asks who leads and who the witnesses are, not too often.
    pub(super) fn inquire(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if self.sought.is_some_and(|sought| now.since(sought) < self.setup.service.retry / SWEEPS) {
            return;
        }
        if let Some((whom, message)) = W::inquiry(&self.setup) {
            self.sought = Some(now);
            for process in whom {
                let inquiry = Message::Order { epoch: 0, message: message.clone() };
                effects.urgently(|effects| effects.send(process, inquiry));
            }
        }
    }

    /// From here on commands are asked for in this view; those outstanding begin anew.
    pub(super) fn adopt(&mut self, view: View, effects: &mut Effects<Self>) {
        if self.view.as_ref().is_some_and(|known| known.reign >= view.reign) {
            return;
        }
        let now = effects.now();
        self.paths = Paths::of(&view, self.view.as_ref().map(|former| (former, &self.paths)));
        if W::reads_nearby(&self.setup.parameters) {
            self.nearby = Nearby::of(&view, &self.setup.replicas, &self.nearby);
        }
        if self.view.as_ref().is_some_and(|known| known.leader != view.leader) {
            // Who was silent while another led may be heard now.
            self.unheard.clear();
        }
        self.follow(view.leader, now);
        self.answered = now;
        let first = self.view.is_none();
        self.view = Some(view);
        (self.parked, self.lost) = (false, false);
        if !first {
            self.program.clear();
            self.saying.begin();
        }
        for (sequence, asked) in self.outstanding.iter_mut() {
            // They are begun again in their order.
            asked.begun &= first;
            // What was asked for under no reign in particular is answered all the same.
            if first && asked.sent && asked.attempt.reign.is_none() && asked.attempts == 0 {
                continue;
            }
            asked.due = now + self.setup.service.retry;
            if asked.near != Near::Untried {
                asked.near = Near::Over;
            }
            self.fresh.push(sequence);
        }
        effects.mark(Note::Fact(Fact::Counted("curp_views")));
        self.tell_copies(effects);
    }

    /// How many copies have what the leader says is safe, where it says so of all of them. None that count, while a
    /// later list than the one that is known may hold.
    pub(super) fn tell_copies(&self, effects: &mut Effects<Self>) {
        if W::SYNCS_ALL {
            let copies = self.view.as_ref().map_or(0, |view| view.witnesses.len() as u64);
            effects.mark(Note::Fact(Fact::stands("copies", copies)));
        }
    }
}
