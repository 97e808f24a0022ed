//! How the primary-backup form is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::curp::witness::Shape;
use crate::curp::{Bug, FastPath};
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::multipaxos;
use crate::service::Reply;
use isochrone_core::deployment::{CURP_COPIES, ParameterReader};
use isochrone_core::{LeaseTerms, Span};

/// The parameters of the primary-backup form.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// How many copies there are beside the master: how many failures lose nothing. Fewer where there are fewer
    /// replicas. All of them are waited for, so more make it slower.
    pub f: usize,
    /// How many copies are left at least when others are down, or have not the state yet when another becomes the master.
    pub copies_min: usize,
    /// Commands that are not yet on their way to the backups at most (D-16).
    pub batch_max: usize,
    /// How long the first of them may wait: 1 ms in one site, 5 ms across sites (D-16).
    pub sync_delay: Span,
    /// A command on a key of the last so many commands is sent to the backups at once (D-18); 0 switches it off.
    pub hot_window: usize,
    /// How often a manager asks whether servers live, and a master tells its backups that it does.
    pub heartbeat: Span,
    /// After how long a silence a server is given up.
    pub silence: Span,
    /// Whether a master holds leases of its backups and answers reads from its own state (D-14).
    pub lease: bool,
    /// Whether clients read at a copy that is nearer than the master, where it has a lease for that (3.10). Nothing
    /// without `lease`.
    pub nearby_reads: bool,
    /// Whether a copy's server is its witness itself, so that its log is sent by name (3.16). Fixed for the life of a
    /// keyspace: who changes it finds nobody who may lead.
    pub unified: bool,
    /// How long a lease lasts. A copy that clients read at has one without gaps where this is above the round trips of
    /// the master with its farthest copy, of which the master's own lease is, and with this one, two beats, and what the
    /// clocks may drift.
    pub lease_length: Span,
    /// How far a steady clock's rate may be off, in millionths: leases rest on it.
    pub drift_ppm: u64,
    /// How long an answer may take before it is asked for again.
    pub resend: Span,
    /// Commands that are not on all backups at most; more are refused.
    pub window: usize,
    /// Bytes of them.
    pub window_bytes: usize,
    /// Executed places of the log that are kept for servers that lag; who lags more takes in the state.
    pub keep_slots: usize,
    /// Bytes of them.
    pub keep_bytes: usize,
    /// The store of a witness.
    pub witness: Shape,
    /// The fast path at the client.
    pub fast_path: FastPath,
    /// The managers' own group.
    pub managers: multipaxos::Parameters,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let managers = multipaxos::Parameters::for_rtt(rtt_max);
        let near = rtt_max < Span::from_millis(5);
        Parameters {
            f: CURP_COPIES,
            copies_min: 1,
            batch_max: 50,
            sync_delay: Span::from_millis(if near { 1 } else { 5 }),
            hot_window: 100,
            heartbeat: managers.heartbeat,
            silence: managers.election,
            lease: true,
            nearby_reads: false,
            unified: false,
            lease_length: managers.election,
            drift_ppm: managers.drift_ppm,
            resend: managers.resend,
            window: 65_536,
            window_bytes: 32 << 20,
            keep_slots: 8_192,
            keep_bytes: KEEP_BYTES,
            witness: Shape::default(),
            fast_path: FastPath::for_rtt(rtt_max),
            managers,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, _: Reply) {
        self.batch_max = reader.integer("batch_max", self.batch_max as u64, 1, 1 << 20) as usize;
        self.sync_delay = reader.span("sync_delay", self.sync_delay, Span::ZERO, MOST);
        self.hot_window = reader.integer("hot_window", self.hot_window as u64, 0, 4_096) as usize;
        self.heartbeat = reader.span("heartbeat", self.heartbeat, LEAST, MOST);
        knobs::silence(reader, "silence", &mut self.silence, self.heartbeat);
        self.lease = reader.boolean("lease", self.lease);
        self.nearby_reads = reader.boolean("nearby_reads", self.nearby_reads);
        if self.nearby_reads && !self.lease {
            let right =
                "remove lease = false, or nearby_reads: a copy answers reads under a lease of the master's";
            reader.reject("nearby_reads", "does nothing with lease = false", right);
        }
        self.unified = reader.boolean("unified", self.unified);
        self.lease_length = reader.span("lease_length", self.lease_length, LEAST, MOST);
        self.drift_ppm = reader.integer("drift_max_ppm", self.drift_ppm, 1, 100_000);
        knobs::witness(reader, &mut self.witness);
        self.fast_path.always_synced = isochrone_plan::curp::always_synced(reader);
        self.window = reader.integer("window", self.window as u64, 1, 1 << 24) as usize;
        knobs::window_bytes(reader, &mut self.window_bytes);
        knobs::keep(reader, "keep_slots", &mut self.keep_slots, &mut self.keep_bytes);
        let managers = &mut self.managers;
        (managers.heartbeat, managers.election, managers.drift_ppm) =
            (self.heartbeat, self.silence, self.drift_ppm);
        managers.lease_length = managers.lease_length.min(self.silence);
    }

    /// A spare may hold a copy like any other. What is not given may be more: a keyspace that begins small grows into it.
    fn read_sizes(&mut self, reader: &mut ParameterReader<'_>, replicas: usize, spares: usize) {
        let servers = replicas + spares;
        self.f = reader.copies(servers.saturating_sub(1));
        let most = self.copies(servers) as u64;
        self.copies_min = reader.integer("copies_min", self.copies_min as u64, 0, most) as usize;
    }

    /// Records are sent to other roles.
    fn fixed(&self, _: usize) -> Vec<(&'static str, String)> {
        vec![("unified", self.unified.to_string())]
    }

    /// The master's, and those of the manager that leads.
    fn leases(&self) -> Span {
        let masters = if self.lease { self.lease_length } else { Span::ZERO };
        masters.max(self.managers.leases())
    }

    fn bugs() -> Vec<&'static str> {
        Mutation::names()
    }

    fn plant(&mut self, bug: &str) -> bool {
        self.mutation = Mutation::named(bug);
        self.mutation.is_some()
    }

    fn shared_bug(&self) -> Option<Bug> {
        self.mutation.and_then(Mutation::shared)
    }

    fn drops_sessions(&self) -> bool {
        self.mutated(Mutation::DropSession)
    }
}

impl Parameters {
    /// The terms of its leases.
    pub fn lease_terms(&self) -> LeaseTerms {
        LeaseTerms::new(self.lease_length, self.drift_ppm)
    }

    /// Whether copies read for clients.
    pub fn reads_nearby(&self) -> bool {
        self.lease && self.nearby_reads
    }

    /// How many copies a group of so many servers has.
    pub fn copies(&self, servers: usize) -> usize {
        self.f.min(servers.saturating_sub(1))
    }

    /// Whether this bug is planted.
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }
}
