//! What one replica holds, as others tell it what is committed.

use super::super::Parameters;
use super::super::message::{Attributes, Committed, Content, InstanceId, Message, Timer};
use super::Order;
use crate::family::Tuning as _;
use crate::order::{Member, Order as _, Ordered, Setup};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, CommandId, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId, Process, ProcessId, Random,
    ReplicaId, Role, Span, Stamp,
};
use std::sync::Arc;

fn process(node: u16) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node), keyspace, partition, role: Role(0), instance: 0 }
}

/// A write, without a name, of the key that it is.
impl Ordered for Blob {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(self, Access::Write));
    }

    fn id(&self) -> Option<CommandId> {
        None
    }

    fn reads(&self) -> bool {
        false
    }
}

/// A replica of three that has executed so many instances of another, each with a hundred keys, while nothing is
/// heard of the third.
fn executed(instances: u64, keep_keys: u64) -> Order<Blob> {
    let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.keep_keys = keep_keys;
    let setup = Setup { members: (0..3).map(member).collect(), preferred: None, parameters };
    let mut order = Order::open(Identity { process: process(0), incarnation: 1 }, &setup);
    let mut outbox = Outbox::<Order<Blob>>::new(process(0), Random::seeded(1));
    let now = Instant::from_nanos(1);
    let batch: Arc<[Blob]> = (0..100).map(|key| Blob::from(vec![key])).collect();
    for number in 1..=instances {
        let (id, content) = (InstanceId::at(1, number), Content::Batch(batch.clone()));
        let list = vec![Committed { id, content, attributes: Attributes::default() }];
        order.receive(process(1), Message::Commit { list }, outbox.input(now, Stamp::ZERO));
        drop(outbox.drain());
        if number % 64 == 0 {
            order.expire(Timer::Heartbeat, outbox.input(now, Stamp::ZERO));
            drop(outbox.drain());
        }
        while order.step(now).is_some() {}
        order.check();
    }
    assert_eq!(order.spaces[1].executed(), instances);
    order
}

#[test]
fn what_a_dead_replica_would_need_is_bounded_by_its_keys() {
    let held = |order: &Order<Blob>| order.spaces[1].end() - order.spaces[1].base();
    let (bounded, free) = (executed(6_000, 50_000), executed(6_000, 1_000_000));
    assert_eq!(held(&free), 6_000);
    assert!((512..3 * 1_024).contains(&held(&bounded)), "{} held", held(&bounded));
    let keys: u64 = bounded.spaces[1].from(0).map(|(_, instance)| instance.keys() as u64).sum();
    assert!(bounded.touched[1].1.abs_diff(keys) <= 64 * 100, "{} counted of {keys}", bounded.touched[1].1);
}
