//! How long a recovery takes (T6), in closed form.
//!
//! The paper counts two round trips and the replay more than the base system's recovery: one to fetch what a witness
//! holds, and one to bring what was replayed to the backups. Here neither is on the way, since both go on beside what the
//! base recovery does anyhow:
//!
//! ```text
//!  manager       new master m        copy b, each of them
//!    |  Ping        |                    |
//!    |------------->|  Freeze to its own witness: Contents at once
//!    |              |  Beat              |
//!    |              |------------------->| promises: the old master is fenced
//!    |              |  Want              |
//!    |              |<-------------------|
//!    |              |  Replicate, whole, with what was replayed
//!    |              |------------------->|
//!    |              |  Acked             |
//!    |  Pong        |<-------------------|
//!    |<-------------|
//! ```
//!
//! `way(manager, m) + max 2 rtt(m, b) + way(m, manager)`, with witnesses or without. The new master is a copy, so there
//! is a witness on its own node: what it holds is in the log before the first `Want` comes.
//!
//! Where that witness is gone, another one `w` is asked at the first beat at which `resend` is over, `P` after the first,
//! and answers at `C = P + rtt(m, w)`. A copy whose `Want` comes later than that loses nothing; any other is sent what
//! was replayed when it has confirmed the log, or at once if it has: it is ready at `max(2 rtt(m, b), C) + rtt(m, b)`.
//! So the paper's two round trips are the most, beside the wait `P`, which is there only where that node's witness is gone
//! and its log is not.

use super::actor::Count;
use super::script::Play;
use isochrone_core::Span;

/// One-way times between nodes, there and back alike.
type Ways = fn(u16, u16) -> Span;

/// The master is node 0, like the manager; the new one is node 1, and its copies are to be 2 and 3.
const COPIES: [u16; 2] = [2, 3];
const HEARTBEAT: Span = Span::from_millis(20);

/// From the managers' decision until it counts; 20 commands are with the witnesses and with no backup. And how often
/// something was replayed.
fn recovery(ways: Ways, resend: Span, bug: Option<&str>, own_witness: bool, unified: bool) -> (Span, u64) {
    let plans = vec![(0..20).map(Count::add).collect()];
    let mut play = Play::new(4, 2, plans, bug, |parameters, _| {
        parameters.sync_delay = Span::from_secs(60);
        (parameters.lease, parameters.heartbeat, parameters.resend) = (false, HEARTBEAT, resend);
        parameters.unified = unified;
    });
    play.until("answers", Play::is_done);
    assert_eq!(play.fast, 20);
    play.far_apart(move |from, to| ways(from.0, to.0));
    play.lose([0], if own_witness { vec![0] } else { vec![0, 1] });
    play.lead(1, COPIES);
    let begun = play.now;
    play.until("another master", |play| play.registry.next.is_none());
    let took = play.now.since(begun);
    let replayed = play.count("requests_replayed");
    if bug.is_none() {
        play.ends_well().unwrap();
    }
    (took, replayed)
}

fn max_rtt(ways: Ways) -> Span {
    COPIES.map(|copy| ways(1, copy) * 2).into_iter().max().unwrap()
}

/// The closed form without witnesses.
fn base(ways: Ways) -> Span {
    ways(0, 1) + max_rtt(ways) * 2 + ways(1, 0)
}

/// The closed form where the witness of node 1 is gone, and that of node 2 is asked.
fn asking(ways: Ways, resend: Span) -> Span {
    let beats = resend.as_nanos().div_ceil(HEARTBEAT.as_nanos());
    let fetched = HEARTBEAT * beats + ways(1, 2) * 2;
    let ready = COPIES.map(|copy| {
        let rtt = ways(1, copy) * 2;
        if fetched < rtt { rtt * 2 } else { (rtt * 2).max(fetched) + rtt }
    });
    ways(0, 1) + ready.into_iter().max().unwrap() + ways(1, 0)
}

#[track_caller]
fn equals(what: &str, took: Span, expected: Span) {
    let apart = took.as_nanos().abs_diff(expected.as_nanos());
    assert!(apart <= 100_000, "{what} took {took}, and the closed form says {expected}");
}

fn evenly<const MICROS: u64>(_: u16, _: u16) -> Span {
    Span::from_micros(MICROS)
}

/// The manager and the old master beside each other in the east, one copy near, one far.
fn unevenly(from: u16, to: u16) -> Span {
    Span::from_millis(match (from.min(to), from.max(to)) {
        (0, 1) => 15,
        (1, 2) => 4,
        (1, 3) => 45,
        (2, 3) => 41,
        _ => 30,
    })
}

/// The only witness that is left is the farthest copy.
fn far_witness(from: u16, to: u16) -> Span {
    Span::from_millis(match (from.min(to), from.max(to)) {
        (1, 2) => 70,
        (1, 3) => 5,
        _ => 20,
    })
}

/// T6.
#[test]
fn a_recovery_takes_what_the_closed_form_says() {
    let cases: [(&str, Ways); 6] = [
        ("1 ms", evenly::<1_000>),
        ("2.5 ms", evenly::<2_500>),
        ("10 ms", evenly::<10_000>),
        ("80 ms", evenly::<80_000>),
        ("unevenly", unevenly),
        ("a far witness", far_witness),
    ];
    for (what, ways) in cases {
        for resend in [60, 70, 400].map(Span::from_millis) {
            // Nothing is asked again that is only on its way.
            let resend = resend.max(max_rtt(ways) + HEARTBEAT);
            let (without, replayed) = recovery(ways, resend, Some("serve-without-witness"), true, false);
            equals(&format!("{what}, none"), without, base(ways));
            assert_eq!(replayed, 0);
            for unified in [false, true] {
                let (took, replayed) = recovery(ways, resend, None, true, unified);
                // Nothing more: neither of the two round trips is on the way.
                equals(&format!("{what}, its own witness, unified: {unified}"), took, base(ways));
                assert_eq!(replayed, 1);
            }
            let (took, replayed) = recovery(ways, resend, None, false, false);
            equals(&format!("{what}, another witness"), took, asking(ways, resend));
            assert_eq!(replayed, 1);
            let wait = resend + HEARTBEAT;
            assert!(took <= base(ways) + ways(1, 2) * 2 + max_rtt(ways) + wait, "{what}: {took}");
        }
    }
}
