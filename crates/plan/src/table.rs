//! The plan as a table for people.

use std::fmt;

use crate::advice::about;
use crate::{Forecast, Plan, Recommendation};

/// How many cells of a terminal a text takes: two a letter of the wide scripts, most of East Asia's, and none a mark that stands on
/// the letter before it.
pub fn cells(text: &str) -> usize {
    text.chars().map(cells_of).sum()
}

fn cells_of(letter: char) -> usize {
    match u32::from(letter) {
        // Marks that combine, joiners, and what chooses a variant.
        0x0300..=0x036f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x200b..=0x200f | 0x20d0..=0x20ff => 0,
        0x3099..=0x309a | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f => 0,
        // Wide or full-width: Hangul, kana, ideographs, their punctuation, and pictures.
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xa960..=0xa97f | 0xac00..=0xd7a3 => 2,
        0xf900..=0xfaff | 0xfe10..=0xfe19 | 0xfe30..=0xfe6f | 0xff01..=0xff60 | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1f64f | 0x1f680..=0x1f6ff | 0x1f900..=0x1f9ff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The spaces that a text lacks of so many cells.
pub fn gap(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(cells(text)))
}

/// What stands before a figure in a table that is a bound.
pub fn mark(bound: Option<&str>) -> &'static str {
    match bound {
        None => "",
        Some("at least") => "≥",
        Some(_) => "≤",
    }
}

/// A figure, with a mark before one that is a bound.
fn marked(ms: f64, bound: Option<&str>) -> String {
    format!("{}{ms:.1}", mark(bound))
}

impl Forecast {
    /// What all figures of the row are, its mean among them, where that is one and the same bound.
    fn bound_of_all(&self) -> Option<&str> {
        let bound = self.bound.as_deref()?;
        self.regions.iter().all(|region| region.bound == Some(bound)).then_some(bound)
    }

    /// Its figures, and the mean, as they stand in a table: with marks, unless the label says it of all.
    fn figures(&self) -> (Vec<String>, String) {
        let told = self.bound_of_all().is_some();
        let figure = |ms: f64, bound: Option<&str>| marked(ms, bound.filter(|_| !told));
        let regions = self.regions.iter().map(|region| figure(region.commit_ms, region.bound)).collect();
        (regions, figure(self.mean_ms, self.bound.as_deref()))
    }

