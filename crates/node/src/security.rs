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
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// What is wrong with a node's certificates or keys. The contents of a key are never shown.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// A file cannot be read, or holds no such thing.
    #[error("{path}: cannot read the {what}: {cause}; `isochrone cert` makes a whole set")]
    Read {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What went wrong.
        cause: String,
    },
    /// The pieces do not fit.
    #[error("{path}: {cause}")]
    Unfit {
        /// The certificate.
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

/// Mutual TLS 1.3 between nodes, from PEM files.
///
/// # Errors
/// A file is missing, or the pieces do not fit together.
pub fn peer_tls(ca: &Path, cert: &Path, key: &Path) -> Result<PeerTls, SecurityError> {
    let unfit = |cause: String| SecurityError::Unfit { path: cert.to_owned(), cause };
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca)? {
        let unfit =
            |error: rustls::Error| SecurityError::Unfit { path: ca.to_owned(), cause: error.to_string() };
        roots.add(authority).map_err(unfit)?;
    }
    let roots = Arc::new(roots);
    let (chain, secret) = (certificates(cert)?, private_key(key)?);
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unfit(error.to_string()))?
        .with_root_certificates(Arc::clone(&roots))
        .with_client_auth_cert(chain.clone(), secret.clone_key())
        .map_err(|error| unfit(error.to_string()))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| unfit(error.to_string()))?;
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unfit(error.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, secret)
        .map_err(|error| unfit(error.to_string()))?;
    Ok(PeerTls { client: Arc::new(client), server: Arc::new(server) })
}

/// TLS 1.2 and 1.3 for clients, who prove themselves with passwords.
///
/// # Errors
/// A file is missing, or the pieces do not fit together.
pub fn client_tls(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, SecurityError> {
    let unfit =
        |error: rustls::Error| SecurityError::Unfit { path: cert.to_owned(), cause: error.to_string() };
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_no_client_auth()
        .with_single_cert(certificates(cert)?, private_key(key)?)
        .map_err(unfit)?;
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
    let error = |cause: String| SecurityError::Read { path: path.to_owned(), what: "certificate", cause };
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| error(cause.to_string()))?;
    if found.is_empty() { Err(error("there is none in it".into())) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SecurityError> {
    PrivateKeyDer::from_pem_file(path).map_err(|cause| SecurityError::Read {
        path: path.to_owned(),
        what: "private key",
        cause: cause.to_string(),
    })
}
