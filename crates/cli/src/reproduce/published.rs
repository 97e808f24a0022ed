//! The figures of the sources, as they are kept in `reference/published`, and what became of each here.

use super::lab::Lab;
use super::{Published, Row, Wanted};
use anyhow::Context;
use std::collections::BTreeMap;

/// How far a measured figure may be from the published one before it must be explained.
const TOLERANCE: f64 = 0.10;

/// One row of a file.
struct Figure {
    id: String,
    setting: String,
    system: String,
    metric: String,
    value: Published,
    unit: String,
    note: String,
}

/// What became of a figure.
pub(super) enum Finding {
    /// It was measured, in the published unit.
    Measured(f64),
    /// The same, with what is to be known beside it: a figure of time, on a machine of its own, which is explained and not
    /// held to a tenth.
    Told(f64, String),
    /// It was measured, and is not what it should be, which nothing explains; with how it was measured.
    Unmet(f64, String),
    /// It was to be measured, and for this reason there is nothing to show.
    Nothing(String),
    /// What the source found at some place was looked for, and is at none here.
    Nowhere(String),
    /// There is nothing to show: because a protocol that it needs is not in this program, and then the row is left out; else
    /// no run gave a figure that was to be measured.
    Absent,
    /// It cannot be measured, for this reason.
    Not(&'static str),
}

impl Finding {
    /// What is to be known of a figure, which it explains as long as the figure is within a tenth of `expected`: the published
    /// one, or another that the explanation accounts for.
    pub(super) fn within(measured: f64, expected: f64, note: impl Into<String>) -> Finding {
        Finding::holds((measured / expected - 1.0).abs() <= TOLERANCE, measured, note)
    }

    /// The same of a figure of which only an order or a bound compares, and whether that holds.
    pub(super) fn holds(holds: bool, measured: f64, note: impl Into<String>) -> Finding {
        if holds { Finding::Told(measured, note.into()) } else { Finding::Unmet(measured, note.into()) }
    }
}

impl From<Option<f64>> for Finding {
    fn from(measured: Option<f64>) -> Finding {
        measured.map_or(Finding::Absent, Finding::Measured)
    }
}

/// How one figure is measured.
pub(super) struct Measure {
    /// The figure's id; with `*` at the end, all that begin so.
    pub(super) id: &'static str,
    /// How.
    pub(super) find: fn(&mut Lab) -> anyhow::Result<Finding>,
    /// How it was measured where that is not plain, or why it is more than a tenth off.
    pub(super) note: &'static str,
}

/// The rows of a file, in its order; `text` is its content, `file` its name for errors.
pub(super) fn rows(
    file: &str,
    text: &str,
    measures: &[Measure],
    wanted: Wanted<'_>,
    lab: &mut Lab,
) -> anyhow::Result<Vec<Row>> {
    let figures: Vec<Figure> = figures(file, text)?.into_iter().filter(|figure| wanted(&figure.id)).collect();
    let mut rows = Vec::new();
    lab.expect(figures.len());
    // A measure of many figures is asked once for each: what it runs, the lab keeps.
    for figure in figures {
        lab.begin(&figure.id);
        let covers = |measure: &&Measure| match measure.id.strip_suffix('*') {
            Some(start) => figure.id.starts_with(start),
            None => figure.id == measure.id,
        };
        let measure = measures.iter().find(covers);
        let measure = measure.with_context(|| format!("{file}: nothing is said of {}", figure.id))?;
        let finding = (measure.find)(lab).with_context(|| format!("{file}, {}", figure.id))?;
        let explained = matches!(finding, Finding::Told(..));
        let unmet = matches!(finding, Finding::Unmet(..) | Finding::Nothing(_) | Finding::Absent);
        let (measured, mut note) = match finding {
            Finding::Absent if lab.lacks() => continue,
            Finding::Absent => (None, "nothing was measured: no run gave a figure".to_owned()),
            Finding::Measured(measured) => (Some(measured), measure.note.to_owned()),
            Finding::Told(measured, note) | Finding::Unmet(measured, note) => (Some(measured), note),
            Finding::Nothing(reason) => (None, format!("nothing was measured: {reason}")),
            Finding::Nowhere(note) => (None, format!("not found: {note}")),
            Finding::Not(reason) => (None, format!("not measured: {reason}")),
        };
        let ratio = match (&figure.value, measured) {
            (Published::Number(published), Some(measured)) if *published != 0.0 => Some(measured / published),
            _ => None,
        };
        let off = ratio.is_some_and(|ratio| (ratio - 1.0).abs() > TOLERANCE);
        let missed = unmet || off && measure.note.is_empty() && !explained;
        if !figure.note.is_empty() {
            let join = if note.is_empty() { "" } else { "; " };
            note += &format!("{join}source: {}", figure.note);
        }
        let Figure { id, setting, system, metric, value: published, unit, .. } = figure;
        rows.push(Row { id, setting, system, metric, published, measured, unit, ratio, note, missed });
    }
    Ok(rows)
}

fn figures(file: &str, text: &str) -> anyhow::Result<Vec<Figure>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut figures = Vec::new();
    for record in reader.deserialize::<BTreeMap<String, String>>() {
        let mut record = record.with_context(|| format!("{file} is no table"))?;
        let mut take = |column: &str| record.remove(column).unwrap_or_default();
        let value = take("value");
        figures.push(Figure {
            id: take("id"),
            setting: take("setting"),
            system: take("system"),
            metric: take("metric"),
            value: value.parse().map_or(Published::Words(value), Published::Number),
            unit: take("unit"),
            note: take("note"),
        });
    }
    Ok(figures)
}

