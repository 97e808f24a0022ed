//! A client of CURP, told what to hear.

use super::client::{Client, Timer};
use super::*;
use crate::message::{Ask, Message, Told};
use crate::replica::tests::Deed::{Append, Clear, Copy, Get};
use crate::replica::tests::{Deed, Knobs, Text, Texts};
use crate::request::{Outcome, Refusal, Request};
use crate::service::Service;
use isochrone_core::{
    Effect, Effects, Identity, Instant, NodeId, Outbox, Process, Random, Stamp, StateMachine, Ticket, Urgency,
};

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
enum Said {
    Records(Records<Deed>),
    Near(Records<Deed>),
    Verdicts(Verdicts),
    View(View),
    Inquire,
}

#[derive(Copy, Clone, Debug)]
struct Told1<const ALL: bool>;

impl<const ALL: bool> Recording<Deed> for Told1<ALL> {
    type Message = Said;
    type Parameters = Knobs;

    const SYNCS_ALL: bool = ALL;

    fn fast_path(_: &Knobs) -> FastPath {
        FastPath { slot_bytes: 100, keys_max: 1, ..FastPath::for_rtt(Span::from_millis(10)) }
    }
    fn records(records: Records<Deed>) -> Said {
        Said::Records(records)
    }
    fn near(records: Records<Deed>) -> Option<Said> {
        Some(Said::Near(records))
    }
    fn reads_nearby(_: &Knobs) -> bool {
        true
    }
    fn heard(message: Said) -> Heard {
        match message {
            Said::Verdicts(verdicts) => Heard::Verdicts(verdicts),
            Said::View(view) => Heard::View(view),
            _ => Heard::Nothing,
        }
    }
    fn view(_: &Setup<Knobs>, _: Reign, _: ProcessId) -> Option<View> {
        None
    }
    fn inquiry(_: &Setup<Knobs>) -> Option<(Vec<ProcessId>, Said)> {
        Some((vec![process(9)], Said::Inquire))
    }
}

type Spoken = Message<Deed, Text, Said>;

fn process(node: u16) -> ProcessId {
    ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
}

/// What a client has sent, in short, and what its host was told.
#[derive(Default, Debug)]
struct Heard1 {
    /// Commands asked for of whom, under which reign, and whether a safe answer is wanted.
    asked: Vec<(u16, Option<Reign>, u64, bool)>,
    /// Records: to whom, under which reign, which number.
    recorded: Vec<(u16, Reign, u64)>,
    /// Reads: of which copy's witness, which number.
    near: Vec<(u16, u64)>,
    /// Which of those asked for come to nothing where others wait.
    repeated: Vec<u64>,
    inquired: usize,
    /// Who was asked for nothing.
    probed: Vec<u16>,
    /// Whom it named as not heard, when it asked last.
    unheard: Vec<u16>,
    outcomes: Vec<Outcome<Text>>,
}

/// Of a family that has a master where `ALL` is so.
struct TableOf<const ALL: bool> {
    client: Client<Texts, Told1<ALL>>,
    outbox: Outbox<Client<Texts, Told1<ALL>>>,
    now: Instant,
    tickets: u64,
}

const FIRST: Reign = Reign(1, 0);
const SECOND: Reign = Reign(1, 1);

type Table = TableOf<false>;

impl<const ALL: bool> TableOf<ALL> {
    fn new(bug: Option<Bug>) -> Self {
        let rtt = Span::from_millis(10);
        let setup = Setup {
            replicas: Arc::from([process(1), process(2), process(3)]),
            members: Arc::from([]),
            leader: Some(process(1)),
            proxy: None,
            service: Service::for_rtt(rtt),
            parameters: Knobs(bug),
        };
        let identity = Identity { process: process(0), incarnation: 1 };
        let client = Client::open(identity, &setup);
        let outbox = Outbox::new(process(0), Random::seeded(1));
        TableOf { client, outbox, now: Instant::ZERO, tickets: 0 }
    }

