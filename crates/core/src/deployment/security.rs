//! Who may talk to a node, and how it proves itself: `[security]`, and the rule that plain text stays on loopback.

use std::fmt;
use std::path::{Path, PathBuf};

use super::draft::{Refusal, Section, as_text};
use super::error::Mistakes;
use super::{Node, NodeFile, PeerIdentity, Security, ServerIdentity, User};

/// An Argon2id hash of a password in PHC form; what it protects is never in the file.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl PasswordHash {
    /// The whole PHC string: `$argon2id$v=19$m=19456,t=2,p=1$salt$hash`.
    pub fn phc(&self) -> &str {
        &self.0
    }

    /// The hash that a text is, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('$').collect();
        let base64 =
            |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
        match fields.as_slice() {
            ["", "argon2id", version, cost, salt, hash]
                if version.starts_with("v=") && cost.starts_with("m=") && base64(salt) && base64(hash) =>
            {
                Some(Self(text.to_owned()))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for PasswordHash {
    /// Hides the hash: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

pub(super) fn parse(section: Option<Section<'_>>, base: &Path, mistakes: &mut Mistakes) -> Security {
    let mut security = Security::default();
    let Some(mut section) = section else { return security };
    security.insecure = section.boolean("insecure", mistakes).is_some_and(|found| found.value);
    let peer = files(&mut section, ["peer_ca", "peer_cert", "peer_key"], base, mistakes);
    security.peer = peer.map(|[ca, cert, key]| PeerIdentity { ca, cert, key });
    let client = files(&mut section, ["client_cert", "client_key"], base, mistakes);
    security.client = client.map(|[cert, key]| ServerIdentity { cert, key });
    security.acl = files(&mut section, ["aclfile"], base, mistakes).map(|[path]| NodeFile(path));
    security.audit = files(&mut section, ["audit"], base, mistakes).map(|[path]| NodeFile(path));
    for mut user in section.sections("user", mistakes) {
        let name = user.required_text("name", "app", mistakes);
        const RIGHT: &str =
            "write an Argon2id hash in PHC form: \"$argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>\"";
        if !user.has("password") {
            user.refuse(mistakes, user.line, "password is missing", RIGHT);
        }
        // The rule below shows the value in its message only when it is no hash; then it may be the password itself.
        let password =
            user.read("password", mistakes, |value| Ok(value.as_str().and_then(PasswordHash::parse)));
        if let Some(found) = &password
            && found.value.is_none()
        {
            user.refuse(mistakes, found.line, "password is not a hash", RIGHT);
        }
        if let (Some(name), Some(Some(password))) = (name, password.map(|found| found.value)) {
            if security.users.iter().any(|known: &User| known.name == name.value) {
                let wrong = format!("name = {:?} is that of an earlier user", name.value);
                user.refuse(mistakes, name.line, wrong, "give each user a name of its own");
            }
            security.users.push(User { name: name.value, password });
        }
        user.finish(mistakes);
    }
    section.finish(mistakes);
    security
}

/// Paths that go together: all or none.
fn files<const N: usize>(
    section: &mut Section<'_>,
    keys: [&'static str; N],
    base: &Path,
    mistakes: &mut Mistakes,
) -> Option<[PathBuf; N]> {
    let present: Vec<&str> = keys.iter().copied().filter(|key| section.has(key)).collect();
    let missing: Vec<&str> = keys.iter().copied().filter(|key| !section.has(key)).collect();
    if !present.is_empty() && !missing.is_empty() {
        let wrong = format!("{} without {}", present.join(" and "), missing.join(" and "));
        section.refuse(
            mistakes,
            section.line,
            wrong,
            format!("give {} together, or none of them", keys.join(", ")),
        );
    }
    let paths = keys.map(|key| {
        section.read(key, mistakes, |value| {
            let text = as_text(value.as_str())?;
            if text.is_empty() {
                return Err(Refusal::new("names no file", "give a path relative to this file"));
            }
            Ok(base.join(text))
        })
    });
    let paths: Vec<PathBuf> = paths.into_iter().flatten().map(|found| found.value).collect();
    paths.try_into().ok()
}

/// Refuses a socket that others can reach and that is in plain text.
pub(super) fn refuse_plain_text(nodes: &[(u32, Node)], security: &Security, mistakes: &mut Mistakes) {
    if security.insecure {
        return;
    }
    for (line, node) in nodes {
        let open = |address: &Option<super::Address>| address.as_ref().filter(|a| !a.is_loopback()).cloned();
        let mut refuse = |key: &str, address: super::Address, needs: &str| {
            let wrong = format!(
                "node {:?}: {key} = \"{address}\" is not on loopback, and [security] has no {needs}",
                node.name
            );
            mistakes.at(
                *line,
                wrong,
                format!("add {needs} under [security], or insecure = true to send everything in plain text"),
            );
        };
        if let Some(address) = open(&node.peer)
            && security.peer.is_none()
        {
            refuse("listen", address, "peer_ca, peer_cert and peer_key");
        }
        for (key, address) in [("redis", &node.redis), ("grpc", &node.grpc)] {
            let Some(address) = open(address) else { continue };
            if security.client.is_none() {
                refuse(key, address, "client_cert and client_key");
            } else if security.users.is_empty() && security.acl.is_none() {
                refuse(key, address, "user");
            }
        }
    }
}
