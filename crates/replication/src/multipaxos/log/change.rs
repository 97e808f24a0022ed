//! Changes of the members and of the leader, one at a time, by the leader.

use super::{Answer, Log, Member, Message, Note, Role, Value};
use crate::request::{Change, Refusal};
use isochrone_core::{Ballot, Effects, Instant, ProcessId, ReplicaSet, Slot, Span, Ticket, Wire};
use std::sync::Arc;

/// One change under way.
#[derive(Clone, Hash, Debug)]
pub(super) struct Task {
    pub(super) ticket: Ticket,
    change: Change,
    /// Who is to lead instead.
    pub(super) heir: Option<Member>,
    /// Since when it is asked to: nothing is proposed meanwhile.
    asked: Option<Instant>,
    /// Those that were to, and this one.
    tried: ReplicaSet,
    until: Instant,
    /// When a newcomer was last heard of, or was first asked to listen.
    pub(super) heard: Instant,
    /// How many values that waited for a slot when the order came wait still: they go before the change.
    before: usize,
    /// Nothing else is proposed until it is: see [`Log::propose_change`].
    due: bool,
    /// The slot that is to be decided, once proposed: the change itself, then the one behind it.
    slot: Option<Slot>,
}

/// How long a change may take before it is given up: a learner must catch up in it.
const TASK_MAX: Span = Span::from_secs(20);
/// Of how many election timeouts' silence nobody takes a newcomer to be there: it may just be started, and take in a large state.
const NEWCOMER_SILENCE: u64 = 8;
/// How far behind a learner may be and count as caught up: the rest is on its way.
pub(super) const LEARNER_SLACK: u64 = 64;
impl Task {
    /// Whether it is to change who the members are.
    fn of_members(&self) -> bool {
        matches!(self.change, Change::Add(_) | Change::Remove(_))
    }

    /// So many of what waited for a slot have got one. Whether a change is to follow now.
    pub(super) fn passed(&mut self, values: usize) -> bool {
        self.before = self.before.saturating_sub(values);
        self.before == 0 && self.slot.is_none() && matches!(self.change, Change::Remove(_))
    }

    /// Whether it goes into the next slot, once all before that is decided.
    pub(super) fn is_due(&self) -> bool {
        self.due && self.slot.is_none()
    }

    /// What is answered when the reign ends with it under way.
    pub(super) fn end(&self, promised: Ballot) -> Answer {
        match self.heir {
            Some(heir) if heir.replica == promised.owner => Ok(()),
            _ => Err(Refusal::NotLeader),
        }
    }
}

