//! The certificates of a deployment: one authority, one certificate a node, one for clients to meet.

use crate::security::peer_name;
use isochrone_core::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// A certificate could not be made.
#[derive(Debug, Error)]
#[error("cannot make the certificate of {subject}: {cause}")]
pub struct CertError {
    /// Whose it was to be.
    pub subject: String,
    /// What went wrong.
    pub cause: String,
}

/// A certificate and a key that are no authority.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The key is none.
    #[error("it holds no private key ({0})")]
    Key(String),
    /// The certificate is none.
    #[error("it holds no certificate ({0})")]
    Certificate(String),
    /// Each is one, of different authorities.
    #[error("it is not the key of the certificate beside it, and nobody would believe what it signs")]
    Apart,
}

/// The end of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Seconds since 1970.
    pub at: i64,
    /// The day, as in 2036-12-31.
    pub date: String,
}

/// Whether what this authority signs will be believed by whoever has its certificate: until it ends.
///
/// # Errors
/// One of the two is none, or they do not belong together.
pub fn check(authority: &Issued) -> Result<End, AuthorityError> {
    let none = |cause: &dyn std::fmt::Display| AuthorityError::Certificate(cause.to_string());
    let key = KeyPair::from_pem(&authority.key).map_err(|error| AuthorityError::Key(error.to_string()))?;
    let certificate =
        CertificateDer::from_pem_slice(authority.certificate.as_bytes()).map_err(|error| none(&error))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).map_err(|error| none(&error))?;
    if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err(AuthorityError::Apart);
    }
    let end = parsed.validity().not_after;
    Ok(End { at: end.timestamp(), date: end.to_datetime().date().to_string() })
}

/// Makes an authority for a cluster, good for so many days.
///
/// # Errors
/// The system gave no key.
pub fn authority(cluster: &str, days: u32) -> Result<Issued, CertError> {
    let error = |cause: rcgen::Error| CertError {
        subject: format!("the authority of {cluster}"),
        cause: cause.to_string(),
    };
    let key = KeyPair::generate().map_err(error)?;
    let mut parameters = authority_parameters(cluster);
    expire(&mut parameters, days);
    let certificate = parameters.self_signed(&key).map_err(error)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Makes the certificate that a node shows to its peers, both dialling and accepting.
///
/// # Errors
/// The authority's key is none, or the system gave no key.
pub fn node(
    authority: &Issued,
    cluster: &str,
    cluster_id: u64,
    id: NodeId,
    name: &str,
    days: u32,
) -> Result<Issued, CertError> {
    let uses = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    issue(authority, cluster, name, vec![peer_name(id, cluster_id)], &uses, days)
}

/// Makes the certificate that a node shows to its clients, good for these host names and addresses.
///
/// # Errors
/// A host name is none, the authority's key is none, or the system gave no key.
pub fn server(
    authority: &Issued,
    cluster: &str,
    name: &str,
    hosts: Vec<String>,
    days: u32,
) -> Result<Issued, CertError> {
    issue(authority, cluster, name, hosts, &[ExtendedKeyUsagePurpose::ServerAuth], days)
}

fn issue(
    authority: &Issued,
    cluster: &str,
    name: &str,
    hosts: Vec<String>,
    uses: &[ExtendedKeyUsagePurpose],
    days: u32,
) -> Result<Issued, CertError> {
    let error = |cause: rcgen::Error| CertError { subject: name.to_owned(), cause: cause.to_string() };
    let signer = KeyPair::from_pem(&authority.key).map_err(error)?;
    let issuer = Issuer::new(authority_parameters(cluster), signer);
    let mut parameters = CertificateParams::new(hosts).map_err(error)?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.distinguished_name.push(DnType::OrganizationName, cluster);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = uses.to_vec();
    expire(&mut parameters, days);
    let key = KeyPair::generate().map_err(error)?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(error)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The same for every call, so that the authority's name in a node's certificate is that of the authority.
fn authority_parameters(cluster: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, format!("Isochrone authority of {cluster}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn expire(parameters: &mut CertificateParams, days: u32) {
    let now = time::OffsetDateTime::now_utc();
    // Clocks of a cluster differ: a new certificate must be good everywhere at once.
    parameters.not_before = now - time::Duration::days(1);
    parameters.not_after = now + time::Duration::days(i64::from(days));
}
