//! What a witness says, case by case (T11, T13, T48, D-2, D-10, D-32, D-36).

use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::curp::consensus::{Message, Order, Parameters};
use isochrone_replication::order::{Order as _, Reign};

const CLIENT: usize = 9;

struct Cluster(World<Order<Letter>>);

impl Cluster {
    fn new() -> Cluster {
        let mut parameters = Parameters::for_rtt(Span::from_millis(1));
        parameters.log.lease = false;
        let mut world = World::with_hour(3, parameters, Span::from_millis(50));
        world.keep = |message| matches!(message, Message::Verdicts(_));
        world.deliver();
        Cluster(world)
    }

    fn reign(&self, node: usize) -> Reign {
        self.0.order(node).reign()
    }

    /// Whether a witness accepts a letter under a reign, and which one it names.
    fn record(&mut self, node: usize, reign: Reign, letter: &Letter) -> (bool, Reign) {
        self.0.told.clear();
        let values = vec![letter.clone()];
        self.0.send(node, CLIENT, Message::Records { reign, incarnation: 1, values });
        self.0.deliver();
        let [(told, Message::Verdicts(verdicts))] = &self.0.told[..] else { panic!("{:?}", self.0.told) };
        assert_eq!((*told, verdicts.verdicts.len()), (node, 1));
        (verdicts.verdicts[0].1, verdicts.reign)
    }

    fn held(&self, node: usize) -> usize {
        self.0.order(node).witness().len()
    }

    /// Time passes for the followers until one of them leads and serves: which one.
    fn usurped(&mut self) -> usize {
        for _ in 0..60 {
            for node in [1, 2] {
                self.0.fire(node);
                self.0.deliver();
                if self.0.order(node).serves_commands() {
                    return node;
                }
            }
        }
        panic!("nobody comes to lead");
    }
}

#[test]
fn it_takes_what_commutes_once_and_in_its_term_only() {
    let mut cluster = Cluster::new();
    let reign = cluster.reign(0);
    let (one, two) = (Letter::new(1, 1), Letter::new(2, 1));
    assert_eq!(cluster.record(1, reign, &one), (true, reign));
    assert_eq!(cluster.record(1, reign, &one), (true, reign), "again");
    assert_eq!(cluster.record(1, reign, &two), (false, reign), "it does not commute");
    assert_eq!(cluster.record(1, reign, &Letter::new(3, 3)), (true, reign));
    assert_eq!(cluster.held(1), 2);
    for other in [Reign(reign.0 - 1, 0), Reign(reign.0 + 1, 0)] {
        assert_eq!(cluster.record(1, other, &Letter::new(4, 4)), (false, reign));
    }
    assert_eq!(cluster.held(1), 2);
}

#[test]
fn what_it_accepted_is_there_after_a_restart() {
    let mut cluster = Cluster::new();
    let reign = cluster.reign(0);
    let (one, two) = (Letter::new(1, 1), Letter::new(2, 1));
    cluster.record(1, reign, &one);
    cluster.0.crash(1);
    assert_eq!(cluster.record(1, reign, &two), (false, reign));
    assert_eq!(cluster.record(1, reign, &one), (true, reign));
    assert_eq!(cluster.held(1), 1);
}

#[test]
fn what_is_decided_it_forgets_and_accepts_without_holding_it() {
    let mut cluster = Cluster::new();
    let reign = cluster.reign(0);
    let (one, two) = (Letter::new(1, 1), Letter::new(2, 1));
    for node in 0..3 {
        assert!(cluster.record(node, reign, &one).0);
    }
    cluster.0.values = vec![one.clone()];
    cluster.0.propose(0);
    cluster.0.deliver();
    // Heartbeats carry the commit index; who lacks something asks for it.
    for node in [0, 1, 2] {
        cluster.0.fire(node);
        cluster.0.deliver();
    }
    assert_eq!([0, 1, 2].map(|node| cluster.held(node)), [0; 3]);
    assert_eq!(cluster.record(1, reign, &one), (true, reign), "late");
    assert_eq!(cluster.held(1), 0);
    assert_eq!(cluster.record(1, reign, &two), (true, reign));
    // What comes back is what was there: the first was cleared before the second came.
    cluster.0.crash(1);
    assert_eq!(cluster.held(1), 1);
    assert_eq!(cluster.record(1, reign, &two), (true, reign));
}

/// The old leader is asked in its term, and all have accepted; it has the command in no log but its own.
#[test]
fn a_new_leader_brings_back_what_all_witnesses_hold_and_refuses_the_old_term() {
    let mut cluster = Cluster::new();
    let reign = cluster.reign(0);
    let (one, lone) = (Letter::new(1, 1), Letter::new(2, 2));
    for node in 0..3 {
        assert!(cluster.record(node, reign, &one).0);
    }
    assert!(cluster.record(2, reign, &lone).0);
    let heir = cluster.usurped();
    let next = cluster.reign(heir);
    assert!(next > reign);
    assert!(cluster.0.was_given(heir, 1), "it has executed it before it takes commands");
    assert!(!cluster.0.was_given(heir, 2), "one of three is not enough");
    for node in 0..3 {
        assert_eq!(cluster.record(node, reign, &Letter::new(3, 3)), (false, next), "at {node}");
    }
    assert!(cluster.record(0, next, &Letter::new(3, 3)).0);
}
