//! Members of sorted sets whose scores are points on the earth, found by where they are.

use crate::Store;
use crate::key::Key;
use crate::sorted::SortedSet;
use crate::turn::{Mark, Turn};
use isochrone_core::Blob;
use isochrone_core::command::{Refusal, Response, Score, ScoreBound, Selection};
use isochrone_core::geo::{Center, Order, Point, Reach, Search};
use std::ops::Range;

/// A member in the area.
struct Found<'a> {
    /// In the unit of the search.
    distance: Score,
    score: Score,
    member: &'a Key,
}

/// What lies in the area, in the order that is wanted. It looks at members only whose scores may be within.
///
/// # Errors
/// The middle is no member.
fn search<'a>(set: &'a SortedSet, search: &Search) -> Result<Vec<Found<'a>>, Refusal> {
    let center = match &search.center {
        Center::Member(member) => Point::of_score(set.score(member).ok_or(Refusal::NoCenter)?),
        Center::Point { longitude, latitude } => {
            Point { longitude: longitude.get(), latitude: latitude.get() }
        }
    };
    let reach = Reach::new(center, search.area, search.unit);
    let count = search.count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let near =
        reach.scores().into_iter().flat_map(|scores| set.order().range(set.select(&selection(scores))));
    let within = near.filter_map(|(score, member)| {
        let distance = reach.distance(Point::of_score(*score))? / search.unit.meters();
        Some(Found { distance: Score::new(distance)?, score: *score, member })
    });
    let mut found: Vec<_> = within.take(if search.any { count } else { usize::MAX }).collect();
    match search.order {
        Order::Near => found.sort_by_key(|found| found.distance),
        Order::Far => found.sort_by_key(|found| std::cmp::Reverse(found.distance)),
        Order::Walked => {}
    }
    found.truncate(count);
    Ok(found)
}

/// Members with these scores.
fn selection(scores: Range<u64>) -> Selection {
    // Scores of points are below 2^54.
    let bound =
        |bits: u64, exclusive| ScoreBound { score: Score::new(bits as f64).unwrap_or_default(), exclusive };
    Selection::Score { min: bound(scores.start, false), max: bound(scores.end, true) }
}

impl Store {
    pub(crate) fn geosearch(&self, key: &[u8], asked: &Search, detailed: bool) -> Result<Response, Refusal> {
        let Some(set) = self.view::<SortedSet>(key)? else { return Ok(Response::Array(Vec::new())) };
        let found = search(set, asked)?.into_iter().map(|Found { distance, score, member }| {
            let member = Response::Bulk(member.blob());
            match detailed {
                true => Response::Array(vec![member, Response::Double(distance), Response::Double(score)]),
                false => member,
            }
        });
        Ok(Response::Array(found.collect()))
    }
}

impl Turn<'_> {
    pub(crate) fn geosearchstore(
        &mut self,
        mark: &mut Mark<'_>,
        target: &Blob,
        source: &Blob,
        asked: &Search,
        distances: bool,
    ) -> Result<Response, Refusal> {
        let result: SortedSet = match self.store().view::<SortedSet>(source)? {
            Some(set) => search(set, asked)?
                .into_iter()
                .map(|found| (if distances { found.distance } else { found.score }, found.member.clone()))
                .collect(),
            None => SortedSet::default(),
        };
        let len = result.len();
        self.store_result(mark, target, result, [source].into_iter());
        Ok(Response::count(len))
    }
}
