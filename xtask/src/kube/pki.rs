//! Keys, certificates and tokens of a cluster: one authority, one server certificate, one key that signs service-account
//! tokens, one token for each user.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Users that have a token: name, and the groups they are in.
const USERS: [(&str, &str); 3] =
    [("admin", "system:masters"), ("system:kube-controller-manager", ""), ("system:kube-scheduler", "")];

/// Files that act for a user.
const KUBECONFIGS: [(&str, &str); 3] = [
    ("kubeconfig", "admin"),
    ("pki/controllers.kubeconfig", "system:kube-controller-manager"),
    ("pki/scheduler.kubeconfig", "system:kube-scheduler"),
];

/// Makes what is not there yet.
pub(super) fn make(state: &Path, api_port: u16) -> Result<()> {
    let pki = state.join("pki");
    // Written last, so it tells whether all is there.
    let tokens = pki.join("tokens.csv");
    if !tokens.exists() {
        certificates(&pki).with_context(|| format!("making certificates in {}", pki.display()))?;
        fs::write(&tokens, token_file()?)?;
    }
    let tokens = fs::read_to_string(&tokens)?;
    for (file, user) in KUBECONFIGS {
        fs::write(state.join(file), kubeconfig(&pki, api_port, (user, token_of(&tokens, user)?)))?;
    }
    Ok(())
}

fn certificates(pki: &Path) -> Result<()> {
    let named = |name: &str, hosts: &[&str]| -> Result<CertificateParams> {
        let mut params =
            CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    };
    let (authority_key, server_key, accounts_key) =
        (KeyPair::generate()?, KeyPair::generate()?, KeyPair::generate()?);
    let mut authority = named("divvy-test-cluster", &[])?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    fs::write(pki.join("ca.crt"), authority.self_signed(&authority_key)?.pem())?;
    let server = named("kube-apiserver", &["127.0.0.1", "localhost", "kubernetes.default.svc"])?;
    let server = server.signed_by(&server_key, &Issuer::new(authority, authority_key))?;
    fs::write(pki.join("api.crt"), server.pem())?;
    fs::write(pki.join("api.key"), server_key.serialize_pem())?;
    fs::write(pki.join("accounts.key"), accounts_key.serialize_pem())?;
    fs::write(pki.join("accounts.pub"), accounts_key.public_key_pem())?;
    Ok(())
}

/// Token, name, id and groups of each user, as the API server reads them at its start.
fn token_file() -> Result<String> {
    let mut text = String::new();
    for (number, (user, groups)) in USERS.iter().enumerate() {
        let token = random_hex().context("making a token")?;
        let _ = writeln!(text, "{token},{user},user-{number},\"{groups}\"");
    }
    Ok(text)
}

fn random_hex() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn token_of<'a>(tokens: &'a str, user: &str) -> Result<&'a str> {
    let fields = tokens.lines().filter_map(|line| line.split_once(','));
    let mut of_user = fields.filter(|(_, rest)| rest.split(',').next() == Some(user));
    of_user.next().map(|(token, _)| token).with_context(|| format!("no token of {user}"))
}

fn kubeconfig(pki: &Path, api_port: u16, (user, token): (&str, &str)) -> String {
    let authority = pki.join("ca.crt");
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: divvy-test\n\
         clusters: [{{name: divvy-test, cluster: {{server: \"https://127.0.0.1:{api_port}\", certificate-authority: \"{}\"}}}}]\n\
         users: [{{name: \"{user}\", user: {{token: {token}}}}}]\n\
         contexts: [{{name: divvy-test, context: {{cluster: divvy-test, user: \"{user}\"}}}}]\n",
        authority.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_token_of_its_own_and_it_is_found_again() {
        let text = token_file().unwrap();
        let tokens: std::collections::BTreeSet<_> =
            USERS.iter().map(|(user, _)| token_of(&text, user).unwrap()).collect();
        assert_eq!(tokens.len(), USERS.len());
        assert!(token_of(&text, "nobody").is_err());
    }
}