    /// One that knows the first reign: replica 1 leads, 2 and 3 are witnesses.
    fn ready(bug: Option<Bug>) -> Self {
        let mut table = Self::new(bug);
        table.view(FIRST, [2, 3]);
        // The first command of a view measures the long way.
        table.ask(Append(9, 'x'));
        table.told(1, FIRST, 1, Told::Done(Ok("x".to_owned())));
        table
    }

    fn input(
        &mut self,
        input: impl FnOnce(&mut Client<Texts, Told1<ALL>>, &mut Effects<Client<Texts, Told1<ALL>>>),
    ) -> Heard1 {
        let effects = self.outbox.input(self.now, Stamp::ZERO);
        input(&mut self.client, effects);
        self.client.settle(effects);
        self.client.check();
        let mut heard = Heard1::default();
        for effect in self.outbox.drain() {
            match effect {
                Effect::Send { to, message, urgency, .. }
                    if matches!(message, Message::Requests { .. } | Message::Around(_)) =>
                {
                    let (under, asks, unheard) = match message {
                        Message::Requests { under, asks, .. } => (under, asks, Vec::new()),
                        Message::Around(said) => (said.under, said.asks, said.unheard),
                        other => panic!("{other:?}"),
                    };
                    heard.unheard = unheard.iter().map(|replica| replica.node.0).collect();
                    if urgency == Urgency::Repeat {
                        heard.repeated.extend(asks.iter().map(|ask| ask.sequence));
                    }
                    if asks.is_empty() {
                        heard.probed.push(to.node.0);
                    }
                    let ask = |ask: &Ask<_>| (to.node.0, under, ask.sequence, ask.synced);
                    heard.asked.extend(asks.iter().map(ask));
                }
                Effect::Send { to, message: Message::Order { message, .. }, .. } => match message {
                    Said::Records(records) => {
                        let kept = records.kept.iter().map(|kept| (to.node.0, records.reign, kept.sequence));
                        heard.recorded.extend(kept);
                    }
                    Said::Near(reads) => {
                        heard.near.extend(reads.kept.iter().map(|kept| (to.node.0, kept.sequence)));
                    }
                    Said::Inquire => heard.inquired += 1,
                    other => panic!("{other:?}"),
                },
                Effect::Complete { outcome, .. } => heard.outcomes.push(outcome),
                _ => {}
            }
        }
        heard
    }

    fn ask(&mut self, deed: Deed) -> Heard1 {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.input(|client, effects| client.request(ticket, Request::Command(deed), effects))
    }

    fn hear(&mut self, from: u16, message: Spoken) -> Heard1 {
        self.input(|client, effects| client.receive(process(from), message, effects))
    }

    fn view(&mut self, reign: Reign, witnesses: [u16; 2]) -> Heard1 {
        let witnesses = witnesses.map(process).into();
        let view = View { reign, leader: process(1), witnesses, needed: 2 };
        self.hear(9, Message::Order { epoch: 0, message: Said::View(view) })
    }

    fn told(&mut self, from: u16, reign: Reign, sequence: u64, told: Told<Text>) -> Heard1 {
        let answers = vec![(sequence, told)];
        self.hear(from, Message::Replies { incarnation: 1, reign, spans: None, answers })
    }

    /// The leader says it to who has sent the commands on.
    fn told_by_way(&mut self, of: u16, reign: Reign, answers: Vec<(u64, Told<Text>)>) -> Heard1 {
        let replies = Spoken::Replies { incarnation: 1, reign, spans: None, answers };
        let (_, pass) = replies.for_client(process(0), Some(process(of)));
        self.hear(of, pass)
    }

    fn executed(&mut self, reign: Reign, sequence: u64) -> Heard1 {
        self.told(1, reign, sequence, Told::Speculative(Ok("a".to_owned())))
    }

