//! Who is who on the wire: TLS configurations, the names in certificates, and passwords.
//!
//! A node's certificate carries the DNS name `n<node>.c<cluster id, 16 hexadecimal digits>.isochrone`,
//! so it names the node and the cluster. Both ends check it: the dialler as any TLS client checks its
//! server, the acceptor against the greeting (`trust.md` S1, S2).

use crate::gateway::Secret;
use argon2::{Argon2, PasswordHash, PasswordVerifier};
use isochrone_core::NodeId;
use isochrone_core::deployment::User;
use ring::hmac;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// What is wrong with a node's certificates or keys. The contents of a key are never shown.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// A file cannot be read, or holds no such thing.
    #[error("{path}: cannot read the {what}: {cause}; {right}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What went wrong.
        cause: String,
        /// What would be right.
        right: &'static str,
    },
    /// The pieces do not fit.
    #[error("{path}: {cause}")]
    Unfit {
        /// Which one does not.
        path: PathBuf,
        /// What does not fit.
        cause: String,
    },
}

/// What one node shows to its peers, and what it demands of them.
#[derive(Clone)]
pub struct PeerTls {
    /// For the links it dials.
    pub client: Arc<ClientConfig>,
    /// For those it accepts.
    pub server: Arc<ServerConfig>,
}

/// The DNS name that a node's certificate carries.
pub fn peer_name(node: NodeId, cluster_id: u64) -> String {
    format!("n{}.c{cluster_id:016x}.isochrone", node.0)
}

/// Checks that the certificate a dialler has shown is that of the node it says it is. The chain was
/// verified in the handshake.
///
/// # Errors
/// Why it is not.
pub fn check_peer(shown: &[CertificateDer<'_>], node: NodeId, cluster_id: u64) -> Result<(), String> {
    let own = shown.first().ok_or("it has shown no certificate")?;
    let certificate = webpki::EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
    let name = peer_name(node, cluster_id);
    let expected = ServerName::try_from(name.as_str()).map_err(|error| error.to_string())?;
    certificate
        .verify_is_valid_for_subject_name(&expected)
        .map_err(|_| format!("its certificate is not made for {name}"))
}

/// Mutual TLS 1.3 between nodes, from PEM files, of the node that peers demand this name of.
///
/// # Errors
/// A file is missing, or the pieces do not fit together: also where peers that have this authority would refuse the
/// certificate.
pub fn peer_tls(ca: &Path, cert: &Path, key: &Path, name: &str) -> Result<PeerTls, SecurityError> {
    let unfit = |cause: String| SecurityError::Unfit { path: cert.to_owned(), cause };
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca)? {
        let unfit =
            |error: rustls::Error| SecurityError::Unfit { path: ca.to_owned(), cause: error.to_string() };
        roots.add(authority).map_err(unfit)?;
    }
    let roots = Arc::new(roots);
    let (chain, secret) = (certificates(cert)?, private_key(key)?);
    let acceptors = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider())
        .build()
        .map_err(|error| unfit(error.to_string()))?;
    let diallers = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| unfit(error.to_string()))?;
    verify_own(&chain, name, &acceptors, diallers.as_ref()).map_err(|error| {
        let cause = refusal(&error, name, ca);
        unfit(format!("{cause}, so peers refuse it; `isochrone cert` makes one for each node"))
    })?;
    let client = ClientConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unfit(error.to_string()))?
        .with_webpki_verifier(acceptors)
        .with_client_auth_cert(chain.clone(), secret.clone_key())
        .map_err(|error| no_pair(error, cert, key, |error| unfit(error.to_string())))?;
    let server = ServerConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unfit(error.to_string()))?
        .with_client_cert_verifier(diallers)
        .with_single_cert(chain, secret)
        .map_err(|error| no_pair(error, cert, key, |error| unfit(error.to_string())))?;
    Ok(PeerTls { client: Arc::new(client), server: Arc::new(server) })
}

/// Verifies a node's own chain as its peers do: those that dial it, and those that it dials. Since when and until when it is
/// good is left out: that is told of by itself, and the clock of a machine that has just started may be wrong.
fn verify_own(
    chain: &[CertificateDer<'_>],
    name: &str,
    acceptors: &WebPkiServerVerifier,
    diallers: &dyn ClientCertVerifier,
) -> Result<(), rustls::Error> {
    let general = rustls::Error::General;
    let (own, others) = chain.split_first().ok_or_else(|| general("there is none in it".into()))?;
    let (begins, ends) = validity(own).map_err(general)?;
    let now = unix_time(SystemTime::now()).as_secs();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now.max(begins).min(ends)));
    let expected = ServerName::try_from(name).map_err(|error| general(error.to_string()))?;
    // What lies between the two has times of its own.
    let but_time = |found: Result<(), rustls::Error>| match found {
        Err(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => Ok(()),
        other => other,
    };
    but_time(acceptors.verify_server_cert(own, others, &expected, &[], at).map(drop))?;
    but_time(diallers.verify_client_cert(own, others, at).map(drop))
}

