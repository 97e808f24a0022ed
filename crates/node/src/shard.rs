//! One shard: processes, their timers, their mail and their journal, without sockets and threads.
//!
//! The owner sets the clocks, hands in what has arrived ([`Shard::frame`], [`Shard::execute`], ...) and
//! calls [`Shard::turn`]; what is to leave stands in [`Shard::io`] afterwards. A turn, in order:
//!
//! 1. due timers fire;
//! 2. messages between processes of the node are delivered until there are none;
//! 3. the records made are handed to the journal, or kept for [`Io::write_kept`] where that is quicker;
//! 4. processes that had an input are told that no more is at hand (`settle`), which makes batches, and
//!    their records are handed to the journal too;
//! 5. what the journal has made durable is released, and if that gave somebody mail, 2 to 5 repeat.
//!
//! Nothing waits for a batch to fill.

use crate::clock::Clock;
use crate::gateway::Transaction;
use crate::hosted::{Foreign, Hosted};
use crate::io::{Io, Ledger};
use crate::journal::{JournalError, StreamId};
use isochrone_core::command::Command;
use isochrone_core::wire::DecodeError;
use isochrone_core::{Blob, Instant, NodeId, ProcessId, Snapshot, Stamp, Ticket};
use rustc_hash::FxHashMap;
use std::any::Any;
use thiserror::Error;

/// Messages that one turn delivers within the node before it looks at its sockets again: keeps a process
/// that talks to itself from having the loop alone.
const LOCAL_PER_TURN: usize = 10_000;

/// Bytes of records before which no snapshot is due ([`Books`](crate::books::Books)).
pub const SNAPSHOT_BYTES: u64 = 64 << 20;

/// See the module's page.
pub struct Shard {
    io: Io,
    node: NodeId,
    seats: Vec<Option<Seat>>,
    by_id: FxHashMap<ProcessId, usize>,
    touched: Vec<usize>,
    snapshot_bytes: u64,
    /// Bytes of records that processes had been given when they started.
    replayed: u64,
    /// Messages that named no process of this node.
    pub misaddressed: u64,
}

struct Seat {
    process: Box<dyn Hosted>,
    touched: bool,
    /// A snapshot was asked for and has not been acknowledged.
    snapshotting: bool,
}

/// Why a message of a peer was refused.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum Refused {
    /// The body is no message of the receiver's protocol.
    #[error("for {to}: {cause}")]
    Malformed {
        /// The receiver.
        to: ProcessId,
        /// What was wrong.
        cause: DecodeError,
    },
    /// The sender claims to be on another node than the one the connection belongs to.
    #[error("{from} does not run on {peer}, whose connection this is")]
    Impostor {
        /// Who it claims to be.
        from: ProcessId,
        /// Who it is.
        peer: NodeId,
    },
}

/// Why a request was not taken.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum NotTaken {
    /// No such process runs here.
    #[error("{0} does not run on this node")]
    Absent(ProcessId),
    /// It is of another protocol.
    #[error(transparent)]
    Foreign(#[from] Foreign),
}

impl Shard {
    /// A shard without processes, whose journal ends at position `written`.
    pub fn new(node: NodeId, ledger: Box<dyn Ledger>, written: u64) -> Shard {
        Shard {
            io: Io::new(node, ledger, written),
            node,
            seats: Vec::new(),
            by_id: FxHashMap::default(),
            touched: Vec::new(),
            snapshot_bytes: SNAPSHOT_BYTES,
            replayed: 0,
            misaddressed: 0,
        }
    }

    /// Sets after how many bytes of records, at least, a process is asked for a snapshot: [`SNAPSHOT_BYTES`] otherwise.
    pub fn snapshot_every(&mut self, bytes: u64) {
        self.snapshot_bytes = bytes;
    }

    /// What the processes have handed out.
    pub fn io(&mut self) -> &mut Io {
        &mut self.io
    }

    /// Sets the clocks of the inputs to come. The steady clock never goes back: an earlier reading is
    /// taken as no time passed.
    pub fn set_time(&mut self, now: Instant, stamp: Stamp) {
        self.io.now = self.io.now.max(now);
        self.io.stamp = stamp;
    }

    /// Sets them to now, which is returned. Looked at behind everything that is read and before it is handled: an input whose
    /// time lies before it was sent would hold or grant a lease that is over by then.
    pub fn look_at(&mut self, clock: Clock) -> Instant {
        self.set_time(clock.now(), clock.stamp());
        self.io.now
    }

