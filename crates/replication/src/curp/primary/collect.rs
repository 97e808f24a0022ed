//! What a master has to do with witnesses: it tells them what to forget (3.7), runs again what stands in the way of
//! others for long (3.8), and as a new master asks one for what it holds (3.14).

use super::Mutation;
use super::lead::Phase;
use super::message::{Message, Note};
use super::order::Order;
use crate::curp::{beside, key_hashes};
use crate::order::Ordered;
use isochrone_core::{CommandId, Effects, Instant, NodeId, ProcessId, Slot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pairs of a message at most.
const PAIRS_MAX: usize = 4_096;
/// Pairs that wait for a witness at most: one that is not told of them runs into them later (3.7).
const PENDING_MAX: usize = 1 << 16;

/// What a witness is to be told.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub(super) struct Collector {
    pending: VecDeque<(u64, CommandId)>,
    /// The one message under way, and since when.
    flight: Option<(Vec<(u64, CommandId)>, Instant)>,
    round: u64,
}

impl Collector {
    /// What the witness is to forget, or is being told to.
    fn pairs(&self) -> impl Iterator<Item = &(u64, CommandId)> {
        let flight = self.flight.iter().flat_map(|(pairs, _)| pairs);
        flight.chain(&self.pending)
    }
}

impl<V: Ordered> Order<V> {
    /// What is in a place is on all backups: witnesses need not keep it.
    pub(super) fn collect_place(&mut self, slot: Slot) {
        let (keyspace, unified) = (self.process.keyspace, self.parameters().unified);
        let (Some(lead), Some(values)) = (&mut self.lead, self.book.get(slot)) else { return };
        for value in values.iter().filter(|value| !value.reads()) {
            let Some(id) = value.id() else { continue };
            lead.suspected.remove(&id);
            // In the unified form it has left them when it came into their logs.
            if unified || beside(id.client.process, self.process) {
                continue;
            }
            let hashes = key_hashes(keyspace, |see| value.visit(see)).unwrap_or_default();
            for node in lead.targets.keys() {
                let collector = lead.collectors.entry(*node).or_default();
                if collector.pending.len() < PENDING_MAX {
                    collector.pending.extend(hashes.iter().map(|hash| (*hash, id)));
                }
            }
        }
    }

