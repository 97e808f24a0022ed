//! How a keyspace stands, as far as its node knows: who leads, who is reached, what is missing.

use super::{DRIVEN, KeyspaceStatus, LEADERLESS, Members, Moving, ProcessStatus, Reporter, Served, UNENDED};
use crate::figures::Figures;
use crate::gateway::{Full, KeyspaceView};
use crate::reactor::peers::Peers;
use isochrone_core::{Instant, KeyspaceId, NodeId, PartitionId, Span};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

impl Reporter {
    /// Remembers since when moves have been known that are not over.
    pub(super) fn see_moves(&mut self, now: Instant) {
        let mut moving = BTreeSet::new();
        for (process, status) in &self.processes {
            let stands = status.stands.iter().filter(|((what, _), value)| *what == UNENDED && **value > 0);
            moving.extend(stands.map(|((_, from), _)| (process.keyspace, PartitionId(*from))));
        }
        self.moving.retain(|group, _| moving.contains(group));
        for group in moving {
            self.moving.entry(group).or_insert(now);
        }
    }

    /// The moves of a keyspace that are not over.
    pub(super) fn moves(&self, keyspace: KeyspaceId, now: Instant) -> Vec<Moving> {
        let ends = (keyspace, PartitionId(0))..=(keyspace, PartitionId(u16::MAX));
        let told = |(&(_, from), since): (&(KeyspaceId, PartitionId), &Instant)| {
            let drives =
                |status: &ProcessStatus| status.stands.get(&(DRIVEN, from.0)).is_some_and(|moves| *moves > 0);
            Moving {
                from: from.0,
                seconds: now.since(*since).as_nanos() / 1_000_000_000,
                driven: self.of(keyspace, 0..=u16::MAX).any(drives),
            }
        };
        self.moving.range(ends).map(told).collect()
    }
    /// How a keyspace stands; what of it clients are shown goes into the view.
    pub(super) fn keyspace(
        &self,
        served: &Served,
        view: &mut KeyspaceView,
        peers: &Peers,
        now: Instant,
    ) -> KeyspaceStatus {
        let partitions = || (0..served.partitions).map(PartitionId);
        let leaders: Vec<Option<NodeId>> =
            partitions().map(|partition| self.leader(served, partition, peers)).collect();
        let leader = leaders.first().copied().flatten();
        let name = |node: NodeId| self.names.get(usize::from(node.0)).cloned().unwrap_or_default();
        view.leader = leader.map(|leader| name(leader).1);
        view.leaders = leaders.iter().map(|leader| leader.map(|leader| name(leader).1)).collect();
        view.leads = leaders.contains(&Some(self.me));
        view.keys = self.keys(served.id);
        view.expired = self.stands(served.id, "keys_expired").sum();
        let reaches = |node: &NodeId| self.reaches(*node, served.id, peers);
        let among = |nodes: &[NodeId]| nodes.iter().filter(|node| reaches(node)).count();
        let grown = among(&served.nodes) + among(&served.spares);
        let all = served.nodes.len() + served.spares.len();
        let quorums = partitions().map(|partition| match self.members(served, partition) {
            Some(members) => {
                let (reachable, all) = (among(members), members.len());
                (reachable > all / 2, reachable, all)
            }
            // Where the keyspace has grown, a majority of all may do without those that began.
            None => {
                let begun = served.begun(partition);
                let grown: Vec<NodeId> =
                    served.spares.iter().copied().filter(|node| !begun.contains(node)).collect();
                let (reachable, more) = (among(begun), among(&grown));
                let all = begun.len() + grown.len();
                (reachable > begun.len() / 2 || reachable + more > all / 2, reachable, begun.len())
            }
        });
        let members: Vec<&[NodeId]> =
            partitions().map(|at| self.members(served, at).unwrap_or(served.begun(at))).collect();
        let beside = served.spares.iter().filter(|node| !served.nodes.contains(node));
        let spares = served
            .nodes
            .iter()
            .chain(beside)
            .filter(|node| !members.iter().any(|members| members.contains(node)))
            .map(|node| name(*node).0)
            .collect();
        view.full = self.full(served, &members, peers, now);
        let cut_off = self.cut_off(&leaders, &members, peers, now, &reaches);
        let applied = self.of(served.id, 0..=u16::MAX).any(|status| status.applied.is_some());
        // There is no keyspace without a partition.
        let (ready, reachable, replicas) = quorums.min().unwrap_or_default();
        view.replicas = replicas as u32;
        let mut status = KeyspaceStatus {
            id: served.id.0,
            name: view.name.clone(),
            index: view.index,
            protocol: view.protocol,
            guarantee: view.guarantee,
            leader: leader.map(|leader| name(leader).0),
            leader_region: view.leader.clone(),
            leaders: leaders.iter().map(|leader| leader.map(|leader| name(leader).0)).collect(),
            chosen: served.masterless.is_some(),
            members: members.iter().map(|nodes| nodes.iter().map(|node| name(*node).0).collect()).collect(),
            spares,
            replicas,
            reachable: (reachable, replicas),
            ready,
            awaited: Vec::new(),
            cut_off: cut_off.into_iter().map(|node| name(node).0).collect(),
            full: view.full.iter().map(|full| full.node.clone()).collect(),
            applied: applied.then(|| served.metrics.applied.load(Relaxed)),
            moving: self.moves(served.id, now),
            recent: Figures::default(),
            bound_ms: self.bound_ms(served, peers),
        };
        if let Some(most) = served.masterless {
            // A deployment has at most 7 replicas.
            status.replicas = self.replicas(served.id).map_or(served.nodes.len(), |now| now as usize);
            view.replicas = status.replicas as u32;
            status.reachable = (grown, all);
            let serves = |partition: &PartitionId| {
                self.last_served(served, *partition, peers).is_some_and(|last| now.since(last) < most)
            };
            status.ready = partitions().all(|partition| serves(&partition));
            // Where most of those are away that agree on it, the list may have changed since this node heard of it.
            if grown > all / 2 {
                let waiting = partitions().filter(|partition| !serves(partition));
                let mut awaited = waiting.map(|partition| self.awaited(served, partition, peers));
                let first = awaited.find(|nodes| !nodes.is_empty()).unwrap_or_default();
                status.awaited = first.iter().map(|node| name(*node).0).collect();
            }
        } else if served.led {
            status.ready &= !partitions().any(|partition| self.misses_leader(served, partition, peers, now));
        }
        status
    }

