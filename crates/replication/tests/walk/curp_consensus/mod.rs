//! Orders in which messages may arrive, timers fire and replicas crash, in small worlds of three and five replicas:
//! commands that conflict and one that does not, recorded at every witness, a failover. Whatever a superquorum has
//! accepted in one term, every leader that serves in a later one has executed (T45, T46).

mod witness;

use crate::steps::Step;
use crate::walk::explore;
use crate::world::{Disks, Letter, World};
use isochrone_core::{Instant, NodeId, Quorums, Random, Span, Ticket};
use isochrone_replication::curp::consensus::{Message, Mutation, Order, Parameters};
use isochrone_replication::order::{Order as _, Reign};
use isochrone_replication::{Change, Tuning as _};
use std::collections::{BTreeMap, BTreeSet};

type Small = World<Order<Letter>>;

const CLIENT: usize = 9;

/// What each superquorum has accepted: the reign and the number.
fn completed(world: &Small, need: usize) -> Vec<(Reign, u64)> {
    let mut accepted = BTreeMap::<(Reign, u64), BTreeSet<usize>>::new();
    for (witness, message) in &world.told {
        let Message::Verdicts(told) = message else { continue };
        for (sequence, kept) in &told.verdicts {
            if *kept {
                accepted.entry((told.reign, *sequence)).or_default().insert(*witness);
            }
        }
    }
    accepted.into_iter().filter(|(_, witnesses)| witnesses.len() >= need).map(|(what, _)| what).collect()
}

fn nothing_completed_is_lost(world: &Small) {
    let completed = completed(world, Quorums::supermajority(world.replicas()));
    for (node, order) in world.orders().enumerate() {
        if !order.serves_commands() && !order.may_read(Instant::from_nanos(world.wall(node))) {
            continue;
        }
        for (reign, number) in &completed {
            if *reign >= order.reign() {
                continue;
            }
            let in_reign = order.reign();
            let number = *number as u8;
            assert!(
                world.was_given(node, number),
                "{number}, completed in {reign:?}, is lost at {node} in {in_reign:?}"
            );
        }
    }
}

/// What a client sends the witnesses: two commands that conflict, and another.
fn letters() -> [Letter; 3] {
    [Letter::new(1, 1), Letter::new(2, 1), Letter::new(3, 2)]
}

/// One that leads, and nothing recorded.
fn quiet_world(replicas: usize, lease: bool, mutation: Option<Mutation>) -> Small {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.log.lease, parameters.mutation) = (lease, mutation);
    (parameters.witness.slots, parameters.witness.ways) = (8, 4);
    let mut world = Small::new(replicas, parameters);
    world.deliver();
    assert!(world.order(0).serves_commands());
    world.keep = |message| matches!(message, Message::Verdicts(_));
    world.watch = nothing_completed_is_lost;
    world
}

fn record(world: &mut Small, node: usize, letter: &Letter) {
    let (reign, values) = (world.order(0).reign(), vec![letter.clone()]);
    world.send(node, CLIENT, Message::Records { reign, incarnation: 1, values });
}

fn world_of(replicas: usize, lease: bool, mutation: Option<Mutation>) -> Small {
    let mut world = quiet_world(replicas, lease, mutation);
    for letter in letters() {
        (0..replicas).for_each(|node| record(&mut world, node, &letter));
    }
    world
}

fn world(replicas: usize, mutation: Option<Mutation>) -> Small {
    let mut world = world_of(replicas, false, mutation);
    world.values = letters()[..2].to_vec();
    world.timers = (0..replicas).map(|node| if node == 0 { 0 } else { 2 }).collect();
    world.crashes = 1;
    world
}

/// This replica is gone for good.
fn lose(world: &mut Small, node: usize) {
    (world.crashes, world.back_at_once) = (1, false);
    world.step(Step::Crash(node, usize::MAX));
}

/// Time passes for these until one of them leads and serves.
fn is_succeeded(world: &mut Small, living: &[usize]) -> bool {
    (0..60).any(|_| {
        living.iter().any(|node| {
            world.fire(*node);
            world.deliver();
            living.iter().any(|node| world.order(*node).serves_commands())
        })
    })
}

/// T45: at every boundary between two messages the leader is lost for good, and with it any others, as many as may be.
#[test]
fn what_a_superquorum_accepted_outlives_its_leader_and_any_others_that_may_be_lost() {
    for (f, orders) in [(1, 80), (2, 20), (3, 6)] {
        let replicas = 2 * f + 1;
        let (mut runs, mut brought_back) = (0, 0);
        for seed in 0..orders {
            let mut random = Random::seeded(seed);
            let mut before = world(replicas, None);
            (before.crashes, before.timers) = (0, vec![0; replicas]);
            loop {
                let complete = completed(&before, Quorums::supermajority(replicas)).len();
                let sets =
                    (0..1_usize << replicas).filter(|set| set.count_ones() as usize == f && set & 1 == 1);
                for set in sets {
                    let is_lost = |node: &usize| set >> node & 1 == 1;
                    let (lost, living): (Vec<usize>, Vec<usize>) = (0..replicas).partition(is_lost);
                    let mut world = before.clone();
                    lost.iter().for_each(|node| lose(&mut world, *node));
                    assert!(is_succeeded(&mut world, &living), "{lost:?} are lost, and nobody leads");
                    runs += 1;
                    brought_back += complete;
                }
                let steps = before.steps();
                if steps.is_empty() {
                    break;
                }
                before.step(steps[random.below(steps.len() as u64) as usize].clone());
            }
        }
        println!("f = {f}: {runs} runs, {brought_back} times something complete was there to be lost");
        assert!(runs > 1_000 && brought_back > 300, "f = {f}: {runs} runs, {brought_back}");
    }
}

