//! What a reply at commit does not promise (`specs/domino.md` 7.1 and 8, S6): a command that was answered may
//! still get a later place than one that another client asks for afterwards. One client's own keep their order.

use super::lab::{Lab, Plan};
use crate::machine::{Command, Reply, key};
use crate::talk::set;
use isochrone_core::{NodeId, Path, Span};
use isochrone_replication::Outcome;
use isochrone_replication::domino::Extra;
use isochrone_replication::service::Reply as At;

const MS: fn(u64) -> Span = Span::from_millis;

/// Round trips of 10 ms, and this much added to stamps. The last node's client is alone.
fn lab(reply: At, extra: u64) -> Lab {
    let mut lab = Plan::even(3, 5).open(|placement| {
        placement.service.reply = reply;
        placement.parameters.reply = reply;
        placement.parameters.extra = Extra::Fixed(MS(extra));
        placement.parameters.probe_timeout = MS(30);
    });
    lab.pass(MS(1_500));
    lab
}

fn last(lab: &mut Lab) -> Outcome<Reply> {
    lab.pass(MS(500));
    lab.ask(3, Command::Get(key(1)));
    lab.pass(MS(500));
    lab.heard.answers.last().cloned().expect("the read is answered")
}

fn text(text: &str) -> Outcome<Reply> {
    Outcome::Replied(Reply::Text(Some(text.to_owned())))
}

#[test]
fn a_commit_may_be_overtaken_by_what_another_client_asks_for_later() {
    for (reply, expected) in [(At::Commit, "first"), (At::Execute, "second")] {
        let mut lab = lab(reply, 36);
        lab.ask(3, set("first"));
        let first = lab.await_done();
        // Beside a replica the way through its lane is the faster one, and its stamps are nearer.
        lab.ask(1, set("second"));
        let second = lab.await_done();
        assert!(second.at > first.at && second.path == Path::Leader);
        assert_eq!(last(&mut lab), text(expected), "{reply:?}");
    }
}

#[test]
fn what_one_client_asks_for_later_comes_later_whatever_way_it_takes() {
    let mut lab = lab(At::Commit, 150);
    lab.ask(3, set("first"));
    let first = lab.await_done();
    assert_eq!((first.path, first.total), (Path::Fast, MS(10)));
    // Without the third replica only leaders are left, whose stamps are nearer.
    lab.cluster.connect(NodeId(3), NodeId(2), false);
    lab.pass(MS(60));
    lab.ask(3, set("second"));
    assert_eq!(lab.await_done().path, Path::Leader);
    assert!(lab.cluster.now().since(first.at) < MS(150), "the first one's stamp is still ahead");
    assert_eq!(last(&mut lab), text("second"));
}
