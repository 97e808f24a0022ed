//! What a recovery replays, by script: in whatever order and however far it comes (T31); and nothing counts that was
//! parked (T20).

use super::actor::{Count, Wired, process};
use super::crashes::Form::{self, Unified, Usual};
use super::script::Play;
use isochrone_core::{NodeId, ProcessId, Span};
use isochrone_replication::REPLICA;
use isochrone_replication::curp::primary::Message as Spoken;
use isochrone_replication::message::Message;

fn play(f: u16, plans: Vec<Vec<Count>>, delay: u64, bug: Option<&str>, form: Form) -> Play {
    Play::new(2 * f + 1, f, plans, bug, |parameters, _| {
        parameters.sync_delay = Span::from_millis(delay);
        (parameters.lease, parameters.unified) = (false, form == Unified);
    })
}

/// T31, D-48. A client has two answers by its witnesses, and what it asked later says that it has the first. The later
/// one is replayed first; whoever recovers is lost when a copy has that and no more.
fn cut_short(bug: &str, form: Form) -> Result<(), String> {
    let mut play = play(2, vec![vec![Count::add(1), Count::add(2)]], 60_000, Some(bug), form);
    play.until("answers", Play::is_done);
    assert_eq!(play.fast, 2);
    let (_, end) = play.servers[2].process.order().extent();
    play.lose([0], [0]);
    play.lead(1, [2, 3]);
    let replays = |(_, to, message): &(ProcessId, ProcessId, Wired)| match message {
        Message::Order { message: Spoken::Replicate(run), .. } => {
            *to == process(2, REPLICA) && run.at.plus(run.batches.len() as u64) == end.plus(2)
        }
        _ => false,
    };
    play.until("what is replayed", |play| play.net.iter().any(replays));
    let at = play.net.iter().position(replays).unwrap();
    let (from, to, mut message) = play.net.remove(at);
    if let Message::Order { message: Spoken::Replicate(run), .. } = &mut message {
        run.batches.pop();
    }
    play.deliver(from, to, message);
    play.flush(2);
    assert_eq!(play.servers[2].process.order().extent().1, end.next(), "{form:?}");
    play.lose([1], [1]);
    play.forget_sent();
    play.lead(2, [3, 4]);
    play.ends_well()
}

#[test]
fn the_later_of_two_may_be_replayed_first_and_alone() {
    for form in [Usual, Unified] {
        cut_short("replay-backwards", form).unwrap();
        let text = cut_short("honour-acknowledgements", form).unwrap_err();
        assert!(text.contains("counts 0 of k1"), "{form:?}: {text}");
    }
}

/// T20, D-12, the case of the specification: the first of two on one key is executed, and neither recorded nor safe; the
/// second is parked behind it, recorded, and asked for again. Then the master is lost.
fn asked_again(bug: Option<&str>, form: Form) -> (usize, Result<(), String>) {
    let mut play = play(1, vec![vec![]; 2], 20, bug, form);
    let (_, end) = play.servers[1].process.order().extent();
    play.curbed.insert(NodeId(1), end);
    play.idle.extend([0, 1]);
    let patience = Span::from_millis(500);
    play.loses = |message| matches!(message, Message::Order { message: Spoken::Records { .. }, .. });
    play.begin(0, Count::add(1));
    play.attempt(0, true, patience);
    play.pass(Span::from_millis(5));
    play.loses = |_| false;
    play.begin(1, Count::add(1));
    play.attempt(1, true, patience);
    play.pass(Span::from_millis(5));
    assert_eq!((play.answered(), play.holds(1, 1)), (0, Some(1)), "parked and recorded");
    play.attempt(1, true, patience);
    play.pass(Span::from_millis(5));
    let answered = play.answered();
    play.lose([0], [0]);
    play.curbed.clear();
    play.idle.clear();
    play.lead(1, [2]);
    (answered, play.ends_well())
}

#[test]
fn what_is_parked_and_asked_for_again_is_not_answered_before_it_is_safe() {
    for form in [Usual, Unified] {
        assert_eq!(asked_again(None, form), (0, Ok(())), "{form:?}");
        let (answered, ended) = asked_again(Some("speculate-on-duplicate"), form);
        assert_eq!(answered, 1, "{form:?}: the second, by its witness");
        let text = ended.unwrap_err();
        assert!(text.contains("k1 counts 2"), "{form:?}: {text}");
    }
}
