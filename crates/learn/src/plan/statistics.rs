//! What a plan allows before anything is learnt: how long its longest chain of samples is that must wait for one another,
//! how many threads that can keep busy, and which features are to blame. Specification: 4.4 and 7.4.

use std::fmt;
use std::num::NonZeroUsize;

use crate::data::Dataset;
use crate::exec::Stop;
use crate::plan::{Annotations, Plan, PlanError, TooWide};
use crate::task::Rule;

/// A parameter that samples of the longest chain wait for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bottleneck {
    /// The parameter; under [`Rule::Features`], the feature, counted from 0.
    pub parameter: u32,
    /// How many of the longest chain's waits are for it.
    pub links: u32,
    /// How many samples touch it.
    pub samples: u32,
}

/// What a plan looks like.
#[derive(Clone, PartialEq, Debug)]
pub struct Statistics {
    /// Number of samples, n.
    pub samples: u32,
    /// Whose sets were planned: [`Rule::id`].
    pub rule: u32,
    /// Planned reads and writes together.
    pub operations: u64,
    /// Parameters of the model.
    pub parameters: u32,
    /// Parameters that some sample touches.
    pub touched: u32,
    /// Parameters that every sample touches.
    pub everywhere: u32,
    /// How many samples there are at each level: a sample is one level above the highest of those it waits for. So there
    /// are [`Statistics::depth`] levels, and all samples of a level could be learnt from at once.
    pub levels: Vec<u32>,
    /// Size of the plan in bytes.
    pub bytes: u64,
    /// What the longest chain waits for: up to five parameters, the one with most links first.
    pub bottlenecks: Vec<Bottleneck>,
    /// What the first feature is called where recommendations name features: 0 unless set, 1 for a file that counts from 1.
    pub first: u32,
}

impl Statistics {
    /// Looks at the plan of these samples. Takes 12 bytes a sample and 8 a parameter (20 in the general form)
    /// while it works.
    ///
    /// # Errors
    /// If the plan is of other samples, or there is no memory for so many parameters.
    pub fn of(plan: &Plan, data: &Dataset<'_>) -> Result<Statistics, PlanError> {
        Statistics::until(plan, data, &Stop::default())
    }

    /// The same, until somebody asks for its end: that is [`PlanError::Interrupted`] then.
    ///
    /// # Errors
    /// As there.
    pub fn until(plan: &Plan, data: &Dataset<'_>, stop: &Stop) -> Result<Statistics, PlanError> {
        plan.check_data(data)?;
        // Those of `Chains` and of its links, and what `degrees` has beside them.
        let each = if matches!(plan.annotations, Annotations::Compact(_)) { 8 } else { 20 };
        TooWide::check(data.width(), u64::from(plan.parameters) * each)?;
        let mut chains = Chains::new(plan, data);
        match &plan.annotations {
            Annotations::Compact(versions) => chains.compact(plan, data, versions, stop),
            Annotations::General { reads_at, reads, writes_at, writes } => {
                for transaction in (1..=plan.transactions).take_while(|_| !stop.is_asked()) {
                    let at = transaction as usize - 1;
                    let reads = &reads[reads_at[at] as usize..reads_at[at + 1] as usize];
                    let writes = &writes[writes_at[at] as usize..writes_at[at + 1] as usize];
                    chains.general(transaction, reads, writes);
                }
            }
        }
        if stop.is_asked() {
            return Err(PlanError::Interrupted);
        }
        let operations = match &plan.annotations {
            Annotations::Compact(versions) => 2 * versions.len() as u64,
            Annotations::General { reads, writes, .. } => (reads.len() + writes.len()) as u64,
        };
        let touched_by =
            |enough: u32| chains.touches.iter().filter(|&&touches| touches >= enough).count() as u32;
        Ok(Statistics {
            samples: plan.transactions,
            rule: plan.rule,
            operations,
            parameters: plan.parameters,
            touched: touched_by(1),
            everywhere: touched_by(plan.transactions.max(1)),
            bytes: plan.bytes(),
            bottlenecks: chains.bottlenecks(),
            levels: chains.levels(),
            first: 0,
        })
    }

    /// The longest chain of samples of which each waits for the one before it; 0 where there are no samples.
    pub fn depth(&self) -> u32 {
        self.levels.len() as u32
    }