/// Why a certificate is refused, in words.
fn refusal(error: &rustls::Error, name: &str, ca: &Path) -> String {
    use CertificateError::{BadSignature, NotValidForName, NotValidForNameContext, UnknownIssuer};
    match error {
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            format!("it is not made for {name}")
        }
        // Authorities that earlier versions made for one cluster bear the same name: that of another one seems to have signed badly.
        rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            format!("no authority in {} has signed it", ca.display())
        }
        other if is_old(other) => OLD.to_owned(),
        other => other.to_string(),
    }
}

/// Why a connection of TLS fails where it may be a clock that is wrong, in words that stay the same all day: what rustls says has the
/// seconds in it, and blames the certificate alone.
pub(crate) fn clock_trouble(error: &std::io::Error) -> Option<String> {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let today = || time::OffsetDateTime::now_utc().date();
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => Some(format!(
            "its certificate has run out by this machine's clock, which says {}: where that is right, `isochrone cert` makes new ones",
            today()
        )),
        rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. }) => Some(format!(
            "its certificate is not good yet by this machine's clock, which says {}: see whether that is right",
            today()
        )),
        // The alert is one and the same for both.
        rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired) => Some(format!(
            "it says that this node's certificate has run out, or is not good yet, by its clock: see which of both clocks is right \
             (that of this machine says {}), and where that is its own, `isochrone cert` makes new ones",
            today()
        )),
        _ => None,
    }
}

/// What is said of a certificate that [`is_old`].
const OLD: &str = "it is an X.509 certificate of version 1, and has to be of version 3";

/// Whether a certificate is refused since it is of an earlier version of X.509, as `openssl x509 -req` makes one without
/// extensions: rustls has no words for that.
fn is_old(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::UnsupportedCertVersion))
}

/// Since when and until when a certificate is good, seconds since 1970.
///
/// # Errors
/// It is none.
pub(crate) fn validity(certificate: &[u8]) -> Result<(u64, u64), String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| error.to_string())?;
    let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
    let validity = parsed.validity();
    Ok((seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp())))
}

/// The clock by which certificates are good. That of rustls panics before 1970, also where there is no certificate to look at.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(SystemTime::now()))
    }
}