    /// What a row is called: protocol, leader, what must be so, and whether all of it is a bound.
    pub fn label(&self) -> String {
        let mut label = self.protocol.clone();
        if let Some(leader) = &self.leader {
            let role = if self.protocol == "sdpaxos" { "sequencer" } else { "leader" };
            label += &format!(", {role} {leader}");
        }
        if let Some(case) = &self.case {
            label += &format!(", {case}");
        }
        if let Some(bound) = self.bound_of_all() {
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
        if let Some(copies) = self.f {
            write!(f, " with f = {copies}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    /// A row for the floor and for each choice, a column for each region, milliseconds; then what to take.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.protocols.iter().map(Forecast::label).collect();
        let first = labels.iter().map(|label| cells(label)).max().unwrap_or(0).max("floor".len());
        let figures: Vec<(Vec<String>, String)> = self.protocols.iter().map(Forecast::figures).collect();
        let mut all = figures.iter().flat_map(|(regions, mean)| regions.iter().chain([mean]));
        let marked = all.any(|figure| figure.starts_with(['≤', '≥']));
        let least = if marked { 7 } else { 6 };
        let width = |name: &str| cells(name).max(least);
        let count = self.replicas.len();
        let replicas = if count == 1 { "replica" } else { "replicas" };
        writeln!(f, "keyspace {:?}, {count} {replicas}: {}", self.keyspace, self.replicas.join(", "))?;
        let times = if self.fast_crashes == 1 { "crash" } else { "crashes" };
        let (crashes, fast) = (self.crashes, self.fast_crashes);
        let fewer = self.configured.f.filter(|survived| *survived < crashes);
        let fewer =
            fewer.map_or_else(String::new, |survived| format!(" ({survived} under curp as configured)"));
        writeln!(
            f,
            "{crashes} may crash{fewer}; a decision in two message delays is possible after {fast} {times} at most"
        )?;
        writeln!(f, "commit latency without load, by region of the client, ms")?;
        if self.conflict_percent > 0.0 {
            let share = self.conflict_percent;
            writeln!(
                f,
                "the mean is that with {share} % of commands that interfere, of epaxos at most; the columns leave it out; so does \
                 the mean of rows with a case, such as \"conflict\""
            )?;
        }
        if self.partitions > 1 {
            writeln!(
                f,
                "rows with a leader: the mean over the {} partitions, led by the replicas in turn from that one on",
                self.partitions
            )?;
        }
        writeln!(f)?;
        let row = |f: &mut fmt::Formatter<'_>, label: &str, cells: &[String], mean: &str| {
            write!(f, "{label}{}", gap(label, first))?;
            for ((name, _), cell) in self.floor_ms.iter().zip(cells) {
                write!(f, "  {cell:>width$}", width = width(name))?;
            }
            writeln!(f, "  {mean:>least$}")
        };
        write!(f, "{:<first$}", "")?;
        for (name, _) in &self.floor_ms {
            write!(f, "  {}{name}", gap(name, width(name)))?;
        }
        writeln!(f, "  {:>least$}", "mean")?;
        if self.clients.iter().any(|(_, clients)| *clients != self.clients[0].1) {
            write!(f, "{:<first$}", "clients")?;
            for (name, clients) in &self.clients {
                write!(f, "  {clients:>width$}", width = width(name))?;
            }
            writeln!(f)?;
        }
        let floors: Vec<String> = self.floor_ms.iter().map(|(_, floor)| format!("{floor:.1}")).collect();
        row(f, "floor", &floors, &format!("{:.1}", self.floor_mean_ms))?;
        for (label, (regions, mean)) in labels.iter().zip(&figures) {
            row(f, label, regions, mean)?;
        }
        writeln!(
            f,
            "\neach client is on a machine of its own, a round trip within its region from a replica there"
        )?;
        if marked {
            writeln!(f, "≤ is before what it takes at most, ≥ before what it takes at least")?;
        }
        self.advice(f)
    }
}

impl Plan {
    fn advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = |choice: &Recommendation| choice.mean_ms.unwrap_or_default() - self.floor_mean_ms;
        let best = &self.recommended;
        let known = about(best.bound, None);
        writeln!(f, "\nrecommended: {best}, {known}{:.1} ms over the mean floor", over(best))?;
        writeln!(f, "  {}", best.reason)?;
        if let Some(choice) = &self.sequenced {
            let less = best.mean_ms.unwrap_or_default() - choice.mean_ms.unwrap_or_default();
            let about = about(best.bound, choice.bound);
            writeln!(f, "sequenced:   {choice}, {about}{less:.1} ms faster")?;
            writeln!(f, "  {}", choice.reason)?;
        }
        if let Some(choice) = &self.placement {
            writeln!(f, "placement:   {choice}, replicas in {}", choice.replicas.join(", "))?;
            let (known, mean) = (about(choice.bound, None), choice.mean_ms.unwrap_or_default());
            writeln!(f, "  mean {known}{mean:.1} ms, {}", choice.reason)?;
        }
        match (self.configured.mean_ms, best.mean_ms) {
            // What is as fast by its figure alone is said too, where there is something to say of that.
            (Some(mean), Some(lowest)) if mean > lowest || !self.configured.reason.is_empty() => {
                // With fewer copies than it is recommended with, it may well be.
                let (own, other) = (self.configured.bound, best.bound);
                let (ms, than, about) = if mean < lowest {
                    (lowest - mean, "faster", about(other, own))
                } else if mean > lowest {
                    (mean - lowest, "slower", about(own, other))
                } else {
                    (0.0, "slower", "")
                };
                writeln!(f, "configured:  {}, {about}{ms:.1} ms {than}", self.configured)?;
                if self.configured.reason.is_empty() {
                    return Ok(());
                }
                writeln!(f, "  {}", self.configured.reason)
            }
            _ if self.protocols.iter().all(|row| row.protocol != self.configured.protocol) => {
                writeln!(f, "configured:  {}, no closed form known", self.configured)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demand, plan, plan_transactions};
    use isochrone_core::{Deployment, KeyspaceId, Matrix, RegionId, Span};

    #[test]
    fn a_letter_takes_the_cells_that_a_terminal_gives_it() {
        for (text, count) in [("", 0), ("Euro", 4), ("Zürich", 6), ("東京", 4), ("서울", 4), ("e\u{301}", 1)]
        {
            assert_eq!(cells(text), count, "{text:?}");
            assert_eq!(cells(&(text.to_owned() + &gap(text, 9))), 9, "{text:?}");
        }
        assert_eq!(gap("東京都", 4), "");
    }

    #[test]
    fn columns_stand_below_their_regions_where_letters_are_wide() {
        let matrix = Matrix::from_fn(&["東京都庁", "Euro", "서울"], |_, _| Span::from_millis(50));
        let regions: Vec<RegionId> = matrix.regions().collect();
        let deployment = Deployment::of_matrix(matrix, "multipaxos", &regions);
        let main = KeyspaceId(1);
        let demand = Demand { clients: vec![1, 2, 1], conflict: 0.0 };
        // How wide lines are, from a head on until the table ends.
        let widths = |text: &str, head: &str| {
            let lines = text.lines().skip_while(|line| !line.starts_with(head) || !line.ends_with("mean"));
            lines.take_while(|line| !line.is_empty()).map(cells).collect::<Vec<_>>()
        };
        let table = plan(&deployment, main, &demand).unwrap().to_string();
        let found = widths(&table, " ");
        // The row of clients has no mean.
        let rows: Vec<usize> =
            found.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, width)| *width).collect();
        assert!(rows.len() > 10 && rows.windows(2).all(|two| two[0] == two[1]), "{table}");
        let table = plan_transactions(&deployment, main, &demand).unwrap().to_string();
        let rows = widths(&table, "retwis");
        assert!(rows.len() == 5 && rows.windows(2).all(|two| two[0] == two[1]), "{table}");
    }
}
