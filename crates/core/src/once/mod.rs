//! Exactly once: which commands of which clients have been executed, and what they were told.

mod commuting;

use crate::machine::CHUNK_MAX;
use crate::{Blob, ClientId, CommandId, Malformed, ProcessId, Series, Wire, wire};
use commuting::Commuting;
use std::collections::BTreeMap;

/// What the table knows of a command.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Seen<'a, R> {
    /// Never met: it may be executed.
    Fresh,
    /// Begun here and not finished: its answer will come.
    Running,
    /// Executed, with this answer.
    Done(&'a R),
    /// Acknowledged, expired, or of a client's former life: it must not be executed, and its answer is gone.
    Forgotten,
}

/// Sessions by client process. A session keeps the answers that its client has not acknowledged; of a
/// process only the newest incarnation is kept, since a restarted client is another client and the old
/// one can no longer be waiting. So the table is bounded by the number of client processes times the
/// commands each may have outstanding, and what is left of an expired session is one number.
///
/// The sessions are replicated state: they change only by what the log says, never by a replica's own
/// clock. [`OnceTable::begin`] and [`OnceTable::end`] keep notes beside them, which are a replica's own and
/// never travel.
///
/// All this holds where every replica executes one sequence ([`OnceTable::default`]). Behind a partial order
/// it would be unsound, see [`OnceTable::commuting`].
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct OnceTable<R> {
    sessions: BTreeMap<ProcessId, Session<R>>,
    running: BTreeMap<ClientId, Series<()>>,
    /// In place of the sessions, behind a partial order.
    commuting: Option<Box<Commuting<R>>>,
}

#[derive(Clone, Eq, PartialEq, Hash, Debug)]
struct Session<R> {
    incarnation: u32,
    /// Every command below is finished for good.
    below: u64,
    done: Series<R>,
}

impl<R> Default for OnceTable<R> {
    fn default() -> OnceTable<R> {
        OnceTable { sessions: BTreeMap::new(), running: BTreeMap::new(), commuting: None }
    }
}

impl<R> OnceTable<R> {
    /// The empty table of a replica that executes commuting commands in an order of its own. A command is
    /// refused only if that very command was executed: a client's mark may come by before commands below it
    /// do, and so may a client's next life. What was executed is kept as runs of numbers, and answers until
    /// they are acknowledged; runs and former lives are trimmed by [`OnceTable::barrier`] and
    /// [`OnceTable::expire`] alone, which only entries that conflict with everything may call.
    pub fn commuting() -> OnceTable<R> {
        OnceTable { commuting: Some(Box::default()), ..OnceTable::default() }
    }

    /// Everything that any replica has executed at this place, all have, says an entry that conflicts with
    /// everything: what clients have acknowledged is refused from here on, and so are the lives before this one,
    /// of which the entry's proposer had executed something; what was kept of them goes. Nothing in a total order.
    pub fn barrier(&mut self, life: ClientId) {
        if let Some(commuting) = &mut self.commuting {
            commuting.barrier(life);
        }
    }

    /// How many runs of numbers are kept behind a partial order: what a barrier makes fewer. Reads leave holes
    /// between them.
    pub fn runs(&self) -> usize {
        self.commuting.as_ref().map_or(0, |commuting| commuting.runs())
    }

