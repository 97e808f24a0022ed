//! LATENCY: how long the commands of this node took, from the request to the answer. No events are watched for, as in a Redis
//! whose `latency-monitor-threshold` is 0.

use super::complaint::Complaint;
use super::connection::State;
use super::reply::Reply;
use super::request::Args;
use super::spec::Spec;
use super::table;
use crate::gateway::{Context, Times};

use std::collections::BTreeMap;

type Answer = Result<(), Complaint>;

/// `LATENCY HISTOGRAM [command ...]`: of a command with subcommands, those.
pub(crate) fn histogram(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let times = &context.counters.times;
    // Each once, however often it is named.
    let chosen: BTreeMap<&str, &Times> = if args.len() == 2 {
        times.iter().map(|(name, times)| (*name, times)).collect()
    } else {
        let named = args.from(2).iter().filter_map(table::by_name);
        let named = named.flat_map(|spec: &Spec| match spec.children() {
            [] => std::slice::from_ref(spec),
            children => children,
        });
        named.filter_map(|spec| Some((spec.name, times.get(spec.name)?))).collect()
    };
    reply.map(chosen.len());
    for (name, times) in chosen {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(times.counts.iter().sum::<u64>() as i64);
        reply.bulk(b"histogram_usec");
        reply.map(times.counts.iter().filter(|count| **count > 0).count());
        let mut sum = 0;
        for (place, count) in times.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            reply.integer((Times::most(place).as_nanos() / 1_000) as i64);
            reply.integer(sum as i64);
        }
    }
    Ok(())
}

/// `LATENCY LATEST`, `LATENCY HISTORY event`
pub(crate) fn nothing(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.array(0);
    Ok(())
}

/// `LATENCY RESET [event ...]`
pub(crate) fn reset(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.integer(0);
    Ok(())
}

/// `LATENCY GRAPH event`
pub(crate) fn graph(_: &mut State, args: Args<'_>, _: &mut Context<'_>, _: &mut Reply<'_>) -> Answer {
    let event = String::from_utf8_lossy(args.at(2));
    Err(Complaint::text(format!("ERR No samples available for event '{event}'")))
}

/// `LATENCY DOCTOR`
pub(crate) fn doctor(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.verbatim(
        "No events are watched for here. LATENCY HISTOGRAM tells how long commands took, SLOWLOG GET which took long, and the \
         metrics of the node what its protocols and its disk took.\n",
    );
    Ok(())
}
