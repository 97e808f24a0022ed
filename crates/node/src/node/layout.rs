//! Which keyspaces a data directory holds. A process is found again by its number, which a deployment file gives
//! by position, and a key by the number of partitions: a file that changed these would show other data under the
//! same names, so the directory remembers them and such a file is refused. It remembers as well who the first replicas
//! were: with others in the file, those of them that know nothing might agree without this one; which spares serve, since
//! what the protocol has put there is not looked for elsewhere; and what else it rests on ([`Lasting`]).

use super::StartError;
use crate::listing::Listing;
use isochrone_core::deployment::{Deployment, Keyspace};
use isochrone_core::{Lasting, NodeId, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const KEYSPACES: Listing = Listing {
    name: "KEYSPACES",
    heads: &[
        "isochrone keyspaces, format 2: name number protocol partitions replicas leases-in-ms key=value...",
    ],
    older: "isochrone keyspaces, format 1: name number protocol partitions",
    reads: "formats 1 and 2",
    line: "`name number protocol partitions` and what follows them",
};

/// What must not change of a keyspace.
#[derive(Clone, Eq, PartialEq, Debug)]
struct Known {
    number: u16,
    protocol: String,
    partitions: u16,
    /// Names of nodes, with commas; none where it was written before they were remembered.
    replicas: Option<String>,
    /// How long leases may hold that were granted.
    leases: Span,
    /// Nodes beside them that serve.
    spares: BTreeSet<String>,
    /// Parameters, in words.
    fixed: BTreeMap<String, String>,
}

/// The word before who leads first.
const LEADER: &str = "leader";
/// The word before the names of [`Known::spares`]. A parameter of this name is fixed nowhere.
const SPARES: &str = "spares";

impl Known {
    fn of(deployment: &Deployment, keyspace: &Keyspace, lasting: &Lasting) -> Known {
        let Keyspace { id, protocol, partitions, replicas, .. } = keyspace;
        let name = |node: &NodeId| deployment.node(*node).name.clone();
        let names: Vec<_> = replicas.iter().map(name).collect();
        let spares = lasting.spares.iter().map(name).collect();
        let (protocol, replicas) = (protocol.clone(), Some(names.join(",")));
        let mut fixed: BTreeMap<_, _> =
            lasting.fixed.iter().map(|(key, value)| ((*key).to_owned(), word(value))).collect();
        fixed.extend(lasting.leader.iter().map(|node| (LEADER.to_owned(), name(node))));
        // As it is written: whole milliseconds, and none too few.
        let leases = Span::from_millis(lasting.leases.as_nanos().div_ceil(1_000_000));
        Known { number: id.0, protocol, partitions: *partitions, replicas, leases, spares, fixed }
    }
}

/// A value as one word.
fn word(value: &str) -> String {
    value.escape_default().to_string().replace(' ', "\\x20")
}

/// Refuses a deployment under which the data would be read as something else, and remembers its keyspaces, in the order of
/// the file with what lasts of each. Keyspaces that the file no longer names are remembered on: their data is kept.
///
/// Where leases are shorter than they were, those are waited out that a former life of this node may have granted.
pub(super) fn examine(
    data: &Path,
    deployment: &Deployment,
    lasting: &[Lasting],
) -> Result<Layout, StartError> {
    let found = KEYSPACES.read(data, entry)?;
    let (new, older) = (found.is_none(), found.as_ref().is_some_and(|found| found.older));
    let before: BTreeMap<_, _> = found.map(|found| found.entries).unwrap_or_default().into_iter().collect();
    let mut known = before.clone();
    let mut wait = Span::ZERO;
    for (keyspace, lasting) in deployment.keyspaces().iter().zip(lasting) {
        let (name, now) = (&keyspace.name, Known::of(deployment, keyspace, lasting));
        let refuse = |cause: String| Err(KEYSPACES.unfit(data, cause));
        let changed = |what: &str, was: &str, is: &str| {
            refuse(format!(
                "keyspace {name:?} has {what} = {was} here and {is} in the deployment file; write it as it was, \
                 or move its data to a keyspace of another name"
            ))
        };
        let at = |number: u16| before.iter().find(|(_, known)| known.number == number);
        let moved = before.get(name).is_some_and(|was| was.number != now.number);
        if let Some((other, _)) = at(now.number).filter(|(other, _)| *other != name) {
            let advice = if deployment.keyspaces().iter().any(|keyspace| keyspace.name == *other) {
                "keep the order, and add keyspaces at the end".to_owned()
            } else {
                format!(
                    "write {other:?}, which the file does not name any more, there again, and add keyspaces behind it"
                )
            };
            return refuse(format!(
                "keyspace {name:?} stands in the deployment file where {other:?} stood, and data is found by that \
                 place; {advice}"
            ));
        }
        if moved {
            return refuse(format!(
                "keyspace {name:?} stands elsewhere in the deployment file than it did, and data is found by that \
                 place; keep the order, and add keyspaces at the end"
            ));
        }
        if let Some(was) = before.get(name) {
            if was.protocol != now.protocol {
                return changed("protocol", &was.protocol, &now.protocol);
            }
            if was.partitions != now.partitions {
                return changed("partitions", &was.partitions.to_string(), &now.partitions.to_string());
            }
            if was.replicas.is_some() && was.replicas != now.replicas {
                let (was, is) = (was.replicas.as_deref(), now.replicas.as_deref());
                let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
                return refuse(format!(
                    "keyspace {name:?} began with replicas = {was} and the deployment file says {is}; write them as \
                     they were, one by one, and name nodes that are added in `spares`"
                ));
            }
            let gone: Vec<_> = was.spares.difference(&now.spares).map(String::as_str).collect();
            if !gone.is_empty() {
                let gone = gone.join(", ");
                return refuse(format!(
                    "keyspace {name:?} has had {gone} among its `spares`, which the deployment file does not name any more; \
                     what is there would not be looked for, and nothing might be served: write it there again. \
                     Copies are kept from a node by `remove-replica` (docs/operations.md, \"Changing things while it runs\")"
                ));
            }
            for (key, is) in &now.fixed {
                let Some(was) = was.fixed.get(key).filter(|was| *was != is) else { continue };
                if key == LEADER && keyspace.leader.is_none() {
                    return refuse(format!(
                        "keyspace {name:?} was led from {was} at first, and under the deployment file, which names no `leader`, \
                         it would be {is}; write leader = {was:?} into the file of all nodes"
                    ));
                }
                return changed(key, was, is);
            }
            if was.leases > now.leases {
                wait = wait.max(was.leases);
            }
        }
        known.insert(name.clone(), now);
    }
    let changed = older || known != before;
    Ok(Layout { new, known: changed.then_some(known), wait })
}

/// What a data directory is to remember.
pub(super) struct Layout {
    /// Whether it has remembered nothing.
    new: bool,
    /// Where it is anything new.
    known: Option<BTreeMap<String, Known>>,
    /// How long to wait before.
    wait: Span,
}

impl Layout {
    /// What keeps a node from starting on data of which nothing was remembered, if that is so.
    pub(super) fn missing(&self, data: &Path) -> Option<StartError> {
        self.new.then(|| KEYSPACES.missing(data))
    }

    /// Remembers it, before anything is promised.
    pub(super) fn keep(self, data: &Path) -> Result<(), StartError> {
        let Layout { known: Some(known), wait, .. } = self else { return Ok(()) };
        if wait > Span::ZERO {
            tracing::info!(%wait, "leases are shorter than they were: those that were granted are waited out");
            std::thread::sleep(Duration::from_nanos(wait.as_nanos()));
        }
        KEYSPACES.write(data, known.iter().map(line)).map_err(|error| KEYSPACES.unwritten(data, error))
    }
}

/// The names of the keyspaces whose data a directory holds, in the order of their numbers; none where no node has run in it.
///
/// # Errors
/// What says so cannot be read.
pub fn keyspaces(data: &Path) -> Result<Vec<String>, StartError> {
    let mut known = KEYSPACES.read(data, entry)?.map(|found| found.entries).unwrap_or_default();
    known.sort_by_key(|(_, known)| known.number);
    Ok(known.into_iter().map(|(name, _)| name).collect())
}

/// One line.
fn entry(line: &str) -> Option<(String, Known)> {
    let mut words = line.split(' ');
    let name = words.next()?.to_owned();
    let number = words.next()?.parse().ok()?;
    let protocol = words.next()?.to_owned();
    let partitions = words.next()?.parse().ok()?;
    let replicas = words.next().map(str::to_owned);
    let leases = words.next().map_or(Some(0), |millis| millis.parse().ok())?;
    let fixed: Option<BTreeMap<_, _>> = words.map(|word| word.split_once('=')).collect();
    let mut fixed = fixed?;
    let spares = fixed.remove(SPARES).map(|names| names.split(',').map(str::to_owned).collect());
    let (spares, leases) = (spares.unwrap_or_default(), Span::from_millis(leases));
    let fixed = fixed.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Some((name, Known { number, protocol, partitions, replicas, leases, spares, fixed }))
}

/// Names have no spaces.
fn line((name, known): (&String, &Known)) -> String {
    let Known { number, protocol, partitions, replicas, leases, spares, fixed } = known;
    let mut line = format!("{name} {number} {protocol} {partitions}");
    // Those of a keyspace that is not in the file may not be known.
    if let Some(replicas) = replicas {
        line += &format!(" {replicas} {}", leases.as_nanos() / 1_000_000);
        if !spares.is_empty() {
            let names: Vec<_> = spares.iter().map(String::as_str).collect();
            line += &format!(" {SPARES}={}", names.join(","));
        }
        line.extend(fixed.iter().map(|(key, value)| format!(" {key}={value}")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use std::fs;

    fn deployment(keyspaces: &[(&str, &str, u16)]) -> Deployment {
        let mut text = "cluster = \"t\"\n[[region]]\nname = \"here\"\n[[node]]\nname = \"a\"\nregion = \"here\"\nlisten = \"127.0.0.1:7000\"\n".to_owned();
        for (name, protocol, partitions) in keyspaces {
            text += &format!(
                "[[keyspace]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\npartitions = {partitions}\nreplication = 1\n"
            );
        }
        let known = isochrone_core::Known::names(&["epaxos", "multipaxos"]);
        Deployment::parse(&text, "t.toml", Path::new(""), &known).unwrap()
    }

    #[test]
    fn data_is_not_read_as_something_else() {
        let directory = tempfile::tempdir().unwrap();
        let begun = [("main", "multipaxos", 3), ("log", "epaxos", 1)];
        let fixed = vec![("bounds", "m, n".to_owned())];
        let lasting = Lasting { fixed, leases: Span::from_micros(1_500), ..Lasting::default() };
        let lasting = |keyspaces: usize| vec![lasting.clone(); keyspaces];
        let keep = |path: &Path, deployment: &Deployment| {
            examine(path, deployment, &lasting(deployment.keyspaces().len()))?.keep(path)
        };
        keep(directory.path(), &deployment(&begun)).unwrap();
        let again = examine(directory.path(), &deployment(&begun), &lasting(2)).unwrap();
        assert_eq!(
            (again.known, again.wait),
            (None, Span::ZERO),
            "nothing is new, and nothing to be waited for"
        );
        keep(directory.path(), &deployment(&[begun[0], begun[1], ("more", "epaxos", 2)])).unwrap();
        keep(directory.path(), &deployment(&begun[..1])).expect("data of one that is not named is kept");
        let refused = |keyspaces: &[(&str, &str, u16)], expected: Expect| {
            let error = keep(directory.path(), &deployment(keyspaces)).unwrap_err().to_string();
            let directory = format!("{}/", directory.path().display());
            expected.assert_eq(&error.replace(&directory, ""));
        };
        refused(
            &[("main", "multipaxos", 4)],
            expect![[
                r#"KEYSPACES: keyspace "main" has partitions = 3 here and 4 in the deployment file; write it as it was, or move its data to a keyspace of another name"#
            ]],
        );
        refused(
            &[("main", "epaxos", 3)],
            expect![[
                r#"KEYSPACES: keyspace "main" has protocol = multipaxos here and epaxos in the deployment file; write it as it was, or move its data to a keyspace of another name"#
            ]],
        );
        refused(
            &[begun[1], begun[0]],
            expect![[
                r#"KEYSPACES: keyspace "log" stands in the deployment file where "main" stood, and data is found by that place; keep the order, and add keyspaces at the end"#
            ]],
        );
        refused(
            &[("other", "multipaxos", 3)],
            expect![[
                r#"KEYSPACES: keyspace "other" stands in the deployment file where "main" stood, and data is found by that place; write "main", which the file does not name any more, there again, and add keyspaces behind it"#
            ]],
        );
        // Of an earlier version, which did not remember the replicas.
        let path = KEYSPACES.path(directory.path());
        let written = fs::read_to_string(&path).unwrap();
        let put = |text: String| {
            let lines =
                text.lines().filter(|line| !line.starts_with("isochrone") && !line.starts_with("checksum"));
            KEYSPACES.write(directory.path(), lines.map(str::to_owned)).unwrap();
        };
        let known = [r"main 1 multipaxos 3 a 2 bounds=m,\x20n", r"log 2 epaxos 1 a 2 bounds=m,\x20n"];
        let holds = |text: &str| known.iter().all(|line| text.lines().any(|found| found == *line));
        assert!(holds(&written), "{written}");
        for tail in ["", " a"] {
            let lines = ["main 1 multipaxos 3", "log 2 epaxos 1"].map(|line| format!("{line}{tail}\n"));
            fs::write(&path, format!("{}\n{}", KEYSPACES.older, lines.concat())).unwrap();
            keep(directory.path(), &deployment(&begun)).unwrap();
            let again = fs::read_to_string(&path).unwrap();
            assert!(holds(&again), "{again}");
        }
        put(written.replace("m,", "k,"));
        refused(
            &begun,
            expect![[
                r#"KEYSPACES: keyspace "main" has bounds = k,\x20n here and m,\x20n in the deployment file; write it as it was, or move its data to a keyspace of another name"#
            ]],
        );
        put(written.replace(" a 2", " a 50"));
        let before = std::time::Instant::now();
        keep(directory.path(), &deployment(&begun)).unwrap();
        assert!(
            before.elapsed() >= Duration::from_millis(50),
            "longer leases of a former life are waited out"
        );
        assert!(holds(&fs::read_to_string(&path).unwrap()));
        put(written.replace(" a 2", " a 2 spares=a,b"));
        refused(
            &begun,
            expect![[
                r#"KEYSPACES: keyspace "main" has had a, b among its `spares`, which the deployment file does not name any more; what is there would not be looked for, and nothing might be served: write it there again. Copies are kept from a node by `remove-replica` (docs/operations.md, "Changing things while it runs")"#
            ]],
        );
        // Who leads first is named, also where the file does not.
        let led = Lasting { leader: Some(NodeId(0)), ..Lasting::default() };
        put(written.replace(" a 2", " a 2 leader=b"));
        let error = examine(directory.path(), &deployment(&begun[..1]), &[led]).err().unwrap().to_string();
        assert!(
            error.contains("was led from b at first") && error.contains("write leader = \"b\""),
            "{error}"
        );
        let spares = Lasting { spares: vec![NodeId(0)], ..Lasting::default() };
        put(written.clone());
        for _ in 0..2 {
            examine(directory.path(), &deployment(&begun[..1]), std::slice::from_ref(&spares))
                .and_then(|layout| layout.keep(directory.path()))
                .unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap();
        assert!(kept.lines().any(|line| line.starts_with("main 1 multipaxos 3 a 0 spares=a")), "{kept}");
        put(written.replace(" a ", " a,b "));
        refused(
            &begun,
            expect![[
                r#"KEYSPACES: keyspace "main" began with replicas = a,b and the deployment file says a; write them as they were, one by one, and name nodes that are added in `spares`"#
            ]],
        );
        fs::write(&path, "isochrone keyspaces, format 3\n").unwrap();
        refused(&begun, expect!["KEYSPACES: it is of another format; this version reads formats 1 and 2"]);
        let told = r#"Put it back as it was, or put a node of another name in the place of this one (docs/operations.md, "A node that has lost its disk, or whose journal is damaged")"#;
        for (text, what) in [
            (format!("{}\nmain 1\n", KEYSPACES.older), format!("a line is not {}", KEYSPACES.line)),
            (written.replace("multipaxos", "multipaxoz"), "its checksum is another".to_owned()),
            ("junk\n".to_owned(), "its first line is not one that a node writes".to_owned()),
            (
                written.replace("format 2: name", "format 2: nome"),
                "its first line is not one that a node writes".to_owned(),
            ),
        ] {
            fs::write(&path, text).unwrap();
            let error = keep(directory.path(), &deployment(&begun)).unwrap_err().to_string();
            assert!(error.ends_with(&format!("KEYSPACES: it is damaged: {what}. {told}")), "{error}");
        }
    }
}