    fn verdict(&mut self, from: u16, reign: Reign, sequence: u64, accepted: bool) -> Heard1 {
        let verdicts = Verdicts { incarnation: 1, reign, verdicts: vec![(sequence, accepted)] };
        self.hear(from, Message::Order { epoch: 0, message: Said::Verdicts(verdicts) })
    }

    fn fire(&mut self, after: Span, timer: Timer) -> Heard1 {
        self.now = self.now + after;
        self.input(|client, effects| client.expire(timer, effects))
    }
}

fn replied(text: &str) -> Vec<Outcome<Text>> {
    vec![Outcome::Replied(Ok(text.to_owned()))]
}

#[test]
fn one_round_trip() {
    let mut table = Table::ready(None);
    let heard = table.ask(Append(1, 'a'));
    assert_eq!(heard.asked, [(1, Some(FIRST), 2, false)]);
    assert_eq!(heard.recorded, [(2, FIRST, 2), (3, FIRST, 2)]);
    assert_eq!(table.verdict(2, FIRST, 2, true).outcomes, []);
    assert_eq!(table.executed(FIRST, 2).outcomes, []);
    assert_eq!(table.verdict(2, FIRST, 2, true).outcomes, [], "the same one again");
    assert_eq!(table.verdict(3, FIRST, 2, true).outcomes, replied("a"));
    let mut broken = Table::ready(Some(Bug::OneAcceptanceLess));
    broken.ask(Append(1, 'a'));
    broken.verdict(2, FIRST, 2, true);
    assert_eq!(broken.executed(FIRST, 2).outcomes, replied("a"));
}

/// T2: the leader's safe answer needs no witness.
#[test]
fn a_safe_answer_is_enough() {
    let mut table = Table::ready(None);
    table.ask(Append(1, 'a'));
    assert!(table.verdict(2, FIRST, 2, false).asked.is_empty(), "nothing to make safe yet");
    assert_eq!(table.told(1, FIRST, 2, Told::Done(Ok("a".to_owned()))).outcomes, replied("a"));
}

/// T3: what a witness refuses is asked for again, under the same number and the same reign.
#[test]
fn a_refusal_asks_for_a_safe_answer() {
    let mut table = Table::ready(None);
    table.ask(Append(1, 'a'));
    table.executed(FIRST, 2);
    let heard = table.verdict(2, FIRST, 2, false);
    assert_eq!((heard.asked, heard.repeated), (vec![(1, Some(FIRST), 2, true)], vec![]), "nobody asked that");
    assert_eq!(table.verdict(3, FIRST, 2, false).asked, [], "once");
    let retry = Service::for_rtt(Span::from_millis(10)).retry;
    table.fire(retry / 2, Timer::Sweep);
    // Of another command: it lives.
    table.told(1, FIRST, 1, Told::Overloaded);
    let heard = table.fire(retry / 2, Timer::Sweep);
    assert_eq!((heard.asked, heard.repeated), (vec![(1, Some(FIRST), 2, true)], vec![2]));
    assert_eq!(table.told(1, FIRST, 2, Told::Done(Ok("a".to_owned()))).outcomes, replied("a"));
}

/// D-5.
#[test]
fn a_silent_witness_is_waited_for_no_longer_than_its_deadline() {
    let mut table = Table::ready(None);
    table.ask(Append(1, 'a'));
    table.executed(FIRST, 2);
    table.verdict(2, FIRST, 2, true);
    let patience = Service::for_rtt(Span::from_millis(10)).retry / 2;
    assert_eq!(table.fire(patience / 2, Timer::Records).asked, []);
    assert_eq!(table.fire(patience, Timer::Records).asked, [(1, Some(FIRST), 2, true)]);
    assert_eq!(table.verdict(3, FIRST, 2, true).outcomes, replied("a"), "late, and welcome");
}

