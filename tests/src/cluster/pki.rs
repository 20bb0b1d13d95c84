//! The cluster's certificates and kubeconfigs. Elliptic keys, so that making them takes milliseconds.

use std::fs;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::layout::{API_ADDRESS, API_IP, Layout, node_ip, node_name};

/// The user as whom people and tests act.
pub(crate) const ADMIN: &str = "admin";
/// The user of the DNS responder; the audit policy leaves it out.
pub(crate) const DNS_USER: &str = "bed:dns";

/// Writes every key, certificate and kubeconfig of a cluster.
pub(crate) fn make(layout: &Layout, nodes: usize, api_port: u16) -> Result<()> {
    fs::create_dir_all(layout.pki("")).context("cannot create the certificate folder")?;
    let authority = Authority::new(layout)?;
    service_account_key(layout)?;

    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
    ];
    let serving = [names.as_slice(), &["127.0.0.1", API_IP, "10.96.0.1"]].concat();
    authority.leaf(layout, "apiserver", "kube-apiserver", None, &serving)?;

    let inside = API_ADDRESS;
    let masters = Some("system:masters");
    authority.user(layout, ADMIN, ADMIN, masters, &format!("127.0.0.1:{api_port}"))?;
    authority.user(layout, "kcm", "system:kube-controller-manager", None, inside)?;
    authority.user(layout, "scheduler", "system:kube-scheduler", None, inside)?;
    authority.user(layout, "proxy", "system:kube-proxy", None, inside)?;
    authority.user(layout, "dns", DNS_USER, masters, inside)?;
    for number in 1..=nodes {
        let node = node_name(number);
        let user = format!("system:node:{node}");
        authority.leaf(
            layout,
            &node,
            &user,
            Some("system:nodes"),
            &[&node, &node_ip(number)],
        )?;
        kubeconfig(layout, &node, inside)?;
    }
    Ok(())
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(layout: &Layout) -> Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{}-ca", layout.name));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).context("cannot sign the authority")?;
        write(layout, "ca.crt", &certificate.pem())?;
        Ok(Self {
            issuer: Issuer::new(params, key),
        })
    }

    /// A key and certificate that serve both as a server's and as a client's.
    fn leaf(&self, layout: &Layout, file: &str, cn: &str, org: Option<&str>, names: &[&str]) -> Result<()> {
        let names: Vec<_> = names.iter().map(|&n| n.to_owned()).collect();
        let mut params = CertificateParams::new(names).with_context(|| format!("bad name for {file}"))?;
        params.distinguished_name.push(DnType::CommonName, cn);
        if let Some(org) = org {
            params.distinguished_name.push(DnType::OrganizationName, org);
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign {file}"))?;
        write(layout, &format!("{file}.crt"), &certificate.pem())?;
        write(layout, &format!("{file}.key"), &key.serialize_pem())
    }

    fn user(&self, layout: &Layout, file: &str, cn: &str, org: Option<&str>, server: &str) -> Result<()> {
        self.leaf(layout, file, cn, org, &[file])?;
        kubeconfig(layout, file, server)
    }
}

/// The key pair that signs ServiceAccount tokens.
fn service_account_key(layout: &Layout) -> Result<()> {
    let key = KeyPair::generate().context("cannot make a key")?;
    write(layout, "sa.key", &key.serialize_pem())?;
    write(layout, "sa.pub", &key.public_key_pem())
}

fn kubeconfig(layout: &Layout, who: &str, server: &str) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": layout.name,
        "clusters": [{"name": layout.name, "cluster": {
            "server": format!("https://{server}"), "certificate-authority": layout.pki("ca.crt"),
        }}],
        "users": [{"name": who, "user": {
            "client-certificate": layout.pki(&format!("{who}.crt")),
            "client-key": layout.pki(&format!("{who}.key")),
        }}],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": who}}],
    });
    let text = serde_norway::to_string(&config).context("a kubeconfig is plain data")?;
    let file = layout.kubeconfig(who);
    fs::create_dir_all(file.parent().context("a kubeconfig lives in a folder")?)?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn write(layout: &Layout, file: &str, pem: &str) -> Result<()> {
    fs::write(layout.pki(file), pem).with_context(|| format!("cannot write {file}"))
}
