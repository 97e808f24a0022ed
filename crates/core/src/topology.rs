//! Regions and how long a message travels between them: the round-trip matrix and its CSV form.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::deployment::{ConfigErrors, Mistakes, NumberError, scaled};
use crate::id::RegionId;
use crate::time::Span;

/// What the cells of a matrix file mean; all are milliseconds, with decimals if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// A cell is the mean round trip between row and column; both halves of the table must agree.
    RoundTrip,
    /// A cell is twice the one-way delay from row to column; the two halves may differ, and a round trip is
    /// then the mean of the two cells.
    AsymmetricRoundTrip,
    /// A cell is the mean one-way delay from row to column.
    OneWay,
}

/// One-way delays between regions.
///
/// Regions are numbered by their position: `RegionId(0)` is the first name. A round trip is the sum of its two ways;
/// where a measured one is an odd number of nanoseconds, its two ways differ by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    names: Vec<Arc<str>>,
    /// `one_way[from * names.len() + to]`; the diagonal is the way between two nodes of one region.
    one_way: Vec<Span>,
}

/// A delay beyond this is a slip of the pen. It also keeps every sum of delays far from overflow.
const CELL_MAX: Span = Span::from_secs(3600);

/// More regions than any deployment has; it bounds the work a hostile file can cause.
const REGIONS_MAX: usize = 256;

impl Matrix {
    /// A matrix whose delays are computed: `one_way(from, to)`, diagonal included.
    ///
    /// # Panics
    /// If a name comes twice or there are more than 256.
    pub fn from_fn(names: &[&str], mut one_way: impl FnMut(RegionId, RegionId) -> Span) -> Self {
        assert!(names.len() <= REGIONS_MAX, "a matrix has at most {REGIONS_MAX} regions");
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "region {name:?} comes twice");
        }
        let mut cells = Vec::with_capacity(names.len() * names.len());
        for from in region_ids(names.len()) {
            for to in region_ids(names.len()) {
                cells.push(one_way(from, to));
            }
        }
        Self { names: names.iter().map(|name| Arc::from(*name)).collect(), one_way: cells }
    }

    /// Reads the CSV form: a header `region,A,B,...`, then a row for each region: its name and its cells.
    ///
    /// Rows may come in any order, a line that begins with `#` is a comment, and an empty cell on the diagonal
    /// means `lan_rtt` (as a round trip). `file` is how messages name the text.
    ///
    /// # Errors
    /// Every mistake in the text: a name twice, a row or a column without its twin, a row of another length, a
    /// cell that is missing, negative, not a number, finer than a nanosecond or longer than an hour, and, for
    /// [`Cells::RoundTrip`], two halves that disagree.
    pub fn parse(text: &str, file: &str, cells: Cells, lan_rtt: Span) -> Result<Self, ConfigErrors> {
        let mut mistakes = Mistakes::in_file(file);
        let matrix = Table::read(text, &mut mistakes).and_then(|table| {
            let matrix = table.matrix(cells, lan_rtt, &mut mistakes);
            matrix.filter(|_| mistakes.is_empty())
        });
        mistakes.unless_any(matrix)
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no region at all.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names of the regions; the position is the [`RegionId`].
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.names.iter().map(|name| &**name)
    }

    /// The name of a region.
    ///
    /// # Panics
    /// If the matrix has no such region.
    pub fn name(&self, region: RegionId) -> &str {
        &self.names[usize::from(region.0)]
    }

    /// Every region, in order.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = RegionId> + Clone + use<> {
        region_ids(self.names.len())
    }

    /// The region of this name.
    pub fn region(&self, name: &str) -> Option<RegionId> {
        self.names.iter().position(|known| **known == *name).map(|index| RegionId(index as u16))
    }

    /// Mean one-way delay between nodes of two regions, or of one where both are the same.
    ///
    /// # Panics
    /// If the matrix has no such region.
    pub fn one_way(&self, from: RegionId, to: RegionId) -> Span {
        self.one_way[usize::from(from.0) * self.names.len() + usize::from(to.0)]
    }

    /// Mean round trip: there and back.
    ///
    /// # Panics
    /// If the matrix has no such region.
    pub fn rtt(&self, a: RegionId, b: RegionId) -> Span {
        self.one_way(a, b) + self.one_way(b, a)
    }

    /// The same delays for some of the regions, in another order.
    ///
    /// # Errors
    /// The names that this matrix does not have.
    ///
    /// # Panics
    /// If a name comes twice.
    pub fn select<'a>(&self, names: &[&'a str]) -> Result<Self, Vec<&'a str>> {
        let found: Vec<Option<RegionId>> = names.iter().map(|name| self.region(name)).collect();
        let ids: Vec<RegionId> = found.iter().copied().flatten().collect();
        if ids.len() < names.len() {
            return Err(names
                .iter()
                .zip(&found)
                .filter(|(_, id)| id.is_none())
                .map(|(name, _)| *name)
                .collect());
        }
        Ok(Self::from_fn(names, |from, to| self.one_way(ids[usize::from(from.0)], ids[usize::from(to.0)])))
    }

    /// Shortest delays when a message may be relayed by other regions.
    ///
    /// Measured matrices break the triangle inequality (in `helios-ec2`, Virginia to Singapore takes 268 ms, but
    /// 260 ms by way of California), and a protocol whose messages pass through a leader relays them. A lower bound must
    /// therefore be taken over these delays.
    #[must_use]
    pub fn relayed(&self) -> Self {
        let mut shortest = self.clone();
        let count = self.names.len();
        for via in 0..count {
            for from in 0..count {
                for to in 0..count {
                    let through = shortest.one_way[from * count + via] + shortest.one_way[via * count + to];
                    let direct = &mut shortest.one_way[from * count + to];
                    *direct = through.min(*direct);
                }
            }
        }
        shortest
    }
}