/// D-7: nothing of a former reign counts.
#[test]
fn under_another_reign_everything_begins_anew() {
    for bug in [None, Some(Bug::MixReigns)] {
        let mut table = Table::ready(bug);
        table.ask(Append(1, 'a'));
        table.verdict(2, FIRST, 2, true);
        table.verdict(3, FIRST, 2, true);
        let redirect =
            Message::Redirect { incarnation: 1, reign: SECOND, leader: Some(process(1)), sequences: vec![2] };
        let heard = table.hear(1, redirect);
        assert_eq!((heard.inquired, heard.asked), (1, vec![]));
        let heard = table.view(SECOND, [3, 2]);
        assert_eq!(heard.asked, [(1, Some(SECOND), 2, true)], "it measures the way, too");
        assert_eq!(heard.recorded, [(3, SECOND, 2), (2, SECOND, 2)]);
        if bug.is_some() {
            assert_eq!(table.executed(FIRST, 2).outcomes, replied("a"));
            continue;
        }
        assert_eq!(table.executed(FIRST, 2).outcomes, []);
        assert_eq!(table.verdict(2, FIRST, 2, true).outcomes, []);
        assert_eq!(table.verdict(3, SECOND, 2, true).outcomes, []);
        assert_eq!(table.executed(SECOND, 2).outcomes, []);
        assert_eq!(table.verdict(2, SECOND, 2, true).outcomes, replied("a"));
    }
}

#[test]
fn before_the_reign_is_known_only_a_safe_answer_counts() {
    let mut table = Table::new(None);
    let heard = table.ask(Append(1, 'a'));
    assert_eq!((heard.asked, heard.recorded), (vec![(1, None, 1, true)], vec![]));
    assert_eq!(heard.inquired, 1);
    assert_eq!(table.executed(FIRST, 1).outcomes, []);
    assert_eq!(table.view(FIRST, [2, 3]).asked, [], "it is on its way");
    assert_eq!(table.told(1, FIRST, 1, Told::Done(Ok("a".to_owned()))).outcomes, replied("a"));
}

#[test]
fn what_no_witness_can_keep_is_not_recorded() {
    let mut table = Table::ready(None);
    for deed in [Clear, Copy(1, 2)] {
        let heard = table.ask(deed);
        assert_eq!(heard.recorded, []);
        assert!(heard.asked[0].3, "{heard:?}");
    }
    for sequence in [2, 3] {
        table.told(1, FIRST, sequence, Told::Done(Ok(String::new())));
    }
    let heard = table.ask(Get(1));
    assert_eq!((heard.recorded, heard.asked[0].3), (vec![], false));
    // A read that would change something is a change.
    let heard = table.told(1, FIRST, 4, Told::Touches);
    assert_eq!(heard.recorded, [(2, FIRST, 4), (3, FIRST, 4)]);
    assert_eq!(table.told(1, FIRST, 4, Told::Read(Ok("b".to_owned()))).outcomes, []);
}

/// Witnesses keep no order: what is to come behind another command of its client is not for them.
#[test]
fn what_follows_an_unanswered_command_on_its_key_is_not_recorded() {
    let mut table = Table::ready(None);
    assert_eq!(table.ask(Append(1, 'a')).recorded, [(2, FIRST, 2), (3, FIRST, 2)]);
    let heard = table.ask(Append(1, 'b'));
    assert_eq!((heard.asked, heard.recorded), (vec![(1, Some(FIRST), 3, true)], vec![]));
    assert_eq!(table.ask(Append(2, 'c')).recorded, [(2, FIRST, 4), (3, FIRST, 4)]);
    for sequence in [2, 3] {
        table.told(1, FIRST, sequence, Told::Done(Ok(String::new())));
    }
    assert_eq!(table.ask(Append(1, 'd')).recorded, [(2, FIRST, 5), (3, FIRST, 5)]);
}