/// What a clock that stands there shows; 1970 where that is earlier.
fn unix_time(at: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// TLS 1.2 and 1.3 for clients, who prove themselves with passwords.
///
/// # Errors
/// A file is missing, or the pieces do not fit together.
pub fn client_tls(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, SecurityError> {
    let unfit = |error: rustls::Error| {
        let cause = if is_old(&error) {
            format!("{OLD}: sign it with extensions (-extfile), or make one with `isochrone cert`")
        } else {
            error.to_string()
        };
        SecurityError::Unfit { path: cert.to_owned(), cause }
    };
    let config = ServerConfig::builder_with_details(provider(), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_no_client_auth()
        .with_single_cert(certificates(cert)?, private_key(key)?)
        .map_err(|error| no_pair(error, cert, key, unfit))?;
    Ok(Arc::new(config))
}

/// Whether this is the password of this user. Takes tens of milliseconds, whoever asks: an unknown user
/// costs the same as a known one with a wrong password.
pub fn verify(users: &[User], name: &str, password: &Secret) -> bool {
    /// Of a password nobody knows: what an unknown user is compared with.
    const NOBODY: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$RdescudvJCsgt3ub+b0dWRWJTmaaJObG2kU3RVG3wQM";
    let user = users.iter().find(|user| user.name == name);
    let hash = user.map_or(NOBODY, |user| user.password.phc());
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    let fits = Argon2::default().verify_password(password.expose(), &hash).is_ok();
    fits && user.is_some()
}

/// What tells some bytes from all others to whoever has the key, and nobody else anything about them.
pub(crate) type Print = [u8; 32];

/// A key for prints. It is drawn at a node's start and written nowhere.
///
/// # Errors
/// The system gave no randomness.
pub(crate) fn draw_key() -> std::io::Result<hmac::Key> {
    hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())
        .map_err(|_| std::io::Error::other("the system has no randomness to give"))
}

/// The print of these bytes under this key.
pub(crate) fn print(key: &hmac::Key, bytes: &[u8]) -> Print {
    let mut print = [0; 32];
    print.copy_from_slice(hmac::sign(key, bytes).as_ref());
    print
}

/// The Argon2id hash of a password in PHC form, for a deployment file.
///
/// # Errors
/// The system gave no randomness for the salt.
pub fn hash_password(password: &Secret) -> Result<String, String> {
    use argon2::password_hash::{PasswordHasher, SaltString};
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| error.to_string())?;
    let salt = SaltString::encode_b64(&salt).map_err(|error| error.to_string())?;
    let hash =
        Argon2::default().hash_password(password.expose(), &salt).map_err(|error| error.to_string())?;
    Ok(hash.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let unread = |cause| unread(path, "certificate", cause);
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unread)?;
    if found.is_empty() { Err(unread(pem::Error::NoItemsFound)) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SecurityError> {
    PrivateKeyDer::from_pem_file(path).map_err(|cause| {
        let what = "private key";
        if !is_encrypted(path) {
            return unread(path, what, cause);
        }
        let cause = "it is encrypted, and there is nobody to ask for its password".to_owned();
        let right = "write it without one: openssl pkey -in ENCRYPTED.key -out PLAIN.key";
        SecurityError::Read { path: path.to_owned(), what, cause, right }
    })
}

/// Whether a key in this file is protected by a password, in the form of today or in that of OpenSSL before.
fn is_encrypted(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.windows(9).any(|part| part == b"ENCRYPTED"))
}

/// Why a certificate and a key are no pair, and which of them is to blame; where it is the certificate, `unfit` says it.
fn no_pair(
    error: rustls::Error,
    cert: &Path,
    key: &Path,
    unfit: impl FnOnce(rustls::Error) -> SecurityError,
) -> SecurityError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let cert = cert.display();
            let cause = format!("it is not the key of {cert}; put both of one set there ({WHOLE_SET})");
            SecurityError::Unfit { path: key.to_owned(), cause }
        }
        // It says this of keys only.
        rustls::Error::General(_) => SecurityError::Read {
            path: key.to_owned(),
            what: "private key",
            cause: "it is damaged".to_owned(),
            right: WHOLE_SET,
        },
        other => unfit(other),
    }
}

const WHOLE_SET: &str = "`isochrone cert` makes a whole set";