    /// One message at a time to each witness.
    pub(super) fn send_collections(&mut self, effects: &mut Effects<Self>) {
        let (now, me) = (effects.now(), self.process);
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.serves()) else { return };
        let master = lead.epoch;
        for (node, collector) in &mut lead.collectors {
            if collector.flight.is_some() || collector.pending.is_empty() {
                continue;
            }
            let count = collector.pending.len().min(PAIRS_MAX);
            let pairs: Vec<_> = collector.pending.drain(..count).collect();
            collector.round += 1;
            collector.flight = Some((pairs.clone(), now));
            let to = ProcessId { node: *node, role: super::WITNESS, ..me };
            effects.mark(Note::Counted("collection_rounds"));
            effects.send(to, Message::Collect { master, round: collector.round, pairs });
        }
    }

    /// What was lost on the way is sent once more.
    pub(super) fn collect_again(&mut self, now: Instant) {
        let patience = self.parameters().resend;
        let Some(lead) = &mut self.lead else { return };
        for collector in lead.collectors.values_mut() {
            if let Some((pairs, _)) = collector.flight.take_if(|(_, since)| now.since(*since) >= patience)
                && collector.pending.len() < PENDING_MAX
            {
                pairs.into_iter().rev().for_each(|pair| collector.pending.push_front(pair));
            }
        }
    }

    /// Runs what a witness suspects as if its client had asked again: it is executed unless it was, and collected
    /// when it is safe. Under any version of the list (D-19), and without what it says of other requests. What lies in the
    /// log and is not safe yet is collected without that: a round lasts as long as the way to one witness and back, and
    /// another copy may be much farther.
    pub(super) fn on_collected(&mut self, from: ProcessId, master: u64, round: u64, suspects: Vec<V>) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.serves() && lead.epoch == master) else {
            return;
        };
        if let Some(collector) = lead.collectors.get_mut(&from.node)
            && collector.round == round
        {
            collector.flight = None;
        }
        if self.handing.is_some() {
            // Whoever is the master next hears of them.
            return;
        }
        let named = suspects.into_iter().filter_map(|value| Some((value.id()?, value)));
        let mut fresh: BTreeMap<CommandId, V> =
            named.filter(|(id, _)| !lead.suspected.contains(id)).collect();
        if fresh.is_empty() {
            return;
        }
        let open = self.book.run(self.book.full(), usize::MAX);
        // A read that is to have its effect comes again as a command, by the same name.
        let commands = open.iter().flat_map(|batch| batch.iter()).filter(|value| !value.reads());
        let collector = lead.collectors.get(&from.node);
        let collected = collector.into_iter().flat_map(Collector::pairs).map(|(_, id)| *id);
        for id in commands.filter_map(Ordered::id).chain(collected) {
            fresh.remove(&id);
        }
        lead.suspected.extend(fresh.keys());
        lead.suspects.extend(fresh.into_values().map(Ordered::alone));
    }

    /// Asks a witness of the old master: that on this node, which has the same disk as this log; later on the others
    /// in turn. One is enough, and no two are merged, since their contents need not commute. In the unified form only
    /// its own store goes with this log, and there is nobody to be asked.
    pub(super) fn ask_witness(&mut self, effects: &mut Effects<Self>) {
        let (me, now) = (self.me(), effects.now());
        let (unified, mixes) = (self.parameters().unified, self.parameters().mutated(Mutation::MixNodes));
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.phase == Phase::Fetching) else { return };
        let Some(crashed) = &lead.crashed else { return };
        if unified && !mixes {
            let (master, epoch) = (crashed.reign.0, lead.epoch);
            return match self.own.stores.contents(master) {
                Some(values) => self.on_contents(master, epoch, Some(values), effects),
                None => {
                    // It has lost what it held (D-2): another copy is to lead.
                    effects.mark(Note::Counted("witnesses_without_contents"));
                    self.step_down(effects);
                }
            };
        }
        let mut witnesses: Vec<NodeId> = crashed.copies.to_vec();
        witnesses.sort_by_key(|node| ((*node != me) != mixes, *node));
        let node = witnesses[lead.asked % witnesses.len()];
        lead.asked += 1;
        lead.asked_at = now;
        let (master, epoch) = (crashed.reign.0, lead.epoch);
        effects.send(self.witness(node), Message::Freeze { master, epoch });
    }

    /// Takes in what one witness held, in any order, behind all that is in the log.
    pub(super) fn on_contents(
        &mut self,
        master: u64,
        epoch: u64,
        values: Option<Vec<V>>,
        effects: &mut Effects<Self>,
    ) {
        let parameters = self.knobs.0;
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.epoch == epoch) else { return };
        let wanted = lead.crashed.as_ref().is_some_and(|crashed| crashed.reign.0 == master);
        if lead.phase != Phase::Fetching || !wanted {
            return;
        }
        let Some(values) = values else {
            // It is no witness of that master any more (D-2): another one is asked when the time has come.
            return effects.mark(Note::Counted("witnesses_without_contents"));
        };
        let held = self.book.undelivered();
        // A read that is to have its effect comes again as a command, by the same name.
        let commands = held.iter().flat_map(|batch| batch.iter()).filter(|value| !value.reads());
        let known: BTreeSet<CommandId> = commands.filter_map(Ordered::id).collect();
        let (mut requests, held) = (BTreeMap::new(), values.len());
        for value in values {
            if let Some(id) = value.id().filter(|id| !known.contains(id)) {
                requests.insert(id, value);
            }
        }
        // In the order of their names: of a client that was restarted the former life comes first. An acknowledgement
        // is left out: it may be of a request that is replayed only now, or not at all if this recovery ends half way
        // (D-48).
        let honours = parameters.mutated(Mutation::HonourAcknowledgements);
        let alone = |request: V| if honours { request } else { request.alone() };
        let mut requests: Vec<V> = requests.into_values().map(alone).collect();
        if parameters.mutated(Mutation::SkipReplay) {
            requests.clear();
        }
        lead.phase = Phase::Syncing;
        effects.mark(Note::Added("replay_filtered", held - requests.len()));
        effects.mark(Note::Added("replay_commands", requests.len()));
        if !requests.is_empty() {
            effects.mark(Note::Counted("requests_replayed"));
            if honours || parameters.mutated(Mutation::ReplayBackwards) {
                requests.into_iter().rev().for_each(|request| self.book.append([request].into()));
            } else {
                self.book.append(requests.into());
            }
        }
        self.check_ready(effects);
    }
}