    /// What is known of a command.
    pub fn look(&self, id: CommandId) -> Seen<'_, R> {
        let fresh = || match self.running.get(&id.client) {
            Some(running) if running.get(id.sequence).is_some() => Seen::Running,
            _ => Seen::Fresh,
        };
        if let Some(commuting) = &self.commuting {
            return commuting.look(id).unwrap_or_else(fresh);
        }
        let Some(session) = self.sessions.get(&id.client.process) else { return fresh() };
        match id.client.incarnation.cmp(&session.incarnation) {
            std::cmp::Ordering::Greater => fresh(),
            std::cmp::Ordering::Less => Seen::Forgotten,
            std::cmp::Ordering::Equal if id.sequence < session.below => Seen::Forgotten,
            std::cmp::Ordering::Equal => match session.done.get(id.sequence) {
                Some(reply) => Seen::Done(reply),
                None => fresh(),
            },
        }
    }

    /// Notes that a command is on its way here, so that its repetition need not be.
    pub fn begin(&mut self, id: CommandId) {
        self.running.entry(id.client).or_default().insert(id.sequence, ());
    }

    /// The command is no longer on its way here.
    pub fn end(&mut self, id: CommandId) {
        if let Some(running) = self.running.get_mut(&id.client) {
            running.remove(id.sequence);
            if running.is_empty() {
                self.running.remove(&id.client);
            }
        }
    }

    /// Forgets all that was only begun: whoever began it no longer answers for it.
    pub fn abandon(&mut self) {
        self.running.clear();
    }

    /// Notes that a command was executed and what its client is told.
    pub fn finish(&mut self, id: CommandId, reply: R) {
        self.end(id);
        if let Some(commuting) = &mut self.commuting {
            return commuting.finish(id, reply);
        }
        if let Some(session) = self.session(id.client)
            && id.sequence >= session.below
        {
            session.done.insert(id.sequence, reply);
        }
    }

    /// The client knows the answers to all its commands below this one, or no longer wants them.
    pub fn acknowledge(&mut self, client: ClientId, below: u64) {
        if let Some(commuting) = &mut self.commuting {
            return commuting.acknowledge(client, below);
        }
        if let Some(session) = self.session(client)
            && below > session.below
        {
            session.below = below;
            session.done.trim(below);
        }
    }

    /// Drops a session's answers. Its number stays, so that no command of it is executed twice.
    pub fn expire(&mut self, client: ClientId) {
        if let Some(commuting) = &mut self.commuting {
            return commuting.expire(client);
        }
        if let Some(session) = self.session(client) {
            if let Some((last, _)) = session.done.last() {
                session.below = session.below.max(last + 1);
            }
            session.done.clear();
        }
    }

    /// The sessions that still keep answers (or runs, behind a partial order), and how many answers each.
    pub fn retained(&self) -> impl Iterator<Item = (ClientId, usize)> + '_ {
        let commuting = self.commuting.iter().flat_map(|commuting| commuting.retained());
        let total =
            self.sessions.iter().filter(|(_, session)| !session.done.is_empty()).map(|(process, session)| {
                (ClientId { process: *process, incarnation: session.incarnation }, session.done.len())
            });
        commuting.chain(total)
    }

    /// The last command of this client whose answer is kept; behind a partial order the last executed since
    /// the last barrier trimmed it.
    pub fn last(&self, client: ClientId) -> Option<u64> {
        if let Some(commuting) = &self.commuting {
            return commuting.last(client);
        }
        let session = self.sessions.get(&client.process)?;
        let current = session.incarnation == client.incarnation;
        session.done.last().filter(|_| current).map(|(sequence, _)| sequence)
    }

    /// The first command of this client that is not acknowledged; 0 where the client is not known.
    pub fn below(&self, client: ClientId) -> u64 {
        if let Some(commuting) = &self.commuting {
            return commuting.below(client);
        }
        match self.sessions.get(&client.process) {
            Some(session) if session.incarnation == client.incarnation => session.below,
            _ => 0,
        }
    }

    /// The client's session, begun anew for a newer incarnation; none for an older one.
    fn session(&mut self, client: ClientId) -> Option<&mut Session<R>> {
        let fresh = || Session { incarnation: client.incarnation, below: 0, done: Series::default() };
        let session = self.sessions.entry(client.process).or_insert_with(fresh);
        if session.incarnation < client.incarnation {
            *session = fresh();
        }
        (session.incarnation == client.incarnation).then_some(session)
    }
}

/// A session in a chunk: the client, its mark, its answers.
type Exported<R> = (ClientId, u64, Vec<(u64, R)>);

