//! Certificates that are renewed while the node runs, and the warning that they run out (`trust.md` S1).
//!
//! A thread looks at the files now and then. When they have changed and fit together, new connections use what
//! they hold; those that stand go on. Files that do not fit together, as in the middle of being replaced, or with which
//! peers would refuse this node, or that cannot be read, change nothing: what was loaded last stays in use, and they are
//! tried again with every look. Who has signed what clients are shown is not looked at: these know, and may trust others.

use crate::security::{self, PeerTls, SecurityError};
use isochrone_core::deployment::{PeerIdentity, ServerIdentity};
use mio::Waker;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// From so long before a certificate runs out on, there is a warning, now and then.
const WARN_BEFORE: u64 = 30 * DAY;
const DAY: u64 = 24 * 60 * 60;

/// The files of one node.
#[derive(Clone, Default)]
pub(crate) struct Files {
    /// What it shows to its peers, and demands of them.
    pub peer: Option<PeerIdentity>,
    /// What it shows to its clients.
    pub client: Option<ServerIdentity>,
    /// The name that peers demand in what it shows to them.
    pub name: String,
}

/// What the files held.
pub(crate) struct Loaded {
    pub peer: Option<PeerTls>,
    pub client: Option<Arc<ServerConfig>>,
    pub expiries: Expiries,
    /// From when on all of them are good, in seconds since 1970.
    pub begins: u64,
}

/// When certificates run out, in seconds since 1970; nothing where there is none.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Expiries {
    /// That of the authority.
    pub authority: Option<u64>,
    /// The one that peers are shown.
    pub peer: Option<u64>,
    /// The one that clients are shown.
    pub client: Option<u64>,
}

impl Expiries {
    /// Each with its name.
    pub fn named(self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [("authority", self.authority), ("peer", self.peer), ("client", self.client)];
        all.into_iter().filter_map(|(name, at)| Some((name, at?)))
    }
}

/// What tells whether one of the files was replaced: when each was changed, and how long it is.
pub(crate) type Marks = Vec<Option<(SystemTime, u64)>>;

/// The thread that looks; it ends with this.
pub(crate) struct Watch {
    renewed: Receiver<Loaded>,
    /// Dropped, it ends the thread.
    _alive: Sender<()>,
}

impl Files {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let peer = self.peer.iter().flat_map(|files| [&files.ca, &files.cert, &files.key]);
        peer.chain(self.client.iter().flat_map(|files| [&files.cert, &files.key]))
    }

    /// As they are now. Taken before they are read: what is replaced meanwhile is found to have changed.
    pub fn marks(&self) -> Marks {
        let mark = |path: &PathBuf| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.modified().ok()?, data.len()))
        };
        self.paths().map(mark).collect()
    }

    /// Reads them all.
    ///
    /// # Errors
    /// One is missing, or they do not fit together, or peers that have the same authority would refuse this node.
    pub fn load(&self) -> Result<Loaded, SecurityError> {
        let mut expiries = Expiries::default();
        let mut loaded = Loaded { peer: None, client: None, expiries, begins: 0 };
        let mut begins = 0;
        let mut ends = |path: &Path| -> Result<u64, SecurityError> {
            let (first, last) = validity(path)?;
            begins = first.max(begins);
            Ok(last)
        };
        if let Some(files) = &self.peer {
            loaded.peer = Some(security::peer_tls(&files.ca, &files.cert, &files.key, &self.name)?);
            expiries.authority = Some(ends(&files.ca)?);
            expiries.peer = Some(ends(&files.cert)?);
        }
        if let Some(files) = &self.client {
            loaded.client = Some(security::client_tls(&files.cert, &files.key)?);
            expiries.client = Some(ends(&files.cert)?);
        }
        (loaded.expiries, loaded.begins) = (expiries, begins);
        Ok(loaded)
    }
}

/// What the thread knows of the files.
struct Look {
    files: Files,
    /// Of what is in use.
    known: Marks,
    /// Of what was last said not to fit.
    unfit: Option<Marks>,
}

