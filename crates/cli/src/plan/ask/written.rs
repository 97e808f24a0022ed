//! The deployment as a file, with why it is as it is.

use super::{Aim, Answers, Choice, MAIN, Touched, WORKLOAD};
use crate::protocols;
use isochrone_core::{Deployment, RegionId};
use std::fmt::Write;
use std::path::Path;

/// The first ports of peers, of Redis clients and of HTTP: each node has the next ones. Not those of `isochrone up`.
const PORTS: [usize; 3] = [7_101, 7_201, 7_301];

/// The whole file.
///
/// # Errors
/// If it could not be read again, which would be a mistake of ours.
pub(super) fn text(answers: &Answers, choice: &Choice) -> anyhow::Result<String> {
    let body = body(answers, choice);
    let deployment = deployment(answers, &body)?;
    protocols::check(&deployment)?;
    Ok(head(answers, choice, &deployment)? + &body)
}

/// Reads it, with the matrix of the map.
pub(super) fn deployment(answers: &Answers, text: &str) -> anyhow::Result<Deployment> {
    let read = |_: &Path| Ok(answers.map.csv.to_owned());
    let known = protocols::known();
    Ok(Deployment::parse_with(text, "what `plan --ask` writes", Path::new(""), &known, &read)?)
}

/// Why it is so, and what to do with it.
fn head(answers: &Answers, choice: &Choice, deployment: &Deployment) -> anyhow::Result<String> {
    let name = |region: RegionId| answers.matrix.name(region);
    let users = answers.matrix.regions().zip(&answers.users).filter(|(_, users)| **users > 0);
    let users =
        users.map(|(region, users)| format!("{} {users}", name(region))).collect::<Vec<_>>().join(", ");
    let sites = answers.sites.iter().map(|site| name(*site)).collect::<Vec<_>>().join(", ");
    let touched = match answers.touched {
        Touched::Keys(share) => format!("keys of one partition; {share} % of the commands interfere"),
        Touched::Partitions => "keys of several partitions, atomically".to_owned(),
    };
    let aim = match answers.aim {
        Aim::Mean => "the mean over the users".to_owned(),
        Aim::Worst => "the latency of the region that waits longest".to_owned(),
        Aim::Region(region) => format!("the latency of users in {}", name(region)),
    };
    let Choice { protocol, reached_ms, bound, next, .. } = choice;
    let bounded = |bound: Option<&str>| bound.map_or_else(String::new, |bound| format!("{bound} "));
    let led = choice.leader.map_or_else(String::new, |leader| format!(" with {}", name(leader)));
    let count = answers.replicas();
    let mut text = format!(
        "# Written by `isochrone plan --ask` from these answers:\n\
         #   users             {users}\n\
         #   data may lie in   {sites}\n\
         #   may be lost       {} at once, so there are {count} replicas\n\
         #   requests touch    {touched}\n\
         #   to be short       {aim}\n\
         #\n",
        match answers.lost {
            1 => "1 region".to_owned(),
            lost => format!("{lost} regions"),
        }
    );
    // Writing to a string does not fail; the same holds below.
    let of = match answers.touched {
        Touched::Keys(_) => "a write".to_owned(),
        Touched::Partitions => format!("a transaction of `{WORKLOAD}`, in the mean"),
    };
    let places = match answers.touched {
        Touched::Keys(_) => format!("of all places for {count} replicas, protocols and leaders"),
        Touched::Partitions => {
            "each region with users leads a partition, whose other replicas are those nearest to it; of the\n# strictly \
             serializable protocols"
                .to_owned()
        }
    };
    let _ = writeln!(
        text,
        "# Why {protocol}{led}: {places} it has the lowest figure,\n# {}{reached_ms:.1} ms for {of} without load.",
        bounded(bound.as_deref())
    );
    if let Some((next, at, bound)) = next {
        let _ = writeln!(text, "# {next} comes next, {}{at:.1} ms.", bounded(bound.as_deref()));
    }
    if let Touched::Keys(conflict) = answers.touched {
        let demand = isochrone_plan::Demand { conflict, ..isochrone_plan::Demand::of(deployment) };
        let plan = isochrone_plan::plan(deployment, MAIN, &demand)?;
        let _ = writeln!(
            text,
            "# The mean over the users that no protocol can be below with these replicas is {:.1} ms.",
            plan.floor_mean_ms
        );
        // Of the mean, as a plan is.
        if answers.aim == Aim::Mean && plan.recommended.protocol == "sdpaxos" && protocol != "sdpaxos" {
            let _ = writeln!(
                text,
                "# `plan` names sdpaxos, mean {}{:.1} ms: so soon it answers SET and MSET alone, and with reply = \"commit\" only; all\n\
                 # else waits for what other regions write.",
                bounded(plan.recommended.bound),
                plan.recommended.mean_ms.unwrap_or_default()
            );
        }
        if let Some(sequenced) = &plan.sequenced {
            let _ = writeln!(
                text,
                "# Where answers need only say that a command has its place: {sequenced}, mean {}{:.1} ms.",
                bounded(sequenced.bound),
                sequenced.mean_ms.unwrap_or_default()
            );
        }
    }
    let _ = writeln!(
        text,
        "#\n\
         # It runs on one machine as it is:\n\
         #   isochrone plan FILE    all choices, region by region\n\
         #   isochrone sim FILE     in virtual time; with --faults all, checked\n\
         #   isochrone up FILE      all nodes, with the distances of the map emulated\n\
         # For machines of your own change every line with CHANGE, make certificates (isochrone cert FILE --out certs), and\n\
         # start each node: isochrone node FILE --name NAME --data DIR. Then: isochrone plan FILE --live\n"
    );
    Ok(text)
}

