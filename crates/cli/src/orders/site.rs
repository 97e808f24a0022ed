//! Which cluster is meant, what there is in it, and who of it answers.

use super::arguments::Target;
use crate::node::TOKEN;
use crate::output::clean;
use crate::status::view::Asked;
use crate::status::{answered, of_addresses, of_file, of_up};
use crate::{Usage, protocols};
use anyhow::bail;
use hyper::header::HeaderValue;
use isochrone_core::Deployment;
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;

/// The longest file that is read for a token, bytes.
const TOKEN_MAX: u64 = 4 << 10;

/// A keyspace, and in how many partitions it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Keyspace {
    pub(super) name: String,
    pub(super) partitions: u16,
}

/// What has a name in a cluster.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) cluster: String,
    /// Who says so: the file, or the cluster's nodes.
    source: String,
    nodes: Vec<String>,
    keyspaces: Vec<Keyspace>,
}

/// The cluster that is meant.
pub(super) struct Site {
    pub(super) known: Known,
    file: Option<Deployment>,
    /// Without a file, the nodes are asked for what there is.
    asked: Vec<Asked>,
}

impl Site {
    /// Reads the deployment; without one, asks the nodes.
    pub(super) fn of(target: &Target) -> anyhow::Result<Site> {
        if let Some(path) = &target.file {
            // Nothing is served: the certificates may be elsewhere.
            let file = Deployment::load(path, &protocols::known().insecure(true))?;
            return Ok(Site { known: Known::of_file(&file), file: Some(file), asked: Vec::new() });
        }
        let asked = answered(if target.http.is_empty() { of_up()? } else { of_addresses(&target.http)? })?;
        Ok(Site { known: Known::of_told(&asked), file: None, asked })
    }

    /// The nodes as they have answered: one at least.
    ///
    /// # Errors
    /// None does, or they are of another cluster than the file.
    pub(super) fn ask(self) -> anyhow::Result<Vec<Asked>> {
        let Some(file) = &self.file else { return Ok(self.asked) };
        let asked = answered(of_file(file, &[])?)?;
        let mut told = asked.iter().filter_map(|asked| asked.answer.as_ref().ok());
        if let Some(other) = told.find(|told| told.cluster != file.cluster()) {
            bail!(Usage(format!(
                "{}: it is of cluster {}, and {} of cluster {} answers where its nodes are\n  name the deployment of the cluster \
                 that is meant; nothing was sent",
                file.file(),
                file.cluster(),
                other.node,
                other.cluster
            )));
        }
        Ok(asked)
    }
}

impl Known {
    fn of_file(file: &Deployment) -> Known {
        let keyspace = |keyspace: &isochrone_core::deployment::Keyspace| Keyspace {
            name: keyspace.name.clone(),
            partitions: keyspace.partitions,
        };
        Known {
            cluster: file.cluster().to_owned(),
            source: file.file().to_owned(),
            nodes: file.nodes().iter().map(|node| node.name.clone()).collect(),
            keyspaces: file.keyspaces().iter().map(keyspace).collect(),
        }
    }

    fn of_told(asked: &[Asked]) -> Known {
        let mut known =
            Known { cluster: String::new(), source: String::new(), nodes: Vec::new(), keyspaces: Vec::new() };
        for told in asked.iter().filter_map(|asked| asked.answer.as_ref().ok()) {
            known.cluster.clone_from(&told.cluster);
            for name in std::iter::once(&told.node).chain(told.peers.iter().map(|peer| &peer.name)) {
                if !known.nodes.contains(name) {
                    known.nodes.push(name.clone());
                }
            }
            for keyspace in &told.keyspaces {
                let partitions = keyspace.leaders.len().max(keyspace.members.len()).max(1);
                if !known.keyspaces.iter().any(|known| known.name == keyspace.name) {
                    let partitions = u16::try_from(partitions).unwrap_or(u16::MAX);
                    known.keyspaces.push(Keyspace { name: keyspace.name.clone(), partitions });
                }
            }
        }
        known.source = format!("cluster {}", known.cluster);
        known
    }

    /// Refuses a name that no node has.
    pub(super) fn node(&self, flag: &str, name: &str) -> Result<(), Usage> {
        if self.nodes.iter().any(|node| node == name) {
            return Ok(());
        }
        let (source, names) = (&self.source, self.nodes.join(", "));
        Err(Usage(format!("--{flag} {name}: {source} has no node of this name\n  there are {names}")))
    }

    /// The keyspace of this name, or the only one.
    pub(super) fn keyspace(&self, name: Option<&str>) -> Result<Keyspace, Usage> {
        let found = match (name, self.keyspaces.as_slice()) {
            (None, [one]) => Some(one),
            (None, _) => None,
            (Some(name), all) => all.iter().find(|keyspace| keyspace.name == name),
        };
        found.cloned().ok_or_else(|| {
            let (source, names) = (&self.source, self.names());
            Usage(match name {
                Some(name) => {
                    format!("--keyspace {name}: {source} has no keyspace of this name\n  there are {names}")
                }
                None => {
                    format!("{source} has several keyspaces\n  say which one is meant: --keyspace NAME, of {names}")
                }
            })
        })
    }