    /// The nodes for which a keyspace, whose partitions have these members, takes nothing more that makes data grow: this one, and of
    /// its members, or of all that it may be at where the protocol chooses, those that have said of late that they are full.
    fn full(&self, served: &Served, members: &[&[NodeId]], peers: &Peers, now: Instant) -> Vec<Full> {
        let own = self.board.metrics.memory.exceeded();
        if own.is_none() && peers.without_memory.is_empty() {
            return Vec::new();
        }
        let mut nodes: BTreeSet<NodeId> = members.iter().copied().flatten().copied().collect();
        if served.masterless.is_some() {
            nodes.extend(served.nodes.iter().chain(&served.spares));
        }
        nodes.insert(self.me);
        let full = |node: NodeId| {
            let limit = if node == self.me { own } else { peers.full(node, now) };
            let (name, _) = self.names.get(usize::from(node.0)).cloned().unwrap_or_default();
            Some(Full { node: name, limit: limit? })
        };
        nodes.into_iter().filter_map(full).collect()
    }

    /// Whether another node led a partition when this one last heard of a leader or led itself, and that is long ago: it is away,
    /// or at least nothing comes from it. Where none was ever heard of, nothing is missed.
    fn misses_leader(&self, served: &Served, partition: PartitionId, peers: &Peers, now: Instant) -> bool {
        self.leader(served, partition, peers).is_some_and(|node| node != self.me)
            && self.last_served(served, partition, peers).is_some_and(|last| now.since(last) >= LEADERLESS)
    }

