//! Executing what is decided, in order, each command once.

use super::super::Note;
use super::super::log::{Decision, Value};
use super::super::message::{Entry, Spans, Told, micros};
use super::Replica;
use isochrone_core::{ClientId, CommandId, Effects, Fact, Instant, Seen, StateMachine};

impl<S: StateMachine> Replica<S> {
    pub(super) fn execute_decided(&mut self, effects: &mut Effects<Self>) {
        while let Some(decision) = self.log.next_decided(effects.now()) {
            let (position, digest) = (decision.slot.0, decision.digest);
            effects.mark(Note::Fact(Fact::Decided { position, digest }));
            self.execute(decision, self.log.leads());
            let (position, digest) = (self.applied.0, self.digest);
            effects.mark(Note::Fact(Fact::Applied { position, digest }));
        }
    }

    /// As [`Replica::execute_decided`], before the start: nobody is told anything.
    pub(super) fn execute_quietly(&mut self) {
        while let Some(decision) = self.log.next_decided(Instant::ZERO) {
            self.execute(decision, false);
        }
    }

    fn execute(&mut self, decision: Decision<Entry<S::Command>>, tell: bool) {
        let spans: Option<Spans> = decision.spans.map(|[queue, journal, quorum, order]| {
            // Execution takes no time of this clock: an input is handled at one instant.
            [micros(queue), micros(journal), micros(quorum), micros(order), 0]
        });
        if let Value::Batch(entries) = &decision.value {
            for entry in entries.iter() {
                match entry {
                    Entry::Command { id, below, command } => {
                        let told = self.execute_command(*id, *below, command);
                        if tell {
                            self.answer(id.client, spans, id.sequence, told);
                        }
                    }
                    Entry::Read { id, below, command } => {
                        self.once.acknowledge(id.client, *below);
                        self.once.end(*id);
                        if tell {
                            let told = self.machine.read(command).map_or(Told::Touches, Told::Done);
                            self.answer(id.client, spans, id.sequence, told);
                        }
                    }
                    Entry::Expire { client } => self.expire_session(*client),
                }
            }
        }
        self.applied = decision.slot.next();
        self.fold(decision.digest);
    }

    /// Takes something into the digest of all that was executed; also what was left out, so that replicas
    /// whose exactly-once tables differ show it.
    fn fold(&mut self, number: u64) {
        self.digest = (self.digest.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn execute_command(&mut self, id: CommandId, below: u64, command: &S::Command) -> Told<S::Reply> {
        self.once.acknowledge(id.client, below);
        match self.once.look(id) {
            Seen::Done(reply) => {
                let told = Told::Done(reply.clone());
                self.fold(id.sequence);
                told
            }
            Seen::Forgotten => {
                self.once.end(id);
                self.fold(id.sequence);
                Told::Forgotten
            }
            Seen::Fresh | Seen::Running => {
                let reply = self.machine.apply(command);
                self.once.finish(id, reply.clone());
                Told::Done(reply)
            }
        }
    }

    fn expire_session(&mut self, client: ClientId) {
        self.once.expire(client);
        self.clients.remove(&client.process);
    }
}
