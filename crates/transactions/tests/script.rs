//! Scripted clusters: what is asked when, who fails when, and what is answered.

use crate::latency::Alone;
use isochrone_core::{Blob, Instant, NodeId, PartitionId, ProcessId, Span, Ticket};
use isochrone_replication::Change;
use isochrone_sim::{
    Config, Driver, FaultPlan, FaultSet, FlowEvent, Next, Planned, Record, Session, Simulation,
};
use isochrone_transactions::{Family, Outcome, Placement, Read, Request, Transactional, TxnId, Update};
use std::collections::BTreeMap;

/// Nobody asks anything but the test.
#[derive(Default)]
struct Silent(BTreeMap<Ticket, (Instant, Outcome)>, Instant);

impl<F: Family> Driver<Transactional<F>> for Silent {
    fn next(&mut self, _: Session, _: Instant) -> Next<Request> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: Outcome, _: Instant) {}
    fn answered(&mut self, _: ProcessId, ticket: Ticket, outcome: Outcome, _: bool) {
        self.0.insert(ticket, (self.1, outcome));
    }
}

/// A cluster that does what the test says, a millisecond at a time.
pub struct Play<F: Family> {
    pub cluster: Simulation<Transactional<F>>,
    placement: Placement<F>,
    answers: Silent,
    tickets: u64,
}

impl<F: Family> Play<F> {
    /// With a leader everywhere.
    pub fn new(alone: &Alone<F>) -> Play<F> {
        Play::with_faults(alone, Vec::new())
    }

    /// With a leader everywhere, ten seconds after the start, from which these are counted.
    pub fn with_faults(alone: &Alone<F>, faults: Vec<Planned>) -> Play<F> {
        let names: Vec<&str> = alone.matrix.names().collect();
        let regions: Vec<_> = alone.matrix.regions().collect();
        let delay = |from, to| alone.matrix.one_way(from, to);
        let delays = regions.iter().map(|from| regions.iter().map(|to| delay(*from, *to)).collect());
        let mut config = Config::new(7, &names, delays.collect());
        (config.sync, config.bandwidth) = (Span::from_millis(1), alone.bandwidth);
        config.sessions = 0;
        config.horizon = Span::from_secs(3_600);
        config.record = Record::Flow;
        let placement = alone.placement();
        let mut cluster = Simulation::new(config, &placement);
        let mut plan = FaultPlan::draw(7, FaultSet::NONE, &cluster.shape(1));
        plan.faults = faults;
        cluster.set_faults(plan);
        cluster.boot();
        let mut play = Play { cluster, placement, answers: Silent::default(), tickets: 0 };
        play.run(Span::from_secs(10));
        play
    }

    pub fn client(&self, region: u16) -> ProcessId {
        self.placement.client(NodeId(region))
    }

    /// Joins these nodes, or parts them.
    pub fn connect(&mut self, links: &[(u16, u16)], connected: bool) {
        for (a, b) in links {
            self.cluster.connect(NodeId(*a), NodeId(*b), connected);
        }
    }

    /// The first leader of a partition hands over to another member, 10 ms away, and is parted from its group before it
    /// hears of that: it goes on to lead for as long as it bears silence.
    pub fn depose(&mut self, partition: u16, heir: u16) {
        let group = self.placement.map.group(PartitionId(partition)).clone();
        let leader = group.leader();
        self.cluster.administer(leader, Ticket(0), Box::new(Change::Lead(NodeId(heir))));
        self.run(Span::from_millis(15));
        for member in group.members.iter().filter(|member| member.process != leader) {
            self.cluster.connect(leader.node, member.process.node, false);
        }
    }

    /// Every replica of a partition that runs is told of a change, which who leads makes.
    pub fn change(&mut self, partition: u16, change: Change) {
        for process in self.placement.map.group(PartitionId(partition)).clone().processes() {
            if self.cluster.is_up(process.node) {
                self.cluster.administer(process, Ticket(0), Box::new(change));
            }
        }
    }

    /// Asks the client of a region.
    pub fn ask(&mut self, region: u16, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.cluster.request(self.client(region), ticket, request);
        ticket
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Span) {
        let until = self.cluster.now() + span;
        while self.cluster.now() < until {
            let step = until.since(self.cluster.now()).min(Span::from_millis(1));
            self.cluster.run_for(step, &mut self.answers);
            self.answers.1 = self.cluster.now();
        }
        assert_eq!(self.cluster.broken(), None);
    }

    /// What was answered, if anything.
    pub fn answer(&self, ticket: Ticket) -> Option<&Outcome> {
        self.answers.0.get(&ticket).map(|(_, outcome)| outcome)
    }