/// Three of four witnesses have accepted, the first leader hands over to one of them and is lost, and its removal is asked
/// for before a majority has told the new leader what it holds.
fn succeeded_by_one_who_removes_it(mutation: Option<Mutation>) -> Small {
    let mut world = quiet_world(4, false, mutation);
    world.keep_order();
    // Nobody falls silent.
    world.hour = Span::from_millis(1);
    // Who has missed the first place asks for it.
    for _ in 0..3 {
        (0..4).for_each(|node| world.fire(node));
        world.deliver();
    }
    (0..3).for_each(|node| record(&mut world, node, &letters()[0]));
    world.deliver();
    let change = |world: &mut Small, node, change| {
        world.act(node, |order, effects| order.change(Ticket(1), change, effects));
        world.deliver();
    };
    world.loses = |message| matches!(message, Message::Frozen { .. });
    change(&mut world, 0, Change::Lead(NodeId(1)));
    lose(&mut world, 0);
    assert!(world.order(1).leads() && !world.order(1).serves_commands());
    change(&mut world, 1, Change::Remove(NodeId(0)));
    // The one that holds nothing is heard first.
    world.loses = |message| matches!(message, Message::Frozen { contents, .. } if !contents.is_empty());
    world.fire(1);
    world.deliver();
    world.loses = |_| false;
    world.fire(1);
    world.deliver();
    assert!(world.order(1).serves_commands() && world.was_given(1, 1));
    change(&mut world, 1, Change::Remove(NodeId(0)));
    world
}

/// Of the old members a superquorum has accepted, and of the new ones fewer may have.
#[test]
fn members_change_when_all_is_brought_back() {
    let world = succeeded_by_one_who_removes_it(None);
    assert_eq!(world.order(1).members().len(), 3, "asked again, it is done");
    let early = || succeeded_by_one_who_removes_it(Some(Mutation::ChangeMembersEarly));
    let text = std::panic::catch_unwind(early).map(drop).unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("1, completed in"), "{text}");
}

/// With leases; who is elected waits until the last one has run out.
fn leased(mutation: Option<Mutation>) -> Small {
    let mut world = world_of(3, true, mutation);
    world.timers = vec![0, 3, 3];
    world
}

#[test]
fn what_a_superquorum_accepted_outlives_its_leader() {
    for replicas in [3, 5] {
        let mut world = world(replicas, None);
        let (states, complete) = explore(&world, 40_000);
        println!("{replicas} replicas: {states} states, {complete} walks in which all were given something");
        assert!(states >= 20_000 && complete > 20);
        world.disks = Disks::Slow;
        world.losses = 2;
        let (states, complete) = explore(&world, 40_000);
        println!("{replicas} replicas: {states} states, {complete} walks in which all were given something");
        assert!(states >= 20_000 && complete > 20);
    }
}

/// D-33: nor is anything read before.
#[test]
fn a_leader_with_a_lease_reads_when_all_is_brought_back() {
    let (states, complete) = explore(&leased(None), 40_000);
    println!("{states} states, {complete} walks in which all were given something");
    assert!(states >= 20_000);
}

#[test]
fn a_leader_that_reads_before_its_noop_is_decided_is_stale() {
    is_found_in(&leased(Some(Mutation::ServeBeforeNoop)), Mutation::ServeBeforeNoop);
}

fn is_found(mutation: Mutation, disks: Disks) {
    let mut world = world(3, Some(mutation));
    world.disks = disks;
    is_found_in(&world, mutation);
}

fn is_found_in(world: &Small, mutation: Mutation) {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(world, 300_000)));
    let text = found.map(|_| String::new()).unwrap_or_else(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => String::new(),
    });
    assert!(text.contains("is lost") || text.contains("two orders"), "{}: {text:?}", mutation.name());
}

#[test]
fn a_leader_that_asks_no_witness_loses_commands() {
    is_found(Mutation::SkipReplay, Disks::Instant);
}

/// What was completed is in its log, and not yet executed.
#[test]
fn a_leader_that_takes_commands_before_its_log_is_decided_is_stale() {
    is_found(Mutation::PoolNotRebuilt, Disks::Instant);
}

/// D-33.
#[test]
fn a_leader_that_takes_commands_before_it_replays_is_stale() {
    is_found(Mutation::SpeculateBeforeNoop, Disks::Instant);
}

/// D-31.
#[test]
fn a_leader_that_replays_what_more_than_enough_hold_loses_commands() {
    is_found(Mutation::ReplayMoreThan, Disks::Instant);
}

/// T48.
#[test]
fn a_witness_that_accepts_any_term_loses_commands() {
    is_found(Mutation::AcceptAnyTerm, Disks::Instant);
}

/// D-2.
#[test]
fn a_witness_that_forgets_loses_commands() {
    is_found(Mutation::ForgetRecords, Disks::Instant);
}

/// D-1.
#[test]
fn a_witness_that_accepts_before_its_record_is_durable_loses_commands() {
    is_found(Mutation::AcceptBeforeDurable, Disks::Slow);
}

/// D-36.
#[test]
fn a_witness_that_clears_what_is_not_decided_loses_commands() {
    is_found(Mutation::ClearUndecided, Disks::Instant);
}
