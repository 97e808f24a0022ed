//! Why what was found absent is the version that a circle takes it to be: what rules out the others.

use std::collections::{BTreeMap, BTreeSet};

use super::absences::Absence;
use super::graph::{Graph, Link, Why};
use super::history::Transactions;
use super::report::{Relation, missed, told};
use super::versions::Versions;

/// One version that it is not.
pub(super) struct Note {
    pub(super) sentence: String,
    /// Each leads to the next.
    pub(super) relations: Vec<Relation>,
    /// Those that the relations name.
    pub(super) transactions: Vec<usize>,
}

/// More than so many a reader would not follow.
const NOTES_MAX: usize = 12;

/// What a reader has to know to believe these links.
pub(super) fn notes(history: &Transactions, versions: &Versions, links: &[Link]) -> Vec<Note> {
    let mut writer = Writer { history, versions, rounds: BTreeMap::new(), notes: Vec::new() };
    let (mut waiting, mut taken) = (absences(versions, links), BTreeSet::new());
    while let Some(index) = waiting.pop() {
        if taken.insert(index) && writer.notes.len() < NOTES_MAX {
            waiting.extend(writer.explain(&versions.absences[index as usize]));
        }
    }
    writer.notes
}

/// The absences that these links rest on.
fn absences(versions: &Versions, links: &[Link]) -> Vec<u32> {
    let of = |link: &Link| match link.why {
        Why::Read { reading } | Why::Anti { reading, .. } => versions.readings[reading as usize].absence,
        Why::Overwritten { .. } | Why::Time => None,
    };
    links.iter().filter_map(of).collect()
}

struct Writer<'a> {
    history: &'a Transactions,
    versions: &'a Versions,
    /// What was known before each round, so that nothing is explained by itself.
    rounds: BTreeMap<u32, (Versions, Graph)>,
    notes: Vec<Note>,
}

/// Whether a version came too early to be the one, or too late.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Side {
    Early,
    Late,
}

impl Writer<'_> {
    /// Tells what an absence is not; gives the absences on which that rests.
    fn explain(&mut self, absence: &Absence) -> Vec<u32> {
        let Some((round, others)) = self.versions.ruled_out(self.history, absence) else { return Vec::new() };
        let mut rests = Vec::new();
        for version in others.into_iter().take(NOTES_MAX) {
            let Some((side, links, end)) = self.against(absence, version, round) else { continue };
            let known = &self.rounds[&round].0;
            rests.extend(absences(known, &links));
            let relations = told(self.history, known, &links, end);
            let sentence =
                self.sentence(absence, version, side, links[0].from as usize + 1, end as usize + 1);
            let transactions =
                links.iter().map(|link| link.from).chain([end]).map(|one| one as usize).collect();
            self.notes.push(Note { sentence, relations, transactions });
        }
        rests
    }

    fn sentence(
        &self,
        absence: &Absence,
        version: Option<u32>,
        side: Side,
        first: usize,
        end: usize,
    ) -> String {
        let found = absence.found;
        let saw = missed(self.history, self.versions, &found.as_reading(None, None));
        let deleted = version.map(|version| self.versions.versions[version as usize].of + 1);
        let because = match deleted {
            None => "it had never been written".to_owned(),
            Some(line) => format!("line {line} had deleted it"),
        };
        let against = match (side, deleted) {
            (Side::Early, None) => format!("line {first} comes before line {end}"),
            (Side::Early, Some(_)) => {
                format!("line {first}, which changed it again, comes before line {end}")
            }
            (Side::Late, _) => format!("line {end} comes behind line {first}"),
        };
        format!("line {} {saw}: not because {because}, for {against}:", found.of + 1)
    }

    /// The way that rules a version out, and where it ends.
    fn against(
        &mut self,
        absence: &Absence,
        version: Option<u32>,
        round: u32,
    ) -> Option<(Side, Vec<Link>, u32)> {
        let (of, key) = (absence.found.of, absence.found.key);
        let (known, graph) = self.known(round);
        let writer = |version: u32| known.versions[version as usize].of;
        let ends = known.behind(key, version).iter().map(|end| writer(*end)).filter(|end| *end != of);
        let early = ends.filter_map(|end| graph.path(end, of)).min_by_key(Vec::len);
        if let Some(links) = early {
            return Some((Side::Early, links, of));
        }
        let late = writer(version?);
        Some((Side::Late, graph.path(of, late)?, late))
    }

    fn known(&mut self, round: u32) -> &(Versions, Graph) {
        let (versions, history) = (self.versions, self.history);
        self.rounds.entry(round).or_insert_with(|| {
            let before = versions.before(round, history);
            let graph = Graph::of(history, &before, versions.rounds[round as usize]);
            (before, graph)
        })
    }
}