/// That each figure of a file is spoken of once, and nothing else is.
#[cfg(test)]
pub(super) fn covers(file: &str, text: &str, measures: &[Measure]) {
    let figures = figures(file, text).unwrap();
    let matches = |measure: &Measure, id: &str| match measure.id.strip_suffix('*') {
        Some(start) => id.starts_with(start),
        None => id == measure.id,
    };
    for figure in &figures {
        let count = measures.iter().filter(|measure| matches(measure, &figure.id)).count();
        assert_eq!(count, 1, "{file}: {}", figure.id);
    }
    for measure in measures {
        assert!(figures.iter().any(|figure| matches(measure, &figure.id)), "{file}: {}", measure.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only row of a file with one figure, found so.
    fn row(find: fn(&mut Lab) -> anyhow::Result<Finding>) -> Option<Row> {
        let text = "id,setting,system,metric,value,unit,note\nX-1,wide,CURP,latency,10,ms,\n";
        let measure = Measure { id: "X-1", find, note: "why it may be off" };
        let rows = rows("x.csv", text, &[measure], &|_| true, &mut Lab::default()).unwrap();
        assert!(rows.len() <= 1);
        rows.into_iter().next()
    }

    #[test]
    fn what_gave_no_figure_is_missed_unless_its_protocol_is_not_in_this_program() {
        let plain = row(|_| Ok(Finding::from(Some(10.5)))).unwrap();
        assert_eq!((plain.measured, plain.missed), (Some(10.5), false));
        let nothing = row(|_| Ok(Finding::from(None))).unwrap();
        assert_eq!((nothing.measured, nothing.ratio, nothing.missed), (None, None, true));
        assert_eq!(nothing.note, "nothing was measured: no run gave a figure");
        let told = row(|_| Ok(Finding::Nothing("it never came".to_owned()))).unwrap();
        assert_eq!((told.measured, told.missed), (None, true));
        assert_eq!(told.note, "nothing was measured: it never came");
        let unknown = row(|lab| {
            lab.lack();
            Ok(Finding::from(None))
        });
        assert!(unknown.is_none());
    }
}
