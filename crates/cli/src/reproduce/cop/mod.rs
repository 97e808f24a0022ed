//! COP: chapter 6 of Nawab's dissertation. Settings and experiments: `specs/cop.md` 7.

mod bench;
mod verdicts;

pub(crate) use bench::Bench;

use super::lab::Lab;
use super::published::{self, Finding, Measure};
use super::{BarDrawing, Drawing, Published, Row, Wanted};
use crate::chart::Bars;
use bench::{EPOCHS, Form, SCHEMES, Set, cores, many};
use isochrone_learn::Scheme;

/// All rows: those of the published file, our own (`COP-E…`), and the verdicts (`T-COP-…`).
pub(super) fn run(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Row>> {
    let text = include_str!("../../../../../reference/published/cop.csv");
    let mut rows = published::rows("reference/published/cop.csv", text, MEASURES, wanted, lab)?;
    rows.extend(own(wanted, lab)?);
    rows.extend(verdicts::rows(wanted, lab)?);
    Ok(rows)
}

/// Throughput is drawn as bars: [`bars`].
pub(super) fn draw(_: Wanted<'_>, _: &mut Lab) -> anyhow::Result<Vec<Drawing>> {
    Ok(Vec::new())
}

/// A drawing for each of the experiments E1 to E6.
pub(super) fn bars(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<BarDrawing>> {
    let mut drawn = Vec::new();
    let names = ["Hogwild (Ideal)", "COP", "Locking", "OCC"];
    let mut draw = |file: String, title: String, groups: Vec<(String, [f64; 4])>| {
        let series = names.iter().enumerate().map(|(at, name)| {
            ((*name).to_owned(), groups.iter().map(|(_, rates)| rates[at]).collect::<Vec<_>>())
        });
        let series = series.collect();
        let groups = groups.into_iter().map(|(name, _)| name).collect();
        drawn.push((file, Bars { title, unit: "M samples/s", groups, series, floor: Vec::new() }));
    };
    for set in Set::PUBLISHED {
        let file = format!("threads-{}", set.name().to_lowercase());
        if !wanted(&file) {
            continue;
        }
        let prepared = lab.learning.prepared(set)?;
        let title = format!("{}: throughput by threads, n/depth {:.1}", set.name(), prepared.parallelism);
        let mut groups = Vec::new();
        for threads in sweep() {
            groups.push((threads.to_string(), lab.learning.rates(set, threads)?));
        }
        draw(file, title, groups);
    }
    let many_threads = [("hotspots", "hot spot", Set::SPOTS), ("schemes", "data", Set::PUBLISHED)];
    for (file, by, sets) in many_threads.into_iter().filter(|(file, ..)| wanted(file)) {
        let mut groups = Vec::new();
        for set in sets {
            groups.push((set.name(), lab.learning.rates(set, many())?));
        }
        draw(file.to_owned(), format!("Throughput by {by}, {} threads", many()), groups);
    }
    let planning = ["loading", "first-epoch", "pipeline"].map(|file| (file, wanted(file)));
    if planning.iter().any(|(_, wanted)| *wanted) {
        let bars = planning_bars(lab)?.into_iter();
        drawn.extend(bars.filter(|(file, _)| planning.contains(&(file.as_str(), true))));
    }
    Ok(drawn)
}

/// What planning costs where it is done on the way (E4, E5), and what a centre does (E6).
fn planning_bars(lab: &mut Lab) -> anyhow::Result<Vec<BarDrawing>> {
    let (mut loads, mut firsts) = (Vec::new(), Vec::new());
    for set in Set::PUBLISHED {
        let load = lab.learning.load(set, Form::Text)?;
        loads.push([load.plain, load.planned].map(|seconds| load.megabytes / seconds));
        let (samples, first) =
            (lab.learning.prepared(set)?.data.len() as f64 / 1e6, lab.learning.first(set)?);
        firsts.push(
            [first.locking, first.planned_first, first.later, first.offline].map(|time| samples / time),
        );
    }
    let sets = || Set::PUBLISHED.map(Set::name).to_vec();
    let bars = |file: &str, title: String, unit, groups, series| {
        (file.to_owned(), Bars { title, unit, groups, series, floor: Vec::new() })
    };
    let series = |names: &[&str], of: &dyn Fn(usize) -> Vec<f64>| -> Vec<(String, Vec<f64>)> {
        names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), of(at))).collect()
    };
    let loading = series(&["read", "read and planned"], &|at| loads.iter().map(|load| load[at]).collect());
    let names = ["Locking", "first epoch, planned under locks", "later epochs", "plan of the data's order"];
    let epochs = series(&names, &|at| firsts.iter().map(|first| first[at]).collect());
    let p = lab.learning.pipeline()?;
    let rates = [p.planned_at_collectors, p.over_the_wan, p.planned_at_center, p.locking, p.learning];
    let names = [
        "planned at collectors",
        "the same, over the WAN",
        "planned at the centre",
        "Locking",
        "COP, one plan",
    ];
    let center = series(&names, &|at| vec![rates[at] / 1e6]);
    Ok(vec![
        bars("loading", "Loading text, with planning and without".to_owned(), "MB/s", sets(), loading),
        bars("first-epoch", format!("Epochs, {} threads", many()), "M samples/s", sets(), epochs),
        bars(
            "pipeline",
            format!("{SETTING_E6}, {} threads", many()),
            "M samples/s",
            vec![String::new()],
            center,
        ),
    ])
}

