//! The search for an order: Wing and Gong's algorithm with Lowe's memory of configurations.
//!
//! A *configuration* is the set of operations already ordered and the state they lead to. Of the known operations
//! (those that were answered) only the *pending* ones can come next: not yet ordered, and invoked no later than the
//! earliest answer among those not yet ordered. Sorted by invocation they are a prefix of what is left, and they
//! determine the ordered set: everything invoked by then is pending or ordered. A configuration is therefore
//! remembered exactly, in a few words, whatever the length of the history.
//!
//! Five observations keep the search small; each only leaves out orders for which an equally good one remains.
//!
//! 1. *Reads at once.* An operation that changes no state and fits the present one is ordered as soon as it is
//!    pending. In any order that has it later, it may be moved here.
//! 2. *Unknown operations as late as possible.* They return never, so only their invocation binds them. If an unknown
//!    `u` comes directly before `o`, and without `u` the operation `o` fits and leads to the same state, `u` need not
//!    happen; if `o` fits and `u` after it leads to the same state, `u` may go behind `o` (for two unknown ones, the
//!    lower number goes first). Such neighbours are skipped. Each rewriting lowers (unknown operations that happen,
//!    positions of reads, known operations behind unknown ones, inversions), so an order without such neighbours
//!    exists if any order does. An order ends with its last known operation.
//! 3. *Alike unknown operations* happen in order of invocation: they can be exchanged.
//! 4. *Unknown operations without a trace* are left out beforehand (`Model::idle`), and none are tried where the model
//!    sees that they cannot help, or that a later answer cannot be reached any more (`Model::is_hopeless`).
//! 5. *Texts that are lost* though somebody still has to read them end it as well ([`crate::texts`]).
//!
//! All the same many unknown writes that do not commute have orders without end, and so have long pipelines that return
//! at once; a wrong guess is found only behind them all. Most histories are explained by few of their unknown operations,
//! and by orders in which each session's operations come as it sent them. So a search can be told which orders to look at
//! ([`Orders`]): `report` tries such ones where all take too long.
//!
//! The rules of 2 look at the operation before, so configurations directly behind an unknown operation are not
//! remembered; those behind a known one are.
//!
//! Where no choice is left open the search forgets what led there, so that memory follows the concurrency of a
//! history, not its length.
//!
//! Sources: Wing and Gong, "Testing and verifying concurrent objects" (1993); Lowe, "Testing for linearizability"
//! (2017); Horn and Kroening, "Faster linearizability checking via P-compositionality" (2015).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::history::Value;
use crate::model::{Model, Step};
use crate::planted::{Mutation, planted};
use crate::report::Meter;
use crate::texts::Needs;
use crate::zones;

/// An operation that was answered.
pub(crate) struct Known<'h, O> {
    pub(crate) op: O,
    pub(crate) observed: Option<&'h Value>,
    pub(crate) invoked: u64,
    pub(crate) returned: u64,
    /// The client, its session, and the place there.
    pub(crate) said: (u64, u64, u64),
}

/// An operation whose outcome nobody knows.
pub(crate) struct Unknown<O> {
    pub(crate) op: O,
    pub(crate) invoked: u64,
}

/// Which orders a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orders {
    /// How many unknown operations may happen.
    pub(crate) most: usize,
    /// Whether known operations come in the order of their sessions, which is more than times say where several of a session
    /// were under way at once.
    pub(crate) in_sessions: bool,
}

impl Orders {
    pub(crate) const ALL: Orders = Orders { most: usize::MAX, in_sessions: false };
}

/// What the search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An order that explains every known operation.
    Order,
    /// No order does.
    Nothing,
    /// The budget ended first, or only orders that were not to be looked at are left.
    OutOfBudget,
}

/// Searches an order of `known`, with some of `unknown` among them, over a component of `keys` keys.
pub(crate) fn search<M: Model>(
    model: &M,
    keys: usize,
    known: Vec<Known<'_, M::Op>>,
    unknown: Vec<Unknown<M::Op>>,
    orders: Orders,
    meter: &mut Meter<'_>,
) -> Found {
    if keys == 1
        && let Some(found) = zones::decide(model, &known, &unknown)
    {
        meter.spend_many(known.len() as u64);
        return found;
    }
    search_orders(model, keys, known, unknown, orders, meter)
}