    /// Lets time pass until there is an answer.
    pub fn wait(&mut self, ticket: Ticket) -> Outcome {
        let until = self.cluster.now() + Span::from_secs(120);
        while self.answer(ticket).is_none() {
            assert!(self.cluster.now() < until, "{}: no answer within two minutes", F::NAME);
            self.run(Span::from_millis(1));
        }
        self.answers.0[&ticket].1.clone()
    }

    /// Begins a transaction, which must succeed.
    pub fn begin(&mut self, region: u16, reads: &[Blob], writes: &[Blob]) -> (TxnId, Vec<Read>) {
        let ticket = self.ask(region, Request::Begin { reads: reads.to_vec(), writes: writes.to_vec() });
        match self.wait(ticket) {
            Outcome::Begun { txn, reads } => (txn, reads),
            other => panic!("{}: {other:?}", F::NAME),
        }
    }

    /// Asks for a commit that writes these.
    pub fn commit(&mut self, region: u16, txn: TxnId, writes: &[(&Blob, &str)]) -> Ticket {
        let update =
            |(key, value): &(&Blob, &str)| Update { key: (*key).clone(), value: Some(Blob::from(*value)) };
        self.ask(region, Request::Commit { txn, updates: writes.iter().map(update).collect() })
    }

    /// What keys hold now, as a transaction that only reads sees them; it is tried until it commits.
    pub fn values(&mut self, region: u16, keys: &[Blob]) -> Vec<Option<String>> {
        for _ in 0..20 {
            let ticket = self.ask(region, Request::Begin { reads: keys.to_vec(), writes: Vec::new() });
            match self.wait(ticket) {
                Outcome::Snapshot { reads, .. } => {
                    let text = |value: &Blob| String::from_utf8_lossy(value).into_owned();
                    return reads.iter().map(|read| read.value.as_ref().map(text)).collect();
                }
                _ => self.run(Span::from_millis(500)),
            }
        }
        panic!("{}: {keys:?} cannot be read", F::NAME);
    }

    /// What the protocol has said since then, beside its logs: when, who to whom, and the message in short.
    pub fn conversation(&self, since: Instant) -> String {
        let mut text = String::new();
        for line in self.cluster.flow().iter().filter(|line| line.at >= since) {
            if let FlowEvent::Message { between: (from, to), label, .. } = &line.event
                && let Some(said) = label.strip_prefix("Own(")
            {
                let name = said.split([' ', '(', '{']).next().unwrap_or_default();
                text +=
                    &format!("{:<4} {from} -> {to} {name}\n", line.at.since(since).as_millis_f64().round());
            }
        }
        text
    }

    /// Has that many transactions, of a key of their own each, commit at once, and tells how long after their client was seen to
    /// know of it the logs were last told to forget some: by an entry with this in its text.
    pub fn forgetting(&mut self, many: u64, entry: &str) -> Span {
        let keys: Vec<Blob> = (0..many).map(|number| Blob::from(format!("1:{number}"))).collect();
        let begin = |key: &Blob| Request::Begin { reads: Vec::new(), writes: vec![key.clone()] };
        let begun: Vec<Ticket> = keys.iter().map(|key| self.ask(1, begin(key))).collect();
        self.run(Span::from_millis(200));
        let mut committing = Vec::new();
        for (key, ticket) in keys.iter().zip(begun) {
            let Some(Outcome::Begun { txn, .. }) = self.answer(ticket) else {
                panic!("{ticket:?} has not begun")
            };
            committing.push(self.commit(1, *txn, &[(key, "a")]));
        }
        for ticket in committing {
            assert!(matches!(self.wait(ticket), Outcome::Committed { .. }), "{ticket:?}");
        }
        let (txn, _) = self.begin(1, &[], &keys[..1]);
        let last = self.commit(1, txn, &[(&keys[0], "b")]);
        assert!(matches!(self.wait(last), Outcome::Committed { .. }));
        let done = self.cluster.now();
        self.run(Span::from_secs(10));
        let tells =
            |event: &FlowEvent| matches!(event, FlowEvent::Message { label, .. } if label.contains(entry));
        let last = self.cluster.flow().iter().filter(|line| tells(&line.event)).map(|line| line.at).max();
        last.expect("nothing was forgotten").since(done)
    }

    /// Messages of the protocol, beside those of the logs, that left in the last so long.
    pub fn said(&self, span: Span) -> usize {
        let since = self.cluster.now() - span;
        let own =
            |event: &FlowEvent| matches!(event, FlowEvent::Message { label, .. } if label.starts_with("Own"));
        self.cluster.flow().iter().filter(|line| line.at >= since && own(&line.event)).count()
    }
}