const SETTING_E6: &str = "KDDA 1/64; 4 collectors, 1 centre";

/// Numbers of threads: 1, 2, 4, 8, 16, up to the machine's cores.
fn sweep() -> Vec<usize> {
    [1, 2, 4, 8, 16].into_iter().filter(|threads| *threads <= cores().max(1)).collect()
}

/// What is to be known beside every figure on a data set.
fn about(lab: &mut Lab, set: Set, threads: usize) -> anyhow::Result<String> {
    let prepared = lab.learning.prepared(set)?;
    let scale = match set {
        Set::Spot(_) => format!("{} samples", prepared.data.len()),
        _ if set.scale() == 1 => "generated, whole".to_owned(),
        _ => format!("generated, 1/{}", set.scale()),
    };
    Ok(format!(
        "{threads} threads here; {scale}, n/depth {:.2}, sharing {:.3}",
        prepared.parallelism, prepared.sharing
    ))
}

fn rate(lab: &mut Lab, set: Set, scheme: Scheme) -> anyhow::Result<Finding> {
    Ok(Finding::Told(lab.learning.rate(set, many(), scheme)?, about(lab, set, many())?))
}

/// By how many percent one scheme is faster than another.
fn above(lab: &mut Lab, set: Set, threads: usize, one: Scheme, other: Scheme) -> anyhow::Result<Finding> {
    let ratio = lab.learning.rate(set, threads, one)? / lab.learning.rate(set, threads, other)?;
    Ok(Finding::Told(100.0 * (ratio - 1.0), about(lab, set, threads)?))
}

/// How many times faster.
fn factor(lab: &mut Lab, set: Set, one: Scheme, other: Scheme) -> anyhow::Result<Finding> {
    let ratio = lab.learning.rate(set, many(), one)? / lab.learning.rate(set, many(), other)?;
    Ok(Finding::Told(ratio, about(lab, set, many())?))
}

/// Percent by which COP is slower than Ideal.
fn below_ideal(lab: &mut Lab, set: Set, threads: usize) -> anyhow::Result<f64> {
    let [ideal, cop, ..] = lab.learning.rates(set, threads)?;
    Ok(100.0 * (1.0 - cop / ideal))
}

/// The least or the largest over sets.
fn extreme(
    lab: &mut Lab,
    sets: &[Set],
    pick: fn(f64, f64) -> f64,
    of: fn(&mut Lab, Set) -> anyhow::Result<f64>,
) -> anyhow::Result<Finding> {
    let (mut chosen, mut note) = (None, Vec::new());
    for &set in sets {
        let value = of(lab, set)?;
        chosen = Some(chosen.map_or(value, |other| pick(other, value)));
        note.push(format!(
            "{} {value:.2} (n/depth {:.2})",
            set.name(),
            lab.learning.prepared(set)?.parallelism
        ));
    }
    let note = format!("{} threads here; {}", many(), note.join(", "));
    Ok(chosen.map_or(Finding::Absent, |chosen| Finding::Told(chosen, note)))
}

const KDD: [Set; 2] = [Set::Kdda, Set::Kddb];

/// COP over the faster of Locking and OCC, and over the slower.
fn over_faster(lab: &mut Lab, set: Set) -> anyhow::Result<f64> {
    let [_, cop, locking, occ] = lab.learning.rates(set, many())?;
    Ok(cop / locking.max(occ))
}

