//! What the processes of one shard hand to their host during a turn: messages, records, answers, facts.

use crate::journal::{JournalError, JournalThread, Position, StreamId};
use crate::outgoing::Outgoing;
use isochrone_core::wire::encode_into;
use isochrone_core::{Fact, Haste, Instant, NodeId, ProcessId, Span, Stamp, Ticket, Urgency, Wire};
use std::any::Any;
use std::collections::VecDeque;

/// The queues between the processes of a shard and the shard, and the clocks of the turn.
pub struct Io {
    /// The steady clock, as read at the beginning of the turn.
    pub now: Instant,
    /// The wall clock, likewise.
    pub stamp: Stamp,
    /// Every record up to this position is durable.
    pub durable: u64,
    /// Messages between processes of this node, oldest first. Unbounded: what a process tells itself
    /// must arrive.
    pub local: VecDeque<Local>,
    /// Messages to other nodes.
    pub outgoing: Outgoing,
    /// Answers to tickets, oldest first.
    pub answers: VecDeque<Answer>,
    /// What marks said, oldest first.
    pub facts: VecDeque<(ProcessId, Fact)>,
    node: NodeId,
    ledger: Box<dyn Ledger>,
    written: u64,
    /// Bytes of records so far.
    recorded: u64,
    /// Somebody waits for records that were not handed over, and is in haste.
    awaited: bool,
    /// What was recorded is due and stays here, for [`Io::write_kept`].
    kept: bool,
    /// Since when records that are in no haste were not handed over.
    lazy_since: Option<Instant>,
    /// How much was durable, and since when no more is, where there is more to write.
    stands: Option<(u64, Instant)>,
    hangs: bool,
    /// When the loop last came by, and for how long it has written here since then.
    came: Option<Instant>,
    wrote: Span,
}

/// Where a shard's records go: the journal's thread, or a test's stand-in.
pub trait Ledger: Send {
    /// Appends a record to the open batch; its position, one more than that of the record before.
    fn record(&mut self, of: StreamId, encode: &mut dyn FnMut(&mut Vec<u8>)) -> u64;

    /// Notes in the open batch that the records of `of` before `before` may go.
    fn truncate(&mut self, of: StreamId, before: u64);

    /// Hands the open batch over. Never blocks for a sync; what is not taken goes with a later call.
    ///
    /// # Errors
    /// The journal has failed, which ends the node.
    fn submit(&mut self) -> Result<(), JournalError>;

    /// Whether the open batch is better written by [`Ledger::write_here`], at the end of a round, than handed over.
    fn better_here(&self) -> bool;

    /// Writes and syncs the open batch here and now; false, and nothing is done, where that would have to wait.
    ///
    /// # Errors
    /// As [`Ledger::submit`].
    fn write_here(&mut self) -> Result<bool, JournalError>;

    /// Whether the time that [`Ledger::write_here`] took since `begun` was not the disk's, since all of this process stood still.
    /// A ledger without threads cannot tell.
    fn stood_still(&self, _begun: std::time::Instant) -> bool {
        false
    }

    /// The position up to which all records are durable. Never falls.
    ///
    /// # Errors
    /// As [`Ledger::submit`].
    fn durable(&mut self) -> Result<u64, JournalError>;

    /// Bytes that wait to be handed over: above its limit, the shard takes no new commands.
    fn backlog(&self) -> usize;

    /// Writes and syncs everything, and ends.
    ///
    /// # Errors
    /// As [`Ledger::submit`].
    fn close(self: Box<Self>) -> Result<(), JournalError>;
}

impl Ledger for JournalThread {
    fn record(&mut self, of: StreamId, encode: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        JournalThread::record(self, of, encode).0
    }

    fn truncate(&mut self, of: StreamId, before: u64) {
        JournalThread::truncate(self, of, Position(before));
    }

    fn submit(&mut self) -> Result<(), JournalError> {
        JournalThread::submit(self).map(|_| ())
    }

    fn better_here(&self) -> bool {
        JournalThread::better_here(self)
    }

    fn write_here(&mut self) -> Result<bool, JournalError> {
        JournalThread::write_here(self)
    }

    fn stood_still(&self, begun: std::time::Instant) -> bool {
        JournalThread::stood_still(self, begun)
    }

    fn durable(&mut self) -> Result<u64, JournalError> {
        JournalThread::durable(self).map(|position| position.0)
    }

    fn backlog(&self) -> usize {
        JournalThread::backlog(self)
    }

    fn close(self: Box<Self>) -> Result<(), JournalError> {
        JournalThread::close(*self)
    }
}

/// A message that stays on its node.
pub struct Local {
    /// The sender.
    pub from: ProcessId,
    /// The receiver.
    pub to: ProcessId,
    /// The message, a `P::Message`.
    pub message: Box<dyn Any + Send>,
}

/// An answer to a ticket.
pub struct Answer {
    /// Who answers.
    pub process: ProcessId,
    /// The ticket.
    pub ticket: Ticket,
    /// What it is answered with.
    pub reply: Reply,
    /// Whether no other answer follows.
    pub last: bool,
}