impl Look {
    /// What the files hold, where that is something else than what is in use, and fits together.
    fn again(&mut self) -> Option<Loaded> {
        let marks = self.files.marks();
        if marks == self.known {
            return None;
        }
        match self.files.load() {
            Ok(loaded) => {
                (self.known, self.unfit) = (marks, None);
                Some(loaded)
            }
            Err(error) => {
                if self.unfit.as_ref() != Some(&marks) {
                    tracing::warn!(%error, "the certificates have changed and do not fit together; the old ones stay in use");
                    self.unfit = Some(marks);
                }
                None
            }
        }
    }
}

impl Watch {
    /// Begins to look at files that were loaded already, after these marks of them were taken.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn start(
        files: Files,
        known: Marks,
        expiries: Expiries,
        waker: Arc<Waker>,
    ) -> std::io::Result<Watch> {
        let (news, renewed) = channel();
        let (alive, ended) = channel::<()>();
        std::thread::Builder::new().name("certificates".into()).spawn(move || {
            let mut look = Look { files, known, unfit: None };
            let (mut expiries, mut warned) = (expiries, 0);
            loop {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                if now >= warned + DAY {
                    warned = now;
                    warn(expiries, now);
                }
                match ended.recv_timeout(LOOK) {
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
                let Some(loaded) = look.again() else { continue };
                (expiries, warned) = (loaded.expiries, 0);
                tracing::info!("the certificates have changed; new connections use the new ones");
                if news.send(loaded).is_err() {
                    return;
                }
                // A poll that is gone needs no waking.
                let _ = waker.wake();
            }
        })?;
        Ok(Watch { renewed, _alive: alive })
    }

    /// What was loaded since the last call, if anything was.
    pub fn renewed(&self) -> Option<Loaded> {
        self.renewed.try_iter().last()
    }
}

fn warn(expiries: Expiries, now: u64) {
    for (which, at) in expiries.named() {
        if at <= now {
            tracing::error!(
                which,
                "the certificate has run out by this machine's clock: connections that check it fail; `isochrone cert` makes new ones"
            );
        } else if at - now < WARN_BEFORE {
            let days = (at - now) / DAY;
            tracing::warn!(
                which,
                days,
                "the certificate runs out soon; `isochrone cert` makes new ones, which are taken up without a restart"
            );
        }
    }
}