fn over_slower(lab: &mut Lab, set: Set) -> anyhow::Result<f64> {
    let [_, cop, locking, occ] = lab.learning.rates(set, many())?;
    Ok(cop / locking.min(occ))
}

fn apart(lab: &mut Lab, set: Set) -> anyhow::Result<f64> {
    let [_, _, locking, occ] = lab.learning.rates(set, many())?;
    Ok(100.0 * (locking.max(occ) / locking.min(occ) - 1.0))
}

fn scaling(lab: &mut Lab, set: Set, scheme: Scheme) -> anyhow::Result<Finding> {
    if many() < 2 {
        return Ok(Finding::Not("this machine has one core"));
    }
    Ok(Finding::Told(scaling_ratio(lab, set, scheme)?, about(lab, set, many())?))
}

/// Throughput of all threads over that of one.
fn scaling_ratio(lab: &mut Lab, set: Set, scheme: Scheme) -> anyhow::Result<f64> {
    Ok(lab.learning.rate(set, many(), scheme)? / lab.learning.rate(set, 1, scheme)?)
}

/// The least and the largest over all schemes stand in the note.
fn scaling_all(lab: &mut Lab) -> anyhow::Result<Finding> {
    if many() < 2 {
        return Ok(Finding::Not("this machine has one core"));
    }
    let (one, all) = (lab.learning.rates(Set::Imdb, 1)?, lab.learning.rates(Set::Imdb, many())?);
    let ratios: Vec<f64> = all.iter().zip(one).map(|(all, one)| all / one).collect();
    let each: Vec<String> =
        SCHEMES.iter().zip(&ratios).map(|(scheme, ratio)| format!("{scheme} {ratio:.2}")).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    Ok(Finding::Told(mean, format!("mean of {}; {}", each.join(", "), about(lab, Set::Imdb, many())?)))
}

/// The number of threads with which the locking schemes are fastest.
fn peak(lab: &mut Lab) -> anyhow::Result<Finding> {
    if cores() < 8 {
        return Ok(Finding::Not("this machine has fewer than eight cores"));
    }
    let mut best = (0.0, 0);
    for threads in sweep() {
        let [_, _, locking, occ] = lab.learning.rates(Set::Kdda, threads)?;
        if locking.max(occ) > best.0 {
            best = (locking.max(occ), threads);
        }
    }
    Ok(Finding::Told(best.1 as f64, about(lab, Set::Kdda, best.1)?))
}

const SMALL: Set = Set::Spot(1_000);
const LARGE: Set = Set::Spot(100_000);

/// Throughput at the large hot spot over that at the small one.
fn growth(lab: &mut Lab, scheme: Scheme) -> anyhow::Result<f64> {
    Ok(lab.learning.rate(LARGE, many(), scheme)? / lab.learning.rate(SMALL, many(), scheme)?)
}

fn grows(lab: &mut Lab, scheme: Scheme) -> anyhow::Result<Finding> {
    let ratio = growth(lab, scheme)?;
    let (small, large) =
        (lab.learning.prepared(SMALL)?.parallelism, lab.learning.prepared(LARGE)?.parallelism);
    Ok(Finding::Told(ratio, format!("{} threads here; n/depth {small:.2} and {large:.2}", many())))
}

fn ideal_over_locks(lab: &mut Lab, set: Set, pick: fn(f64, f64) -> f64) -> anyhow::Result<Finding> {
    let [ideal, _, locking, occ] = lab.learning.rates(set, many())?;
    Ok(Finding::Told(ideal / pick(locking, occ), about(lab, set, many())?))
}

fn loading(lab: &mut Lab, set: Set) -> anyhow::Result<f64> {
    loading_of(lab, set, Form::Text)
}

/// Percent by which loading takes longer where it also plans.
fn loading_of(lab: &mut Lab, set: Set, form: Form) -> anyhow::Result<f64> {
    let load = lab.learning.load(set, form)?;
    Ok(100.0 * (load.planned / load.plain - 1.0))
}