/// The two forms an answer leaves a process in.
pub enum Reply {
    /// Translated for the gateways.
    Outcome(crate::gateway::Outcome),
    /// The process' own `P::Outcome`.
    Raw(Box<dyn Any + Send>),
}

/// How long records that are in no haste stay with the shard at most.
const LAZY_SPAN: Span = Span::from_millis(5);
/// Bytes of them at most.
const LAZY_BYTES: usize = 256 << 10;

/// A disk that has made nothing durable for so long, and has something to write, hangs: longer than the largest write takes
/// on a slow one.
pub(crate) const HANGS: Span = Span::from_secs(3);

/// A loop that does not come by for longer than this, although it has something to do several times a second, stood still.
const STILL: Span = Span::from_secs(1);

impl Io {
    /// The queues of a shard of `node` whose journal ends at `written`, all of it durable.
    pub fn new(node: NodeId, ledger: Box<dyn Ledger>, written: u64) -> Io {
        Io {
            now: Instant::ZERO,
            stamp: Stamp::ZERO,
            durable: written,
            local: VecDeque::new(),
            outgoing: Outgoing::default(),
            answers: VecDeque::new(),
            facts: VecDeque::new(),
            node,
            ledger,
            written,
            recorded: 0,
            awaited: false,
            kept: false,
            lazy_since: None,
            stands: None,
            hangs: false,
            came: None,
            wrote: Span::ZERO,
        }
    }

    /// Sends now: the caller has kept the lane's promise.
    pub fn send<M: Wire>(&mut self, from: ProcessId, to: ProcessId, message: M, urgency: Urgency) {
        if to.node == self.node {
            self.local.push_back(Local { from, to, message: Box::new(message) });
        } else {
            self.outgoing.send(from, to, &message, urgency);
        }
    }

    /// Appends a record of `of` to the journal's open batch; its position, and its bytes. Only for one that is in
    /// haste the disk is asked at once.
    pub fn record<R: Wire>(&mut self, of: ProcessId, record: &R, haste: Haste) -> (u64, usize) {
        match haste {
            Haste::Now => self.awaited = true,
            Haste::Soon | Haste::Lazy => drop(self.lazy_since.get_or_insert(self.now)),
        }
        let mut bytes = 0;
        self.written = self.ledger.record(StreamId(of.to_u64()), &mut |out| {
            let before = out.len();
            encode_into(record, out);
            bytes = out.len() - before;
        });
        self.recorded += bytes as u64;
        (self.written, bytes)
    }

    /// Somebody waits for everything recorded so far to be durable.
    pub fn hasten(&mut self) {
        self.awaited = true;
    }

