//! The certificates of a deployment: one authority, one certificate a node, one for clients to meet.

use crate::security::peer_name;
use isochrone_core::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error as PemError, PemObject};
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
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, format!("Isochrone authority of {cluster}"));
    // OpenSSL looks for a signer by its name, and of two with one name takes the first: whoever trusts the old authority and the
    // new one must find each under a name of its own.
    let own = parameters.key_identifier(&key);
    let own: String = own.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    parameters.distinguished_name.push(DnType::OrganizationalUnitName, format!("key {own}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    expire(&mut parameters, days);
    let certificate = parameters.self_signed(&key).map_err(error)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Makes the certificate that a node shows to its peers, both dialling and accepting.
///
/// # Errors
/// The authority's key or certificate is none, or the system gave no key.
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
/// A host name is none, the authority's key or certificate is none, or the system gave no key.
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
    let none = |cause: PemError| CertError { subject: name.to_owned(), cause: cause.to_string() };
    let certificate = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).map_err(none)?;
    let issuer = Issuer::from_ca_cert_der(&certificate, signer).map_err(error)?;
    let mut parameters = CertificateParams::new(hosts).map_err(error)?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.distinguished_name.push(DnType::OrganizationName, cluster);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = uses.to_vec();
    // Authorities that earlier versions made for one cluster have one name: this tells them apart all the same.
    parameters.use_authority_key_identifier_extension = true;
    expire(&mut parameters, days);
    let key = KeyPair::generate().map_err(error)?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(error)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn expire(parameters: &mut CertificateParams, days: u32) {
    let now = time::OffsetDateTime::now_utc();
    // Clocks of a cluster differ: a new certificate must be good everywhere at once.
    parameters.not_before = now - time::Duration::days(1);
    parameters.not_after = now + time::Duration::days(i64::from(days));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;
    use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

    /// An authority as earlier versions made it: named after its cluster only.
    fn of_before() -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "Isochrone authority of shop");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        expire(&mut parameters, 30);
        let certificate = parameters.self_signed(&key).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn signed(authority: &Issued) -> Issued {
        server(authority, "shop", "n0", vec!["localhost".to_owned()], 7).unwrap()
    }

    fn der(issued: &Issued) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
    }

    /// By its name, and the number of its key, as a certificate names its signer, or the signer itself.
    fn signer(certificate: &X509Certificate<'_>, itself: bool) -> (Vec<u8>, Vec<u8>) {
        let name = if itself { certificate.subject() } else { certificate.issuer() };
        let key = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(key) if itself => Some(key.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(of) if !itself => {
                Some(of.key_identifier.as_ref()?.0.to_vec())
            }
            _ => None,
        });
        (name.as_raw().to_vec(), key.unwrap())
    }

    #[test]
    fn two_authorities_of_a_cluster_are_told_apart() {
        let authorities =
            [of_before(), of_before(), authority("shop", 30).unwrap(), authority("shop", 30).unwrap()];
        let mut all = Vec::new();
        for authority in &authorities {
            let (own, issued) = (der(authority), der(&signed(authority)));
            let (_, own) = X509Certificate::from_der(&own).unwrap();
            let (_, issued) = X509Certificate::from_der(&issued).unwrap();
            assert_eq!(signer(&issued, false), signer(&own, true));
            all.push(signer(&own, true));
        }
        assert_eq!(all[0].0, all[1].0, "these are told apart by their keys alone");
        assert!(all[0].1 != all[1].1 && all[1].0 != all[2].0 && all[2].0 != all[3].0);
    }

    /// What OpenSSL says, where it is on this machine; the test above holds without it.
    #[test]
    fn openssl_verifies_what_either_of_two_authorities_has_signed() {
        let Ok(version) = Command::new("openssl").arg("version").output() else { return };
        assert!(version.status.success());
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let [before, other] = [0, 1].map(|_| of_before());
        let [old, new] = [0, 1].map(|_| authority("shop", 30).unwrap());
        for (first, second) in
            [(&old, &new), (&new, &old), (&before, &new), (&new, &before), (&before, &other)]
        {
            fs::write(at("both.pem"), format!("{}{}", first.certificate, second.certificate)).unwrap();
            for authority in [first, second] {
                fs::write(at("leaf.pem"), signed(authority).certificate).unwrap();
                let verify = Command::new("openssl")
                    .args(["verify", "-CAfile"])
                    .args([at("both.pem"), at("leaf.pem")])
                    .output()
                    .unwrap();
                assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
            }
        }
    }
}