fn loaded(lab: &mut Lab, pick: fn(f64, f64) -> f64) -> anyhow::Result<Finding> {
    let (mut chosen, mut note) = (None, Vec::new());
    for set in Set::PUBLISHED {
        let (share, load) = (loading(lab, set)?, lab.learning.load(set, Form::Text)?);
        chosen = Some(chosen.map_or(share, |other| pick(other, share)));
        note.push(format!("{} {share:.1} % at {:.0} MB/s", set.name(), load.megabytes / load.plain));
    }
    let note = format!("parsing has a thread, storing and planning another; {}", note.join(", "));
    Ok(chosen.map_or(Finding::Absent, |chosen| Finding::Told(chosen, note)))
}

/// Percent by which the planned first epoch is slower than Locking without planning.
fn first(lab: &mut Lab, set: Set) -> anyhow::Result<f64> {
    let first = lab.learning.first(set)?;
    Ok(100.0 * (first.planned_first / first.locking - 1.0))
}

/// Percent by which later epochs are slower than with a plan in the order of the data.
fn later(lab: &mut Lab, set: Set) -> anyhow::Result<f64> {
    let first = lab.learning.first(set)?;
    Ok(100.0 * (first.later / first.offline - 1.0))
}

fn of_data(lab: &mut Lab, of: fn(&bench::Prepared) -> f64, set: Set) -> anyhow::Result<Finding> {
    let prepared = lab.learning.prepared(set)?;
    let words = format!(
        "generated; sharing {:.3}, depth {}, n/depth {:.2}",
        prepared.sharing, prepared.depth, prepared.parallelism
    );
    let scale = if set.scale() == 1 { String::new() } else { format!("1/{} of it, ", set.scale()) };
    Ok(Finding::Told(of(&prepared), scale + &words))
}

fn features(prepared: &bench::Prepared) -> f64 {
    f64::from(prepared.about.features)
}

fn samples(prepared: &bench::Prepared) -> f64 {
    prepared.about.samples as f64
}

fn size(prepared: &bench::Prepared) -> f64 {
    prepared.about.size_mean
}

fn setting(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a setting; the runs here have it too"))
}

fn machine(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("of the published machine; this one is another, and threads are not pinned here"))
}

fn no_test_set(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("throughput needs no test samples"))
}

fn doubtful(lab: &mut Lab, other: Scheme) -> anyhow::Result<Finding> {
    let finding = factor(lab, SMALL, Scheme::Cop, other)?;
    Ok(match finding {
        Finding::Told(value, note) => Finding::Told(value, format!("taken to be 1K; {note}")),
        other => other,
    })
}

const fn measure(id: &'static str, find: fn(&mut Lab) -> anyhow::Result<Finding>) -> Measure {
    Measure { id, find, note: "" }
}

use Scheme::{Cop, Hogwild as Ideal, Locking, Occ};