    /// Available parallelism, n / depth: how many threads can be kept busy if all samples take equally long; 0 where there
    /// are no samples. Conflict order planning can do somewhat better, as a sample that waits has read what it need not
    /// wait for; a scheme that holds locks cannot.
    pub fn parallelism(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { f64::from(self.samples) / f64::from(self.depth()) }
    }

    /// The levels summed up in at most this many bins of equally many levels (the last one may have fewer), for a plot:
    /// samples in each, in the order of the levels.
    pub fn bins(&self, bins: NonZeroUsize) -> Vec<u64> {
        let each = self.levels.len().div_ceil(bins.get()).max(1);
        self.levels
            .chunks(each)
            .map(|levels| levels.iter().map(|&samples| u64::from(samples)).sum())
            .collect()
    }

    /// What to do where there are this many threads.
    pub fn recommend(&self, threads: NonZeroUsize) -> Recommendation {
        let threads = u32::try_from(threads.get()).unwrap_or(u32::MAX);
        let parallelism = self.parallelism();
        let (useful, shape) = if self.samples == 0 {
            (1, Shape::Empty)
        } else if parallelism < CHAIN {
            (1, Shape::Chain)
        } else if self.operations < 2 * WORTH_A_THREAD {
            (1, Shape::Small)
        } else if parallelism.ceil() < f64::from(threads) {
            (parallelism.ceil() as u32, Shape::Narrow)
        } else {
            (threads, Shape::Wide)
        };
        Recommendation { threads: useful, shape, words: self.words(shape, useful, threads) }
    }

    fn words(&self, shape: Shape, useful: u32, threads: u32) -> String {
        let depth = self.depth();
        let parallelism = self.parallelism();
        match shape {
            Shape::Empty => "there are no samples to learn from".to_string(),
            Shape::Chain => format!(
                "this data is a chain: {depth} of its {} samples must be learnt from one after the other, so one thread is \
                 as fast as it gets; {}",
                self.samples,
                self.blame()
            ),
            Shape::Small => format!(
                "one thread is as fast as it gets: {} entries are learnt from sooner than another one has begun (of larger data like \
                 this, {parallelism:.1} samples could be learnt from at a time{})",
                self.operations / 2,
                if parallelism.ceil() < f64::from(threads) {
                    format!("; {}", self.blame())
                } else {
                    String::new()
                }
            ),
            Shape::Narrow => format!(
                "up to {useful} threads pay, {threads} do not: {parallelism:.1} samples can be learnt from at a time, as the \
                 longest chain has {depth} of {}; {}",
                self.samples,
                self.blame()
            ),
            Shape::Wide => format!(
                "use all {threads} threads: {parallelism:.1} samples can be learnt from at a time (the longest chain has \
                 {depth} of {})",
                self.samples
            ),
        }
    }

    /// Which features make the longest chain, and what can be done.
    fn blame(&self) -> String {
        let noun = if self.rule == Rule::Features.id() { "feature" } else { "parameter" };
        let links = u64::from(self.depth().saturating_sub(1)).max(1);
        let share = |part: u64, whole: u64| (100 * part + whole / 2) / whole.max(1);
        let name = |one: &Bottleneck| u64::from(one.parameter) + u64::from(self.first);
        let few: u64 = self.bottlenecks.iter().map(|one| u64::from(one.links)).sum();
        match self.bottlenecks.first() {
            Some(_) if self.everywhere > 1 && self.everywhere == self.touched => format!(
                "every {noun} is in every sample, as in a table of numbers: cut each into bins, so that only samples of the same bin \
                 share one"
            ),
            Some(first) if self.everywhere > 1 && first.samples == self.samples => format!(
                "{} {noun}s are in every sample, {noun} {} among them: leave out those that are constant and fit an intercept, which costs \
                 no waiting, and cut the others into bins",
                self.everywhere,
                name(first)
            ),
            Some(first) if share(u64::from(first.links), links) >= 50 => {
                let samples = share(u64::from(first.samples), u64::from(self.samples));
                let way_out = match (self.rule == Rule::Features.id(), samples >= 95) {
                    (true, true) => {
                        ": if it is (nearly) constant, leave it out and fit an intercept, which costs no waiting"
                    }
                    (true, false) => {
                        ": leave it out, or cross it with another one so that fewer samples share it"
                    }
                    (false, _) => "",
                };
                format!(
                    "{noun} {} is in {samples}% of the samples and makes {}% of the chain's waits{way_out}",
                    name(first),
                    share(u64::from(first.links), links)
                )
            }
            Some(_) if share(few, links) >= 50 && self.bottlenecks.len() * 4 <= self.touched as usize => {
                let names: Vec<String> = self.bottlenecks.iter().map(|one| name(one).to_string()).collect();
                format!(
                    "{noun}s {} make {}% of the chain's waits: leave them out, or cross them with others so that fewer \
                     samples share them",
                    names.join(", "),
                    share(few, links)
                )
            }
            _ => format!(
                "no few {noun}s are to blame: a sample touches {:.0} of only {}, so most samples share one with most others",
                self.operations as f64 / 2.0 / f64::from(self.samples),
                self.touched
            ),
        }
    }
}

