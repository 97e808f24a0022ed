//! The contract suite of `isochrone_core::contract`, run on shards as the node runs them, with a clock, a
//! network and disks that the tests command.

use isochrone_core::contract::{self, Act, ContractHost, Log, Note, Probe, ProbeSetup};
use isochrone_core::{Identity, Instant, NodeId, Process, ProcessId, Random, Span, Stamp, Ticket};
use isochrone_node::hosted::{Adapter, Hosted};
use isochrone_node::io::{Ledger, Reply};
use isochrone_node::journal::{JournalError, StreamId};
use isochrone_node::node::process_incarnation;
use isochrone_node::shard::Shard;
use isochrone_node::transport::frame::{Frame, FrameBuffer, FrameError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a node's disk holds; it outlives the node.
#[derive(Default)]
struct Disk {
    records: Vec<(u64, StreamId, Vec<u8>)>,
    snapshots: BTreeMap<StreamId, (u64, Vec<isochrone_core::Blob>)>,
    written: u64,
    submitted: u64,
    durable: u64,
    frozen: bool,
    /// The shard writes to it itself, where it works.
    quick: bool,
    starts: u32,
}

struct MemoryLedger(Arc<Mutex<Disk>>);

impl Ledger for MemoryLedger {
    fn record(&mut self, of: StreamId, encode: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        let mut disk = self.0.lock().unwrap();
        disk.written += 1;
        let position = disk.written;
        disk.records.push((position, of, bytes));
        position
    }

    fn truncate(&mut self, of: StreamId, before: u64) {
        self.0.lock().unwrap().records.retain(|(position, stream, _)| *stream != of || *position >= before);
    }

    fn submit(&mut self) -> Result<(), JournalError> {
        let mut disk = self.0.lock().unwrap();
        disk.submitted = disk.written;
        Ok(())
    }

    fn better_here(&self) -> bool {
        self.0.lock().unwrap().quick
    }

    fn write_here(&mut self) -> Result<bool, JournalError> {
        let mut disk = self.0.lock().unwrap();
        if disk.frozen {
            return Ok(false);
        }
        disk.durable = disk.written;
        Ok(true)
    }

    fn durable(&mut self) -> Result<u64, JournalError> {
        Ok(self.0.lock().unwrap().durable)
    }

    fn backlog(&self) -> usize {
        0
    }

    fn close(self: Box<Self>) -> Result<(), JournalError> {
        Ok(())
    }
}

type Open = Arc<dyn Fn(Identity) -> Box<dyn Hosted>>;

struct TestNode {
    id: NodeId,
    disk: Arc<Mutex<Disk>>,
    shard: Option<Shard>,
    placed: BTreeMap<ProcessId, Open>,
    /// Starts of each process in this life of the node.
    starts: BTreeMap<ProcessId, u8>,
    wall: i64,
}

#[derive(Default)]
struct Host {
    nodes: Vec<TestNode>,
    cuts: Vec<(NodeId, NodeId)>,
    log: Log,
    now: u64,
    /// The disks that nodes get.
    quick: bool,
}

impl Host {
    fn node(&mut self, id: NodeId) -> &mut TestNode {
        &mut self.nodes[usize::from(id.0)]
    }

    fn clock(&mut self) {
        for node in &mut self.nodes {
            let stamp = 1_700_000_000_000_000_000_i64 + self.now as i64 + node.wall;
            if let Some(shard) = &mut node.shard {
                shard.set_time(Instant::from_nanos(self.now), Stamp::from_nanos(stamp as u64));
            }
        }
    }

    /// One turn of every node, one sync of every disk, one flight of every message; whether anything happened.
    fn step(&mut self) -> bool {
        self.now += 1_000;
        self.clock();
        let mut any = false;
        let mut flights = Vec::new();
        let ids: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        for node in &mut self.nodes {
            let Some(shard) = &mut node.shard else { continue };
            any |= shard.turn().unwrap();
            if shard.io().write_kept().unwrap() {
                any = true;
                shard.turn().unwrap();
            }
            while let Some(answer) = shard.io().answers.pop_front() {
                any = true;
                let Reply::Raw(outcome) = answer.reply else { panic!("no bridge was given") };
                let outcome = *outcome.downcast::<u32>().unwrap();
                self.log.answered(answer.process, answer.ticket, outcome, answer.last);
            }
            while let Some((process, fact)) = shard.io().facts.pop_front() {
                any = true;
                self.log.marked(process, &fact);
            }
            for to in &ids {
                if let Some(queue) = shard.io().outgoing.peer(*to)
                    && !queue.frames.is_empty()
                {
                    any = true;
                    flights.push((node.id, *to, std::mem::take(&mut queue.frames)));
                }
            }
        }
        for (from, to, frames) in flights {
            if !self.cuts.contains(&(from.min(to), from.max(to))) {
                self.deliver(from, to, &frames);
            }
        }
        for node in &mut self.nodes {
            let mut disk = node.disk.lock().unwrap();
            if !disk.frozen && disk.durable < disk.submitted {
                any = true;
                disk.durable = disk.submitted;
            }
        }
        any
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, frames: &[u8]) {
        let Some(shard) = &mut self.node(to).shard else { return };
        FrameBuffer::default()
            .feed(frames, usize::MAX, |frame| {
                let Frame::Message { from: sender, to: receiver, body } = frame else { panic!("{frame:?}") };
                shard.frame(from, sender, receiver, body).unwrap();
                Ok::<(), FrameError>(())
            })
            .unwrap();
    }

    fn boot(&mut self, id: NodeId) {
        let nodes = self.nodes.len() as u16;
        let node = self.node(id);
        let mut disk = node.disk.lock().unwrap();
        disk.starts += 1;
        let written = disk.written;
        drop(disk);
        let mut shard = Shard::new(id, Box::new(MemoryLedger(Arc::clone(&node.disk))), written);
        for peer in (0..nodes).map(NodeId).filter(|peer| *peer != id) {
            shard.io().outgoing.add(peer, 1 << 20, 1 << 20, Random::seeded(1));
        }
        node.shard = Some(shard);
        node.starts.clear();
        self.clock();
    }

    fn bring_up(&mut self, id: ProcessId) {
        let node = self.node(id.node);
        let disk = Arc::clone(&node.disk);
        let disk = disk.lock().unwrap();
        let start = node.starts.entry(id).and_modify(|start| *start += 1).or_insert(0);
        let incarnation = process_incarnation(disk.starts, *start);
        let mut process = node.placed[&id](Identity { process: id, incarnation });
        let stream = StreamId(id.to_u64());
        let mut from = 0;
        if let Some((position, chunks)) = disk.snapshots.get(&stream) {
            from = *position;
            chunks.iter().for_each(|chunk| process.restore(chunk.clone()).unwrap());
        }
        for (position, of, bytes) in &disk.records {
            if *of == stream && *position >= from && *position <= disk.durable {
                process.replay(bytes).unwrap();
            }
        }
        drop(disk);
        self.clock();
        if let Some(shard) = &mut self.node(id.node).shard {
            shard.start(process);
        }
    }
}

impl ContractHost for Host {
    fn reset(&mut self, nodes: u16, log: &Log) {
        *self = Host { log: log.clone(), now: 1, quick: self.quick, ..Host::default() };
        for id in (0..nodes).map(NodeId) {
            let disk = Arc::new(Mutex::new(Disk { quick: self.quick, ..Disk::default() }));
            let (placed, starts) = Default::default();
            self.nodes.push(TestNode { id, disk, shard: None, placed, starts, wall: 0 });
        }
        (0..nodes).for_each(|id| self.boot(NodeId(id)));
    }

    fn start<P>(&mut self, id: ProcessId, setup: P::Setup)
    where
        P: Process<Message = Note, Request = Vec<Act>, Outcome = u32>,
    {
        let open = move |identity| -> Box<dyn Hosted> {
            Box::new(Adapter::<P>::open(identity, &setup, None, Random::seeded(7)))
        };
        self.node(id.node).placed.insert(id, Arc::new(open));
        self.bring_up(id);
    }

    fn stop(&mut self, id: ProcessId) {
        let node = self.node(id.node);
        node.placed.remove(&id);
        node.shard.as_mut().unwrap().stop(id).unwrap();
    }

    fn request(&mut self, id: ProcessId, ticket: Ticket, script: Vec<Act>) {
        self.clock();
        self.node(id.node).shard.as_mut().unwrap().request(id, ticket, Box::new(script)).unwrap();
    }

    fn cancel(&mut self, id: ProcessId, ticket: Ticket) {
        self.node(id.node).shard.as_mut().unwrap().cancel(id, ticket);
    }

    fn freeze_disk(&mut self, node: NodeId) {
        self.node(node).disk.lock().unwrap().frozen = true;
    }

    fn thaw_disk(&mut self, node: NodeId) {
        self.node(node).disk.lock().unwrap().frozen = false;
    }

    fn crash(&mut self, node: NodeId) {
        let node = self.node(node);
        node.shard = None;
        let mut disk = node.disk.lock().unwrap();
        let durable = disk.durable;
        disk.records.retain(|(position, ..)| *position <= durable);
        disk.written = durable;
        disk.submitted = durable;
        disk.frozen = false;
    }

    fn restart(&mut self, node: NodeId) {
        self.boot(node);
        let placed: Vec<ProcessId> = self.node(node).placed.keys().copied().collect();
        placed.into_iter().for_each(|id| self.bring_up(id));
    }

    fn snapshot(&mut self, id: ProcessId) {
        let node = self.node(id.node);
        let shard = node.shard.as_mut().unwrap();
        let (position, chunks) = shard.snapshot(id).expect("a probe gives a snapshot");
        let chunks: Vec<_> = chunks.collect();
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        node.disk.lock().unwrap().snapshots.insert(StreamId(id.to_u64()), (position, chunks));
        shard.snapshot_done(id, Some(bytes), Some(position));
    }

    fn connect(&mut self, a: NodeId, b: NodeId, connected: bool) {
        let pair = (a.min(b), a.max(b));
        self.cuts.retain(|cut| *cut != pair);
        if !connected {
            self.cuts.push(pair);
        }
        for (from, to) in [(a, b), (b, a)] {
            if let Some(shard) = &mut self.node(from).shard
                && let Some(queue) = shard.io().outgoing.peer(to)
            {
                queue.open = connected;
            }
        }
    }

    fn step_wall_clock(&mut self, node: NodeId, nanos: i64) {
        self.node(node).wall += nanos;
    }

    fn quiesce(&mut self) {
        while self.step() {}
    }

    fn run_for(&mut self, span: Span) {
        let end = self.now + span.as_nanos();
        loop {
            self.quiesce();
            let next =
                self.nodes.iter().filter_map(|node| node.shard.as_ref()).map(Shard::next_deadline).min();
            match next {
                Some(due) if due.as_nanos() <= end => self.now = self.now.max(due.as_nanos()),
                _ => break,
            }
        }
        self.now = self.now.max(end);
        self.quiesce();
    }
}

#[test]
fn the_node_keeps_the_contract() {
    contract::run_all(&mut Host::default());
}

#[test]
fn the_node_keeps_the_contract_where_the_shard_writes_to_the_disk() {
    contract::run_all(&mut Host { quick: true, ..Host::default() });
}

/// What snapshots cost stays in proportion to what is written, however large they are.
#[test]
fn the_next_snapshot_waits_for_as_many_bytes_as_the_last_one_has() {
    let log = Log::default();
    let mut host = Host::default();
    host.reset(1, &log);
    let id = ProcessId { node: NodeId(0), ..ProcessId::from_u64(0) };
    host.start::<Probe>(id, ProbeSetup::new(&log));
    let mut written = 0;
    let mut records_until_due = |host: &mut Host, most| {
        (1..=most).find(|_| {
            written += 1;
            host.request(id, Ticket(u64::from(written)), vec![Act::Record(written % 100)]);
            host.quiesce();
            let shard = host.node(NodeId(0)).shard.as_mut().unwrap();
            shard.snapshot_every(4);
            let due: Vec<_> = shard.snapshots_due().into_iter().map(|(process, ..)| process).collect();
            assert!(due.is_empty() || due == [id]);
            !due.is_empty()
        })
    };
    let done = |host: &mut Host, bytes| {
        host.node(NodeId(0)).shard.as_mut().unwrap().snapshot_done(id, bytes, None);
    };
    let first = records_until_due(&mut host, 10_000).unwrap();
    assert!(records_until_due(&mut host, 1_000).is_none(), "one is under way");
    done(&mut host, Some(40));
    assert_eq!(
        records_until_due(&mut host, 10_000),
        Some(1),
        "what was written while it was under way counts"
    );
    done(&mut host, None);
    let second = records_until_due(&mut host, 10_000).unwrap();
    assert!(second >= 5 * first, "after {first} at first, {second}: one that failed changes nothing");
    done(&mut host, Some(4));
    assert_eq!(records_until_due(&mut host, 10_000), Some(first));
    done(&mut host, Some(4));

    // A restart goes by the one that it begins from.
    host.snapshot(id);
    let chunks = host.node(NodeId(0)).disk.lock().unwrap().snapshots[&StreamId(id.to_u64())].1.clone();
    let bytes: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    assert!(bytes > 1_000);
    host.crash(NodeId(0));
    host.restart(NodeId(0));
    let third = records_until_due(&mut host, 10_000).unwrap();
    assert!(third >= 100 * first, "after a snapshot of {bytes} bytes, {third}");
}

/// Others take it for dead and go on without it; who waits for no disk there goes on as well.
#[test]
fn what_waits_for_a_disk_that_hangs_is_silent_until_it_goes_on() {
    let log = Log::default();
    let mut host = Host::default();
    host.reset(2, &log);
    let id = |node, instance| ProcessId { node: NodeId(node), instance, ..ProcessId::from_u64(0) };
    let (writer, reader, other) = (id(0, 0), id(0, 1), id(1, 0));
    for process in [writer, reader, other] {
        host.start::<Probe>(process, ProbeSetup::new(&log));
    }
    let mut asked = 0;
    let mut say = |host: &mut Host, from, to, label| {
        asked += 1;
        host.request(from, Ticket(asked), vec![Act::SendAhead(to, label, Vec::new())]);
        host.quiesce();
    };
    host.freeze_disk(NodeId(0));
    host.request(writer, Ticket(100), vec![Act::Record(1), Act::Send(other, 4, Vec::new())]);
    host.quiesce();
    host.run_for(Span::from_millis(2_900));
    say(&mut host, writer, other, 1);
    assert_eq!(log.received(other), [1], "a slow disk is none that hangs");
    host.run_for(Span::from_millis(200));
    say(&mut host, writer, other, 2);
    say(&mut host, writer, reader, 2);
    say(&mut host, writer, writer, 2);
    say(&mut host, reader, other, 3);
    assert_eq!(log.received(other), [1, 3]);
    assert_eq!((log.received(reader), log.received(writer)), (vec![], vec![2]));
    assert!(host.node(NodeId(0)).shard.as_mut().unwrap().io().hangs());
    host.thaw_disk(NodeId(0));
    host.quiesce();
    say(&mut host, writer, other, 5);
    assert_eq!(log.received(other), [1, 3, 4, 5], "what was held leaves, and it speaks again");
    assert!(!host.node(NodeId(0)).shard.as_mut().unwrap().io().hangs());
}