    /// Of the leaders of a keyspace's partitions, which have these members, those to which this node has had no link for long, although
    /// it reaches others of their members.
    pub(super) fn cut_off(
        &self,
        leaders: &[Option<NodeId>],
        members: &[&[NodeId]],
        peers: &Peers,
        now: Instant,
        reaches: &dyn Fn(&NodeId) -> bool,
    ) -> BTreeSet<NodeId> {
        let down = |leader: &NodeId| {
            let link = peers.links.get(leader).filter(|link| !link.ready());
            link.and_then(|link| link.down).is_some_and(|since| now.since(since) >= LEADERLESS)
        };
        let others = |members: &[NodeId]| members.iter().any(|node| *node != self.me && reaches(node));
        let each = leaders.iter().zip(members);
        each.filter_map(|(leader, members)| leader.filter(|leader| down(leader) && others(members))).collect()
    }

    /// The nodes of which one must come before a partition can have a master again, where the protocol chooses its replicas and as
    /// far as this node knows: the copies, since a master that was started again does not go on by itself; or the master, where it
    /// has no copies. None where one of them is reached, or somebody who leads.
    pub(super) fn awaited(&self, served: &Served, partition: PartitionId, peers: &Peers) -> &[NodeId] {
        let Some(Members { nodes, .. }) = self.members.get(&(served.id, partition)) else { return &[] };
        // The master is told first.
        let able = match &**nodes {
            [_, copies @ ..] if !copies.is_empty() => copies,
            alone => alone,
        };
        let reaches = |node| self.reaches(node, served.id, peers);
        let leads = self.leader(served, partition, peers).is_some_and(reaches);
        let comes = able.iter().any(|node| reaches(*node));
        if leads || comes { &[] } else { able }
    }

    /// The round trip to the nearest majority of the replicas, milliseconds.
    fn bound_ms(&self, served: &Served, peers: &Peers) -> Option<f64> {
        served.metrics.bound(|name| {
            let node = self.names.iter().position(|(node, _)| node == name).map(|at| NodeId(at as u16))?;
            if node == self.me { Some(0.0) } else { peers.round_trip(node).map(Span::as_millis_f64) }
        })
    }

    /// The nodes of the replicas of a partition, where this node's own knows more than the deployment file: it is one of
    /// them, or has learnt of a change.
    pub(super) fn members(&self, served: &Served, partition: PartitionId) -> Option<&[NodeId]> {
        let Members { version, nodes } = self.members.get(&(served.id, partition))?;
        (*version > 0 || nodes.contains(&self.me) || **nodes != *served.begun(partition)).then_some(nodes)
    }

    /// When this node last heard that a partition has a leader, or a master that serves, or had it itself.
    pub(super) fn last_served(
        &self,
        served: &Served,
        partition: PartitionId,
        peers: &Peers,
    ) -> Option<Instant> {
        let group = (served.id, partition);
        self.served.get(&group).max(peers.claimed.get(&group)).copied()
    }

    /// The node that leads a partition, as far as this one has heard.
    pub(super) fn leader(&self, served: &Served, partition: PartitionId, peers: &Peers) -> Option<NodeId> {
        let claims = self.of(served.id, partition.0..=partition.0).filter_map(|status| status.leads);
        match (claims.max(), peers.leaders.get(&(served.id, partition)).copied()) {
            (Some(reign), Some((other, node))) if other > reign => Some(node),
            (Some(_), _) => Some(self.me),
            (None, heard) => heard.map(|(_, node)| node).filter(|node| *node != self.me),
        }
    }

    /// Whether this node reaches that one, or is it, and their files agree on a keyspace.
    pub(super) fn reaches(&self, node: NodeId, keyspace: KeyspaceId, peers: &Peers) -> bool {
        let linked = || peers.links.get(&node).is_some_and(crate::transport::link::Link::ready);
        node == self.me || linked() && !peers.is_apart(node, keyspace)
    }
}
