//! Which keyspaces a data directory holds. A process is found again by its number, which a deployment file gives
//! by position, and a key by the number of partitions: a file that changed these would show other data under the
//! same names, so the directory remembers them and such a file is refused. It remembers as well who the first replicas
//! were: with others in the file, those of them that know nothing might agree without this one; which spares serve, since
//! what the protocol has put there is not looked for elsewhere; and what else it rests on ([`Lasting`]).
//!
//! Since each node looks only at its own file and directory, nodes tell each other what these have to agree on ([`Agreed`]): under
//! other replicas or partitions each would go on with those of its own file.

use super::StartError;
use crate::listing::Listing;
use isochrone_core::deployment::{Deployment, Keyspace};
use isochrone_core::{KeyspaceId, Lasting, NodeId, Span};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
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

/// What the deployment files of all nodes must agree on of a keyspace: what a data directory remembers, but for leases, which bind
/// the node that granted them, and spares, which one file may name before the others.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Agreed {
    /// Its number, by its place in the file.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// What is fixed, by the keys of deployment files; of a long value its beginning and a checksum.
    pub values: BTreeMap<String, String>,
}

/// Bytes of a value that is told whole: all keyspaces that a file may have fit into a greeting.
const VALUE_MAX: usize = 88;

/// What `node` tells of its keyspaces, with what lasts of each. Its data directory says the same, or it would not have started.
pub(super) fn agreed(deployment: &Deployment, lasting: &[Lasting], node: NodeId) -> Arc<[Agreed]> {
    let name = |node: &NodeId| deployment.node(*node).name.clone();
    let of = |(keyspace, lasting): (&Keyspace, &Lasting)| {
        let replicas: Vec<_> = keyspace.replicas.iter().map(name).collect();
        // Who leads first is a matter of the first replicas: another's file may lead to somebody else.
        let leader = lasting.leader.iter().filter(|_| keyspace.replicas.contains(&node));
        let values = [
            ("protocol", keyspace.protocol.clone()),
            ("partitions", keyspace.partitions.to_string()),
            ("replicas", replicas.join(",")),
        ];
        let values = values.into_iter().chain(leader.map(|leader| (LEADER, name(leader))));
        let fixed = lasting.fixed.iter().map(|(key, value)| (*key, plain(value)));
        let values = values.chain(fixed).map(|(key, value)| (key.to_owned(), short(&value))).collect();
        Agreed { number: keyspace.id.0, name: keyspace.name.clone(), values }
    };
    deployment.keyspaces().iter().zip(lasting).map(of).collect()
}

/// A list without what means nothing in one.
fn plain(value: &str) -> String {
    let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(",")
}

/// What is told of a value.
fn short(value: &str) -> String {
    if value.len() <= VALUE_MAX {
        return value.to_owned();
    }
    let begin = &value[..value.floor_char_boundary(VALUE_MAX / 2)];
    format!("{begin}... ({} bytes, checksum {:08x})", value.len(), crc32c::crc32c(value.as_bytes()))
}

