//! Which keyspaces a data directory holds. A process is found again by its number, which a deployment file gives
//! by position, and a key by the number of partitions: a file that changed these would show other data under the
//! same names, so the directory remembers them and such a file is refused. It remembers as well who the first replicas
//! were: with others in the file, those of them that know nothing might agree without this one.

use super::StartError;
use crate::journal::put;
use isochrone_core::deployment::{Deployment, Keyspace};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "KEYSPACES";
const HEAD: &str = "isochrone keyspaces, format 1: name number protocol partitions";

/// What must not change of a keyspace.
#[derive(Clone, Eq, PartialEq, Debug)]
struct Known {
    number: u16,
    protocol: String,
    partitions: u16,
    /// Names of nodes, with commas; none where it was written before they were remembered.
    replicas: Option<String>,
}

impl Known {
    fn of(deployment: &Deployment, keyspace: &Keyspace) -> Known {
        let Keyspace { id, protocol, partitions, replicas, .. } = keyspace;
        let names: Vec<_> = replicas.iter().map(|node| deployment.node(*node).name.as_str()).collect();
        let (protocol, replicas) = (protocol.clone(), Some(names.join(",")));
        Known { number: id.0, protocol, partitions: *partitions, replicas }
    }
}

/// Refuses a deployment under which the data would be read as something else, and remembers its keyspaces.
/// Keyspaces that the file no longer names are remembered on: their data is kept.
pub(super) fn keep(data: &Path, deployment: &Deployment) -> Result<(), StartError> {
    let path = data.join(FILE);
    let before = read(&path)?;
    let mut known = before.clone();
    for keyspace in deployment.keyspaces() {
        let (name, now) = (&keyspace.name, Known::of(deployment, keyspace));
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
        match before.get(name) {
            Some(was) if was.protocol != now.protocol => {
                return changed("protocol", &was.protocol, &now.protocol);
            }
            Some(was) if was.partitions != now.partitions => {
                return changed("partitions", &was.partitions.to_string(), &now.partitions.to_string());
            }
            Some(Known { replicas: Some(was), .. }) if Some(was) != now.replicas.as_ref() => {
                let is = now.replicas.unwrap_or_default();
                return refuse(format!(
                    "keyspace {name:?} began with replicas = {was} and the deployment file says {is}; write them as \
                     they were, one by one, and name nodes that are added in `spares`"
                ));
            }
            _ => {
                known.insert(name.clone(), now);
            }
        }
    }
    if known == before { Ok(()) } else { write(data, &known).map_err(|error| unreadable(&path, &error)) }
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
    if lines.next() != Some(HEAD) {
        return Err(unreadable(path, &"it is of another format; this version reads format 1"));
    }
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let (name, number, protocol, partitions) =
            (words.next()?, words.next()?.parse().ok()?, words.next()?, words.next()?.parse().ok()?);
        let replicas = words.next().map(str::to_owned);
        let known = Known { number, protocol: protocol.to_owned(), partitions, replicas };
        Some((name.to_owned(), known)).filter(|_| words.next().is_none())
    };
    let entries: Option<BTreeMap<_, _>> = lines.map(entry).collect();
    entries.ok_or_else(|| unreadable(path, &"it is damaged: a line is not `name number protocol partitions`"))
}

/// Names have no spaces.
fn write(data: &Path, known: &BTreeMap<String, Known>) -> io::Result<()> {
    let mut text = format!("{HEAD}\n");
    for (name, Known { number, protocol, partitions, replicas }) in known {
        let replicas = replicas.as_deref().map(|names| format!(" {names}")).unwrap_or_default();
        text += &format!("{name} {number} {protocol} {partitions}{replicas}\n");
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
        assert!(written.contains("main 1 multipaxos 3 a\n"), "{written}");
        fs::write(&path, written.replace(" a\n", "\n")).unwrap();
        keep(directory.path(), &deployment(&begun)).unwrap();
        let again = fs::read_to_string(&path).unwrap();
        assert!(again.contains("main 1 multipaxos 3 a\n") && again.contains("log 2 epaxos 1 a\n"), "{again}");
        fs::write(&path, written.replace(" a\n", " a,b\n")).unwrap();
        refused(
            &begun,
            expect![[
                r#"KEYSPACES: keyspace "main" began with replicas = a,b and the deployment file says a; write them as they were, one by one, and name nodes that are added in `spares`"#
            ]],
        );
        fs::write(&path, &written).unwrap();
        fs::write(directory.path().join(FILE), "isochrone keyspaces, format 2\n").unwrap();
        refused(&begun, expect!["KEYSPACES: it is of another format; this version reads format 1"]);
        fs::write(directory.path().join(FILE), format!("{HEAD}\nmain 1\n")).unwrap();
        refused(&begun, expect!["KEYSPACES: it is damaged: a line is not `name number protocol partitions`"]);
    }
}