/// Below this much parallelism a second thread is not worth its waiting.
const CHAIN: f64 = 1.5;

/// Entries of an epoch below which it is over before another thread has begun, as a rule.
const WORTH_A_THREAD: u64 = 100_000;

/// What a plan looks like to a number of threads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    /// There are no samples.
    Empty,
    /// (Nearly) every sample waits for the one before it.
    Chain,
    /// It is over before a second thread has begun.
    Small,
    /// It keeps fewer threads busy than there are.
    Narrow,
    /// It keeps all threads busy.
    Wide,
}

/// How many threads to use, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recommendation {
    /// Threads that pay, at most those there are.
    pub threads: u32,
    /// What the plan looks like to that many.
    pub shape: Shape,
    /// The reason, for people.
    pub words: String,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = (self.operations as f64 / 2.0).max(1.0);
        writeln!(f, "samples      {}", self.samples)?;
        writeln!(f, "operations   {} (reads and writes)", self.operations)?;
        writeln!(f, "parameters   {} touched, of {}", self.touched, self.parameters)?;
        writeln!(
            f,
            "depth        {} (the longest chain of samples that wait for one another)",
            self.depth()
        )?;
        writeln!(f, "parallelism  {:.2} (samples / depth)", self.parallelism())?;
        write!(
            f,
            "plan         {} bytes, {:.2} for a read and a write",
            self.bytes,
            self.bytes as f64 / entries
        )
    }
}

/// The longest chains so far.
struct Chains {
    /// Level of each transaction, from 1; that of version 0 is 0.
    level: Vec<u32>,
    /// For whom each transaction waits longest: a transaction (0 for nobody), and the parameter.
    waits: Vec<(u32, u32)>,
    /// How many samples touch each parameter.
    touches: Vec<u32>,
    /// The highest reader of the current version of each parameter, for the general form only.
    reader: Vec<u32>,
}

impl Chains {
    fn new(plan: &Plan, data: &Dataset<'_>) -> Chains {
        let transactions = plan.transactions as usize + 1;
        let parameters = plan.parameters as usize;
        let (touches, reader) = match &plan.annotations {
            Annotations::Compact(_) => (data.degrees(), Vec::new()),
            Annotations::General { reads_at, reads, writes_at, writes } => {
                (degrees(parameters, reads_at, reads, writes_at, writes), vec![0; parameters])
            }
        };
        Chains { level: vec![0; transactions], waits: vec![(0, 0); transactions], touches, reader }
    }

    fn compact(&mut self, plan: &Plan, data: &Dataset<'_>, versions: &[u32], stop: &Stop) {
        for transaction in (1..=plan.transactions).take_while(|_| !stop.is_asked()) {
            let at = transaction as usize - 1;
            let row = plan.order.as_ref().map_or(at, |order| order[at] as usize);
            let entries = data.range(row);
            for (&parameter, &version) in data.row(row).iter().zip(&versions[entries]) {
                self.wait(transaction, version, parameter);
            }
            self.level[transaction as usize] += 1;
        }
    }

