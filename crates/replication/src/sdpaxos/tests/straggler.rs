//! A sequencer that is slow and not dead (`specs/sdpaxos.md` 4.6, and 8, P1).

use super::*;

/// R1 and R2 ask for slots all the time, 30 a second each.
fn load(group: &mut Group, name: &mut u8) {
    for node in [1, 2] {
        group.propose(node, *name);
        *name = (*name + 1) % 200;
    }
    group.pass_millis(33);
}

#[test]
fn a_slow_sequencer_is_replaced_within_two_seconds() {
    // At any time between two windows.
    for phase in 0..16 {
        let (mut group, mut name) = (Group::new(3, None), 0);
        group.pass_millis(phase * 33);
        for _ in 0..30 {
            load(&mut group, &mut name);
        }
        // It lives, and gives no slots to anybody but itself.
        group.passes = |from, _, message| from != 0 || !orders(message);
        let onset = group.now;
        while group.sequencer().is_none_or(|node| node == 0) {
            let waited = group.now.since(onset);
            assert!(waited <= Span::from_secs(2), "phase {phase}: there after {waited}");
            load(&mut group, &mut name);
        }
    }
}

/// All are overloaded, so the next sequencer is as slow as the last: the views that come are as far apart as the rest
/// between two replacements, which grows, whoever asks for them.
#[test]
fn under_uniform_overload_sequencers_are_replaced_no_more_often_than_the_rest_allows() {
    let (mut group, mut name) = (Group::new(3, None), 0);
    group.passes = |_, _, message| !orders(message);
    let (mut last, mut changes) = (view(1, 0), Vec::new());
    while group.now.since(START) < Span::from_secs(400) {
        for node in 0..3 {
            group.propose(node, name);
            name = (name + 1) % 200;
        }
        group.pass_millis(33);
        let installed = group.orders.iter().map(|order| order.installed).max().unwrap_or(last);
        if installed > last {
            last = installed;
            changes.push(group.now);
        }
    }
    let rest = group.setup.parameters.straggler_rest;
    let apart: Vec<Span> = changes.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(apart.len() >= 4, "{apart:?}");
    for (at, apart) in apart.into_iter().enumerate() {
        let least = rest * (1 << at.min(4));
        assert!(apart >= least && apart <= least + Span::from_secs(3), "change {at}: {apart}, not {least}");
    }
}

/// What the sequencer tells R1 is lost or late: it gets its slots with what others have executed, or with the log of the next
/// view. They have come all the same.
#[test]
fn slots_that_come_by_way_of_others_are_not_waited_for() {
    let (mut group, mut name) = (Group::new(3, None), 0);
    group.passes = |_, to, message| to != 1 || !orders(message);
    let asks = |group: &mut Group, name: &mut u8| {
        group.propose(1, *name);
        *name = (*name + 1) % 200;
    };
    for _ in 0..90 {
        asks(&mut group, &mut name);
        group.pass_millis(33);
    }
    assert!(group.executed[1].len() > 60, "{}", group.executed[1].len());
    assert_eq!((group.sequencer(), group.orders[1].view), (Some(0), view(1, 0)), "nobody thought it slow");
    group.pass_millis(1_000);
    // R1 hears of these by the log of R2's view.
    for _ in 0..30 {
        asks(&mut group, &mut name);
    }
    group.act(0, |order, effects| order.change(Ticket(5), Change::Lead(NodeId(2)), effects));
    group.deliver();
    group.passes = all;
    group.pass_millis(4_000);
    assert_eq!((group.sequencer(), group.executed[1].len()), (Some(2), 120));
}

/// R1 and R2 think R0 slow, and R1 is asked only once: it thinks so no longer, and says that it lives, before R0 is heard
/// again. Then R2 asks again and follows R0, whose input is late.
#[test]
fn a_lease_is_not_told_before_it_is_given() {
    let mut group = Group::new(3, None);
    group.propose(0, 1);
    group.pass_millis(500);
    let asks = |group: &mut Group, from: usize, to: usize| {
        group.act(to, |order, effects| order.on_slow_query(process(from), view(1, 0), effects));
    };
    asks(&mut group, 2, 1);
    asks(&mut group, 1, 2);
    group.pass_millis(600);
    asks(&mut group, 1, 2);
    let bound = group.orders[1].bound_until(None, group.now);
    assert_eq!(bound, None, "what it granted before it thought R0 slow is over");
    while group.orders[1].straggler.shunned.is_some() {
        assert!(group.pass_one(group.now + Span::from_secs(1)), "nobody has taken its place");
    }
    assert!(group.orders[2].straggler.shunned.is_some());
    asks(&mut group, 2, 1);
    group.passes = |_, to, _| to != 0;
    group.act(2, |order, effects| order.elect(None, effects));
    group.deliver();
    group.propose(2, 2);
    assert_eq!(group.ready[2], [2], "no lease is waited for");
    group.ask(0, 8);
    assert_eq!(group.read[0], [] as [u8; 0], "a write that was answered is overlooked");
}
