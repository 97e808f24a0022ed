//! Commands that a client has sent without waiting are run in that order, whatever is lost on the way to who takes them.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply, key};
use crate::talk::{A, B, C, D, Silent};
use isochrone_core::{NodeId, Random, Span, Ticket};
use isochrone_replication::multipaxos::Form;
use isochrone_replication::{
    Change, Family, Outcome, Placement, Request, curp, epaxos, mencius, multipaxos, sdpaxos,
};
use isochrone_sim::{Config, Simulation};

/// A client that is 10 ms from three replicas, asks the first, and waits for nothing: what it says is numbers.
struct Client<F: Family> {
    cluster: Cluster<F>,
    placement: Placement<Machine, F>,
    answers: Silent,
    said: u64,
}

impl<F: Family> Client<F> {
    fn new(seed: u64, tune: fn(&mut Placement<Machine, F>)) -> Client<F> {
        let nodes = [A, B, C, D];
        let way = |from: NodeId, to: NodeId| if from == to { Span::ZERO } else { Span::from_millis(10) };
        let delays = nodes.map(|from| nodes.map(|to| way(from, to)).to_vec()).to_vec();
        let mut config = Config::new(seed, &["A", "B", "C", "D"], delays);
        (config.sync, config.sessions) = (Span::from_millis(1), 0);
        let mut placement: Placement<Machine, F> = placement(4, 3, 0, Span::from_millis(20));
        tune(&mut placement);
        let mut cluster: Cluster<F> = Simulation::new(config, &placement);
        cluster.boot();
        let mut client = Client { cluster, placement, answers: Silent::default(), said: 0 };
        client.pass(Span::from_secs(1));
        client
    }

    fn pass(&mut self, time: Span) {
        self.cluster.run_for(time, &mut self.answers);
    }

    fn ask(&mut self, ticket: u64, command: Command) {
        let client = self.placement.client(D);
        self.cluster.request(client, Ticket(ticket), Request::Command(command));
    }

    fn say(&mut self) {
        self.said += 1;
        self.ask(self.said, Command::Append(key(1), format!("{} ", self.said)));
    }

    /// In the end all that it has said was run, in that order.
    fn was_heard(mut self, seed: u64) {
        self.pass(Span::from_secs(30));
        self.ask(self.said + 1, Command::Get(key(1)));
        self.pass(Span::from_secs(1));
        assert_eq!(self.cluster.broken(), None);
        let Some(Outcome::Replied(Reply::Text(Some(text)))) = self.answers.0.last() else {
            panic!("{:?}", self.answers.0.last())
        };
        let run: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let expected: Vec<u64> = (1..=self.said).collect();
        assert_eq!(run, expected, "{}, seed {seed}", F::NAME);
    }
}

/// It says them in bursts while its way to the first is cut again and again; and that one may crash, and is there again soon, or
/// hand over to the second, which hands it back.
fn keeps_order<F: Family>(seed: u64, crashes: bool, tune: fn(&mut Placement<Machine, F>)) {
    let mut random = Random::seeded(seed);
    let mut client = Client::new(seed, tune);
    let mut connected = true;
    for _ in 0..60 {
        for _ in 0..1 + random.below(5) {
            client.say();
            client.pass(Span::from_micros(random.below(400)));
        }
        match random.below(if crashes { 5 } else { 3 }) {
            0 | 1 => {
                connected = !connected;
                client.cluster.connect(A, D, connected);
            }
            2 => {}
            3 => {
                for (way, (from, to)) in [(A, B), (B, A)].into_iter().enumerate() {
                    let change = Request::Change(Change::Lead(to));
                    let ticket = Ticket(client.said * 2 + way as u64);
                    client.cluster.request(client.placement.client(from), ticket, change);
                    client.say();
                    client.pass(Span::from_millis(35 + random.below(60)));
                }
            }
            _ => {
                client.cluster.crash(A);
                client.pass(Span::from_millis(random.below(20)));
                client.cluster.restart(A);
            }
        }
        client.pass(Span::from_millis(random.below(15)));
    }
    if !connected {
        client.cluster.connect(A, D, true);
    }
    client.was_heard(seed);
}

#[test]
fn what_is_said_without_waiting_is_run_in_that_order() {
    for seed in 0..10 {
        let prefix = |placement: &mut Placement<Machine, multipaxos::Family>| {
            placement.parameters.form = Form::Prefix;
        };
        keeps_order::<multipaxos::Family>(seed, true, prefix);
        keeps_order::<multipaxos::Family>(seed, false, |_| {});
        keeps_order::<curp::primary::Family>(seed, true, |_| {});
        keeps_order::<curp::consensus::Family>(seed, true, |_| {});
        keeps_order::<mencius::Family>(seed, false, |_| {});
        keeps_order::<epaxos::Family>(seed, false, |_| {});
        keeps_order::<sdpaxos::Family>(seed, false, |_| {});
    }
}

/// The one that settles the order of what the first takes dies. What waits for it is given up and proposed again, in the
/// order in which it was said, and what is said meanwhile comes behind it.
#[test]
fn what_waits_for_a_delegate_that_dies_is_run_in_its_order() {
    let mut random = Random::seeded(0);
    let mut client = Client::<epaxos::Family>::new(0, |_| {});
    client.cluster.crash(B);
    // It is suspected after half a second.
    for _ in 0..200 {
        client.say();
        client.pass(Span::from_micros(random.below(8_000)));
    }
    client.was_heard(0);
}