    /// A writer waits for who wrote what it replaces and for all readers of that; a reader for who wrote what it reads.
    fn general(&mut self, transaction: u32, reads: &[super::ReadOp], writes: &[super::WriteOp]) {
        for read in reads {
            self.wait(transaction, read.version, read.parameter);
        }
        for write in writes {
            self.wait(transaction, write.writer, write.parameter);
            self.wait(transaction, self.reader[write.parameter as usize], write.parameter);
        }
        self.level[transaction as usize] += 1;
        for read in reads {
            let reader = &mut self.reader[read.parameter as usize];
            if self.level[transaction as usize] > self.level[*reader as usize] {
                *reader = transaction;
            }
        }
        for write in writes {
            self.reader[write.parameter as usize] = 0;
        }
    }

    /// Notes that a transaction waits for another one (0 for nobody) because of a parameter. Of equally long waits the one
    /// for the parameter that most samples touch is kept: it is the one that explains most.
    fn wait(&mut self, transaction: u32, other: u32, parameter: u32) {
        let (level, known) = (self.level[other as usize], self.level[transaction as usize]);
        let rarer = || {
            let (_, current) = self.waits[transaction as usize];
            self.touches[parameter as usize] > self.touches[current as usize]
        };
        if level > known || (level == known && level > 0 && rarer()) {
            self.level[transaction as usize] = level;
            self.waits[transaction as usize] = (other, parameter);
        }
    }

    fn levels(&self) -> Vec<u32> {
        let mut levels = Vec::new();
        for &level in &self.level[1..] {
            if levels.len() < level as usize {
                levels.resize(level as usize, 0);
            }
            levels[level as usize - 1] += 1;
        }
        levels
    }

    fn bottlenecks(&self) -> Vec<Bottleneck> {
        let highest = (1..self.level.len()).rev().max_by_key(|&transaction| self.level[transaction]);
        let mut at = highest.unwrap_or(0);
        let mut links = vec![0_u32; self.touches.len()];
        while self.waits.get(at).is_some_and(|wait| wait.0 > 0) {
            let (other, parameter) = self.waits[at];
            links[parameter as usize] += 1;
            at = other as usize;
        }
        let mut found: Vec<Bottleneck> = (0_u32..)
            .zip(&links)
            .filter(|(_, links)| **links > 0)
            .map(|(parameter, &links)| {
                let samples = self.touches[parameter as usize];
                Bottleneck { parameter, links, samples }
            })
            .collect();
        found.sort_by_key(|one| (std::cmp::Reverse(one.links), one.parameter));
        found.truncate(5);
        found
    }
}

