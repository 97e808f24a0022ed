//! How the consensus variant is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::curp::{Bug, FastPath, witness};
use crate::family::Tuning;
use crate::knobs::{self, LEAST, MOST};
use crate::multipaxos::{self, Form};
use crate::service::Reply;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;

/// The parameters of the consensus variant.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// The knobs of the log, in its prefix form always: a later command of a client tells that it has the answers
    /// to its earlier ones, so it must not survive a leader whose earlier entries are lost.
    pub log: multipaxos::Parameters,
    /// How large each witness is.
    pub witness: witness::Shape,
    /// How long a round of collections lasts: a request that is in another's way after three is suspected to be
    /// garbage. A round trip and some time to decide, so that nothing healthy is.
    pub round: Span,
    /// Commands that were decided lately and are known by name: a record that comes late is answered without being
    /// held. As many as may be decided while a message is on its way.
    pub remember: usize,
    /// The fast path at the client.
    pub fast: FastPath,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let log = multipaxos::Parameters {
            form: Form::Prefix,
            // A command that waited for a disk would be answered after two round trips' worth of syncs.
            gather: false,
            ..multipaxos::Parameters::for_rtt(rtt_max)
        };
        Parameters {
            log,
            witness: witness::Shape::default(),
            round: rtt_max + Span::from_millis(100),
            remember: 16_384,
            fast: FastPath::for_rtt(rtt_max),
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply) {
        self.log.read_from(reader, reply);
        if self.log.form != Form::Prefix {
            reader.reject(
                "form",
                "would let a command survive that answers were lost before",
                "leave it out",
            );
        }
        knobs::witness(reader, &mut self.witness);
        self.fast.always_synced = isochrone_plan::curp::always_synced(reader);
        self.round = reader.span("witness_round", self.round, LEAST, MOST);
    }

    fn leases(&self) -> Span {
        self.log.leases()
    }

    fn bugs() -> Vec<&'static str> {
        Mutation::names()
    }

    fn plant(&mut self, bug: &str) -> bool {
        self.mutation = Mutation::named(bug);
        self.mutation.is_some()
    }

    fn shared_bug(&self) -> Option<Bug> {
        self.mutation.filter(|bug| bug.acts(Some(*bug))).and_then(Mutation::shared)
    }
}

impl Parameters {
    /// Whether this bug is planted.
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }
}