/// The keyspaces of this node of which its file and that of another say what cannot go together, and what; each node comes with its
/// name. No difference is a keyspace that only one of them has, as while a new file goes round, or a key of which only
/// one of them, of another version, knows.
pub(crate) fn differences(
    (me, mine): (&str, &[Agreed]),
    (them, theirs): (&str, &[Agreed]),
) -> Vec<(KeyspaceId, String)> {
    let numbers: BTreeMap<u16, &Agreed> = theirs.iter().map(|other| (other.number, other)).collect();
    let names: BTreeMap<&str, &Agreed> = theirs.iter().map(|other| (other.name.as_str(), other)).collect();
    // A peer may say what it likes, and as much as a greeting holds.
    let clean = |text: &str| short(text).escape_debug().to_string();
    let difference = |own: &Agreed| {
        let (name, number) = (own.name.as_str(), own.number);
        if let Some(other) = numbers.get(&number).filter(|other| other.name != name) {
            let other = clean(&other.name);
            return Some(format!("keyspace number {number} is \"{name}\" at {me} and \"{other}\" at {them}"));
        }
        let other = names.get(name)?;
        if other.number != number {
            let other = other.number;
            return Some(format!("keyspace \"{name}\" is number {number} at {me} and {other} at {them}"));
        }
        let pairs = own.values.iter().filter_map(|(key, is)| Some((key, is, other.values.get(key)?)));
        let apart = pairs.filter(|(_, own, other)| own != other);
        let (own, other): (Vec<_>, Vec<_>) = apart
            .map(|(key, own, other)| (format!("{key} = {}", clean(own)), format!("{key} = {}", clean(other))))
            .unzip();
        let (own, other) = (own.join(", "), other.join(", "));
        (!own.is_empty()).then(|| format!("keyspace \"{name}\" has {own} at {me} and {other} at {them}"))
    };
    mine.iter().filter_map(|own| Some((KeyspaceId(own.number), difference(own)?))).collect()
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
    use crate::transport::frame::{HANDSHAKE_MAX, HELLO_MAX};
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

    /// Of a keyspace, with what is fixed of it.
    fn told(number: u16, name: &str, values: &[(&str, &str)]) -> Agreed {
        let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Agreed { number, name: name.to_owned(), values }
    }

    #[test]
    fn files_that_cannot_go_together_are_told_apart_and_others_are_not() {
        let main = |replicas| told(1, "main", &[("protocol", "epaxos"), ("replicas", replicas)]);
        let log = told(2, "log", &[("partitions", "1"), ("form", "slots")]);
        let all = |mine: &[Agreed], theirs: &[Agreed]| differences(("n0", mine), ("n2", theirs));
        let apart = |mine: &[Agreed], theirs: &[Agreed]| all(mine, theirs).pop().map(|(_, what)| what);
        let (three, five) = (main("n0,n1,n2"), main("n0,n1,n2,n3,n4"));
        let found = apart(&[log.clone(), three.clone()], &[five.clone(), log.clone()]);
        let expected = "keyspace \"main\" has replicas = n0,n1,n2 at n0 and replicas = n0,n1,n2,n3,n4 at n2";
        assert_eq!(found.as_deref(), Some(expected));
        let split = told(2, "log", &[("partitions", "2"), ("form", "prefix")]);
        let found = apart(std::slice::from_ref(&log), &[split]);
        let expected =
            "keyspace \"log\" has form = slots, partitions = 1 at n0 and form = prefix, partitions = 2 at n2";
        assert_eq!(found.as_deref(), Some(expected));
        let found = apart(std::slice::from_ref(&log), &[told(3, "log", &[])]);
        assert_eq!(found.as_deref(), Some("keyspace \"log\" is number 2 at n0 and 3 at n2"));
        let found = apart(std::slice::from_ref(&log), &[told(2, "other", &[]), told(3, "log", &[])]);
        assert_eq!(found.as_deref(), Some("keyspace number 2 is \"log\" at n0 and \"other\" at n2"));
        // Each that differs, and no other.
        let numbers = |mine: &[Agreed], theirs: &[Agreed]| -> Vec<u16> {
            all(mine, theirs).iter().map(|(keyspace, _)| keyspace.0).collect()
        };
        let (here, there) = ([three.clone(), log.clone()], told(2, "log", &[("partitions", "2")]));
        assert_eq!(numbers(&here, &[three.clone(), there.clone()]), [2]);
        assert_eq!(numbers(&here, &[five.clone(), there]), [1, 2]);
        // While a new file goes round, and where a version knows of more that is fixed.
        assert_eq!(apart(&[three.clone(), log.clone()], std::slice::from_ref(&three)), None);
        assert_eq!(apart(std::slice::from_ref(&three), &[three.clone(), log.clone()]), None);
        assert_eq!(
            apart(std::slice::from_ref(&log), &[told(2, "log", &[("form", "slots"), ("more", "x")])]),
            None
        );
        assert_eq!(apart(&[], &[log]), None);
        // What a stranger says is no longer than what is told.
        let endless = "\n".repeat(50_000);
        let found = apart(&[three], &[told(1, "main", &[("replicas", endless.as_str())])]).unwrap();
        assert!(found.len() < 400 && !found.contains('\n'), "{found}");
    }

    #[test]
    fn what_each_node_may_have_of_its_own_is_not_compared() {
        let text = "cluster = \"t\"\n[[region]]\nname = \"here\"\n".to_owned();
        let node = |name: &str| format!("[[node]]\nname = \"{name}\"\nregion = \"here\"\n");
        let text = text + &["a", "b", "c", "d"].map(node).concat();
        let text =
            text + "[[keyspace]]\nname = \"main\"\nprotocol = \"epaxos\"\nreplicas = [\"a\", \"b\", \"c\"]\n";
        let known = isochrone_core::Known::names(&["epaxos"]);
        let deployment = Deployment::parse(&text, "t.toml", Path::new(""), &known).unwrap();
        let says = |node: u16, lasting: &Lasting| {
            agreed(&deployment, std::slice::from_ref(lasting), NodeId(node)).to_vec()
        };
        let apart = |mine: &[Agreed], theirs: &[Agreed]| {
            differences(("a", mine), ("x", theirs)).pop().map(|(_, what)| what)
        };
        let led = |leader, bounds: &str| Lasting {
            fixed: vec![("bounds", bounds.to_owned())],
            leader: Some(NodeId(leader)),
            ..Lasting::default()
        };
        let mine = says(0, &led(0, "k,m"));
        let later = Lasting { spares: vec![NodeId(3)], leases: Span::from_secs(9), ..led(0, " k, m,") };
        assert_eq!(apart(&mine, &says(1, &later)), None, "spares, leases, and how a list is written");
        assert_eq!(
            apart(&mine, &says(3, &led(1, "k,m"))),
            None,
            "a newcomer's file may lead to another leader"
        );
        let found = apart(&mine, &says(2, &led(1, "k,m"))).unwrap();
        assert_eq!(found, "keyspace \"main\" has leader = a at a and leader = b at x");
        let found = apart(&mine, &says(3, &led(0, "k,n"))).unwrap();
        assert_eq!(found, "keyspace \"main\" has bounds = k,m at a and bounds = k,n at x");
        // Of what is long a part is told, which says whether all is the same.
        let long = |last: &str| says(1, &led(0, &("k".repeat(500) + last)));
        assert_eq!(apart(&long("x"), &long("x")), None);
        let found = apart(&long("x"), &long("y")).unwrap();
        assert!(found.contains("k... (501 bytes, checksum ") && found.len() < 300, "{found}");
    }

    #[test]
    fn a_greeting_holds_all_keyspaces_that_a_file_may_have() {
        let name = |first: char, number: usize| format!("{first}{number:063}");
        let mut text = "cluster = \"t\"\n[[region]]\nname = \"here\"\n".to_owned();
        for node in 0..7 {
            text += &format!("[[node]]\nname = \"{}\"\nregion = \"here\"\n", name('n', node));
        }
        for keyspace in 0..256 {
            text += &format!(
                "[[keyspace]]\nname = \"{}\"\nprotocol = \"epaxos\"\npartitions = 1024\n",
                name('k', keyspace)
            );
        }
        let known = isochrone_core::Known::names(&["epaxos"]);
        let deployment = Deployment::parse(&text, "t.toml", Path::new(""), &known).unwrap();
        let long = "m".repeat(VALUE_MAX);
        let fixed = ["placement", "bounds"].map(|key| (key, long.clone())).into_iter();
        let fixed = fixed.chain([("fast_path", "false".to_owned())]).collect();
        let lasting = Lasting { fixed, leader: Some(NodeId(6)), ..Lasting::default() };
        let told = agreed(&deployment, &vec![lasting; 256], NodeId(0));
        let bytes = isochrone_core::wire::encode(&told).len();
        // The rest of a greeting is at most as long as an answer to it.
        assert!(bytes + HANDSHAKE_MAX <= HELLO_MAX, "{bytes}");
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
        let told = r#"Put it back as it was. Where that is lost and this node is the only one of its deployment, it can be made again (docs/operations.md, "What a data directory is"); else put a node of another name in the place of this one (the same page, "A node that has lost its disk, or whose journal is damaged")"#;
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