/// Who is not answered asks again, under the same number, another replica in the end; the view is sought.
#[test]
fn a_silent_leader_is_turned_away_from() {
    let mut table = Table::ready(None);
    let retry = Service::for_rtt(Span::from_millis(10)).retry;
    table.ask(Append(1, 'a'));
    let heard = table.fire(retry * 2, Timer::Sweep);
    assert_eq!((heard.asked, heard.unheard), (vec![(2, None, 2, true)], vec![1]));
    assert_eq!((heard.inquired, heard.recorded), (1, vec![]));
    let limit = Service::for_rtt(Span::from_millis(10)).limit;
    assert_eq!(table.fire(limit, Timer::Sweep).outcomes, [Outcome::Unknown]);
}

/// Commands are then asked for of the other under any reign, and nothing but a safe answer counts, whatever witnesses say.
fn served_by_way<const ALL: bool>() {
    let mut table = TableOf::<ALL>::ready(None);
    let retry = Service::for_rtt(Span::from_millis(10)).retry;
    let done = |text: &str| Told::Done(Ok(text.to_owned()));
    table.ask(Append(1, 'a'));
    assert_eq!(table.fire(retry * 2, Timer::Sweep).asked, [(2, None, 2, true)]);
    assert_eq!(table.told_by_way(2, FIRST, vec![(2, done("a"))]).outcomes, replied("a"));

    let heard = table.ask(Append(2, 'b'));
    assert_eq!((heard.asked, heard.recorded, heard.unheard), (vec![(2, None, 3, true)], vec![], vec![1]));
    let tentative = table.told_by_way(2, FIRST, vec![(3, Told::Speculative(Ok("b".to_owned())))]);
    assert_eq!((tentative.outcomes, tentative.asked), (vec![], vec![]));
    for witness in [2, 3] {
        assert_eq!(table.verdict(witness, FIRST, 3, true).outcomes, []);
    }
    let redirect =
        Message::Redirect { incarnation: 1, reign: FIRST, leader: Some(process(1)), sequences: vec![3] };
    assert_eq!(table.hear(2, redirect).asked, [], "nor is it turned to because it leads");
    assert_eq!(table.view(SECOND, [2, 3]).asked, [(2, None, 3, true)], "nor because it goes on to");
    assert_eq!(table.told_by_way(2, SECOND, vec![(3, done("b"))]).outcomes, replied("b"));

    // It is tried, and asked for everything once it answers that itself.
    table.ask(Append(3, 'c'));
    let mut probed = Vec::new();
    for _ in 0..4 {
        let heard = table.fire(retry / 2, Timer::Sweep);
        assert!(heard.asked.iter().all(|(whom, ..)| *whom == 2), "{heard:?}");
        probed.extend(heard.probed);
        table.told_by_way(2, SECOND, vec![]);
    }
    assert_eq!(probed.iter().filter(|whom| **whom == 1).count(), 2, "once in a while: {probed:?}");
    let replies = Message::Replies { incarnation: 1, reign: SECOND, spans: None, answers: vec![] };
    let heard = table.hear(1, replies);
    assert_eq!((heard.asked, heard.unheard), (vec![(1, Some(SECOND), 4, true)], vec![]));
    assert_eq!(table.told_by_way(2, SECOND, vec![]).asked, [], "what comes late changes nothing");
    assert_eq!(table.told(1, SECOND, 4, done("c")).outcomes, replied("c"));
    let heard = table.ask(Append(4, 'd'));
    assert_eq!((heard.asked[0].0, heard.asked[0].1), (1, Some(SECOND)));
    assert_eq!(heard.recorded, [(2, SECOND, 5), (3, SECOND, 5)]);
}

#[test]
fn a_leader_that_is_not_heard_is_asked_by_way_of_another_until_it_is_heard_again() {
    served_by_way::<true>();
    served_by_way::<false>();
}

