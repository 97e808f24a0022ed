//! A master without copies (`copies_min` 0), and how it comes to that and away from it.

use super::actor::{Count, process};
use super::script::Play;
use isochrone_core::{Instant, NodeId, Span};
use isochrone_replication::REPLICA;
use isochrone_replication::curp::primary::Message as Spoken;
use isochrone_replication::message::{Ask, Message};
use isochrone_replication::stream::Said;

/// Without copies, what counts is what is durable at the master: so it is while a list with one is to follow, and from the
/// moment that a list without any is to follow.
#[test]
fn between_a_list_without_copies_and_one_with_some_nothing_counts_that_is_not_durable_at_the_master() {
    for grows in [true, false] {
        let first = u16::from(!grows);
        let mut play = Play::new(3, first, vec![vec![Count::add(1); 3], vec![]], None, |parameters, _| {
            (parameters.copies_min, parameters.sync_delay) = (0, Span::ZERO);
        });
        play.until("answers", Play::is_done);
        play.pass(Span::from_millis(100));
        play.replace(grows.then_some(1));
        if grows {
            play.loses = |message| matches!(message, Message::Order { message: Spoken::Pong { .. }, .. });
            play.until("it is taken on", |play| play.count("lists_begun") == 1);
            play.pass(Span::from_millis(60));
        } else {
            play.until("the list", |play| play.registry.next.is_none());
            play.deaf = Some((NodeId(0), Instant::from_nanos(u64::MAX)));
        }
        play.slow.insert(0);
        play.plans[0] = vec![Count::add(1)].into();
        // Nor is one told anything who goes by no list yet.
        let (id, sequence) = (play.clients[1].id, play.clients[1].sequence + 1);
        play.idle.insert(1);
        play.begin(1, Count::add(2));
        let ask = Ask { sequence, command: Count::add(2), touching: false, synced: false };
        let (below, under, asks) = (sequence, None, vec![ask]);
        let requests =
            Message::Requests { client: id, below, under, asks, forwarded: true, said: Said::Freely };
        play.net.push((id.process, process(0, REPLICA), requests));
        let answered = play.answered();
        play.pass(Span::from_millis(300));
        assert_eq!(play.answered(), answered, "grows: {grows}: it is on no disk that counts");
        play.idle.clear();
        play.restart_server(0);
        play.deaf = None;
        play.loses = |_| false;
        play.slow.clear();
        play.lead(0, grows.then_some(1));
        play.ends_well().unwrap_or_else(|text| panic!("grows: {grows}: {text}"));
    }
}

/// From no copies to one, to another, to none, with writes all the time, and a crash at last.
#[test]
fn copies_come_and_go_to_none() {
    for unified in [false, true] {
        let mut play = Play::new(3, 0, vec![vec![]], None, |parameters, _| {
            (parameters.copies_min, parameters.unified) = (0, unified);
        });
        for (version, copies) in [vec![1], vec![2], vec![], vec![1, 2], vec![]].into_iter().enumerate() {
            play.plans[0].extend((0..40).map(|key| Count::add(key % 3)));
            play.replace(copies);
            play.until("the list", |play| play.registry.next.is_none());
            play.ends_well().unwrap_or_else(|text| panic!("list {version}, unified {unified}: {text}"));
        }
        play.restart_server(0);
        play.lead(0, []);
        play.plans[0].push_back(Count::add(1));
        play.ends_well().unwrap_or_else(|text| panic!("unified {unified}: {text}"));
    }
}