/// Since when and until when the first certificate of a file is good.
fn validity(path: &Path) -> Result<(u64, u64), SecurityError> {
    let certificates = security::certificates(path)?;
    let first = certificates.first().map(CertificateDer::as_ref).unwrap_or_default();
    let unfit = |cause| SecurityError::Unfit { path: path.to_owned(), cause };
    security::validity(first).map_err(unfit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cert;
    use isochrone_core::NodeId;

    fn issue(days: u32) -> cert::Issued {
        let authority = cert::authority("test", 90).unwrap();
        cert::server(&authority, "test", "server", vec!["localhost".to_owned()], days).unwrap()
    }

    /// A certificate for a week and its key, and where they lie.
    fn issued_in(directory: &Path) -> (Files, PathBuf, PathBuf) {
        let issued = issue(7);
        let (cert, key) = (directory.join("server.pem"), directory.join("server.key"));
        std::fs::write(&cert, &issued.certificate).unwrap();
        std::fs::write(&key, &issued.key).unwrap();
        let client = Some(ServerIdentity { cert: cert.clone(), key: key.clone() });
        (Files { client, ..Files::default() }, cert, key)
    }

    fn days_left(expiries: Expiries) -> Vec<(&'static str, u64)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        expiries.named().map(|(name, at)| (name, (at - now).div_ceil(DAY))).collect()
    }

    /// Replaces a file, at such a second.
    fn replace(path: &Path, text: &[u8], second: u64) {
        std::fs::write(path, text).unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    }

    #[test]
    fn what_is_replaced_while_the_node_starts_is_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let (files, cert, key) = issued_in(directory.path());
        let known = files.marks();
        files.load().unwrap();
        let renewed = issue(30);
        replace(&cert, renewed.certificate.as_bytes(), 1_000);
        replace(&key, renewed.key.as_bytes(), 1_000);
        let mut look = Look { files, known, unfit: None };
        let loaded = look.again().expect("they have changed");
        assert_eq!(days_left(loaded.expiries), [("client", 30)]);
        assert!(look.again().is_none(), "they are in use");
    }

    #[test]
    fn what_does_not_fit_is_tried_again_until_it_does() {
        let directory = tempfile::tempdir().unwrap();
        let (files, cert, key) = issued_in(directory.path());
        let mut look = Look { known: files.marks(), files, unfit: None };
        let renewed = issue(30);
        replace(&cert, renewed.certificate.as_bytes(), 1_000);
        assert!(look.again().is_none(), "the key is that of the old one");
        replace(&key, &vec![b'x'; renewed.key.len()], 1_000);
        let unfit = look.files.marks();
        for _ in 0..2 {
            assert!(look.again().is_none());
            assert_eq!(look.unfit.as_ref(), Some(&unfit));
        }
        // Nothing but their bytes tells that they have changed.
        replace(&key, renewed.key.as_bytes(), 1_000);
        assert_eq!(look.files.marks(), unfit);
        assert!(look.again().is_some());
        assert!(look.unfit.is_none() && look.again().is_none());
    }

    #[test]
    fn files_say_when_they_run_out() {
        let directory = tempfile::tempdir().unwrap();
        let (files, cert, key) = issued_in(directory.path());
        assert_eq!(days_left(files.load().unwrap().expiries), [("client", 7)]);

        let marks = files.marks();
        std::fs::write(&key, "no key").unwrap();
        assert_ne!(files.marks(), marks, "a replaced file shows");
        let error = files.load().err().unwrap().to_string();
        assert!(error.contains("server.key: cannot read the private key"), "{error}");
        std::fs::write(&cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(validity(&cert).is_err());
    }

    #[test]
    fn a_key_that_is_damaged_or_of_another_pair_is_called_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let peer = of_peer(directory.path());
        let authority = cert::authority("test", 90).unwrap();
        let [pair, other] = [0, 1].map(|_| issue_peer(&authority, 1, 30));
        std::fs::write(&peer.ca, &authority.certificate).unwrap();
        std::fs::write(&peer.cert, &pair.certificate).unwrap();
        // Base64 still, of what is no key.
        let begin = &pair.key.lines().nth(1).unwrap()[..20];
        let damaged = pair.key.replacen(begin, &"A".repeat(20), 1);
        let name = security::peer_name(NodeId(1), 7);
        let client = ServerIdentity { cert: peer.cert.clone(), key: peer.key.clone() };
        for files in [
            Files { peer: Some(peer.clone()), client: None, name: name.clone() },
            Files { peer: None, client: Some(client), name },
        ] {
            let told = |key: &str| {
                std::fs::write(&peer.key, key).unwrap();
                files.load().err().unwrap().to_string()
            };
            let expected =
                "n1.key: cannot read the private key: it is damaged; `isochrone cert` makes a whole set";
            let error = told(&damaged);
            assert!(error.ends_with(expected), "{error}");
            let error = told(&other.key);
            assert!(error.contains("n1.key: it is not the key of ") && error.contains("n1.pem; "), "{error}");
        }
    }

    /// Where what node 1 shows to its peers lies, and its authority's certificate.
    fn of_peer(directory: &Path) -> PeerIdentity {
        let [ca, cert, key] = ["ca.pem", "n1.pem", "n1.key"].map(|name| directory.join(name));
        PeerIdentity { ca, cert, key }
    }

    /// A pair that this authority makes for this node of cluster 7.
    fn issue_peer(authority: &cert::Issued, node: u16, days: u32) -> cert::Issued {
        cert::node(authority, "test", 7, NodeId(node), "n", days).unwrap()
    }

    #[test]
    fn a_pair_that_peers_would_refuse_is_not_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let peer = of_peer(directory.path());
        let put = |pair: &cert::Issued, second| {
            replace(&peer.cert, pair.certificate.as_bytes(), second);
            replace(&peer.key, pair.key.as_bytes(), second);
        };
        let [authority, other] = [0, 1].map(|_| cert::authority("test", 90).unwrap());
        let elsewhere = cert::authority("elsewhere", 90).unwrap();
        std::fs::write(&peer.ca, &authority.certificate).unwrap();
        put(&issue_peer(&authority, 1, 30), 1_000);
        let name = security::peer_name(NodeId(1), 7);
        let files = Files { peer: Some(peer.clone()), client: None, name: name.clone() };
        files.load().unwrap();
        let mut look = Look { known: files.marks(), files, unfit: None };
        let for_clients = cert::server(&authority, "test", "n1", vec![name.clone()], 30).unwrap();
        let unsigned = format!("no authority in {} has signed it", peer.ca.display());
        for (second, pair, wrong) in [
            (2_000, issue_peer(&other, 1, 30), unsigned.clone()),
            (3_000, cert::node(&elsewhere, "elsewhere", 7, NodeId(1), "n", 30).unwrap(), unsigned),
            (4_000, issue_peer(&authority, 2, 30), format!("it is not made for {name}")),
            (5_000, for_clients, "so peers refuse it".to_owned()),
        ] {
            put(&pair, second);
            assert!(look.again().is_none(), "{wrong}");
            assert_eq!(look.unfit.as_ref(), Some(&look.files.marks()), "it is warned of: {wrong}");
            let error = look.files.load().err().unwrap().to_string();
            assert!(error.contains("n1.pem: ") && error.contains(&wrong), "{error}");
        }
        put(&issue_peer(&authority, 1, 60), 6_000);
        let loaded = look.again().expect("it is this node's");
        assert_eq!(days_left(loaded.expiries), [("authority", 90), ("peer", 60)]);
    }

    #[test]
    fn an_authority_follows_another_by_way_of_both() {
        let directory = tempfile::tempdir().unwrap();
        let peer = of_peer(directory.path());
        let put = |pair: &cert::Issued, second| {
            replace(&peer.cert, pair.certificate.as_bytes(), second);
            replace(&peer.key, pair.key.as_bytes(), second);
        };
        let [old, new] = [0, 1].map(|_| cert::authority("test", 90).unwrap());
        std::fs::write(&peer.ca, &old.certificate).unwrap();
        put(&issue_peer(&old, 1, 30), 1_000);
        let name = security::peer_name(NodeId(1), 7);
        let files = Files { peer: Some(peer.clone()), client: None, name };
        let mut look = Look { known: files.marks(), files, unfit: None };
        replace(&peer.ca, new.certificate.as_bytes(), 2_000);
        assert!(look.again().is_none(), "the pair is not of the new one yet");
        replace(&peer.ca, format!("{}{}", old.certificate, new.certificate).as_bytes(), 3_000);
        assert!(look.again().is_some());
        put(&issue_peer(&new, 1, 30), 4_000);
        assert!(look.again().is_some());
        replace(&peer.ca, new.certificate.as_bytes(), 5_000);
        assert!(look.again().is_some());
    }

    #[test]
    fn a_pair_that_has_run_out_keeps_no_node_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        let peer = of_peer(directory.path());
        let authority = cert::authority("test", 90).unwrap();
        let pair = issue_peer(&authority, 1, 0);
        for (path, text) in
            [(&peer.ca, &authority.certificate), (&peer.cert, &pair.certificate), (&peer.key, &pair.key)]
        {
            std::fs::write(path, text).unwrap();
        }
        let name = security::peer_name(NodeId(1), 7);
        let loaded = Files { peer: Some(peer), client: None, name }.load().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(loaded.expiries.peer.is_some_and(|at| at <= now));
    }
}