    /// Takes in a process, restored and replayed, and starts it. One of the same name that runs already
    /// is stopped first.
    pub fn start(&mut self, process: Box<dyn Hosted>) {
        let id = process.identity().process;
        self.stop(id);
        self.replayed += process.books().since();
        let seat = Some(Seat { process, touched: false, snapshotting: false });
        let index = self.seats.iter().position(Option::is_none).unwrap_or(self.seats.len());
        if index == self.seats.len() {
            self.seats.push(seat);
        } else {
            self.seats[index] = seat;
        }
        self.by_id.insert(id, index);
        if let Some((seat, io)) = self.seat(index) {
            seat.process.start(io);
        }
        self.touch(index);
    }

    /// Stops a process as a crash would: what it holds for records that are not durable is lost.
    pub fn stop(&mut self, id: ProcessId) -> Option<Box<dyn Hosted>> {
        let index = self.by_id.remove(&id)?;
        self.touched.retain(|other| *other != index);
        self.seats[index].take().map(|seat| seat.process)
    }

    /// The processes that run, in order of their start.
    pub fn processes(&self) -> impl Iterator<Item = &dyn Hosted> {
        self.seats.iter().flatten().map(|seat| &*seat.process)
    }

    /// Whether this process runs here.
    pub fn runs(&self, id: ProcessId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// See [`Hosted::overdue`]; nothing of a process that does not run here.
    pub fn overdue(&self, id: ProcessId, stamp: Stamp, most: usize) -> Vec<Blob> {
        let seat = self.by_id.get(&id).and_then(|index| self.seats[*index].as_ref());
        seat.map_or_else(Vec::new, |seat| seat.process.overdue(stamp, most))
    }

    /// A message of a peer.
    ///
    /// # Errors
    /// The peer is broken or hostile: its connection should end. A message for a process that does not
    /// run here is no error, it may have been stopped.
    pub fn frame(
        &mut self,
        peer: NodeId,
        from: ProcessId,
        to: ProcessId,
        body: &[u8],
    ) -> Result<(), Refused> {
        if from.node != peer {
            return Err(Refused::Impostor { from, peer });
        }
        let Some(&index) = self.by_id.get(&to) else {
            self.misaddressed += 1;
            return Ok(());
        };
        if let Some((seat, io)) = self.seat(index) {
            seat.process.receive(from, body, io).map_err(|cause| Refused::Malformed { to, cause })?;
        }
        self.touch(index);
        Ok(())
    }

    /// A client's command for a client process of this node. The ticket is the caller's, never used twice.
    ///
    /// # Errors
    /// No such process runs, or it takes no commands.
    pub fn execute(&mut self, to: ProcessId, ticket: Ticket, command: Command) -> Result<(), NotTaken> {
        self.ask(to, |process, io| process.execute(ticket, command, io))
    }

    /// A transaction for a client process of this node; tickets as in [`Shard::execute`].
    ///
    /// # Errors
    /// No such process runs, or it takes no transactions.
    pub fn transact(
        &mut self,
        to: ProcessId,
        ticket: Ticket,
        transaction: Transaction,
    ) -> Result<(), NotTaken> {
        self.ask(to, |process, io| process.transact(ticket, transaction, io))
    }

    /// A request in the receiver's own words (its `P::Request`, boxed); tickets as in [`Shard::execute`].
    ///
    /// # Errors
    /// No such process runs, or it is of another protocol.
    pub fn request(
        &mut self,
        to: ProcessId,
        ticket: Ticket,
        request: Box<dyn Any + Send>,
    ) -> Result<(), NotTaken> {
        self.ask(to, |process, io| process.request(ticket, request, io))
    }

    /// The answer to a ticket given to this process is no longer wanted.
    pub fn cancel(&mut self, of: ProcessId, ticket: Ticket) {
        if let Some(&index) = self.by_id.get(&of)
            && let Some((seat, io)) = self.seat(index)
        {
            seat.process.cancel(ticket, io);
            self.touch(index);
        }
        self.io.answers.retain(|answer| answer.ticket != ticket);
    }

    /// One turn, see the module's page. True where there is more to do at once.
    ///
    /// # Errors
    /// The journal has failed: nothing held may ever be released, the node must end.
    pub fn turn(&mut self) -> Result<bool, JournalError> {
        self.expire();
        let mut budget = LOCAL_PER_TURN;
        loop {
            let quiet = self.deliver(&mut budget);
            // The disk works on what was recorded so far while `settle` does.
            self.io.submit()?;
            self.settle();
            self.io.submit()?;
            self.io.look_at_disk()?;
            self.release();
            if !quiet {
                return Ok(true);
            }
            if self.io.local.is_empty() && self.touched.is_empty() {
                return Ok(false);
            }
        }
    }

    /// When the next timer is due, or records are to be handed over; [`Instant::MAX`] where there is neither.
    pub fn next_deadline(&self) -> Instant {
        self.processes().map(Hosted::next_deadline).min().unwrap_or(Instant::MAX).min(self.io.lazy_due())
    }

    /// Snapshots that are due: whose, the position that the next record will have, and the chunks, to be
    /// drained on another thread once every record before that position is durable.
    pub fn snapshots_due(&mut self) -> Vec<(ProcessId, u64, Snapshot)> {
        let (least, all) = (self.snapshot_bytes, self.recorded());
        let sizes = self.processes().map(|process| process.books().size()).sum();
        let due = self.processes().filter(|process| process.books().due(least, all, sizes));
        let ids: Vec<_> = due.map(|process| process.identity().process).collect();
        ids.into_iter()
            .filter_map(|id| self.snapshot(id).map(|(position, chunks)| (id, position, chunks)))
            .collect()
    }

    /// A snapshot of this process, as in [`Shard::snapshots_due`]; `None` where it has none to give, or one
    /// is under way.
    pub fn snapshot(&mut self, id: ProcessId) -> Option<(u64, Snapshot)> {
        let (next, all) = (self.io.written() + 1, self.recorded());
        let seat = self.seats[*self.by_id.get(&id)?].as_mut()?;
        if seat.snapshotting {
            return None;
        }
        let chunks = seat.process.snapshot()?;
        seat.snapshotting = true;
        seat.process.books_mut().begin(all);
        self.io.hasten();
        Some((next, chunks))
    }

    /// The snapshot under way of this process is done and has so many bytes; its records before `trim` may go, if any
    /// may. One that failed has none, trims nothing, and is tried again after as many bytes more.
    pub fn snapshot_done(&mut self, id: ProcessId, bytes: Option<u64>, trim: Option<u64>) {
        if let Some(seat) = self.by_id.get(&id).and_then(|index| self.seats[*index].as_mut()) {
            seat.snapshotting = false;
            seat.process.books_mut().end(bytes);
        }
        if let Some(before) = trim {
            self.io.ledger().truncate(StreamId(id.to_u64()), before);
            self.io.hasten();
        }
    }

    /// Bytes of records of all processes since the start, replayed ones included.
    fn recorded(&self) -> u64 {
        self.replayed + self.io.recorded()
    }

    /// Ends without a word to anybody and gives the journal back, to be closed (or dropped, as in a crash).
    pub fn into_ledger(self) -> Box<dyn Ledger> {
        self.io.into_ledger()
    }

    /// The node this shard belongs to.
    pub fn node(&self) -> NodeId {
        self.node
    }

    fn ask(
        &mut self,
        to: ProcessId,
        ask: impl FnOnce(&mut dyn Hosted, &mut Io) -> Result<(), Foreign>,
    ) -> Result<(), NotTaken> {
        let index = *self.by_id.get(&to).ok_or(NotTaken::Absent(to))?;
        let (seat, io) = self.seat(index).ok_or(NotTaken::Absent(to))?;
        ask(&mut *seat.process, io)?;
        self.touch(index);
        Ok(())
    }

    fn expire(&mut self) {
        for index in 0..self.seats.len() {
            let now = self.io.now;
            if let Some((seat, io)) = self.seat(index)
                && seat.process.next_deadline() <= now
            {
                seat.process.expire(io);
                self.touch(index);
            }
        }
    }

    /// Delivers local mail until there is none; false where the budget ran out first.
    fn deliver(&mut self, budget: &mut usize) -> bool {
        if *budget == 0 {
            return self.io.local.is_empty();
        }
        while let Some(mail) = self.io.local.pop_front() {
            let Some(&index) = self.by_id.get(&mail.to) else {
                self.misaddressed += 1;
                continue;
            };
            if let Some((seat, io)) = self.seat(index)
                && let Err(error) = seat.process.receive_local(mail.from, mail.message, io)
            {
                tracing::error!(from = %mail.from, %error, "a message within the node was dropped");
            }
            self.touch(index);
            *budget -= 1;
            if *budget == 0 {
                return self.io.local.is_empty();
            }
        }
        true
    }

    fn settle(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            if let Some((seat, io)) = self.seat(index) {
                seat.touched = false;
                seat.process.settle(io);
            }
        }
        // Nothing above touches a process; the vector goes back for its memory.
        self.touched = touched;
    }

    fn release(&mut self) {
        for seat in self.seats.iter_mut().flatten() {
            seat.process.release(&mut self.io);
        }
    }

    fn seat(&mut self, index: usize) -> Option<(&mut Seat, &mut Io)> {
        self.seats[index].as_mut().map(|seat| (seat, &mut self.io))
    }

    fn touch(&mut self, index: usize) {
        if let Some(seat) = self.seats[index].as_mut()
            && !seat.touched
        {
            seat.touched = true;
            self.touched.push(index);
        }
    }
}