    fn names(&self) -> String {
        self.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Refuses a name that was typed for this cluster's and is not; asks for one where nobody has typed any, at a terminal.
    /// `what` it is that needs it.
    pub(super) fn confirm(&self, what: &str, typed: Option<&str>) -> anyhow::Result<()> {
        let input = io::stdin();
        let asked = match typed {
            None if input.is_terminal() => {
                // Nobody who sees it could be shown anything else.
                let what = clean(what);
                let _ = write!(io::stderr(), "This {what}. Type the name of its cluster to go on: ");
                let mut line = String::new();
                input.lock().take(TOKEN_MAX).read_line(&mut line)?;
                Some(line.trim().to_owned())
            }
            typed => typed.map(str::to_owned),
        };
        self.typed(what, asked.as_deref())?;
        Ok(())
    }

    fn typed(&self, what: &str, typed: Option<&str>) -> Result<(), Usage> {
        match typed {
            Some(name) if name == self.cluster => Ok(()),
            Some(name) => Err(Usage(format!(
                "--cluster {name}: the cluster is {}\n  name the cluster that is meant; nothing was sent",
                self.cluster
            ))),
            None => Err(Usage(format!(
                "this {what}\n  name the cluster that is meant, as `isochrone status` shows it: --cluster NAME"
            ))),
        }
    }
}

impl Keyspace {
    /// Refuses a partition that is none.
    pub(super) fn partition(&self, flag: &str, partition: u16) -> Result<(), Usage> {
        let Keyspace { name, partitions } = self;
        if partition < *partitions {
            return Ok(());
        }
        let right = match partitions {
            1 => "it has one, 0".to_owned(),
            _ => format!("there are 0 to {}", partitions - 1),
        };
        Err(Usage(format!("--{flag} {partition}: keyspace {name} has no such partition\n  {right}")))
    }
}

/// What a node wants to see before it takes an order, as a header has it. Of the environment, or of a file.
pub(super) fn token(file: Option<&Path>) -> Result<HeaderValue, Usage> {
    let (place, token) = match file {
        Some(path) => {
            let place = format!("--token-file {}", path.display());
            let mut text = String::new();
            let read = File::open(path).and_then(|file| file.take(TOKEN_MAX + 1).read_to_string(&mut text));
            if let Err(cause) = read {
                return Err(Usage(format!(
                    "{place}: cannot be read: {cause}\n  name a file with the node's token and nothing else"
                )));
            }
            (place, text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => (TOKEN.to_owned(), std::env::var(TOKEN).unwrap_or_default()),
    };
    if token.is_empty() {
        return Err(Usage(format!(
            "{place}: there is no token, without which a node takes no order\n  give the one with which the node was started: \
             {TOKEN}=... in the environment, or --token-file FILE"
        )));
    }
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    match header {
        Ok(mut header) if token.len() as u64 <= TOKEN_MAX && token.is_ascii() => {
            header.set_sensitive(true);
            Ok(header)
        }
        // What is wrong with it is not shown: it is a secret.
        _ => Err(Usage(format!(
            "{place}: this is no token: it is a line of at most {TOKEN_MAX} ASCII characters\n  give the one with which the \
             node was started"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known() -> Known {
        let told = json!({
            "cluster": "shop", "node": "va1", "peers": [{"name": "or1"}, {"name": "fr1"}],
            "keyspaces": [{"name": "main", "leaders": ["va1", null, "or1"]}, {"name": "bank", "leaders": []}],
        });
        let asked = Asked { name: None, http: None, answer: Ok(serde_json::from_value(told).unwrap()) };
        Known::of_told(&[asked])
    }

    #[test]
    fn what_has_no_such_name_is_told_with_those_that_there_are() {
        let known = known();
        known.node("to", "fr1").unwrap();
        let error = known.node("to", "fr2").unwrap_err().to_string();
        assert_eq!(error, "--to fr2: cluster shop has no node of this name\n  there are va1, or1, fr1");
        let main = known.keyspace(Some("main")).unwrap();
        assert_eq!(main.partitions, 3);
        let error = known.keyspace(Some("mine")).unwrap_err().to_string();
        assert_eq!(
            error,
            "--keyspace mine: cluster shop has no keyspace of this name\n  there are main, bank"
        );
        let error = known.keyspace(None).unwrap_err().to_string();
        assert!(error.ends_with("say which one is meant: --keyspace NAME, of main, bank"), "{error}");
        main.partition("from", 2).unwrap();
        let error = main.partition("from", 3).unwrap_err().to_string();
        assert_eq!(error, "--from 3: keyspace main has no such partition\n  there are 0 to 2");
        let bank = known.keyspace(Some("bank")).unwrap();
        assert!(bank.partition("to", 1).unwrap_err().to_string().ends_with("it has one, 0"));
    }

    #[test]
    fn the_name_of_another_cluster_and_none_are_refused() {
        let known = known();
        known.typed("stops va1", Some("shop")).unwrap();
        let error = known.typed("stops va1", Some("Shop")).unwrap_err().to_string();
        assert_eq!(
            error,
            "--cluster Shop: the cluster is shop\n  name the cluster that is meant; nothing was sent"
        );
        assert!(known.typed("stops va1", Some("")).is_err());
        let error = known.typed("stops va1", None).unwrap_err().to_string();
        assert!(error.starts_with("this stops va1\n") && error.ends_with("--cluster NAME"), "{error}");
    }

    #[test]
    fn a_token_is_a_line_that_a_header_takes_and_no_error_shows_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let of = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            token(Some(&path))
        };
        let header = of(b"s e cret\n").unwrap();
        assert!(header == "Bearer s e cret" && header.is_sensitive());
        assert!(of(b"\n").unwrap_err().to_string().contains("there is no token"));
        let long = vec![b's'; TOKEN_MAX as usize + 1];
        for wrong in [&b"secret\nA=b\n"[..], "sécret\n".as_bytes(), b"secret\x1b\n", long.as_slice()] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains("this is no token") && !error.contains("cret"), "{error}");
        }
        let error = of(b"\xff").unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
        let error = token(Some(&folder.path().join("none"))).unwrap_err().to_string();
        assert!(error.contains("cannot be read: No such file"), "{error}");
    }
}