/// The search itself, for any component.
pub(crate) fn search_orders<M: Model>(
    model: &M,
    keys: usize,
    mut known: Vec<Known<'_, M::Op>>,
    mut unknown: Vec<Unknown<M::Op>>,
    orders: Orders,
    meter: &mut Meter<'_>,
) -> Found {
    known.sort_by_key(|operation| (operation.invoked, operation.returned));
    unknown.retain(|operation| !model.reads(&operation.op, None) && !planted(Mutation::UnknownNeverHappens));
    let idle = {
        let known: Vec<_> = known.iter().map(|operation| (&operation.op, operation.observed)).collect();
        let unknown: Vec<_> = unknown.iter().map(|operation| &operation.op).collect();
        if unknown.is_empty() { Vec::new() } else { model.idle(&known, &unknown) }
    };
    let mut idle = idle.into_iter();
    unknown.retain(|_| !idle.next().unwrap_or(false));
    unknown.sort_by_key(|operation| operation.invoked);
    Search::new(model, keys, known, unknown, orders, meter).run(model.initial(keys))
}

/// A candidate for the next place in the order.
#[derive(Clone, Copy)]
enum Choice {
    Known(u32),
    Unknown(u32),
}

/// What else may come next at a node.
enum Open<S> {
    /// This choice fits, and leads to this state.
    Ready(Choice, S),
    /// Unknown operations from this number on have not been tried.
    Unknown(u32),
    Closed,
}

/// A node of the search: a configuration on the way from the start to the present.
struct Node<S> {
    /// The state here.
    state: S,
    /// The pending operations, as a range of `Search::pending`.
    pending: std::ops::Range<usize>,
    /// How many operations were ordered before this node's own.
    trail: usize,
    /// The next pending operation to try.
    cursor: usize,
    /// The earliest answer among the pending operations, in nanoseconds.
    horizon: u64,
    open: Open<S>,
    /// Whether it was asked if unknown operations can help here.
    is_weighed: bool,
    /// The unknown operation that led here, if nothing was ordered since, and the state before it.
    behind: Option<(u32, S)>,
    /// The unknown operation to take back when this node is left.
    applied: Option<u32>,
}

/// A remembered configuration.
#[derive(PartialEq, Eq, Hash)]
struct Configuration<S> {
    pending: Box<[u32]>,
    /// Which unknown operations happened, as a number for the set.
    applied: u32,
    state: Option<S>,
}

struct Search<'m, 'h, 'b, 'c, M: Model> {
    model: &'m M,
    known: Vec<Known<'h, M::Op>>,
    /// Whether the known operation changes no state.
    reads: Vec<bool>,
    /// Whether the model is asked if unknown operations can help.
    looks_ahead: bool,
    /// Whether it pays to look ahead to the known operation; empty if it pays for none.
    witness: Vec<bool>,
    unknown: Vec<Unknown<M::Op>>,
    /// The unknown operation alike to this one that was invoked just before it.
    alike: Vec<Option<u32>>,
    // The known operations not yet ordered, by invocation, as a ring through `known.len()`.
    after: Vec<u32>,
    before: Vec<u32>,
    /// The known operations ordered, in order, and which they are.
    trail: Vec<u32>,
    ordered: Vec<bool>,
    /// The known operation that comes before this one in its session; empty if that does not matter.
    earlier: Vec<Option<u32>>,
    pending: Vec<u32>,
    nodes: Vec<Node<M::State>>,
    /// How many nodes have something left to try.
    choices: usize,
    /// How many unknown operations may happen.
    most: usize,
    /// Whether an order was left out that is not to be looked at.
    is_cut: bool,
    /// The texts that are still to be read, if they say anything.
    needs: Option<Needs>,
    happened: Vec<bool>,
    /// The unknown operations that happened, sorted, and a number for that set once it was asked for.
    applied: Vec<u32>,
    applied_id: Option<u32>,
    sets: FxHashMap<Box<[u32]>, u32>,
    visited: FxHashSet<Configuration<M::State>>,
    /// About how many bytes `visited` holds.
    remembered: usize,
    meter: &'b mut Meter<'c>,
}