/// What is read of it.
pub(super) fn body(answers: &Answers, choice: &Choice) -> String {
    let Answers { map, matrix, users, .. } = answers;
    let replicas: Vec<RegionId> = choice.groups.iter().flatten().copied().collect();
    let regions: Vec<RegionId> =
        matrix.regions().filter(|region| answers.has_users(*region) || replicas.contains(region)).collect();
    let mut text =
        "cluster = \"asked\"     # CHANGE: a name of its own; nodes refuse peers of another\n".to_owned();
    for region in &regions {
        let clients = users.get(usize::from(region.0)).copied().unwrap_or_default();
        let _ = write!(text, "\n[[region]]\nname = {:?}\nclients = {clients}\n", matrix.name(*region));
    }
    for (at, region) in regions.iter().enumerate() {
        let [listen, redis, http] = PORTS.map(|port| port + at);
        let _ = write!(
            text,
            "\n[[node]]\nname = {:?}\nregion = {:?}\n\
             listen = \"127.0.0.1:{listen}\"     # CHANGE: where the other nodes reach it, such as \"10.0.0.1:7000\"\n\
             redis = \"127.0.0.1:{redis}\"      # CHANGE: where clients reach it, such as \"10.0.0.1:6379\"\n\
             http = \"127.0.0.1:{http}\"       # CHANGE: metrics and health, such as \"10.0.0.1:9000\"; for your own network only\n",
            node(matrix.name(*region)),
            matrix.name(*region),
        );
    }
    let _ = write!(
        text,
        "\n[network]\nrtt = \"{0}.csv\"     # CHANGE: round trips between your own regions; plan --live says what nodes measure\n\
         \n[[keyspace]]\nname = \"main\"\nprotocol = {1:?}\n",
        map.name, choice.protocol
    );
    let listed = |group: &Vec<RegionId>| {
        let names = group.iter().map(|region| format!("{:?}", node(matrix.name(*region))));
        format!("[{}]", names.collect::<Vec<_>>().join(", "))
    };
    match (answers.touched, choice.groups.as_slice()) {
        (Touched::Keys(_), [group]) => {
            let _ = writeln!(text, "replicas = {}", listed(group));
            if let Some(leader) = choice.leader {
                let _ = writeln!(text, "leader = {:?}", matrix.name(leader));
            }
            if let Some(f) = choice.f {
                let _ = writeln!(
                    text,
                    "parameters = {{ f = {f} }}     # copies beside the master: data survive the loss of so many replicas"
                );
            }
        }
        (_, groups) => {
            text += "placement = [     # partition by partition, its first leader first\n";
            for group in groups {
                let _ = writeln!(text, "  {},", listed(group));
            }
            text += "]\n";
        }
    }
    let _ = writeln!(text, "survive = {}", answers.lost);
    text
}

/// The name of a region's node.
fn node(region: &str) -> String {
    region.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
}
