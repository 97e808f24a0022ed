//! How the log of a group is tuned, alike under every protocol that stands on it.

use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;
use isochrone_replication::Tuning as _;
use isochrone_replication::multipaxos::{Form, Parameters};
use isochrone_replication::service::Reply;

/// The knobs of a group's log. Its form is the prefix form, which the rules of a group rest on; and nothing is read by a
/// lease: what a leader read is checked by what is replicated, so none has to run out before another leader begins.
pub(crate) fn log_for_rtt(rtt_max: Span) -> Parameters {
    Parameters { form: Form::Prefix, gather: false, lease: false, ..Parameters::for_rtt(rtt_max) }
}

/// Reads what a keyspace sets of them, and refuses what is not to be chosen.
pub(crate) fn read_log(log: &mut Parameters, reader: &mut ParameterReader<'_>) {
    log.read_from(reader, Reply::Execute);
    if log.form != Form::Prefix {
        reader.reject("form", "is \"prefix\" in every group of a transaction protocol", "leave it out");
    }
    if log.lease {
        reader.reject("lease", "has no use here: reads are checked by what is replicated", "leave it out");
    }
}
