//! Sorted sets: distinct members in the order of their scores.

use crate::encoding::PACKED_MEMBERS;
use crate::key::Key;
use crate::keys::{distinct, scanned};
use crate::sorted::SortedSet;
use crate::turn::{Changed, Mark, Turn, fits_behind};
use crate::value::{Collection, Members};
use crate::{Store, random};
use isochrone_core::Blob;
use isochrone_core::command::{
    Aggregate, Combine, Condition, End, Refusal, Response, Score, ScoreCondition, Selection, Slice,
    WeightedInputs, ZAddFlags,
};
use isochrone_core::glob::Glob;
use std::collections::BTreeMap;
use std::ops::Range;

fn score(score: Option<Score>) -> Response {
    score.map_or(Response::Nil, Response::Double)
}

/// Members, each with its score where it is wanted.
fn members<'a>(members: impl Iterator<Item = &'a (Score, Key)>, with_scores: bool) -> Response {
    let bulk = |member: &Key| Response::Bulk(member.blob());
    if with_scores {
        Response::Pairs(members.map(|(score, member)| (bulk(member), Response::Double(*score))).collect())
    } else {
        Response::Array(members.map(|(_, member)| bulk(member)).collect())
    }
}

/// The positions of a slice, in ascending order.
fn positions(set: &SortedSet, slice: &Slice) -> Range<usize> {
    let mut range = set.select(&slice.selection);
    if slice.reverse && matches!(slice.selection, Selection::Index { .. }) {
        // Positions from the greatest member.
        range = set.len() - range.end..set.len() - range.start;
        if range.start == range.end {
            range = 0..0;
        }
    }
    let Some(limit) = slice.limit else { return range };
    if limit.offset < 0 {
        return 0..0;
    }
    let offset = usize::try_from(limit.offset).unwrap_or(usize::MAX);
    let count = usize::try_from(limit.count).unwrap_or(usize::MAX);
    if slice.reverse {
        let end = range.end.saturating_sub(offset).max(range.start);
        end.saturating_sub(count).max(range.start)..end
    } else {
        let start = range.start.saturating_add(offset).min(range.end);
        start..start.saturating_add(count).min(range.end)
    }
}

/// Whether and to what a score is changed.
fn admits(flags: ZAddFlags, held: Option<Score>, score: Score) -> bool {
    match (held, flags.condition) {
        (Some(_), Condition::IfAbsent) | (None, Condition::IfPresent) => false,
        (None, _) => true,
        (Some(held), _) => match flags.scores {
            ScoreCondition::Any => true,
            ScoreCondition::Greater => score > held,
            ScoreCondition::Less => score < held,
        },
    }
}

impl Store {
    pub(crate) fn zscore(&self, key: &[u8], member: &[u8]) -> Result<Response, Refusal> {
        Ok(score(self.view::<SortedSet>(key)?.and_then(|set| set.score(member))))
    }

    pub(crate) fn zmscore(&self, key: &[u8], members: &[Blob]) -> Result<Response, Refusal> {
        let set = self.view::<SortedSet>(key)?;
        Ok(Response::Array(
            members.iter().map(|member| score(set.and_then(|set| set.score(member)))).collect(),
        ))
    }