const MEASURES: &[Measure] = &[
    measure("COP-001", |lab| of_data(lab, features, Set::Kdda)),
    measure("COP-002", |lab| of_data(lab, samples, Set::Kdda)),
    measure("COP-003", no_test_set),
    measure("COP-004", |lab| of_data(lab, size, Set::Kdda)),
    measure("COP-005", |lab| rate(lab, Set::Kdda, Ideal)),
    measure("COP-006", |lab| rate(lab, Set::Kdda, Cop)),
    measure("COP-007", |lab| rate(lab, Set::Kdda, Locking)),
    measure("COP-008", |lab| rate(lab, Set::Kdda, Occ)),
    measure("COP-031", |lab| extreme(lab, &KDD, f64::min, over_faster)),
    measure("COP-032", |lab| extreme(lab, &KDD, f64::max, over_slower)),
    measure("COP-035", |lab| {
        extreme(lab, &Set::PUBLISHED, f64::min, |lab, set| below_ideal(lab, set, many()))
    }),
    measure("COP-036", |lab| {
        extreme(lab, &Set::PUBLISHED, f64::max, |lab, set| below_ideal(lab, set, many()))
    }),
    measure("COP-037", |lab| extreme(lab, &KDD, f64::max, apart)),
    measure("COP-039", |lab| above(lab, Set::Kdda, 1, Ideal, Cop)),
    measure("COP-040", |lab| above(lab, Set::Kdda, 1, Ideal, Locking)),
    measure("COP-041", |lab| above(lab, Set::Kdda, 1, Ideal, Occ)),
    measure("COP-042", |lab| Ok(Finding::Told(below_ideal(lab, Set::Kdda, 1)?, about(lab, Set::Kdda, 1)?))),
    measure("COP-043", |lab| {
        Ok(Finding::Told(below_ideal(lab, Set::Kdda, many())?, about(lab, Set::Kdda, many())?))
    }),
    measure("COP-044", |lab| scaling(lab, Set::Kdda, Ideal)),
    measure("COP-045", |lab| scaling(lab, Set::Kdda, Cop)),
    measure("COP-046", peak),
    measure("COP-009", |lab| of_data(lab, features, Set::Kddb)),
    measure("COP-010", |lab| of_data(lab, samples, Set::Kddb)),
    measure("COP-011", no_test_set),
    measure("COP-012", |lab| of_data(lab, size, Set::Kddb)),
    measure("COP-013", |lab| rate(lab, Set::Kddb, Ideal)),
    measure("COP-014", |lab| rate(lab, Set::Kddb, Cop)),
    measure("COP-015", |lab| rate(lab, Set::Kddb, Locking)),
    measure("COP-016", |lab| rate(lab, Set::Kddb, Occ)),
    measure("COP-047", |lab| scaling(lab, Set::Kddb, Cop)),
    measure("COP-017", |lab| of_data(lab, features, Set::Imdb)),
    measure("COP-018", |lab| of_data(lab, samples, Set::Imdb)),
    measure("COP-019", |lab| of_data(lab, size, Set::Imdb)),
    measure("COP-020", |lab| rate(lab, Set::Imdb, Ideal)),
    measure("COP-021", |lab| rate(lab, Set::Imdb, Cop)),
    measure("COP-022", |lab| rate(lab, Set::Imdb, Locking)),
    measure("COP-023", |lab| rate(lab, Set::Imdb, Occ)),
    measure("COP-024", setting),
    measure("COP-025", setting),
    measure("COP-026", |_| {
        Ok(Finding::Told(
            f64::from(EPOCHS),
            "three rounds of so many: what an epoch takes does not depend on it".to_owned(),
        ))
    }),
    measure("COP-027", |_| {
        Ok(Finding::Told(many() as f64, "as many as there are cores, up to eight".to_owned()))
    }),
    measure("COP-028", machine),
    measure("COP-029", machine),
    measure("COP-030", machine),
    measure("COP-033", |lab| above(lab, Set::Imdb, many(), Cop, Locking)),
    measure("COP-034", |lab| above(lab, Set::Imdb, many(), Cop, Occ)),
    measure("COP-038", |lab| above(lab, Set::Imdb, many(), Locking, Occ)),
    measure("COP-048", scaling_all),
    measure("COP-049", |lab| of_data(lab, samples, LARGE)),
    measure("COP-050", |lab| of_data(lab, size, LARGE)),
    measure("COP-051", setting),
    measure("COP-052", setting),
    measure("COP-053", setting),
    measure("COP-054", |lab| grows(lab, Cop)),
    measure("COP-055", |lab| grows(lab, Locking)),
    measure("COP-056", |lab| grows(lab, Occ)),
    measure("COP-057", |lab| {
        let ratio = growth(lab, Ideal)?;
        Ok(Finding::Told(100.0 * (ratio - 1.0), format!("{} threads here", many())))
    }),
    measure("COP-058", |lab| factor(lab, SMALL, Ideal, Cop)),
    measure("COP-059", |lab| above(lab, LARGE, many(), Ideal, Cop)),
    measure("COP-060", |lab| ideal_over_locks(lab, SMALL, f64::max)),
    measure("COP-061", |lab| ideal_over_locks(lab, SMALL, f64::min)),
    measure("COP-062", |lab| ideal_over_locks(lab, LARGE, f64::max)),
    measure("COP-063", |lab| doubtful(lab, Locking)),
    measure("COP-064", |lab| doubtful(lab, Occ)),
    measure("COP-065", |lab| above(lab, LARGE, many(), Cop, Locking)),
    measure("COP-066", |lab| above(lab, LARGE, many(), Cop, Occ)),
    measure("COP-067", |lab| loaded(lab, f64::min)),
    measure("COP-068", |lab| loaded(lab, f64::max)),
    measure("COP-069", |lab| extreme(lab, &Set::PUBLISHED, f64::max, first)),
    measure("COP-070", |lab| extreme(lab, &Set::PUBLISHED, f64::max, later)),
];

