//! How many events a second the simulator handles on one core: `cargo bench -p isochrone-sim`.
//!
//! Five regions of Multi-Paxos with durable journals, jitter, a CPU model and every check on, against a
//! bare heap loop in the same run.

use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, Export, Footprint, Instant, KeyspaceId, Malformed, NodeId, Span, StateMachine, Ticket,
};
use isochrone_replication::multipaxos::{MultiPaxos, Parameters, Placement};
use isochrone_replication::service::Service;
use isochrone_replication::{Request, Tuning as _};
use isochrone_sim::{Config, Driver, Jitter, Next, Session, Simulation};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BinaryHeap};

/// Round trips of `carousel-ec2.csv`, milliseconds.
const RTT: [[u64; 5]; 5] = [
    [0, 73, 166, 88, 172],
    [73, 0, 166, 88, 172],
    [166, 166, 0, 166, 122],
    [88, 88, 166, 0, 172],
    [172, 172, 122, 172, 0],
];

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
struct Put(u32, Blob);

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Keys(BTreeMap<u32, Blob>);

#[derive(Clone)]
struct Nothing;

impl Export for Nothing {
    fn chunk(&self, _: u64) -> Option<Blob> {
        None
    }
}

impl Footprint for Put {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::All(Access::Write));
    }
}

impl StateMachine for Keys {
    type Command = Put;
    type Reply = ();
    type View = Nothing;
    type Before = Self;

    fn apply(&mut self, Put(key, value): &Put) {
        self.0.insert(*key, value.clone());
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }
    fn reads_only(_: &Put) -> bool {
        false
    }
    fn read(&self, _: &Put) -> Option<()> {
        None
    }
    fn export(&self) -> Nothing {
        Nothing
    }
    fn absorb(&mut self, _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// Closed loops until a point of virtual time.
struct Load {
    until: Instant,
    value: Blob,
    count: u32,
}

impl Driver<MultiPaxos<Keys>> for Load {
    fn next(&mut self, _: Session, now: Instant) -> Next<Request<Put>> {
        if now >= self.until {
            return Next::Done;
        }
        self.count += 1;
        let key = self.count.wrapping_mul(0x9e37_79b9) % 10_000;
        Next::Request { at: now, request: Request::Command(Put(key, self.value.clone())) }
    }
    fn completed(&mut self, _: Session, _: Ticket, _: isochrone_replication::Outcome<()>, _: Instant) {}
}

fn simulate(sessions: u32, batch: usize, length: Span) -> (u64, u64, f64) {
    let delays = RTT.map(|row| row.map(|rtt| Span::from_micros(rtt * 500)).to_vec()).to_vec();
    let mut config = Config::new(1, &["a", "b", "c", "d", "e"], delays);
    config.sync = Span::from_millis(3);
    config.jitter = Jitter::Exponential(Span::from_micros(200));
    config.cost.fixed = Span::from_micros(2);
    config.cost.picos_per_byte = 1_000;
    config.sessions = sessions;
    config.horizon = Span::from_secs(1_000);
    let rtt = Span::from_millis(172);
    let mut parameters = Parameters::for_rtt(rtt);
    parameters.batch_commands = batch;
    parameters.window = 1 << 16;
    let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
    let placement = Placement {
        bug: None,
        keyspace: KeyspaceId(1),
        replicas: nodes.clone(),
        spares: Vec::new(),
        regions: BTreeMap::new(),
        clients: nodes.iter().map(|node| (*node, nodes.clone())).collect(),
        partitions: 1,
        leader: NodeId(0),
        service: Service::for_rtt(rtt),
        parameters,
        machine: Keys::default(),
    };
    let mut simulation = Simulation::new(config, &placement);
    let until = Instant::ZERO + length;
    let mut load = Load { until, value: Blob::new(&[7; 64]), count: 0 };
    let begun = processor_time();
    let report = simulation.run(&mut load);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    (report.operations, report.events, (processor_time() - begun))
}

/// A heap of events by value, 96 bytes each, and nothing else: what no simulator exceeds.
fn heap(queued: u64) -> f64 {
    const EVENTS: u64 = 3_000_000;
    let mut heap = BinaryHeap::new();
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 40
    };
    for sequence in 0..queued {
        heap.push((std::cmp::Reverse(draw()), sequence, [sequence; 10]));
    }
    let begun = processor_time();
    let mut sum = 0u64;
    for sequence in 0..EVENTS {
        let Some((std::cmp::Reverse(at), _, payload)) = heap.pop() else { break };
        sum = sum.wrapping_add(payload[3]);
        heap.push((std::cmp::Reverse(at + draw()), sequence, payload));
    }
    let seconds = processor_time() - begun;
    assert_ne!(sum, 1);
    EVENTS as f64 / seconds
}

/// Seconds that this thread has had of a core, so that what else runs on the machine counts for nothing.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
    let Some(nanos) = nanos else { panic!("this benchmark needs Linux, which tells a thread's time") };
    nanos as f64 / 1e9
}

fn main() {
    const EVENT: usize = Simulation::<MultiPaxos<Keys>>::EVENT_SIZE;
    // A large message belongs behind a pointer; by value it moves through queue and inbox.
    const { assert!(EVENT <= 128, "an event has grown") };
    println!("an event is {EVENT} bytes");
    println!("in flight  batching    operations     events  events/op      events/s  of a heap loop");
    for (in_flight, seconds) in [(100, 200), (1_000, 40), (10_000, 6)] {
        let ceiling = heap(in_flight.into());
        for (name, batch) in [("no", 1), ("yes", 4_096)] {
            let (operations, events, seconds) = simulate(in_flight / 5, batch, Span::from_secs(seconds));
            let rate = events as f64 / seconds;
            println!(
                "{in_flight:>9}  {name:<8}  {operations:>12}  {events:>9}  {:>9.1}  {rate:>12.0}  {:.2}",
                events as f64 / operations as f64,
                rate / ceiling
            );
        }
    }
}
