//! The plan as a table for people.

use std::fmt;

use crate::{Forecast, Plan, Recommendation};

impl Forecast {
    /// What a row is called: protocol, leader, what must be so, and whether it is a bound.
    pub fn label(&self) -> String {
        let mut label = self.protocol.clone();
        if let Some(leader) = &self.leader {
            let role = if self.protocol == "sdpaxos" { "sequencer" } else { "leader" };
            label += &format!(", {role} {leader}");
        }
        if let Some(case) = &self.case {
            label += &format!(", {case}");
        }
        if let Some(bound) = &self.bound {
            label += &format!(", {bound}");
        }
        label
    }
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.protocol)?;
        if let Some(leader) = &self.leader {
            let role = if self.protocol == "sdpaxos" { "sequencer" } else { "leader" };
            write!(f, ", {role} {leader}")?;
        }
        if let Some(reply) = &self.reply {
            write!(f, " with reply = {reply:?}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    /// A row for the floor and for each choice, a column for each region, milliseconds; then what to take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.protocols.iter().map(Forecast::label).collect();
        let first = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max("floor".len());
        let width = |name: &str| name.chars().count().max(6);
        let count = self.replicas.len();
        let replicas = if count == 1 { "replica" } else { "replicas" };
        writeln!(f, "keyspace {:?}, {count} {replicas}: {}", self.keyspace, self.replicas.join(", "))?;
        let times = if self.fast_crashes == 1 { "crash" } else { "crashes" };
        let (crashes, fast) = (self.crashes, self.fast_crashes);
        writeln!(
            f,
            "{crashes} may crash; a decision in two message delays is possible after {fast} {times} at most"
        )?;
        writeln!(f, "commit latency without load, by region of the client, ms")?;
        if self.conflict_percent > 0.0 {
            let share = self.conflict_percent;
            writeln!(
                f,
                "the mean is that with {share} % of commands that interfere, which the columns leave out"
            )?;
        }
        writeln!(f)?;
        let row =
            |f: &mut fmt::Formatter<'_>, label: &str, cells: &mut dyn Iterator<Item = f64>, mean: f64| {
                write!(f, "{label:<first$}")?;
                for ((name, _), cell) in self.floor_ms.iter().zip(cells) {
                    write!(f, "  {cell:>width$.1}", width = width(name))?;
                }
                writeln!(f, "  {mean:>6.1}")
            };
        write!(f, "{:<first$}", "")?;
        for (name, _) in &self.floor_ms {
            write!(f, "  {name:>width$}", width = width(name))?;
        }
        writeln!(f, "  {:>6}", "mean")?;
        if self.clients.iter().any(|(_, clients)| *clients != self.clients[0].1) {
            write!(f, "{:<first$}", "clients")?;
            for (name, clients) in &self.clients {
                write!(f, "  {clients:>width$}", width = width(name))?;
            }
            writeln!(f)?;
        }
        row(f, "floor", &mut self.floor_ms.iter().map(|(_, floor)| *floor), self.floor_mean_ms)?;
        for (label, forecast) in labels.iter().zip(&self.protocols) {
            row(f, label, &mut forecast.regions.iter().map(|region| region.commit_ms), forecast.mean_ms)?;
        }
        writeln!(
            f,
            "\neach client is on a machine of its own, a round trip within its region from a replica there"
        )?;
        self.advice(f)
    }
}

impl Plan {
    fn advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = |choice: &Recommendation| choice.mean_ms.unwrap_or_default() - self.floor_mean_ms;
        let best = &self.recommended;
        writeln!(f, "\nrecommended: {best}, {:.1} ms over the mean floor", over(best))?;
        writeln!(f, "  {}", best.reason)?;
        if let Some(choice) = &self.sequenced {
            let less = best.mean_ms.unwrap_or_default() - choice.mean_ms.unwrap_or_default();
            writeln!(f, "sequenced:   {choice}, {less:.1} ms faster")?;
            writeln!(f, "  {}", choice.reason)?;
        }
        if let Some(choice) = &self.placement {
            writeln!(f, "placement:   {choice}, replicas in {}", choice.replicas.join(", "))?;
            writeln!(f, "  mean {:.1} ms, {}", choice.mean_ms.unwrap_or_default(), choice.reason)?;
        }
        match (self.configured.mean_ms, best.mean_ms) {
            // What is as fast by its figure alone is said too, where there is something to say of that.
            (Some(mean), Some(lowest)) if mean > lowest || !self.configured.reason.is_empty() => {
                writeln!(f, "configured:  {}, {:.1} ms slower", self.configured, mean - lowest)?;
                if self.configured.reason.is_empty() {
                    return Ok(());
                }
                writeln!(f, "  {}", self.configured.reason)
            }
            _ => Ok(()),
        }
    }
}