fn region_ids(count: usize) -> impl ExactSizeIterator<Item = RegionId> + Clone {
    // At most 256 regions, so the number fits.
    (0..count).map(|index| RegionId(index as u16))
}

/// The text of a matrix file with its shape found right: one row for each column, each of full length.
struct Table {
    names: Vec<String>,
    /// `rows[region]`: its line in the file, and its cells in the order of `names`.
    rows: Vec<(u32, Vec<String>)>,
}

impl Table {
    fn read(text: &str, mistakes: &mut Mistakes) -> Option<Self> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
        let mut records = reader.records().filter_map(|record| {
            // Reading from memory cannot fail, and `str` is UTF-8: every record is good.
            let record = record.ok()?;
            let line = record.position().map_or(0, csv::Position::line);
            Some((u32::try_from(line).unwrap_or(u32::MAX), record))
        });
        const HEADER: &str =
            "begin with a header line: region,A,B,... and give each region a row: A,0,73,...";
        let Some((header_line, header)) = records.next() else {
            mistakes.at(1, "the matrix is empty", HEADER);
            return None;
        };
        if header.get(0) != Some("region") || header.len() < 2 {
            mistakes.at(header_line, "the first line is not the header of a matrix", HEADER);
            return None;
        }
        if header.len() > REGIONS_MAX + 1 {
            let wrong = format!("the matrix has {} regions", header.len() - 1);
            mistakes.at(header_line, wrong, format!("use at most {REGIONS_MAX}"));
            return None;
        }
        let names: Vec<String> = header.iter().skip(1).map(str::to_owned).collect();
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() {
                mistakes.at(header_line, format!("column {} has no name", index + 2), "name the region");
            } else if names[..index].contains(name) {
                mistakes.at(header_line, format!("region {name:?} has two columns"), "keep one of them");
            }
        }
        let mut rows: BTreeMap<&str, (u32, Vec<String>)> = BTreeMap::new();
        for (line, record) in records {
            let name = record.get(0).unwrap_or_default();
            let Some(known) = names.iter().find(|known| *known == name) else {
                let wrong = format!("row {name:?} has no column of that name");
                mistakes.at(line, wrong, "give each region a column and a row of the same name");
                continue;
            };
            if let Some((first, _)) = rows.get(known.as_str()) {
                let wrong = format!("region {name:?} has two rows, the first on line {first}");
                mistakes.at(line, wrong, "keep one of them");
                continue;
            }
            if record.len() != names.len() + 1 {
                let wrong = format!(
                    "row {name:?} has {} cells, but there are {} columns",
                    record.len() - 1,
                    names.len()
                );
                mistakes.at(line, wrong, format!("give one cell for each of {}", names.join(", ")));
            }
            rows.insert(known, (line, record.iter().skip(1).map(str::to_owned).collect()));
        }
        for name in names.iter().filter(|name| !rows.contains_key(name.as_str())) {
            mistakes.at(
                header_line,
                format!("region {name:?} has a column but no row"),
                format!("add the row {name},..."),
            );
        }
        if !mistakes.is_empty() {
            return None;
        }
        let rows = names.iter().filter_map(|name| rows.remove(name.as_str())).collect();
        Some(Self { names, rows })
    }

    /// Reads the cells; mistakes are noted, and the result then means nothing.
    fn matrix(&self, cells: Cells, lan_rtt: Span, mistakes: &mut Mistakes) -> Option<Matrix> {
        let count = self.names.len();
        let mut measured = vec![Span::ZERO; count * count];
        for (from, (line, row)) in self.rows.iter().enumerate() {
            for (to, text) in row.iter().enumerate() {
                if from == to && text.is_empty() {
                    measured[from * count + to] = match cells {
                        Cells::RoundTrip | Cells::AsymmetricRoundTrip => lan_rtt,
                        Cells::OneWay => lan_rtt / 2,
                    };
                    continue;
                }
                match cell(text) {
                    Ok(span) => measured[from * count + to] = span,
                    Err((wrong, right)) => {
                        let place = format!("row {:?}, column {:?}", self.names[from], self.names[to]);
                        mistakes.at(*line, format!("{place}: {wrong}"), right);
                    }
                }
            }
        }
        if !mistakes.is_empty() {
            return None;
        }
        if cells == Cells::RoundTrip {
            self.refuse_asymmetry(&measured, mistakes);
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        Some(Matrix::from_fn(&names, |from, to| {
            let cell = measured[usize::from(from.0) * count + usize::from(to.0)];
            match cells {
                // The longer half goes one way and the shorter the other, so that they add up to what was measured.
                Cells::RoundTrip if from < to => cell.saturating_sub(cell / 2),
                Cells::RoundTrip | Cells::AsymmetricRoundTrip => cell / 2,
                Cells::OneWay => cell,
            }
        }))
    }

    fn refuse_asymmetry(&self, measured: &[Span], mistakes: &mut Mistakes) {
        let count = self.names.len();
        for from in 0..count {
            for to in 0..from {
                if measured[from * count + to] == measured[to * count + from] {
                    continue;
                }
                let (a, b) = (&self.names[from], &self.names[to]);
                let (line, row) = &self.rows[from];
                let (other_line, other_row) = &self.rows[to];
                mistakes.at(
                    *line,
                    format!(
                        "row {a:?}, column {b:?} is {} ms, but row {b:?}, column {a:?} on line {other_line} is {} ms",
                        row[to], other_row[from]
                    ),
                    "make the two equal, or set asymmetric = true under [network]",
                );
            }
        }
    }
}