    pub(crate) fn zcard(&self, key: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::count(self.view::<SortedSet>(key)?.map_or(0, SortedSet::len)))
    }

    pub(crate) fn zcount(&self, key: &[u8], range: &Selection) -> Result<Response, Refusal> {
        Ok(Response::count(self.view::<SortedSet>(key)?.map_or(0, |set| set.select(range).len())))
    }

    pub(crate) fn zrange(&self, key: &[u8], slice: &Slice, with_scores: bool) -> Result<Response, Refusal> {
        let Some(set) = self.view::<SortedSet>(key)? else { return Ok(members([].iter(), with_scores)) };
        let range = set.order().range(positions(set, slice));
        Ok(if slice.reverse { members(range.rev(), with_scores) } else { members(range, with_scores) })
    }

    pub(crate) fn zrank(
        &self,
        key: &[u8],
        member: &[u8],
        reverse: bool,
        with_score: bool,
    ) -> Result<Response, Refusal> {
        let nil = if with_score { Response::NilArray } else { Response::Nil };
        let Some(set) = self.view::<SortedSet>(key)? else { return Ok(nil) };
        let Some((rank, score)) = set.rank(member) else { return Ok(nil) };
        let rank = Response::count(if reverse { set.len() - 1 - rank } else { rank });
        Ok(if with_score { Response::Array(vec![rank, Response::Double(score)]) } else { rank })
    }

    pub(crate) fn zrandmember(
        &self,
        key: &[u8],
        count: Option<i64>,
        seed: u64,
        with_scores: bool,
    ) -> Result<Response, Refusal> {
        let set = self.view::<SortedSet>(key)?;
        let len = set.map_or(0, |set| set.len());
        let nth = |at| set?.order().get(at);
        let alone = |(_, member): &(Score, Key)| Response::Bulk(member.blob());
        Ok(random::answer(seed, len, count, nth, alone, |chosen| members(chosen.into_iter(), with_scores)))
    }

    pub(crate) fn zscan(
        &self,
        key: &[u8],
        cursor: u64,
        count: u64,
        pattern: Option<&Blob>,
    ) -> Result<Response, Refusal> {
        let set = self.view::<SortedSet>(key)?;
        // As in Redis a small one comes whole, by score.
        if let Some(small) = set.filter(|set| cursor == 0 && set.len() <= PACKED_MEMBERS) {
            let glob = pattern.map(|pattern| Glob::new(pattern));
            let mut items = Vec::new();
            for (score, member) in small.order().iter() {
                if glob.as_ref().is_none_or(|glob| glob.matches(member)) {
                    items.extend([member.blob(), Blob::from(score.to_string())]);
                }
            }
            return Ok(Response::Scan { cursor: 0, items });
        }
        let scores = set.map(SortedSet::by_hash);
        Ok(scanned(scores, cursor, count, pattern, |entry, items| {
            items.extend([entry.key.blob(), Blob::from(entry.value.to_string())]);
        }))
    }

    pub(crate) fn zcombine(&self, inputs: &WeightedInputs, with_scores: bool) -> Result<Response, Refusal> {
        Ok(members(self.weighted(inputs)?.order().iter(), with_scores))
    }

    pub(crate) fn zintercard(&self, keys: &[Blob], limit: u64) -> Result<Response, Refusal> {
        let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let sources =
            distinct(keys).into_iter().map(|key| self.source(key)).collect::<Result<Vec<_>, _>>()?;
        let Some(smallest) = sources.iter().min_by_key(|source| source.len()) else {
            return Ok(Response::Integer(0));
        };
        let mut common = 0;
        smallest.each(|member, _| {
            common += usize::from(sources.iter().all(|source| source.score(member).is_some()));
        });
        Ok(Response::count(common.min(limit)))
    }

    fn weighted(&self, inputs: &WeightedInputs) -> Result<SortedSet, Refusal> {
        let mut sources = inputs
            .inputs
            .iter()
            .map(|(key, weight)| Ok((self.source(key)?, weight.get())))
            .collect::<Result<Vec<_>, Refusal>>()?;
        // Sums depend on the order: Redis begins with the smallest.
        if inputs.combine != Combine::Difference {
            sources.sort_by_key(|(source, _)| source.len());
        }
        let Some(((first, first_weight), others)) = sources.split_first() else {
            return Ok(SortedSet::default());
        };
        let mut result: BTreeMap<Key, f64> = BTreeMap::new();
        match inputs.combine {
            Combine::Union => {
                for (source, weight) in &sources {
                    source.each(|member, score| {
                        let score = weigh(score, *weight);
                        let held = result.entry(member.clone()).or_insert(f64::NAN);
                        *held = if held.is_nan() { score } else { join(inputs.aggregate, *held, score) };
                    });
                }
            }
            Combine::Intersection => first.each(|member, score| {
                let score = others.iter().try_fold(weigh(score, *first_weight), |sum, (source, weight)| {
                    Some(join(inputs.aggregate, sum, weigh(source.score(member)?, *weight)))
                });
                if let Some(score) = score {
                    result.insert(member.clone(), score);
                }
            }),
            Combine::Difference => {
                let named = distinct(inputs.inputs.iter().skip(1).map(|(key, _)| key));
                let others = named.into_iter().map(|key| self.source(key)).collect::<Result<Vec<_>, _>>()?;
                // Whichever is less to look at, as of plain sets.
                let all = others.iter().map(Source::len).sum();
                let others: Vec<_> = others.iter().filter(|other| other.len() > 0).collect();
                let each = first.len().saturating_mul(others.len()) <= all;
                first.each(|member, score| {
                    if !each || others.iter().all(|source| source.score(member).is_none()) {
                        result.insert(member.clone(), score.get());
                    }
                });
                if !each {
                    let mut remove = |member: &Key, _| _ = result.remove(member);
                    others.iter().for_each(|other| other.each(&mut remove));
                }
            }
        }
        // No score is NaN: `weigh` and `join` see to it.
        Ok(result
            .into_iter()
            .map(|(member, score)| (Score::new(score).unwrap_or_default(), member))
            .collect())
    }

    fn source(&self, key: &[u8]) -> Result<Source<'_>, Refusal> {
        let Some(entry) = self.keys.get(key) else { return Ok(Source::Nothing) };
        if let Some(set) = SortedSet::view(&entry.value) {
            return Ok(Source::Sorted(set));
        }
        Ok(Source::Plain(Members::view(&entry.value).ok_or(Refusal::WrongType)?))
    }
}