/// How many transactions read or write each parameter; who does both counts once.
fn degrees(
    parameters: usize,
    reads_at: &[u64],
    reads: &[super::ReadOp],
    writes_at: &[u64],
    writes: &[super::WriteOp],
) -> Vec<u32> {
    let mut counts = vec![0; parameters];
    let mut seen = vec![0; parameters];
    for (at, (reads_at, writes_at)) in reads_at.windows(2).zip(writes_at.windows(2)).enumerate() {
        let reads = reads[reads_at[0] as usize..reads_at[1] as usize].iter().map(|read| read.parameter);
        let writes = writes[writes_at[0] as usize..writes_at[1] as usize].iter().map(|write| write.parameter);
        for parameter in reads.chain(writes) {
            if std::mem::replace(&mut seen[parameter as usize], at + 1) <= at {
                counts[parameter as usize] += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::mixed::{self, BOTH, Mixed, READ, WRITE};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn told(rule: Rule, rows: &[Vec<(u32, f64)>], threads: usize, expected: Expect) {
        let data = mixed::data(rows);
        let statistics = Statistics::of(&Plan::of(&Mixed(rule), &data), &data).unwrap();
        let advice = statistics.recommend(NonZeroUsize::new(threads).unwrap());
        expected.assert_eq(&format!("{statistics}\nthreads      {}: {}", advice.threads, advice.words));
    }

    #[test]
    fn one_feature_in_every_sample_makes_a_chain() {
        let rows: Vec<_> = (0..200).map(|row| vec![(0, BOTH), (1 + row % 7, BOTH)]).collect();
        told(
            Rule::Features,
            &rows,
            8,
            expect![[r#"
                samples      200
                operations   800 (reads and writes)
                parameters   8 touched, of 8
                depth        200 (the longest chain of samples that wait for one another)
                parallelism  1.00 (samples / depth)
                plan         1600 bytes, 4.00 for a read and a write
                threads      1: this data is a chain: 200 of its 200 samples must be learnt from one after the other, so one thread is as fast as it gets; feature 0 is in 100% of the samples and makes 100% of the chain's waits: if it is (nearly) constant, leave it out and fit an intercept, which costs no waiting"#]],
        );
    }

    #[test]
    fn few_threads_pay_where_the_chain_is_long() {
        let rows: Vec<_> = (0..150_000).map(|row| vec![(row % 3, BOTH)]).collect();
        told(
            Rule::Features,
            &rows,
            8,
            expect![[r#"
                samples      150000
                operations   300000 (reads and writes)
                parameters   3 touched, of 8
                depth        50000 (the longest chain of samples that wait for one another)
                parallelism  3.00 (samples / depth)
                plan         600000 bytes, 4.00 for a read and a write
                threads      3: up to 3 threads pay, 8 do not: 3.0 samples can be learnt from at a time, as the longest chain has 50000 of 150000; feature 0 is in 33% of the samples and makes 100% of the chain's waits: leave it out, or cross it with another one so that fewer samples share it"#]],
        );
    }

    #[test]
    fn one_thread_pays_where_there_is_little_to_do() {
        let rows: Vec<_> = (0..8).map(|row| vec![(row, BOTH)]).collect();
        told(
            Rule::Features,
            &rows,
            4,
            expect![[r#"
            samples      8
            operations   16 (reads and writes)
            parameters   8 touched, of 8
            depth        1 (the longest chain of samples that wait for one another)
            parallelism  8.00 (samples / depth)
            plan         32 bytes, 4.00 for a read and a write
            threads      1: one thread is as fast as it gets: 8 entries are learnt from sooner than another one has begun (of larger data like this, 8.0 samples could be learnt from at a time)"#]],
        );
    }

    #[test]
    fn dense_data_is_said_to_be_dense() {
        let rows: Vec<_> = (0..50).map(|_| (0..5).map(|feature| (feature, BOTH)).collect()).collect();
        told(
            Rule::Features,
            &rows,
            4,
            expect![[r#"
            samples      50
            operations   500 (reads and writes)
            parameters   5 touched, of 8
            depth        50 (the longest chain of samples that wait for one another)
            parallelism  1.00 (samples / depth)
            plan         1000 bytes, 4.00 for a read and a write
            threads      1: this data is a chain: 50 of its 50 samples must be learnt from one after the other, so one thread is as fast as it gets; every feature is in every sample, as in a table of numbers: cut each into bins, so that only samples of the same bin share one"#]],
        );
        // With something beside it that only some samples have.
        let rows: Vec<_> = (0..50).map(|row| vec![(1, BOTH), (2, BOTH), (3 + row % 2, BOTH)]).collect();
        told(
            Rule::Features,
            &rows,
            4,
            expect![[r#"
            samples      50
            operations   300 (reads and writes)
            parameters   4 touched, of 8
            depth        50 (the longest chain of samples that wait for one another)
            parallelism  1.00 (samples / depth)
            plan         600 bytes, 4.00 for a read and a write
            threads      1: this data is a chain: 50 of its 50 samples must be learnt from one after the other, so one thread is as fast as it gets; 2 features are in every sample, feature 1 among them: leave out those that are constant and fit an intercept, which costs no waiting, and cut the others into bins"#]],
        );
    }

    #[test]
    fn all_threads_pay_where_samples_are_apart() {
        let rows: Vec<_> = (0..160_000).map(|row| vec![(row % 8, BOTH)]).collect();
        told(
            Rule::Features,
            &rows,
            4,
            expect![[r#"
                samples      160000
                operations   320000 (reads and writes)
                parameters   8 touched, of 8
                depth        20000 (the longest chain of samples that wait for one another)
                parallelism  8.00 (samples / depth)
                plan         640000 bytes, 4.00 for a read and a write
                threads      4: use all 4 threads: 8.0 samples can be learnt from at a time (the longest chain has 20000 of 160000)"#]],
        );
    }

    #[test]
    fn everything_shared_by_everything() {
        let rows: Vec<_> = (0..100_u32)
            .map(|row| (0..3).map(|place| ((row * 3 + place * place) % 8, BOTH)).collect())
            .collect();
        let rows: Vec<Vec<_>> = rows
            .into_iter()
            .map(|mut row: Vec<_>| {
                row.dedup();
                row
            })
            .collect();
        told(
            Rule::Features,
            &rows,
            2,
            expect![[r#"
                samples      100
                operations   600 (reads and writes)
                parameters   8 touched, of 8
                depth        100 (the longest chain of samples that wait for one another)
                parallelism  1.00 (samples / depth)
                plan         1200 bytes, 4.00 for a read and a write
                threads      1: this data is a chain: 100 of its 100 samples must be learnt from one after the other, so one thread is as fast as it gets; no few features are to blame: a sample touches 3 of only 8, so most samples share one with most others"#]],
        );
    }

    #[test]
    fn readers_do_not_wait_for_readers() {
        let mut some = vec![vec![(0, READ)]; 5];
        some.push(vec![(0, WRITE)]);
        some.push(vec![(0, READ), (1, WRITE)]);
        let rows: Vec<_> = some.iter().cycle().take(7 * 26_000).cloned().collect();
        told(
            Rule::Own(7),
            &rows,
            8,
            expect![[r#"
                samples      182000
                operations   208000 (reads and writes)
                parameters   2 touched, of 8
                depth        52001 (the longest chain of samples that wait for one another)
                parallelism  3.50 (samples / depth)
                plan         4784016 bytes, 46.00 for a read and a write
                threads      4: up to 4 threads pay, 8 do not: 3.5 samples can be learnt from at a time, as the longest chain has 52001 of 182000; parameter 0 is in 100% of the samples and makes 100% of the chain's waits"#]],
        );
    }

    #[test]
    fn as_many_threads_as_there_are_pay_or_fewer() {
        let rows: Vec<_> = (0..110_000).map(|row| vec![(row % 7 / 2, BOTH)]).collect();
        let data = mixed::data(&rows);
        let statistics = Statistics::of(&Plan::compact(&data), &data).unwrap();
        assert!((statistics.parallelism() - 3.5).abs() < 0.01);
        let shape = |threads| statistics.recommend(NonZeroUsize::new(threads).unwrap());
        let shape = |threads| (shape(threads).threads, shape(threads).shape);
        assert_eq!([3, 4, 5].map(shape), [(3, Shape::Wide), (4, Shape::Wide), (4, Shape::Narrow)]);
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        told(
            Rule::Features,
            &[],
            4,
            expect![[r#"
                samples      0
                operations   0 (reads and writes)
                parameters   0 touched, of 8
                depth        0 (the longest chain of samples that wait for one another)
                parallelism  0.00 (samples / depth)
                plan         0 bytes, 0.00 for a read and a write
                threads      1: there are no samples to learn from"#]],
        );
    }

    /// Levels by the definition: a sample is above all earlier ones that it conflicts with, but for two that only read.
    fn levels(rows: &[Vec<(u32, f64)>]) -> Vec<u32> {
        let mut levels: Vec<u32> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let conflicts = |other: &&(usize, &Vec<(u32, f64)>)| {
                row.iter()
                    .any(|one| other.1.iter().any(|two| one.0 == two.0 && !(one.1 == READ && two.1 == READ)))
            };
            let earlier: Vec<_> = rows[..at].iter().enumerate().collect();
            let below = earlier.iter().filter(conflicts).map(|other| levels[other.0]).max();
            levels.push(below.unwrap_or(0) + 1);
        }
        let mut counts = vec![0; levels.iter().copied().max().unwrap_or(0) as usize];
        levels.iter().for_each(|&level| counts[level as usize - 1] += 1);
        counts
    }

    proptest! {
        #[test]
        fn levels_are_those_of_the_definition(rows in mixed::rows()) {
            let data = mixed::data(&rows);
            let general = Statistics::of(&Plan::of(&Mixed(Rule::Own(7)), &data), &data).unwrap();
            prop_assert_eq!(&general.levels, &levels(&rows));
            let compact = Statistics::of(&Plan::compact(&data), &data).unwrap();
            let both: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|one| (one.0, BOTH)).collect()).collect();
            prop_assert_eq!(&compact.levels, &levels(&both));
            let total: u64 = compact.bins(NonZeroUsize::new(4).unwrap()).iter().sum();
            prop_assert_eq!(total, rows.len() as u64);
            let links: u32 = compact.bottlenecks.iter().map(|one| one.links).sum();
            prop_assert!(links <= compact.depth().saturating_sub(1));
        }
    }
}