fn cell(text: &str) -> Result<Span, (String, &'static str)> {
    const MILLISECONDS: &str = "give milliseconds, such as 73 or 4.4";
    if text.is_empty() {
        return Err(("the cell is empty".to_owned(), "give milliseconds; only the diagonal may be empty"));
    }
    let nanos = scaled(text, 1_000_000).map_err(|error| {
        let right = match error {
            NumberError::Malformed | NumberError::Negative => MILLISECONDS,
            NumberError::TooFine => "give milliseconds with at most 6 decimals (nanoseconds)",
            NumberError::TooLarge => "give milliseconds, at most an hour of them",
        };
        (format!("{text:?} {error}"), right)
    })?;
    if nanos > CELL_MAX.as_nanos() {
        return Err((format!("{text:?} is longer than an hour"), MILLISECONDS));
    }
    Ok(Span::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const LAN: Span = Span::from_micros(500);

    fn parse(text: &str, cells: Cells) -> Result<Matrix, ConfigErrors> {
        Matrix::parse(text, "m.csv", cells, LAN)
    }

    fn refuses(text: &str, cells: Cells, message: Expect) {
        match parse(text, cells) {
            Ok(matrix) => panic!("accepted: {matrix:?}"),
            Err(errors) => message.assert_eq(&errors.to_string()),
        }
    }

    #[test]
    fn every_matrix_of_the_reference_is_read_exactly() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/rtt");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            seen += 1;
            if name.ends_with("-stdev.csv") {
                // Standard deviations in milliseconds, in the same form; as printed they are not even symmetric.
                assert!(Matrix::parse(&text, name, Cells::AsymmetricRoundTrip, LAN).is_ok(), "{name}");
                continue;
            }
            let matrix = Matrix::parse(&text, name, Cells::RoundTrip, LAN).unwrap();
            // The file again, by the dumbest reading there is.
            for (row, line) in text.lines().skip(1).enumerate() {
                for (column, cell) in line.split(',').skip(1).enumerate() {
                    let expected = if cell.is_empty() { 0.5 } else { cell.parse::<f64>().unwrap() };
                    let rtt = matrix.rtt(RegionId(row as u16), RegionId(column as u16));
                    assert_eq!(rtt.as_nanos(), (expected * 1e6).round() as u64, "{name} {row} {column}");
                }
            }
        }
        assert!(seen >= 20, "{seen} files");
    }

    #[test]
    fn deviations_that_are_not_symmetric_need_leave() {
        let text = include_str!("../../../reference/rtt/ogre-ec2-stdev.csv");
        refuses(
            text,
            Cells::RoundTrip,
            expect![[r#"
                m.csv:5: row "Ireland", column "California" is 6 ms, but row "California", column "Ireland" on line 4 is 7 ms
                  make the two equal, or set asymmetric = true under [network]
                m.csv:6: row "Singapore", column "Oregon" is 4 ms, but row "Oregon", column "Singapore" on line 3 is 4.4 ms
                  make the two equal, or set asymmetric = true under [network]"#]],
        );
    }

    #[test]
    fn the_two_ways_of_an_odd_round_trip_add_up() {
        let matrix = parse("region,A,B\nA,0,0.000003\nB,0.000003,0\n", Cells::RoundTrip).unwrap();
        let (a, b) = (RegionId(0), RegionId(1));
        assert_eq!(matrix.rtt(a, b), Span::from_nanos(3));
        assert_eq!(matrix.one_way(a, b), Span::from_nanos(2));
        assert_eq!(matrix.one_way(b, a), Span::from_nanos(1));
    }

    #[test]
    fn an_empty_diagonal_is_the_lan_and_a_full_one_is_kept() {
        let matrix = parse("region,A,B\nB,10,1\nA,,10\n", Cells::RoundTrip).unwrap();
        assert_eq!(matrix.rtt(RegionId(0), RegionId(0)), LAN);
        assert_eq!(matrix.rtt(RegionId(1), RegionId(1)), Span::from_millis(1));
    }

    #[test]
    fn directions_may_differ_where_it_is_said() {
        let text = "region,A,B\nA,0,10\nB,30,0\n";
        let (a, b) = (RegionId(0), RegionId(1));
        let halves = parse(text, Cells::AsymmetricRoundTrip).unwrap();
        assert_eq!(
            (halves.one_way(a, b), halves.one_way(b, a)),
            (Span::from_millis(5), Span::from_millis(15))
        );
        assert_eq!(halves.rtt(a, b), Span::from_millis(20));
        let ways = parse(text, Cells::OneWay).unwrap();
        assert_eq!((ways.one_way(a, b), ways.one_way(b, a)), (Span::from_millis(10), Span::from_millis(30)));
    }

    #[test]
    fn every_mistake_of_shape_is_named() {
        refuses(
            "",
            Cells::RoundTrip,
            expect![[r#"
            m.csv:1: the matrix is empty
              begin with a header line: region,A,B,... and give each region a row: A,0,73,..."#]],
        );
        refuses(
            "from,A\nA,0\n",
            Cells::RoundTrip,
            expect![[r#"
            m.csv:1: the first line is not the header of a matrix
              begin with a header line: region,A,B,... and give each region a row: A,0,73,..."#]],
        );
        refuses(
            "region,A,B,A,,C\nA,0,1\nA,0,1,1,1,1\n\nX,0,1,1,1,1\n",
            Cells::RoundTrip,
            expect![[r#"
                m.csv:1: region "A" has two columns
                  keep one of them
                m.csv:1: column 5 has no name
                  name the region
                m.csv:1: region "B" has a column but no row
                  add the row B,...
                m.csv:1: region "" has a column but no row
                  add the row ,...
                m.csv:1: region "C" has a column but no row
                  add the row C,...
                m.csv:2: row "A" has 2 cells, but there are 5 columns
                  give one cell for each of A, B, A, , C
                m.csv:3: region "A" has two rows, the first on line 2
                  keep one of them
                m.csv:4: row "X" has no column of that name
                  give each region a column and a row of the same name"#]],
        );
    }

    #[test]
    fn every_mistake_in_a_cell_is_named() {
        let text = "region,A,B,C\nA,0,NaN,\nB,-3,0,1.0000001\nC,9e9,99999999999,0\n";
        refuses(
            text,
            Cells::RoundTrip,
            expect![[r#"
            m.csv:2: row "A", column "B": "NaN" is not a number in plain decimals
              give milliseconds, such as 73 or 4.4
            m.csv:2: row "A", column "C": the cell is empty
              give milliseconds; only the diagonal may be empty
            m.csv:3: row "B", column "A": "-3" is negative
              give milliseconds, such as 73 or 4.4
            m.csv:3: row "B", column "C": "1.0000001" has more decimals than can be kept exactly
              give milliseconds with at most 6 decimals (nanoseconds)
            m.csv:4: row "C", column "A": "9e9" is not a number in plain decimals
              give milliseconds, such as 73 or 4.4
            m.csv:4: row "C", column "B": "99999999999" is longer than an hour
              give milliseconds, such as 73 or 4.4"#]],
        );
    }

    #[test]
    fn a_relay_is_used_where_it_is_shorter() {
        let text = include_str!("../../../reference/rtt/helios-ec2.csv");
        let matrix = parse(text, Cells::RoundTrip).unwrap();
        let relayed = matrix.relayed();
        let region = |name| matrix.region(name).unwrap();
        let (virginia, singapore) = (region("Virginia"), region("Singapore"));
        assert_eq!(matrix.rtt(virginia, singapore), Span::from_millis(268));
        assert_eq!(relayed.rtt(virginia, singapore), Span::from_millis(78 + 182));
        for a in matrix.regions() {
            assert_eq!(relayed.rtt(a, a), matrix.rtt(a, a));
            for b in matrix.regions() {
                assert!(relayed.one_way(a, b) <= matrix.one_way(a, b));
            }
        }
        assert_eq!(relayed.relayed(), relayed);
    }
}
