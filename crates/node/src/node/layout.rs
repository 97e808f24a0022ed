//! Which keyspaces a data directory holds. A process is found again by its number, which a deployment file gives
//! by position, and a key by the number of partitions: a file that changed these would show other data under the
//! same names, so the directory remembers them and such a file is refused. It remembers as well who the first replicas
//! were: with others in the file, those of them that know nothing might agree without this one; and what else the protocol
//! rests on ([`Lasting`]).

use super::StartError;
use crate::journal::put;
use isochrone_core::deployment::{Deployment, Keyspace};
use isochrone_core::{Lasting, Span};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "KEYSPACES";
const HEAD: &str =
    "isochrone keyspaces, format 2: name number protocol partitions replicas leases-in-ms key=value...";
/// The head of a file that may lack the replicas, and has nothing behind them.
const HEAD_1: &str = "isochrone keyspaces, format 1: name number protocol partitions";

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
    /// Parameters, in words.
    fixed: BTreeMap<String, String>,
}

impl Known {
    fn of(deployment: &Deployment, keyspace: &Keyspace, lasting: &Lasting) -> Known {
        let Keyspace { id, protocol, partitions, replicas, .. } = keyspace;
        let names: Vec<_> = replicas.iter().map(|node| deployment.node(*node).name.as_str()).collect();
        let (protocol, replicas) = (protocol.clone(), Some(names.join(",")));
        let fixed = lasting.fixed.iter().map(|(key, value)| ((*key).to_owned(), word(value))).collect();
        let leases = lasting.leases;
        Known { number: id.0, protocol, partitions: *partitions, replicas, leases, fixed }
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
pub(super) fn keep(data: &Path, deployment: &Deployment, lasting: &[Lasting]) -> Result<(), StartError> {
    let path = data.join(FILE);
    let before = read(&path)?;
    let mut known = before.clone();
    let mut wait = Span::ZERO;
    for (keyspace, lasting) in deployment.keyspaces().iter().zip(lasting) {
        let (name, now) = (&keyspace.name, Known::of(deployment, keyspace, lasting));
        let refuse = |cause: String| Err(StartError::Layout { path: path.clone(), cause });
        let changed = |what: &str, was: &str, is: &str| {
            refuse(format!(
                "keyspace {name:?} has {what} = {was} here and {is} in the deployment file; write it as it was, \
                 or move its data to a keyspace of another name"
            ))
        };
        let at = |number: u16| before.iter().find(|(_, known)| known.number == number);
        let moved = before.get(name).is_some_and(|was| was.number != now.number);
        if let Some((other, _)) = at(now.number).filter(|(other, _)| *other != name) {
            return refuse(format!(
                "keyspace {name:?} stands in the deployment file where {other:?} stood, and data is found by that \
                 place; keep the order, and add keyspaces at the end"
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
            for (key, is) in &now.fixed {
                if let Some(was) = was.fixed.get(key).filter(|was| *was != is) {
                    return changed(key, was, is);
                }
            }
            if was.leases > now.leases {
                wait = wait.max(was.leases);
            }
        }
        known.insert(name.clone(), now);
    }
    if known == before {
        return Ok(());
    }
    if wait > Span::ZERO {
        tracing::info!(%wait, "leases are shorter than they were: those that were granted are waited out");
        std::thread::sleep(Duration::from_nanos(wait.as_nanos()));
    }
    write(data, &known).map_err(|error| unreadable(&path, &error))
}

/// The names of the keyspaces whose data a directory holds, in the order of their numbers; none where no node has run in it.
///
/// # Errors
/// What says so cannot be read.
pub fn keyspaces(data: &Path) -> Result<Vec<String>, StartError> {
    let mut known: Vec<_> = read(&data.join(FILE))?.into_iter().collect();
    known.sort_by_key(|(_, known)| known.number);
    Ok(known.into_iter().map(|(name, _)| name).collect())
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Layout { path: PathBuf::from(path), cause: error.to_string() }
}

fn read(path: &Path) -> Result<BTreeMap<String, Known>, StartError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let mut lines = text.lines();
    if !lines.next().is_some_and(|head| [HEAD, HEAD_1].contains(&head)) {
        return Err(unreadable(path, &"it is of another format; this version reads formats 1 and 2"));
    }
    let entries: Option<BTreeMap<_, _>> = lines.map(entry).collect();
    entries.ok_or_else(|| {
        unreadable(
            path,
            &"it is damaged: a line is not `name number protocol partitions` and what follows them",
        )
    })
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
    let fixed = fixed?.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Some((name, Known { number, protocol, partitions, replicas, leases: Span::from_millis(leases), fixed }))
}

/// Names have no spaces.
fn write(data: &Path, known: &BTreeMap<String, Known>) -> io::Result<()> {
    let mut text = format!("{HEAD}\n");
    for (name, Known { number, protocol, partitions, replicas, leases, fixed }) in known {
        text += &format!("{name} {number} {protocol} {partitions}");
        // Those of a keyspace that is not in the file may not be known.
        if let Some(replicas) = replicas {
            text += &format!(" {replicas} {}", leases.as_nanos().div_ceil(1_000_000));
            text.extend(fixed.iter().map(|(key, value)| format!(" {key}={value}")));
        }
        text.push('\n');
    }
    put(data, FILE, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

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
        let lasting = Lasting { fixed, leases: Span::from_micros(1_500) };
        let lasting = |keyspaces: usize| vec![lasting.clone(); keyspaces];
        let keep = |path: &Path, deployment: &Deployment| {
            super::keep(path, deployment, &lasting(deployment.keyspaces().len()))
        };
        keep(directory.path(), &deployment(&begun)).unwrap();
        keep(directory.path(), &deployment(&begun)).unwrap();
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
                r#"KEYSPACES: keyspace "other" stands in the deployment file where "main" stood, and data is found by that place; keep the order, and add keyspaces at the end"#
            ]],
        );
        // Of an earlier version, which did not remember the replicas.
        let path = directory.path().join(FILE);
        let written = fs::read_to_string(&path).unwrap();
        let known = [r"main 1 multipaxos 3 a 2 bounds=m,\x20n", r"log 2 epaxos 1 a 2 bounds=m,\x20n"];
        let holds = |text: &str| known.iter().all(|line| text.lines().any(|found| found == *line));
        assert!(holds(&written), "{written}");
        for tail in ["", " a"] {
            let lines = ["main 1 multipaxos 3", "log 2 epaxos 1"].map(|line| format!("{line}{tail}\n"));
            fs::write(&path, format!("{HEAD_1}\n{}", lines.concat())).unwrap();
            keep(directory.path(), &deployment(&begun)).unwrap();
            let again = fs::read_to_string(&path).unwrap();
            assert!(holds(&again), "{again}");
        }
        fs::write(&path, written.replace("m,", "k,")).unwrap();
        refused(
            &begun,
            expect![[
                r#"KEYSPACES: keyspace "main" has bounds = k,\x20n here and m,\x20n in the deployment file; write it as it was, or move its data to a keyspace of another name"#
            ]],
        );
        fs::write(&path, written.replace(" a 2", " a 50")).unwrap();
        let before = std::time::Instant::now();
        keep(directory.path(), &deployment(&begun)).unwrap();
        assert!(
            before.elapsed() >= Duration::from_millis(50),
            "longer leases of a former life are waited out"
        );
        assert!(holds(&fs::read_to_string(&path).unwrap()));
        fs::write(&path, written.replace(" a ", " a,b ")).unwrap();
        refused(
            &begun,
            expect![[
                r#"KEYSPACES: keyspace "main" began with replicas = a,b and the deployment file says a; write them as they were, one by one, and name nodes that are added in `spares`"#
            ]],
        );
        fs::write(&path, &written).unwrap();
        fs::write(directory.path().join(FILE), "isochrone keyspaces, format 3\n").unwrap();
        refused(&begun, expect!["KEYSPACES: it is of another format; this version reads formats 1 and 2"]);
        fs::write(directory.path().join(FILE), format!("{HEAD}\nmain 1\n")).unwrap();
        refused(
            &begun,
            expect![
                "KEYSPACES: it is damaged: a line is not `name number protocol partitions` and what follows them"
            ],
        );
    }
}
