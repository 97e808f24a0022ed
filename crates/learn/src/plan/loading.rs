//! Planning while something else touches the data anyway: while a reader parses it. Specification: 3.2.

use crate::data::Dataset;
use crate::memory::{self, NoRoom};
use crate::plan::{Annotations, Plan, PlanMismatch, TooWide, replace_all};
use crate::task::Rule;

/// Plans under [`Rule::Features`] row by row, as a reader hands them on: the cost a row is one look-up for each of its
/// features, beside what parsing them costs. The number of features need not be known before.
///
/// Rows come in the order of the data, and those of the finished [`Dataset`] must be the same.
#[derive(Clone, Default, Debug)]
pub struct Planner {
    /// The last row that named each feature, counted from 1.
    last: Vec<u32>,
    versions: Vec<u32>,
    rows: u32,
}

impl Planner {
    /// One that has seen no row.
    pub fn new() -> Planner {
        Planner::default()
    }

    /// One with room for this many entries and features: saves growing where they are known.
    pub fn with_capacity(entries: usize, features: u32) -> Planner {
        let mut versions = Vec::new();
        memory::reserve(&mut versions, entries);
        Planner { last: memory::zeros(features as usize), versions, rows: 0 }
    }

    /// Has room for this many entries in all, if there is so much: for a guess.
    pub(crate) fn expect(&mut self, entries: usize) {
        memory::expect(&mut self.versions, entries);
    }

    /// Has room for so many entries more, of rows that come next.
    pub(crate) fn room(&mut self, entries: usize) -> Result<(), NoRoom> {
        memory::try_reserve(&mut self.versions, entries)
    }

    /// Plans the next row: its features, each once.
    ///
    /// # Errors
    /// If there is no memory for four bytes for each feature up to the highest; nothing is planned then.
    ///
    /// # Panics
    /// After 4294967295 rows.
    #[inline]
    pub fn row(&mut self, features: &[u32]) -> Result<(), TooWide> {
        assert!(self.rows < u32::MAX, "a data set has fewer rows than 32 bits can number");
        self.cover(features)?;
        self.rows += 1;
        let (last, transaction) = (&mut self.last, self.rows);
        memory::reserve(&mut self.versions, features.len());
        for &feature in features {
            self.versions.push(std::mem::replace(&mut last[feature as usize], transaction));
        }
        Ok(())
    }

    /// Plans the next rows: `offsets` has one number more than there are rows, and row `i` has the features
    /// `offsets[i]..offsets[i + 1]` of `features`. Faster than row by row, as it is known what comes next.
    ///
    /// # Errors
    /// As [`Planner::row`].
    ///
    /// # Panics
    /// As [`Planner::row`].
    pub fn rows_of(&mut self, offsets: &[u64], features: &[u32]) -> Result<(), TooWide> {
        let rows = offsets.len().saturating_sub(1);
        assert!(rows < (u32::MAX - self.rows) as usize, "a data set has fewer rows than 32 bits can number");
        self.cover(features)?;
        memory::reserve(&mut self.versions, features.len());
        for ends in offsets.windows(2) {
            self.rows += 1;
            let versions = &mut self.versions;
            replace_all(
                &mut self.last,
                self.rows,
                ends[0] as usize..ends[1] as usize,
                features,
                |_, version| {
                    versions.push(version);
                },
            );
        }
        Ok(())
    }

    /// Has a number for each of these features.
    #[inline]
    fn cover(&mut self, features: &[u32]) -> Result<(), TooWide> {
        match features.iter().max() {
            Some(&highest) if highest as usize >= self.last.len() => grow(&mut self.last, highest),
            _ => Ok(()),
        }
    }

    /// How many rows were planned.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The plan of all rows, which are those of `data`.
    ///
    /// # Errors
    /// If there are more or fewer of them, or they have more or fewer entries together.
    pub fn finish(self, data: &Dataset<'_>) -> Result<Plan, PlanMismatch> {
        if self.rows as usize != data.len() || self.versions.len() != data.entries() {
            return Err(PlanMismatch::Data { plan: self.rows, data: data.len() });
        }
        let annotations = Annotations::Compact(self.versions);
        Ok(Plan::of_data(data, data.width(), Rule::Features, annotations))
    }
}

/// Doubling, so that growing costs a constant for each feature, whatever order features come in.
#[cold]
fn grow(last: &mut Vec<u32>, feature: u32) -> Result<(), TooWide> {
    let length = (feature as usize + 1).next_power_of_two();
    TooWide::check(feature.saturating_add(1), size_of::<u32>() as u64 * length as u64)?;
    // What nothing is written to is not there, however far up a feature lies.
    let mut grown = memory::zeros(length);
    grown[..last.len()].copy_from_slice(last);
    *last = grown;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::mixed;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn planned_while_loading_is_planned_afterwards(rows in mixed::rows()) {
            let data = mixed::data(&rows);
            let mut planner = Planner::new();
            for row in &rows {
                planner.row(&row.iter().map(|entry| entry.0).collect::<Vec<_>>()).unwrap();
            }
            prop_assert_eq!(planner.finish(&data).unwrap(), Plan::compact(&data));
            let mut planner = Planner::new();
            for start in (0..rows.len()).step_by(7) {
                let part = data.slice(start..rows.len().min(start + 7));
                planner.rows_of(part.offsets(), part.features()).unwrap();
            }
            prop_assert_eq!(planner.finish(&data).unwrap(), Plan::compact(&data));
        }
    }

    #[test]
    fn rows_that_were_not_planned_are_refused() {
        let data = mixed::data(&[vec![(0, 1.0)], vec![(1, 1.0)]]);
        let mut planner = Planner::with_capacity(2, 2);
        planner.row(&[0]).unwrap();
        assert_eq!(
            planner.finish(&data).unwrap_err().to_string(),
            "the plan is of other data (it has 1 samples, the data 2): plan this data"
        );
    }
}