impl<V: Wire> Log<V> {
    /// Whether the members are about to change, as far as the leader knows: one was ordered, or is not decided. What was
    /// put into the log before the first of it lies before the change.
    pub fn changes(&self) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        reign.barrier.is_some() || reign.task.as_ref().is_some_and(Task::of_members)
    }

    /// Whether a change of the members that this leader has adopted is not decided yet.
    pub fn inherits_change(&self) -> bool {
        matches!(&self.role, Role::Leader(reign) if reign.barrier.is_some_and(|barrier| barrier < reign.serving))
    }

    pub(super) fn on_change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        match self.begin_change(ticket, change, effects.now()) {
            Ok(false) => {
                self.refresh_peers();
                match change {
                    Change::Remove(_) => self.propose_change(effects),
                    Change::Add(_) => self.beat(effects),
                    Change::Lead(_) | Change::Resign => self.pursue(effects),
                }
            }
            // What is so already is decided, so nothing need be waited for.
            Ok(true) => effects.complete_ahead(ticket, Ok(())),
            Err(refusal) => effects.complete_ahead(ticket, Err(refusal)),
        }
    }

    /// Takes a change up, or says that it is so already.
    fn begin_change(&mut self, ticket: Ticket, change: Change, now: Instant) -> Result<bool, Refusal> {
        let Role::Leader(reign) = &mut self.role else { return Err(Refusal::NotLeader) };
        if reign.task.is_some() || reign.barrier.is_some() {
            return Err(Refusal::Busy);
        }
        let process = |node| ProcessId { node, ..self.process };
        let own = ReplicaSet::from_iter([self.me]);
        let mut heir = None;
        match change {
            Change::Add(node) => match self.configuration.with(process(node))? {
                Some(next) => reign.learner = next.members().last().copied(),
                None => return Ok(true),
            },
            Change::Remove(node) => {
                let Some(next) = self.configuration.without(process(node))? else { return Ok(true) };
                // Those that are left must do without the ones that are silent now.
                if !reign.hears_quorum(&next, self.me, now) {
                    return Err(Refusal::TooFew);
                }
            }
            Change::Lead(node) => {
                let member = self.configuration.on(node).ok_or(Refusal::Impossible)?;
                if node == self.process.node {
                    return Ok(true);
                }
                if reign.contact.suspects(now).contains(member.replica) {
                    return Err(Refusal::Silent);
                }
                heir = Some(member);
            }
            Change::Resign => {
                heir = Some(reign.heir(&self.configuration, own, now).ok_or(Refusal::Impossible)?);
            }
        }
        let (asked, tried, until) = (None, own, now + TASK_MAX);
        let before = self.queue.values.len();
        reign.task = Some(Task {
            ticket,
            change,
            heir,
            asked,
            tried,
            until,
            heard: now,
            before,
            due: false,
            slot: None,
        });
        Ok(false)
    }

    /// Proposes the change under way, once all that was proposed before is decided: who leads after this one is bound by that
    /// then, and whatever it puts into the change's slot, or in its place, follows the same members. With undecided slots
    /// before it another leader could decide other changes in those, and a vote for this one, met with later, would bring back
    /// members that had gone, and give a seat twice.
    pub(super) fn propose_change(&mut self, effects: &mut Effects<Self>) {
        let Role::Leader(reign) = &mut self.role else { return };
        if reign.barrier.is_some() {
            return;
        }
        let Some(task) = reign.task.as_mut().filter(|task| task.before == 0 && task.slot.is_none()) else {
            return;
        };
        let next = match task.change {
            Change::Add(node) => self.configuration.with(ProcessId { node, ..self.process }),
            Change::Remove(node) => self.configuration.without(ProcessId { node, ..self.process }),
            Change::Lead(_) | Change::Resign => return,
        };
        let Ok(Some(next)) = next else { return };
        task.due = true;
        if reign.next > self.decided {
            return;
        }
        task.slot = Some(reign.next);
        self.propose_slot(Value::Change(Arc::new(next)), 0, effects.now(), effects);
    }

    /// Goes on with a change under way: gives up one that takes too long, hands over when all is decided.
    pub(super) fn pursue(&mut self, effects: &mut Effects<Self>) {
        let (now, decided) = (effects.now(), self.decided);
        let Role::Leader(reign) = &mut self.role else { return };
        let borne = self.parameters.election * NEWCOMER_SILENCE;
        let silent = |task: &Task| matches!(task.change, Change::Add(_)) && now.since(task.heard) >= borne;
        let over = |task: &mut Task| task.slot.is_none() && (task.until <= now || silent(task));
        if let Some(task) = reign.task.take_if(over) {
            reign.learner = None;
            let why = if silent(&task) { Refusal::Silent } else { Refusal::TimedOut };
            effects.complete(task.ticket, Err(why));
            return self.refresh_peers();
        }
        let (ballot, all_decided) = (reign.ballot, reign.next == decided);
        let Some(task) = reign.task.as_mut().filter(|task| task.heir.is_some() && all_decided) else {
            return;
        };
        // The lease need not run out: the heir waits for none whose holder has promised it its ballot, where that reaches it.
        let asked = *task.asked.get_or_insert(now);
        if now.since(asked) >= self.parameters.election {
            return self.next_heir(effects);
        }
        if let Some(heir) = &task.heir {
            let handover = Message::Handover { ballot, decided };
            effects.urgently(|effects| effects.send(heir.process, handover));
        }
    }

    /// The heir has not come forward, and commands have waited for as long as they would if this replica had died.
    fn next_heir(&mut self, effects: &mut Effects<Self>) {
        let Role::Leader(reign) = &mut self.role else { return };
        let Some(mut task) = reign.task.take() else { return };
        if let Some(heir) = task.heir.take() {
            task.tried.insert(heir.replica);
        }
        if task.change == Change::Resign {
            task.heir = reign.heir(&self.configuration, task.tried, effects.now());
        }
        if task.heir.is_none() {
            return effects.complete(task.ticket, Err(Refusal::TimedOut));
        }
        task.asked = None;
        reign.task = Some(task);
        self.pursue(effects);
    }

    /// A change of the members is in force.
    pub(super) fn after_change(&mut self, effects: &mut Effects<Self>) {
        effects.mark(Note::Counted("membership_changes"));
        let (now, members) = (effects.now(), self.configuration.clone());
        let decided = self.decided;
        let Role::Leader(reign) = &mut self.role else { return };
        members.members().iter().for_each(|member| reign.contact.heard(member.replica, now));
        if reign.learner.is_some_and(|learner| members.contains(learner.replica)) {
            reign.learner = None;
        }
        // Those before the change have decided it, and perhaps only this replica knows. Whoever votes for the slot behind it
        // writes down with its vote that the change is decided: once a majority of those after the change has, the group
        // goes on without any minority of them. So a leader that is no member any more leads until then.
        if let Some(task) = &mut reign.task {
            task.slot = task.slot.map(|_| decided);
        }
        if reign.next == decided {
            self.propose_slot(Value::NoOp, 0, now, effects);
        }
    }

    /// Answers for a change whose last slot is decided. Who is no member by it has led until then.
    pub(super) fn end_change(&mut self, effects: &mut Effects<Self>) {
        let decided = self.decided;
        let Role::Leader(reign) = &mut self.role else { return };
        if let Some(task) = reign.task.take_if(|task| task.slot.is_some_and(|slot| slot < decided)) {
            effects.complete(task.ticket, Ok(()));
        }
        let (ballot, next) = (reign.ballot, reign.next);
        if self.is_member() || next > decided {
            return;
        }
        // The group goes on without this replica: whoever is furthest is told to lead at once.
        let heir = self.configuration.members().first().copied();
        self.beat(effects);
        if let Some(heir) = heir {
            effects.send(heir.process, Message::Handover { ballot, decided });
        }
        self.step_down(effects);
    }
}