/// What became of a configuration that was entered.
enum Entered {
    /// Every known operation is ordered.
    Complete,
    /// A node was made for it.
    Node,
    /// It was seen before, or leads nowhere; everything done for it is taken back.
    Dead,
}

/// The operation before each in its session.
fn earlier_in_session<O>(known: &[Known<'_, O>]) -> Vec<Option<u32>> {
    let mut by_session: Vec<u32> = (0..known.len() as u32).collect();
    by_session.sort_by_key(|number| known[*number as usize].said);
    let mut earlier = vec![None; known.len()];
    for pair in by_session.windows(2) {
        let said = [pair[0], pair[1]].map(|number| known[number as usize].said);
        if said[0].0 == said[1].0 && said[0].1 == said[1].1 {
            earlier[pair[1] as usize] = Some(pair[0]);
        }
    }
    earlier
}

impl<'m, 'h, 'b, 'c, M: Model> Search<'m, 'h, 'b, 'c, M> {
    fn new(
        model: &'m M,
        keys: usize,
        known: Vec<Known<'h, M::Op>>,
        unknown: Vec<Unknown<M::Op>>,
        orders: Orders,
        meter: &'b mut Meter<'c>,
    ) -> Self {
        let count = known.len() as u32;
        let reads = known
            .iter()
            .map(|operation| {
                model.reads(&operation.op, operation.observed) || planted(Mutation::WritesTakenEagerly)
            })
            .collect();
        let looks_ahead = keys == 1 && !unknown.is_empty();
        let witness = if !looks_ahead {
            Vec::new()
        } else {
            let known: Vec<_> = known.iter().map(|operation| (&operation.op, operation.observed)).collect();
            let unknown: Vec<_> = unknown.iter().map(|operation| &operation.op).collect();
            let witness = model.witnesses(&known, &unknown);
            if witness.contains(&true) { witness } else { Vec::new() }
        };
        let mut last: FxHashMap<&M::Op, u32> = FxHashMap::default();
        let alike = unknown.iter().enumerate().map(|(place, operation)| {
            let earlier = last.insert(&operation.op, place as u32);
            if planted(Mutation::UnknownAllAlike) { (place as u32).checked_sub(1) } else { earlier }
        });
        let alike = alike.collect();
        let needs = Needs::new(model, &known, &unknown);
        let earlier = if orders.in_sessions { earlier_in_session(&known) } else { Vec::new() };
        Search {
            model,
            reads,
            looks_ahead,
            witness,
            alike,
            after: (1..=count).chain([0]).collect(),
            before: [count].into_iter().chain(0..count).collect(),
            trail: Vec::new(),
            pending: Vec::new(),
            nodes: Vec::new(),
            choices: 0,
            most: orders.most,
            is_cut: false,
            ordered: vec![false; known.len()],
            earlier,
            needs,
            happened: vec![false; unknown.len()],
            applied: Vec::new(),
            applied_id: None,
            sets: FxHashMap::from_iter([(Box::from([]), 0)]),
            visited: FxHashSet::default(),
            remembered: 0,
            known,
            unknown,
            meter,
        }
    }

    fn run(mut self, initial: M::State) -> Found {
        if let Entered::Complete = self.enter(None, initial, 0, None, None) {
            return Found::Order;
        }
        while let Some(node) = self.nodes.last_mut() {
            if self.meter.is_spent() {
                return Found::OutOfBudget;
            }
            let open = std::mem::replace(&mut node.open, Open::Closed);
            self.choices -= usize::from(!matches!(open, Open::Closed));
            let chosen = match open {
                Open::Ready(choice, state) => Some((choice, state)),
                Open::Unknown(from) => self.next_unknown(from),
                Open::Closed => None,
            };
            let Some((choice, state)) = chosen else {
                if planted(Mutation::NoBacktracking) {
                    return Found::Nothing;
                }
                self.leave();
                continue;
            };
            let open = match choice {
                Choice::Known(_) => self.next_known(),
                Choice::Unknown(number) => self.rest_unknown(number + 1),
            };
            self.choices += usize::from(!matches!(open, Open::Closed));
            let top = self.nodes.len() - 1;
            self.nodes[top].open = open;
            let behind = match choice {
                Choice::Known(_) => None,
                Choice::Unknown(number) => Some((number, self.nodes[top].state.clone())),
            };
            let before = self.needs.is_some().then(|| self.nodes[top].state.clone());
            if self.choices == 0 {
                self.forget();
            }
            let trail = self.trail.len();
            let applied = match choice {
                Choice::Known(number) => {
                    self.lift(number);
                    None
                }
                Choice::Unknown(number) => {
                    self.apply(number);
                    Some(number)
                }
            };
            if let Entered::Complete = self.enter(before, state, trail, behind, applied) {
                return Found::Order;
            }
        }
        if self.is_cut { Found::OutOfBudget } else { Found::Nothing }
    }

    /// Orders every read that fits `state`, to which a step from `before` led, and makes a node for what is then reached.
    fn enter(
        &mut self,
        before: Option<M::State>,
        state: M::State,
        trail: usize,
        behind: Option<(u32, M::State)>,
        applied: Option<u32>,
    ) -> Entered {
        let ring = self.known.len() as u32;
        let start = self.pending.len();
        let ordered = self.trail.len();
        let mut horizon = u64::MAX;
        let mut next = self.after[ring as usize];
        // The horizon never falls below the invocation of a pending operation already passed, because operations
        // come by invocation and none returns before it was invoked; so one pass finds them all. Reads do not change
        // the state, so those passed over stay illegal.
        while next != ring {
            let operation = &self.known[next as usize];
            let comes = if planted(Mutation::TiesOrdered) {
                operation.invoked < horizon
            } else {
                operation.invoked <= horizon || planted(Mutation::RealTimeIgnored)
            };
            if !comes {
                break;
            }
            let is_free = !self.waits(next);
            let operation = &self.known[next as usize];
            let following = self.after[next as usize];
            let taken = is_free && self.reads[next as usize] && {
                self.meter.spend();
                match self.model.step(&state, &operation.op, operation.observed) {
                    Step::Illegal => false,
                    Step::Same => true,
                    Step::Next(_) => {
                        debug_assert!(planted(Mutation::WritesTakenEagerly), "a read changed the state");
                        true
                    }
                }
            };
            if taken {
                self.lift(next);
            } else {
                horizon = horizon.min(operation.returned);
                self.pending.push(next);
            }
            next = following;
        }
        let behind = if self.trail.len() > ordered { None } else { behind };
        let complete = self.pending.len() == start;
        if complete && (!planted(Mutation::UnknownMustHappen) || self.applied.len() == self.unknown.len()) {
            return Entered::Complete;
        }
        // Where nothing below can still be tried otherwise, this configuration cannot be met again.
        let lost = match (&self.needs, before) {
            (Some(needs), Some(before)) => {
                self.meter.spend();
                needs.are_lost(self.model, &before, &state)
            }
            _ => false,
        };
        let dead = lost
            || behind.is_none() && self.choices > 0 && !self.remember(start, &state)
            || !self.witness.is_empty() && self.is_doomed(&state);
        self.nodes.push(Node {
            state,
            pending: start..self.pending.len(),
            trail,
            cursor: 0,
            horizon,
            is_weighed: false,
            open: Open::Closed,
            behind,
            applied,
        });
        if dead {
            self.leave();
            return Entered::Dead;
        }
        let open = self.next_known();
        self.choices += usize::from(!matches!(open, Open::Closed));
        // The node was pushed above.
        if let Some(node) = self.nodes.last_mut() {
            node.open = open;
        }
        Entered::Node
    }

    /// Whether the configuration is new; remembers it if there is room.
    fn remember(&mut self, start: usize, state: &M::State) -> bool {
        let applied = self.number_applied();
        let pending =
            &self.pending[if planted(Mutation::MemoIgnoresPending) { self.pending.len() } else { start }..];
        let configuration = Configuration {
            pending: Box::from(pending),
            applied: if planted(Mutation::MemoIgnoresApplied) { 0 } else { applied },
            state: (!planted(Mutation::MemoIgnoresState)).then(|| state.clone()),
        };
        if self.remembered >= self.meter.memory() {
            return !self.visited.contains(&configuration);
        }
        self.remembered += 48 + 4 * configuration.pending.len() + self.model.weight(state);
        self.visited.insert(configuration)
    }

    /// The next pending operation of the topmost node that may come next, or else its unknown operations.
    fn next_known(&mut self) -> Open<M::State> {
        let top = self.nodes.len() - 1;
        loop {
            let node = &self.nodes[top];
            let place = node.pending.start + node.cursor;
            if place >= node.pending.end {
                return self.rest_unknown(0);
            }
            self.nodes[top].cursor += 1;
            let number = self.pending[place];
            // Reads that fit were taken on entry.
            if self.reads[number as usize] || self.waits(number) {
                continue;
            }
            let (node, operation) = (&self.nodes[top], &self.known[number as usize]);
            self.meter.spend();
            let state = match self.model.step(&node.state, &operation.op, operation.observed) {
                Step::Illegal => continue,
                Step::Same => node.state.clone(),
                Step::Next(state) => state,
            };
            if !self.is_passed_over(Choice::Known(number), &state) {
                return Open::Ready(Choice::Known(number), state);
            }
        }
    }

    /// Whether another operation of its session comes first.
    fn waits(&mut self, number: u32) -> bool {
        let earlier = self.earlier.get(number as usize).copied().flatten();
        let waits = earlier.is_some_and(|earlier| !self.ordered[earlier as usize]);
        self.is_cut |= waits;
        waits
    }

    /// The unknown operations of the topmost node from `from` on, if there are any to try.
    fn rest_unknown(&self, from: u32) -> Open<M::State> {
        let limit = self.unknown_limit();
        match (from as usize..limit).find(|number| !self.happened[*number]) {
            Some(number) => Open::Unknown(number as u32),
            None => Open::Closed,
        }
    }

    /// How many unknown operations were invoked early enough to come next.
    fn unknown_limit(&self) -> usize {
        let Some(node) = self.nodes.last() else { return 0 };
        if planted(Mutation::UnknownChainCut) && node.behind.is_some() {
            return 0;
        }
        if planted(Mutation::UnknownBeforeInvocation) {
            return self.unknown.len();
        }
        self.unknown.partition_point(|operation| operation.invoked <= node.horizon)
    }

    fn next_unknown(&mut self, from: u32) -> Option<(Choice, M::State)> {
        let limit = self.unknown_limit();
        if self.looks_ahead && self.nodes.last().is_some_and(|node| !node.is_weighed) && self.is_stuck(limit)
        {
            return None;
        }
        for number in from as usize..limit {
            let waits = self.alike[number].is_some_and(|earlier| !self.happened[earlier as usize]);
            if self.happened[number] || waits {
                continue;
            }
            let node = self.nodes.last()?;
            self.meter.spend();
            // One that does nothing here need not happen here.
            let Step::Next(state) = self.model.step(&node.state, &self.unknown[number].op, None) else {
                continue;
            };
            let choice = Choice::Unknown(number as u32);
            if !self.is_passed_over(choice, &state) {
                self.is_cut |= self.applied.len() >= self.most;
                return (self.applied.len() < self.most).then_some((choice, state));
            }
        }
        None
    }

    /// Whether the model sees that no pending operation can follow the topmost node any more.
    fn is_stuck(&mut self, limit: usize) -> bool {
        let Some(node) = self.nodes.last_mut() else { return false };
        node.is_weighed = true;
        let left = (0..limit).filter(|number| !self.happened[*number]);
        let may: Vec<_> = left.map(|number| &self.unknown[number].op).collect();
        self.meter.spend_many((1 + may.len() * node.pending.len()) as u64);
        let pending = self.pending[node.pending.clone()].iter().map(|number| &self.known[*number as usize]);
        pending
            .into_iter()
            .all(|operation| self.model.is_hopeless(&node.state, &operation.op, operation.observed, &may))
    }

    /// Whether the next operation that shows much of the state cannot be answered as it was any more.
    fn is_doomed(&mut self, state: &M::State) -> bool {
        /// How far to look for it; beyond, too much may happen before.
        const FAR: usize = 64;
        let ring = self.known.len() as u32;
        let mut near =
            std::iter::successors(Some(self.after[ring as usize]), |next| Some(self.after[*next as usize]))
                .take_while(|next| *next != ring)
                .take(FAR);
        let Some(target) = near.find(|next| self.witness[*next as usize]) else { return false };
        let operation = &self.known[target as usize];
        let mut may = Vec::new();
        let mut next = self.after[ring as usize];
        while next != ring && self.known[next as usize].invoked <= operation.returned {
            if next != target {
                may.push(&self.known[next as usize].op);
            }
            next = self.after[next as usize];
        }
        let limit = self.unknown.partition_point(|unknown| unknown.invoked <= operation.returned);
        may.extend(
            (0..limit).filter(|number| !self.happened[*number]).map(|number| &self.unknown[number].op),
        );
        self.meter.spend_many(1 + may.len() as u64);
        self.model.is_hopeless(state, &operation.op, operation.observed, &may)
    }

    /// Whether the unknown operation directly before `choice` makes this order needless; `reached` is the state
    /// after both.
    fn is_passed_over(&mut self, choice: Choice, reached: &M::State) -> bool {
        let Some(node) = self.nodes.last() else { return false };
        let Some((unknown, earlier)) = &node.behind else { return false };
        let (op, observed) = match choice {
            Choice::Known(number) => (&self.known[number as usize].op, self.known[number as usize].observed),
            Choice::Unknown(number) => (&self.unknown[number as usize].op, None),
        };
        self.meter.spend();
        let without = match self.model.step(earlier, op, observed) {
            Step::Illegal => return false,
            Step::Same => earlier.clone(),
            Step::Next(state) => state,
        };
        if without == *reached || planted(Mutation::UnknownPassedOver) {
            return true;
        }
        let may_follow = match choice {
            Choice::Known(_) => true,
            Choice::Unknown(number) => number < *unknown,
        };
        may_follow && {
            self.meter.spend();
            match self.model.step(&without, &self.unknown[*unknown as usize].op, None) {
                Step::Illegal => false,
                Step::Same => without == *reached,
                Step::Next(state) => state == *reached,
            }
        }
    }

    /// Leaves the topmost node and takes back what was done to reach it.
    fn leave(&mut self) {
        let Some(node) = self.nodes.pop() else { return };
        self.pending.truncate(node.pending.start);
        while self.trail.len() > node.trail {
            let Some(number) = self.trail.pop() else { break };
            self.ordered[number as usize] = false;
            if let Some(needs) = &mut self.needs {
                needs.known_is_left(number);
            }
            if planted(Mutation::ReadsNotGivenBack) && self.trail.len() > node.trail {
                continue;
            }
            self.after[self.before[number as usize] as usize] = number;
            self.before[self.after[number as usize] as usize] = number;
        }
        if let Some(number) = node.applied {
            self.happened[number as usize] = false;
            if let Some(needs) = &mut self.needs {
                needs.unknown_is_left(number);
            }
            self.applied.retain(|applied| *applied != number);
            self.applied_id = None;
        }
    }

    /// Nothing before the present can be tried otherwise: lets go of it.
    fn forget(&mut self) {
        const KEPT: usize = 1 << 12;
        self.nodes.clear();
        self.trail.clear();
        self.pending.clear();
        self.remembered = 0;
        if self.visited.capacity() > KEPT {
            self.visited = FxHashSet::default();
        } else if !self.visited.is_empty() {
            self.visited.clear();
        }
    }

    /// Takes a known operation out of the ring and puts it at the end of the order.
    fn lift(&mut self, number: u32) {
        let (before, after) = (self.before[number as usize], self.after[number as usize]);
        self.after[before as usize] = after;
        self.before[after as usize] = before;
        self.trail.push(number);
        self.ordered[number as usize] = true;
        if let Some(needs) = &mut self.needs {
            needs.known_is_done(number);
        }
    }

    fn apply(&mut self, number: u32) {
        self.happened[number as usize] = true;
        if let Some(needs) = &mut self.needs {
            needs.unknown_is_done(number);
        }
        let place = self.applied.partition_point(|applied| *applied < number);
        self.applied.insert(place, number);
        self.applied_id = None;
    }

    fn number_applied(&mut self) -> u32 {
        if let Some(number) = self.applied_id.or_else(|| self.sets.get(self.applied.as_slice()).copied()) {
            return *self.applied_id.insert(number);
        }
        let number = self.sets.len() as u32;
        self.sets.insert(Box::from(self.applied.as_slice()), number);
        *self.applied_id.insert(number)
    }
}