    /// Hands over what was recorded, if any of it is in haste or it has waited long enough. A sync costs the same
    /// whatever it carries: records that are in no haste go with others, or many together.
    ///
    /// # Errors
    /// The journal has failed, which ends the node.
    pub fn submit(&mut self) -> Result<(), JournalError> {
        if self.awaited || self.now >= self.lazy_due() || self.ledger.backlog() >= LAZY_BYTES {
            self.kept = self.ledger.better_here();
            if !self.kept {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    /// Writes here what [`Io::submit`] has kept for that, or hands it over after all. Whether more is durable now. For
    /// the end of a round, when all that could leave has left: the disk works here.
    ///
    /// # Errors
    /// The journal has failed, which ends the node.
    pub fn write_kept(&mut self) -> Result<bool, JournalError> {
        if !std::mem::take(&mut self.kept) {
            return Ok(false);
        }
        let begun = std::time::Instant::now();
        let written = self.ledger.write_here()?;
        let took = Span::from_nanos(begun.elapsed().as_nanos() as u64);
        // Where the process stood still, the loop finds so when it comes by.
        let still = took >= HANGS && self.ledger.stood_still(begun);
        if !still {
            self.wrote += took;
        }
        if took >= HANGS && !still {
            tracing::error!(
                "a write to the journal took {took}, and this node did nothing meanwhile: see whether the disk or its volume hangs"
            );
        }
        if !written {
            self.hand_over()?;
            return Ok(false);
        }
        (self.awaited, self.lazy_since) = (false, None);
        Ok(true)
    }

    /// Whether [`Io::write_kept`] has something to write.
    pub fn keeps(&self) -> bool {
        self.kept
    }

    fn hand_over(&mut self) -> Result<(), JournalError> {
        self.ledger.submit()?;
        // What the journal has not taken goes with a later call.
        if self.ledger.backlog() == 0 {
            (self.awaited, self.lazy_since) = (false, None);
        }
        Ok(())
    }

    /// When records that are in no haste are handed over; [`Instant::MAX`] where there are none.
    pub fn lazy_due(&self) -> Instant {
        self.lazy_since.map_or(Instant::MAX, |since| since + LAZY_SPAN)
    }

    /// The loop comes by, as it does several times a second: for how long it stood still where it did not, but for what it
    /// wrote here. In that time nobody looked at the disk, which is waited for anew.
    pub(crate) fn come_by(&mut self) -> Option<Span> {
        let (now, wrote) = (self.now, std::mem::replace(&mut self.wrote, Span::ZERO));
        let still = now.since(self.came.replace(now)? + wrote);
        if still < STILL {
            return None;
        }
        if let Some((_, since)) = self.stands.as_mut().filter(|_| !self.hangs) {
            *since = *since + still;
        }
        Some(still)
    }

    /// Looks how far the disk is, and whether it goes on.
    ///
    /// # Errors
    /// The journal has failed, which ends the node.
    pub fn look_at_disk(&mut self) -> Result<(), JournalError> {
        self.durable = self.ledger.durable()?;
        let (durable, now) = (self.durable, self.now);
        let behind = durable < self.written;
        let stands = self.stands.filter(|(at, _)| *at == durable).unwrap_or((durable, now));
        self.stands = behind.then_some(stands);
        let hangs = behind && now.since(stands.1) >= HANGS;
        match (std::mem::replace(&mut self.hangs, hangs), hangs) {
            (false, true) => tracing::error!(
                "the disk of the journal has made nothing durable for {HANGS}: this node is not ready, and what waits for the disk \
                 says nothing, so that the other nodes go on without it; see whether the disk or its volume hangs"
            ),
            (true, false) => tracing::warn!("the disk of the journal goes on, and so does this node"),
            _ => {}
        }
        Ok(())
    }

    /// Whether the disk has made nothing durable for long, although there is something to write. Who waits for it is to be
    /// taken for dead and done without, as its host would be: it is still quick to say that it lives.
    pub fn hangs(&self) -> bool {
        self.hangs
    }

    /// The journal.
    pub fn ledger(&mut self) -> &mut dyn Ledger {
        &mut *self.ledger
    }

    /// Ends the queues and gives the journal back.
    pub fn into_ledger(self) -> Box<dyn Ledger> {
        self.ledger
    }

    /// The position of the newest record, durable or not.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of records so far.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that makes nothing durable but what is written here, which takes some time.
    #[derive(Default)]
    struct Stuck {
        recorded: u64,
        durable: u64,
    }

    /// Longer than the loop of the test stands still for anything but writing.
    const WRITING: std::time::Duration = std::time::Duration::from_millis(20);

    impl Ledger for Stuck {
        fn record(&mut self, _: StreamId, _: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
            self.recorded += 1;
            self.recorded
        }
        fn truncate(&mut self, _: StreamId, _: u64) {}
        fn submit(&mut self) -> Result<(), JournalError> {
            Ok(())
        }
        fn better_here(&self) -> bool {
            true
        }
        fn write_here(&mut self) -> Result<bool, JournalError> {
            std::thread::sleep(WRITING);
            self.durable = self.recorded;
            Ok(true)
        }
        fn durable(&mut self) -> Result<u64, JournalError> {
            Ok(self.durable)
        }
        fn backlog(&self) -> usize {
            0
        }
        fn close(self: Box<Self>) -> Result<(), JournalError> {
            Ok(())
        }
    }

    /// The loop comes by so many milliseconds behind the beginning, and looks at the disk.
    fn looks(io: &mut Io, millis: u64) -> (Option<Span>, bool) {
        io.now = Instant::ZERO + Span::from_millis(millis);
        let still = io.come_by();
        io.look_at_disk().unwrap();
        (still, io.hangs())
    }

    fn records(io: &mut Io) {
        io.record(ProcessId::from_u64(0), &7_u64, Haste::Now);
    }

    #[test]
    fn while_the_node_stands_still_the_disk_does_not_hang() {
        let mut io = Io::new(NodeId(0), Box::<Stuck>::default(), 0);
        assert_eq!(looks(&mut io, 5_000), (None, false), "it has only begun");
        records(&mut io);
        assert_eq!(looks(&mut io, 5_100), (None, false));
        let still = Span::from_secs(30);
        assert_eq!(looks(&mut io, 35_100), (Some(still), false));
        // From there on the disk has its time.
        for millis in (35_200..38_100).step_by(100) {
            assert_eq!(looks(&mut io, millis), (None, false), "{millis}");
        }
        assert_eq!(looks(&mut io, 38_100), (None, true));
        // What hangs goes on only by itself.
        assert_eq!(looks(&mut io, 68_100), (Some(still), true));
    }

    #[test]
    fn a_loop_that_writes_does_not_stand_still() {
        let mut io = Io::new(NodeId(0), Box::<Stuck>::default(), 0);
        for written in [true, false] {
            let base = io.now.as_nanos() / 1_000_000;
            looks(&mut io, base + 100);
            records(&mut io);
            if written {
                io.submit().unwrap();
                assert!(io.write_kept().unwrap());
            }
            let (still, _) = looks(&mut io, base + 100 + 1_000 + WRITING.as_millis() as u64 / 2);
            assert_eq!(still.is_none(), written);
        }
    }
}