/// An input of a combination.
enum Source<'a> {
    Nothing,
    Sorted(&'a SortedSet),
    /// A set, whose members all count as having score 1.
    Plain(&'a Members),
}

impl Source<'_> {
    fn len(&self) -> usize {
        match self {
            Source::Nothing => 0,
            Source::Sorted(set) => set.len(),
            Source::Plain(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<Score> {
        match self {
            Source::Nothing => None,
            Source::Sorted(set) => set.score(member),
            Source::Plain(set) => set.get(member).and_then(|()| Score::new(1.0)),
        }
    }

    fn each(&self, mut visit: impl FnMut(&Key, Score)) {
        match self {
            Source::Nothing => {}
            Source::Sorted(set) => set.order().iter().for_each(|(score, member)| visit(member, *score)),
            Source::Plain(set) => {
                let one = Score::new(1.0).unwrap_or_default();
                set.iter().for_each(|entry| visit(entry.key, one));
            }
        }
    }
}

/// A score times a weight, where infinity times zero is zero.
fn weigh(score: Score, weight: f64) -> f64 {
    let product = score.get() * weight;
    if product.is_nan() { 0.0 } else { product }
}

/// Two scores of one member, where infinities that cancel are zero.
fn join(aggregate: Aggregate, a: f64, b: f64) -> f64 {
    match aggregate {
        Aggregate::Sum if (a + b).is_nan() => 0.0,
        Aggregate::Sum => a + b,
        Aggregate::Min => a.min(b),
        Aggregate::Max => a.max(b),
    }
}

impl Turn<'_> {
    pub(crate) fn zadd(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        flags: ZAddFlags,
        members: &[(Score, Blob)],
    ) -> Result<Response, Refusal> {
        let (added, updated) = self.update(mark, key, |set: &mut SortedSet| {
            let (mut added, mut updated) = (0, 0);
            for (score, member) in members {
                // Only conditions need to know what is there first.
                let conditional = flags.condition != Condition::Always || flags.scores != ScoreCondition::Any;
                if conditional && !admits(flags, set.score(member), *score) {
                    continue;
                }
                match set.set(member, *score) {
                    None => added += 1,
                    Some(held) => updated += usize::from(held != *score),
                }
            }
            ((added, updated), Changed::from(added + updated > 0))
        })?;
        Ok(Response::count(if flags.changed { added + updated } else { added }))
    }

    pub(crate) fn zincrby(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        member: &Blob,
        by: Score,
        flags: ZAddFlags,
    ) -> Result<Response, Refusal> {
        let held = self.store().view::<SortedSet>(key)?.and_then(|set| set.score(member));
        // Whether a member is wanted at all comes before whether the sum is a number.
        match (held, flags.condition) {
            (Some(_), Condition::IfAbsent) | (None, Condition::IfPresent) => return Ok(Response::Nil),
            _ => {}
        }
        let sum = Score::new(held.unwrap_or_default().get() + by.get()).ok_or(Refusal::ScoreNan)?;
        if !admits(flags, held, sum) {
            return Ok(Response::Nil);
        }
        self.update(mark, key, |set: &mut SortedSet| {
            set.set(member, sum);
            ((), Changed::from(held != Some(sum)))
        })?;
        Ok(Response::Double(sum))
    }

    pub(crate) fn zrem(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        members: &[Blob],
    ) -> Result<Response, Refusal> {
        let removed = self.update_held(mark, key, |set: &mut SortedSet| {
            let removed = members.iter().filter(|member| set.remove(member).is_some()).count();
            (removed, Changed::from(removed > 0))
        })?;
        Ok(Response::count(removed.unwrap_or(0)))
    }

    pub(crate) fn zrangestore(
        &mut self,
        mark: &mut Mark<'_>,
        target: &Blob,
        source: &Blob,
        slice: &Slice,
    ) -> Result<Response, Refusal> {
        let result: SortedSet = match self.store().view::<SortedSet>(source)? {
            Some(set) => set.order().range(positions(set, slice)).cloned().collect(),
            None => SortedSet::default(),
        };
        let len = result.len();
        self.store_result(mark, target, result, [source].into_iter());
        Ok(Response::count(len))
    }

    pub(crate) fn zpop(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        end: End,
        count: Option<u64>,
    ) -> Result<Response, Refusal> {
        let popped = self.pop_end(mark, key, end, count.unwrap_or(1), false)?.unwrap_or_default();
        if count.is_some() {
            return Ok(members(popped.iter(), true));
        }
        let flat = popped
            .into_iter()
            .flat_map(|(score, member)| [Response::Bulk(member.blob()), Response::Double(score)]);
        Ok(Response::Array(flat.collect()))
    }

    pub(crate) fn zmpop(
        &mut self,
        mark: &mut Mark<'_>,
        keys: &[Blob],
        end: End,
        count: u64,
    ) -> Result<Response, Refusal> {
        for key in keys {
            let Some(popped) = self.pop_end(mark, key, end, count, true)? else { continue };
            // Nested under RESP2 too, unlike all other pairs.
            let pairs = popped.into_iter().map(|(score, member)| {
                Response::Array(vec![Response::Bulk(member.blob()), Response::Double(score)])
            });
            return Ok(Response::Array(vec![Response::Bulk(key.clone()), Response::Array(pairs.collect())]));
        }
        Ok(Response::NilArray)
    }

    pub(crate) fn zremrange(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        range: &Selection,
    ) -> Result<Response, Refusal> {
        let removed = self.update_held(mark, key, |set: &mut SortedSet| {
            let removed = set.remove_range(set.select(range)).len();
            (removed, Changed::from(removed > 0))
        })?;
        Ok(Response::count(removed.unwrap_or(0)))
    }

    pub(crate) fn zcombinestore(
        &mut self,
        mark: &mut Mark<'_>,
        target: &Blob,
        inputs: &WeightedInputs,
    ) -> Result<Response, Refusal> {
        let result = self.store().weighted(inputs)?;
        let len = result.len();
        self.store_result(mark, target, result, inputs.inputs.iter().map(|(key, _)| key));
        Ok(Response::count(len))
    }

    /// The members at one end, outermost first, which may be told behind their key; `None` without a set.
    fn pop_end(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        end: End,
        count: u64,
        named: bool,
    ) -> Result<Option<Vec<(Score, Key)>>, Refusal> {
        let (left, name) = (self.left(), named.then_some(key));
        let popped = self.update_held(mark, key, |set: &mut SortedSet| {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(set.len());
            let wanted = match end {
                End::Least => 0..count,
                End::Greatest => set.len() - count..set.len(),
            };
            let lengths = set.order().range(wanted).map(|(_, member)| member.len());
            if let Err(refusal) = fits_behind(name, left, lengths) {
                return (Err(refusal), Changed::No);
            }
            let popped = match end {
                End::Least => set.remove_range(0..count),
                End::Greatest => {
                    let mut popped = set.remove_range(set.len() - count..set.len());
                    popped.reverse();
                    popped
                }
            };
            let changed = Changed::from(!popped.is_empty());
            (Ok(popped), changed)
        })?;
        popped.transpose()
    }
}