/// Of it nothing is known.
#[test]
fn who_begins_to_lead_is_asked_itself() {
    let mut table = Table::ready(None);
    let retry = Service::for_rtt(Span::from_millis(10)).retry;
    table.ask(Append(1, 'a'));
    for (next, unheard) in [(2, vec![1]), (3, vec![1, 2])] {
        let heard = table.fire(retry * 2, Timer::Sweep);
        assert_eq!((heard.asked, heard.unheard), (vec![(next, None, 2, true)], unheard));
    }
    let reign = Reign(2, 0);
    let view = View { reign, leader: process(2), witnesses: [1, 3].map(process).into(), needed: 2 };
    let heard = table.hear(3, Message::Order { epoch: 0, message: Said::View(view) });
    assert_eq!((heard.asked, heard.unheard), (vec![(2, Some(reign), 2, true)], vec![]));
    assert_eq!(heard.recorded, [(1, reign, 2), (3, reign, 2)]);
}

/// It would be taken for a word of whoever hands it on, or is for another, or of a former life.
#[test]
fn only_a_leaders_answers_are_heard_by_way_of_another() {
    let mut table = Table::ready(None);
    table.ask(Append(1, 'a'));
    table.executed(FIRST, 2);
    table.verdict(2, FIRST, 2, true);
    let verdicts = Verdicts { incarnation: 1, reign: FIRST, verdicts: vec![(2, true)] };
    let order = Spoken::Order { epoch: 0, message: Said::Verdicts(verdicts) };
    let answers = || vec![(2, Told::Done(Ok("a".to_owned())))];
    let replies =
        |incarnation| Spoken::Replies { incarnation, reign: FIRST, spans: None, answers: answers() };
    for (to, message) in [(0, order), (7, replies(1)), (0, replies(2))] {
        let (_, pass) = message.for_client(process(to), Some(process(3)));
        assert_eq!(table.hear(3, pass).outcomes, []);
    }
    assert_eq!(table.told_by_way(3, FIRST, answers()).outcomes, replied("a"));
}

/// Where there is one master, nobody is asked for what is new while it is silent: it is known then that nothing came of
/// that. What was asked may have been done; a read has no effect anyway.
#[test]
fn what_nobody_was_asked_for_had_no_effect() {
    let mut table = TableOf::<true>::ready(None);
    let Service { retry, limit, .. } = Service::for_rtt(Span::from_millis(10));
    table.ask(Append(1, 'a'));
    assert_eq!(table.ask(Get(2)).asked, [(1, Some(FIRST), 3, false)]);
    let heard = table.fire(retry * 2, Timer::Sweep);
    assert_eq!(heard.asked, [(2, None, 2, true), (2, None, 3, false)]);
    assert_eq!((heard.inquired, heard.probed), (1, vec![2]));
    for deed in [Append(2, 'b'), Append(3, 'c'), Get(4)] {
        let heard = table.ask(deed);
        assert_eq!((heard.asked, heard.recorded), (vec![], vec![]));
    }
    // Not even of those who are asked next.
    let heard = table.fire(retry * 4, Timer::Sweep);
    assert_eq!(heard.asked, [(3, None, 2, true), (3, None, 3, false)]);
    assert_eq!(heard.probed, [3]);
    let nothing = || Outcome::Refused(Refusal::NoLeader);
    assert_eq!(table.fire(limit / 2, Timer::Sweep).outcomes, [nothing(), nothing(), nothing(), nothing()]);
    assert_eq!(table.fire(limit / 2, Timer::Sweep).outcomes, [Outcome::Unknown]);
    assert_eq!(table.ask(Append(5, 'd')).asked, []);
}

/// Seed 67102494 of five regions: a read that was refused had taken away what had expired, and a SET NX of an earlier clock found
/// nothing there.
#[test]
fn of_a_read_that_changes_something_nobody_says_that_nothing_came_of_it() {
    let mut table = TableOf::<true>::ready(None);
    let Service { retry, limit, .. } = Service::for_rtt(Span::from_millis(10));
    table.ask(Get(1));
    table.ask(Get(2));
    table.told(1, FIRST, 2, Told::Touches);
    table.fire(retry * 2, Timer::Sweep);
    let nothing = Outcome::Refused(Refusal::NoLeader);
    assert_eq!(table.fire(limit / 2, Timer::Sweep).outcomes, [nothing]);
    assert_eq!(table.fire(limit / 2, Timer::Sweep).outcomes, [Outcome::Unknown]);
}

