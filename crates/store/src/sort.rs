//! The elements of lists, sets and sorted sets, sorted.

use crate::Store;
use crate::turn::{Mark, Turn};
use crate::value::{List, Value};
use isochrone_core::Blob;
use isochrone_core::command::{Got, Limit, Refusal, Response, Score, Sort, SortBy};
use std::ops::Range;

/// The page of so many elements.
fn page(limit: Option<Limit>, len: usize) -> Range<usize> {
    let Some(limit) = limit else { return 0..len };
    let start = usize::try_from(limit.offset.max(0)).unwrap_or(usize::MAX).min(len);
    let count = usize::try_from(limit.count).unwrap_or(usize::MAX);
    start..start.saturating_add(count).min(len)
}

/// An element as a number, as `strtod` reads it: blanks may stand in front, a zero byte ends it, and nothing is 0.
fn number(element: &[u8]) -> Option<Score> {
    let text = element.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(Score::ZERO);
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    Score::read_meant(&text[blanks..])
}

/// The elements of a value, sorted; `stored` where they will be a list.
fn sorted(value: &Value, sort: &Sort, stored: bool) -> Result<Vec<Blob>, Refusal> {
    let by = match (sort.by, value) {
        (SortBy::Nothing, Value::Set(_)) if stored => SortBy::Bytes,
        (by, _) => by,
    };
    let len = match value {
        Value::List(list) => list.len(),
        Value::Set(set) => set.len(),
        Value::Sorted(set) => set.len(),
        _ => return Err(Refusal::WrongType),
    };
    let page = page(sort.limit, len);
    let looked = if by == SortBy::Nothing { page.clone() } else { 0..len };
    let from_end = by == SortBy::Nothing && sort.descending;
    let looked = if from_end { len - looked.end..len - looked.start } else { looked };
    let mut elements: Vec<Blob> = match value {
        Value::List(list) => list.range(looked).cloned().collect(),
        Value::Set(set) => {
            set.iter().skip(looked.start).take(looked.len()).map(|entry| entry.key.blob()).collect()
        }
        Value::Sorted(set) => set.order().range(looked).map(|(_, member)| member.blob()).collect(),
        _ => return Err(Refusal::WrongType),
    };
    if from_end {
        elements.reverse();
    }
    match by {
        SortBy::Nothing => return Ok(elements),
        SortBy::Bytes => elements.sort_unstable(),
        SortBy::Number => {
            let numbered = elements.into_iter().map(|element| Some((number(&element)?, element)));
            let numbered: Option<Vec<(Score, Blob)>> = numbered.collect();
            let mut numbered = numbered.ok_or(Refusal::NotSortable)?;
            numbered.sort_unstable();
            elements = numbered.into_iter().map(|(_, element)| element).collect();
        }
    }
    if sort.descending {
        elements.reverse();
    }
    elements.truncate(page.end);
    elements.drain(..page.start);
    Ok(elements)
}

/// What is given of the elements.
fn given(elements: Vec<Blob>, gets: &[Got]) -> Vec<Option<Blob>> {
    if gets.is_empty() {
        return elements.into_iter().map(Some).collect();
    }
    let each = |element: Blob| {
        gets.iter().map(move |got| match got {
            Got::Element => Some(element.clone()),
            Got::Nothing => None,
        })
    };
    elements.into_iter().flat_map(each).collect()
}

impl Store {
    pub(crate) fn sort(&self, key: &[u8], sort: &Sort) -> Result<Response, Refusal> {
        let elements = self.sorted(key, sort, false)?;
        let responses = elements.into_iter().map(|element| element.map_or(Response::Nil, Response::Bulk));
        Ok(Response::Array(responses.collect()))
    }

    fn sorted(&self, key: &[u8], sort: &Sort, stored: bool) -> Result<Vec<Option<Blob>>, Refusal> {
        match self.keys.get(key) {
            Some(entry) => Ok(given(sorted(&entry.value, sort, stored)?, &sort.gets)),
            None => Ok(Vec::new()),
        }
    }
}

impl Turn<'_> {
    pub(crate) fn sortstore(
        &mut self,
        mark: &mut Mark<'_>,
        target: &Blob,
        source: &Blob,
        sort: &Sort,
    ) -> Result<Response, Refusal> {
        let elements = self.store().sorted(source, sort, true)?;
        let result: List = elements.into_iter().map(|element| element.unwrap_or_default()).collect();
        let len = result.len();
        self.store_result(mark, target, result, [source].into_iter());
        Ok(Response::count(len))
    }
}