/// Id, metric, value and note of a row of E6.
type OfPipeline = (&'static str, &'static str, fn(&bench::Pipeline) -> f64, &'static str);

/// Rows that the source has no figures for: E2 by threads, E4 alone, E6.
fn own(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let row =
        |id: String, setting: String, system: &str, metric: &str, value: f64, unit: &str, note: String| Row {
            id,
            setting,
            system: system.to_owned(),
            metric: metric.to_owned(),
            published: Published::Words("-".to_owned()),
            measured: Some(value),
            unit: unit.to_owned(),
            ratio: None,
            note,
            missed: false,
        };
    for (at, set) in Set::PUBLISHED.into_iter().chain(Set::SPOTS).enumerate() {
        for threads in sweep() {
            let id = format!("COP-E2-{}{threads:02}", char::from(b'a' + at as u8));
            if !wanted(&id) {
                continue;
            }
            let prepared = lab.learning.prepared(set)?;
            let [ideal, cop, locking, occ] = lab.learning.rates(set, threads)?;
            let note = format!(
                "Ideal {ideal:.2}, Locking {locking:.2}, OCC {occ:.2}; COP / Ideal {:.2}, COP / better of the locks {:.2}, n/depth {:.2}",
                cop / ideal,
                cop / locking.max(occ),
                prepared.parallelism
            );
            let setting = format!("{}; {threads} threads", set.name());
            rows.push(row(id, setting, "COP", "throughput", cop, "M transactions/s", note));
        }
    }
    for (at, set) in Set::PUBLISHED.into_iter().enumerate() {
        let id = format!("COP-E4-{}", char::from(b'a' + at as u8));
        if wanted(&id) {
            let load = lab.learning.load(set, Form::Text)?;
            let each = load.alone * 1e9 / load.values as f64;
            let note = format!(
                "of data in memory, on one thread: {:.1} % of what parsing its text takes, {:.1} ns a value",
                100.0 * load.alone / load.plain,
                load.plain * 1e9 / load.values as f64
            );
            rows.push(row(id, set.name(), "COP", "planning_alone", each, "ns a value", note));
        }
    }
    for (at, set) in Set::PUBLISHED.into_iter().enumerate() {
        let id = format!("T-COP-35-binary-{}", char::from(b'a' + at as u8));
        if wanted(&id) {
            let (share, load) = (loading_of(lab, set, Form::Arrow)?, lab.learning.load(set, Form::Arrow)?);
            let (of_values, text) = (1e9 / load.values as f64, lab.learning.load(set, Form::Text)?);
            let note = format!(
                "told, not judged: the limit is one of text. An Arrow file at {:.0} MB/s: {:.1} ns a value, planned {:.1}; of text \
                 {:.1}",
                load.megabytes / load.plain,
                load.plain * of_values,
                load.planned * of_values,
                text.plain * of_values
            );
            rows.push(row(id, set.name(), "COP", "loading_planned_binary", share, "% more", note));
        }
    }
    let of: [OfPipeline; 7] = [
        (
            "COP-E6-a",
            "planned_at_collectors",
            |p| p.planned_at_collectors,
            "ingest, order log in memory, stitching, learning",
        ),
        ("COP-E6-b", "planned_at_center", |p| p.planned_at_center, "the same, and planning"),
        ("COP-E6-c", "locking", |p| p.locking, "learning alone, under locks"),
        ("COP-E6-d", "learning", |p| p.learning, "learning alone, under COP, all samples in one plan"),
        (
            "COP-E6-e",
            "stitching",
            |p| p.stitching,
            "stitching alone: at least 5 times learning is wanted (T-COP-37)",
        ),
        (
            "COP-E6-f",
            "over_the_wan",
            |p| p.over_the_wan,
            "planned at collectors in Oregon, California, Ireland and Singapore, the centre in Virginia: batches take half a \
             published round trip (reference/rtt/helios-ec2.csv), and each collector has sixteen under way",
        ),
        (
            "COP-E6-g",
            "over_the_wan_planned_at_center",
            |p| p.over_the_wan_unplanned,
            "the same, planned at the centre",
        ),
    ];
    for (id, metric, value, note) in of {
        if wanted(id) {
            let value = value(&lab.learning.pipeline()?) / 1e6;
            let note = format!("{} threads; {note}", many());
            rows.push(row(
                id.to_owned(),
                SETTING_E6.to_owned(),
                "COP",
                metric,
                value,
                "M transactions/s",
                note,
            ));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_published_figure_is_spoken_of_once() {
        let text = include_str!("../../../../../reference/published/cop.csv");
        published::covers("reference/published/cop.csv", text, MEASURES);
    }
}
