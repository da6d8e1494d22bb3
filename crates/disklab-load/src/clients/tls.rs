//! TLS as it was asked for.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{LoadError, Problem};

/// What encrypted connections are. With `ca_file` the server must have a certificate from one of its authorities, for
/// the name that is connected to; without, it may have any, as with libpq's `sslmode=require`.
pub fn config(ca_file: Option<&Path>) -> Result<ClientConfig, LoadError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Problem::new("target.tls", true, error.to_string(), "report this"))?;
    Ok(match ca_file {
        Some(file) => builder
            .with_root_certificates(authorities(file)?)
            .with_no_client_auth(),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
    })
}

fn authorities(file: &Path) -> Result<RootCertStore, LoadError> {
    let problem = |rule: String| {
        let way_out = "give a PEM file with the certificates of the authorities";
        LoadError::from(Problem::new(
            "target.ca_file",
            file.display(),
            rule,
            way_out,
        ))
    };
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(file).map_err(|error| problem(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| problem(error.to_string()))?;
        let added = store.add(certificate);
        added.map_err(|error| problem(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(problem("there is no certificate in it".into()));
    }
    Ok(store)
}

/// Believes whoever answers, but checks that it has the key of the certificate that it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