/// Whoever leads says so to a request for nothing, and is asked for everything then, in order; so it is under another view.
#[test]
fn what_waited_for_a_master_is_asked_of_it() {
    for another in [false, true] {
        let mut table = TableOf::<true>::ready(None);
        table.ask(Append(1, 'a'));
        let redirect = Message::Redirect { incarnation: 1, reign: FIRST, leader: None, sequences: vec![2] };
        table.hear(1, redirect);
        assert_eq!(table.ask(Append(2, 'b')).asked, []);
        let retry = Service::for_rtt(Span::from_millis(10)).retry;
        let heard = table.fire(retry / 8, Timer::Sweep);
        assert_eq!((heard.asked, heard.probed), (vec![(1, Some(FIRST), 2, true)], vec![1]));
        let verdict = table.verdict(2, FIRST, 2, true);
        assert_eq!(verdict.asked, [], "a witness is not the master");
        if another {
            let asked = table.view(SECOND, [2, 3]).asked;
            assert_eq!(asked, [(1, Some(SECOND), 2, true), (1, Some(SECOND), 3, false)]);
            continue;
        }
        let replies = Message::Replies { incarnation: 1, reign: FIRST, spans: None, answers: vec![] };
        let heard = table.hear(1, replies.clone());
        assert_eq!(heard.asked, [(1, Some(FIRST), 2, true), (1, Some(FIRST), 3, false)]);
        assert_eq!(heard.recorded, [(2, FIRST, 3), (3, FIRST, 3)]);
        assert_eq!(table.hear(1, replies).asked, [], "once");
        assert_eq!(table.ask(Append(3, 'c')).asked, [(1, Some(FIRST), 4, false)]);
    }
}

/// Seed 60002180: one that only says that nobody leads may be no member, and never learn who does. Who leads is believed.
#[test]
fn whoever_only_says_that_nobody_leads_is_left() {
    let mut table = Table::ready(None);
    let retry = Service::for_rtt(Span::from_millis(10)).retry;
    table.ask(Append(1, 'a'));
    let mut asked = Vec::new();
    for _ in 0..9 {
        let redirect = Message::Redirect { incarnation: 1, reign: FIRST, leader: None, sequences: vec![2] };
        table.hear(1, redirect);
        let heard = table.fire(retry / 8, Timer::Sweep);
        asked.extend(heard.asked.iter().map(|(whom, ..)| *whom));
    }
    assert!(asked.contains(&2), "{asked:?}");
    let view = View { reign: FIRST, leader: process(1), witnesses: [2, 3].map(process).into(), needed: 2 };
    let heard = table.hear(1, Message::Order { epoch: 0, message: Said::View(view) });
    assert_eq!(heard.asked, [(1, Some(FIRST), 2, true)]);
}

/// A copy was asked for a read, and the leader was not: the write behind it comes behind it there as well, whatever waits on
/// the way.
#[test]
fn a_read_at_a_copy_is_asked_of_the_leader_before_what_follows_it() {
    let mut table = Table::new(None);
    let witnesses = [1, 3].map(process).into();
    let view = View { reign: FIRST, leader: process(2), witnesses, needed: 2 };
    table.hear(9, Message::Order { epoch: 0, message: Said::View(view) });
    let heard = table.ask(Get(1));
    assert_eq!((heard.near, heard.asked), (vec![(1, 1)], vec![]));
    let heard = table.ask(Copy(2, 1));
    assert_eq!(heard.asked, [(2, Some(FIRST), 1, false), (2, Some(FIRST), 2, true)]);
    assert_eq!(heard.repeated, []);
}

/// The machine of these conversations reads as it says.
#[test]
fn a_read_only_reads() {
    assert!(Texts::reads_only(&Get(1)) && !Texts::reads_only(&Clear));
}