/// Why a PEM file cannot be read, and what would be right.
fn unread(path: &Path, what: &'static str, cause: pem::Error) -> SecurityError {
    let right = match &cause {
        // A new set in its place would not be taken for one of the cluster.
        pem::Error::Io(error) if error.kind() == ErrorKind::PermissionDenied => {
            "run this as the user that owns it, or correct the owner of the file"
        }
        _ => WHOLE_SET,
    };
    let cause = match cause {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("it ends before -----END {}-----", end_marker.escape_ascii())
        }
        // The line may hold what is not to be shown.
        pem::Error::IllegalSectionStart { .. } => "a line with -----BEGIN does not end with -----".to_owned(),
        pem::Error::NoItemsFound => "there is none in it".to_owned(),
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    SecurityError::Read { path: path.to_owned(), what, cause, right }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cert;

    #[test]
    fn a_clock_that_may_be_wrong_is_named_in_the_same_words_each_time() {
        let told = |error: rustls::Error| clock_trouble(&std::io::Error::new(ErrorKind::InvalidData, error));
        let at = |second| UnixTime::since_unix_epoch(Duration::from_secs(second));
        let invalid = rustls::Error::InvalidCertificate;
        let (time, not_after, not_before) = (at(9_000), at(8_000), at(10_000));
        let late = CertificateError::ExpiredContext { time, not_after };
        let early = CertificateError::NotValidYetContext { time, not_before };
        for (error, words) in [
            (invalid(late), "has run out by this machine's clock, which says "),
            (invalid(early), "is not good yet by this machine's clock, which says "),
            (
                rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired),
                "by its clock: see which",
            ),
        ] {
            let text = told(error).unwrap();
            assert!(text.contains(words) && !text.contains("000"), "{text}");
        }
        assert_eq!(told(invalid(CertificateError::UnknownIssuer)), None);
        assert_eq!(clock_trouble(&ErrorKind::ConnectionRefused.into()), None);
    }

    #[test]
    fn tls_has_a_time_also_where_the_clock_stands_before_1970() {
        let second = Duration::from_secs(1);
        assert_eq!([UNIX_EPOCH - second, UNIX_EPOCH + second].map(|at| unix_time(at).as_secs()), [0, 1]);
        let folder = tempfile::tempdir().unwrap();
        let [ca, pem, key] = ["ca.pem", "n.pem", "n.key"].map(|name| folder.path().join(name));
        let authority = cert::authority("test", 7).unwrap();
        let issued = cert::node(&authority, "test", 7, NodeId(1), "n1", 7).unwrap();
        std::fs::write(&ca, authority.certificate).unwrap();
        std::fs::write(&pem, issued.certificate).unwrap();
        std::fs::write(&key, issued.key).unwrap();
        let peer = peer_tls(&ca, &pem, &key, &peer_name(NodeId(1), 7)).unwrap();
        let clients = client_tls(&pem, &key).unwrap();
        for clock in [&peer.client.time_provider, &peer.server.time_provider, &clients.time_provider] {
            assert_eq!(format!("{clock:?}"), "WallClock");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_in_words_and_without_what_it_holds() {
        let told = |cause| unread(Path::new("n1.key"), "private key", cause).to_string();
        let set = "`isochrone cert` makes a whole set";
        assert_eq!(
            told(pem::Error::MissingSectionEnd { end_marker: b"PRIVATE KEY".to_vec() }),
            format!("n1.key: cannot read the private key: it ends before -----END PRIVATE KEY-----; {set}")
        );
        let line = told(pem::Error::IllegalSectionStart { line: b"-----BEGIN KEY MC4CAQ".to_vec() });
        assert!(line.ends_with(set) && !line.contains("MC4CAQ"), "{line}");
        let denied = told(pem::Error::Io(ErrorKind::PermissionDenied.into()));
        assert!(denied.contains("run this as the user that owns it") && !denied.contains(set), "{denied}");
        let folder = tempfile::tempdir().unwrap();
        let half = folder.path().join("half.pem");
        std::fs::write(&half, "-----BEGIN CERTIFICATE-----\nMIIB\n").unwrap();
        let half = certificates(&half).unwrap_err().to_string();
        assert!(
            half.contains("half.pem: cannot read the certificate: it ends before -----END CERTIFICATE-----"),
            "{half}"
        );
    }

    #[test]
    fn a_key_with_a_password_is_told_from_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.key");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            private_key(&path).unwrap_err().to_string()
        };
        let forms = [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGr\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIGr\n-----END EC PRIVATE KEY-----\n",
        ];
        for form in forms {
            let error = told(form);
            assert!(error.contains("n1.key: cannot read the private key: it is encrypted, and"), "{error}");
            assert!(error.contains("openssl pkey -in ") && !error.contains("MIGr"), "{error}");
        }
        assert!(told("nothing\n").contains("there is none in it"));
    }

    /// Of redis.example, self-signed, as `openssl x509 -req` writes it without -extfile.
    const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBKjCB0QIUVk1uv9eqvsGwYdiHd0OIKEpp+fwwCgYIKoZIzj0EAwIwGDEWMBQG
A1UEAwwNcmVkaXMuZXhhbXBsZTAeFw0yNjExMjkyMzMwMDRaFw0zNjExMjYyMzMw
MDRaMBgxFjAUBgNVBAMMDXJlZGlzLmV4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAT6nUZ0MW6T90J/rSKUOnL8ijZxhHaVDqzGncuSCooQBLnEe/3v+8If
V+1mxZ5AhLuE7dwZBiIPZoy5OeY0sw3fMAoGCCqGSM49BAMCA0gAMEUCIQDzMv0b
8v37CFmHOv8csjKwC+CRYkeOSr00jhABVCN7cAIgT3WSexBUZTcwiSo+wX0FEF0p
yQ1U/QljnWnlMutWzzs=
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_of_version_1_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("redis.pem"), folder.path().join("redis.key"));
        std::fs::write(&cert, OF_VERSION_1).unwrap();
        std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let error = client_tls(&cert, &key).unwrap_err().to_string();
        assert!(error.contains("redis.pem: it is an X.509 certificate of version 1, "), "{error}");
        assert!(error.ends_with("-extfile), or make one with `isochrone cert`"), "{error}");
        let old = rustls::OtherError(Arc::new(webpki::Error::UnsupportedCertVersion));
        let old = rustls::Error::InvalidCertificate(CertificateError::Other(old));
        assert_eq!(refusal(&old, "n1.c1.isochrone", Path::new("ca.pem")), OLD);
    }
}