impl<R: Wire> OnceTable<R> {
    /// The replicated part in bounded chunks, for a snapshot or a peer.
    pub fn export(&self) -> Vec<Blob> {
        if let Some(commuting) = &self.commuting {
            return commuting.export();
        }
        let (mut chunks, mut sessions, mut size) = (Vec::new(), Vec::<Exported<R>>::new(), 0);
        for (process, session) in &self.sessions {
            let client = ClientId { process: *process, incarnation: session.incarnation };
            sessions.push((client, session.below, Vec::new()));
            for (sequence, reply) in session.done.iter() {
                size += wire::encoded_size(reply) + 16;
                if let Some((_, _, done)) = sessions.last_mut() {
                    done.push((sequence, reply.clone()));
                }
                if size >= CHUNK_MAX {
                    // A session may go on in the next chunk under the same head.
                    chunks.push(Blob::from(wire::encode(&sessions)));
                    sessions.clear();
                    sessions.push((client, session.below, Vec::new()));
                    size = 0;
                }
            }
            size += 24;
        }
        if !sessions.is_empty() {
            chunks.push(Blob::from(wire::encode(&sessions)));
        }
        chunks
    }

    /// Takes in one chunk, starting from the empty table of the same kind.
    ///
    /// # Errors
    /// Refuses a chunk that no version of this table has exported.
    pub fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        if let Some(commuting) = &mut self.commuting {
            return commuting.absorb(chunk);
        }
        let sessions: Vec<Exported<R>> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "exactly-once chunk", cause: error.to_string() })?;
        for (client, below, done) in sessions {
            self.acknowledge(client, below);
            for (sequence, reply) in done {
                self.finish(CommandId { client, sequence }, reply);
            }
            // A session that keeps nothing has its number all the same.
            let _ = self.session(client);
        }
        Ok(())
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    crate::shape::hold::<Vec<Exported<u64>>>("once");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(instance: u8, incarnation: u32) -> ClientId {
        ClientId { process: ProcessId::from_u64(u64::from(instance)), incarnation }
    }

    fn id(client: ClientId, sequence: u64) -> CommandId {
        CommandId { client, sequence }
    }

    #[test]
    fn a_command_goes_through_its_life() {
        let mut table = OnceTable::default();
        let me = client(1, 1);
        assert_eq!(table.look(id(me, 1)), Seen::<u32>::Fresh);
        table.begin(id(me, 1));
        assert_eq!(table.look(id(me, 1)), Seen::Running);
        table.finish(id(me, 1), 7);
        assert_eq!(table.look(id(me, 1)), Seen::Done(&7));
        table.acknowledge(me, 2);
        assert_eq!(table.look(id(me, 1)), Seen::Forgotten);
        table.finish(id(me, 1), 8);
        assert_eq!(table.look(id(me, 1)), Seen::Forgotten, "the past stays past");
        table.begin(id(me, 2));
        table.begin(id(client(1, 2), 1));
        assert_eq!(table.look(id(client(1, 2), 1)), Seen::Running);
        assert_eq!(table.below(me), 2, "what is only begun changes no session");
        table.abandon();
        assert_eq!(table.look(id(me, 2)), Seen::Fresh);
    }

    #[test]
    fn a_restarted_client_is_another_client() {
        let mut table = OnceTable::default();
        table.finish(id(client(1, 1), 1), 7);
        assert_eq!(table.look(id(client(1, 2), 1)), Seen::Fresh);
        table.finish(id(client(1, 2), 1), 9);
        assert_eq!(table.look(id(client(1, 2), 1)), Seen::Done(&9));
        assert_eq!(table.look(id(client(1, 1), 2)), Seen::Forgotten, "its former life is over");
        assert_eq!(table.retained().collect::<Vec<_>>(), [(client(1, 2), 1)]);
    }

    #[test]
    fn an_expired_session_keeps_its_number() {
        let mut table = OnceTable::default();
        let me = client(1, 1);
        table.finish(id(me, 5), 7);
        table.expire(me);
        assert_eq!(table.look(id(me, 4)), Seen::Forgotten, "it may have been executed");
        assert_eq!(table.look(id(me, 5)), Seen::Forgotten);
        assert_eq!(table.look(id(me, 6)), Seen::Fresh);
        assert_eq!(table.retained().count(), 0);
    }

    #[test]
    fn export_and_absorb_are_inverse_in_bounded_chunks() {
        let mut table = OnceTable::default();
        for sequence in 1..2_000 {
            table.finish(id(client(1, 3), sequence), Blob::from(vec![1; 1_000]));
        }
        table.finish(id(client(2, 1), 4), Blob::from("x"));
        table.acknowledge(client(2, 1), 3);
        table.finish(id(client(3, 1), 9), Blob::from("y"));
        table.expire(client(3, 1));
        let chunks = table.export();
        assert!(chunks.len() > 5 && chunks.iter().all(|chunk| chunk.len() < CHUNK_MAX + 2_000));
        let mut copy = OnceTable::default();
        for chunk in &chunks {
            copy.absorb(chunk).unwrap();
        }
        assert_eq!(copy, table);
        table.begin(id(client(2, 1), 5));
        assert_eq!(table.export(), chunks, "what is only begun does not travel");
        assert!(OnceTable::<Blob>::default().absorb(&[9, 9, 9]).is_err());
    }

    #[test]
    fn behind_a_partial_order_only_the_very_command_is_refused() {
        let mut table = OnceTable::commuting();
        let me = client(1, 1);
        // Number 3, which commutes with 1 and 2, comes by first and says that 1 and 2 are answered.
        table.acknowledge(me, 3);
        table.finish(id(me, 3), 'c');
        assert_eq!(table.look(id(me, 1)), Seen::Fresh);
        table.finish(id(me, 1), 'a');
        assert_eq!(table.look(id(me, 1)), Seen::Forgotten, "executed, its answer acknowledged");
        assert_eq!(table.look(id(me, 3)), Seen::Done(&'c'));
        // The next life of the client comes by before what is left of this one.
        table.finish(id(client(1, 2), 1), 'x');
        assert_eq!(table.look(id(me, 2)), Seen::Fresh);
        table.finish(id(me, 2), 'b');
        assert_eq!(table.runs(), 2, "three numbers in a row are one run");
        assert_eq!(OnceTable::<char>::default().runs(), 0);
        assert_eq!(table.look(id(me, 4)), Seen::Fresh);
    }

    #[test]
    fn a_barrier_trims_what_all_have_executed() {
        let mut table = OnceTable::commuting();
        let (old, me) = (client(1, 1), client(1, 2));
        table.finish(id(old, 1), 'o');
        for sequence in [2, 4, 6, 8] {
            table.finish(id(me, sequence), 'r');
        }
        table.acknowledge(me, 7);
        assert_eq!(table.runs(), 5);
        table.barrier(old);
        assert_eq!(
            table.look(id(old, 2)),
            Seen::Fresh,
            "the barrier's proposer need not have heard of the next life"
        );
        table.barrier(me);
        assert_eq!(table.runs(), 1);
        assert_eq!(table.look(id(me, 3)), Seen::Forgotten);
        assert_eq!(table.look(id(me, 7)), Seen::Fresh);
        assert_eq!(table.look(id(me, 8)), Seen::Done(&'r'));
        assert_eq!(table.look(id(old, 2)), Seen::Forgotten, "its life is over");
        assert_eq!(table.last(me), Some(8));
        table.expire(me);
        assert_eq!((table.look(id(me, 8)), table.look(id(me, 9))), (Seen::Forgotten, Seen::Fresh));
        assert_eq!(table.retained().count(), 0);
    }

    #[test]
    fn runs_travel_in_bounded_chunks() {
        let mut table = OnceTable::commuting();
        for sequence in 1..9_000 {
            table.finish(id(client(1, 3), sequence * 2), Blob::from(vec![1; 200]));
        }
        table.finish(id(client(2, 1), 4), Blob::from("x"));
        table.expire(client(2, 1));
        table.finish(id(client(1, 4), 1), Blob::from("y"));
        let chunks = table.export();
        assert!(chunks.len() > 5 && chunks.iter().all(|chunk| chunk.len() < 2 * CHUNK_MAX));
        let mut copy = OnceTable::commuting();
        for chunk in &chunks {
            copy.absorb(chunk).unwrap();
        }
        assert_eq!(copy, table);
        assert!(OnceTable::<Blob>::commuting().absorb(&[9, 9, 9]).is_err());
    }
}
