//! The files of the daemons, from the variables of calico-node.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use calico_store::EtcdOptions;
use calico_store::shared::replace_file;

/// The files. Everything else is in the datastore.
const FILES: [&str; 2] = ["felix.toml", BGP_CLIENT];
const BGP_CLIENT: &str = "bgp-client.toml";

/// Writes the files that do not exist. `passwords` is the directory of the passwords of BGP peers.
pub(super) fn write(
    directory: &Path,
    name: &str,
    options: &EtcdOptions,
    passwords: Option<&Path>,
) -> Result<()> {
    let of_all = text(name, options)?;
    for file in FILES {
        let mut text = of_all.clone();
        if let Some(passwords) = passwords.filter(|_| file == BGP_CLIENT) {
            let _ = writeln!(text, "\n[secrets]\ndir = {passwords:?}");
        }
        let path = directory.join(file);
        if path.exists() {
            continue;
        }
        let fill = |mut file: &File| file.write_all(text.as_bytes());
        replace_file(&path, |error: io::Error| error, fill)
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn text(name: &str, options: &EtcdOptions) -> Result<String> {
    if options.username.is_some() || options.password.is_some() {
        bail!(
            "ETCD_USERNAME and ETCD_PASSWORD: the daemons need certificates, or files with their passwords"
        );
    }
    let mut text = format!(
        "# Written by `cambric node start` from the variables of this node.\nhostname = {name:?}\n\n\
         [datastore]\nendpoints = {:?}\n",
        options.endpoints
    );
    if let Some(tls) = &options.tls {
        let _ = writeln!(text, "\n[datastore.tls]\nca_file = {:?}", tls.ca_file);
        for (key, file) in [("cert_file", &tls.cert_file), ("key_file", &tls.key_file)] {
            if let Some(file) = file {
                let _ = writeln!(text, "{key} = {file:?}");
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use calico_store::TlsFiles;

    use super::*;

    #[test]
    fn existing_files_stay_and_secrets_are_not_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut options = EtcdOptions::new(["https://10.0.0.9:2379"]);
        options.tls = Some(TlsFiles {
            ca_file: "/calico-secrets/etcd-ca".into(),
            cert_file: Some("/calico-secrets/etcd-cert".into()),
            key_file: Some("/calico-secrets/etcd-key".into()),
            server_name: None,
        });
        std::fs::write(directory.path().join("felix.toml"), "own").expect("written");
        write(directory.path(), "n1", &options, None).expect("written");
        let read = |file: &str| std::fs::read_to_string(directory.path().join(file)).expect("text");
        assert_eq!(read("felix.toml"), "own");
        let text = read("bgp-client.toml");
        for line in [
            "hostname = \"n1\"",
            "endpoints = [\"https://10.0.0.9:2379\"]",
            "[datastore.tls]",
            "key_file = \"/calico-secrets/etcd-key\"",
        ] {
            assert!(text.lines().any(|own| own == line), "{text}");
        }
        options.username = Some("root".to_owned());
        let refused = write(directory.path(), "n1", &options, None).expect_err("a password");
        assert!(refused.to_string().contains("ETCD_PASSWORD"));
    }

    #[test]
    fn only_the_bgp_client_reads_passwords_of_peers() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = EtcdOptions::new(["http://10.0.0.9:2379"]);
        let passwords = Some(Path::new("/cambric-secrets"));
        write(directory.path(), "n1", &options, passwords).expect("written");
        let read = |file: &str| std::fs::read_to_string(directory.path().join(file)).expect("text");
        assert!(read("bgp-client.toml").ends_with("\n[secrets]\ndir = \"/cambric-secrets\"\n"));
        assert!(!read("felix.toml").contains("secrets"));
    }
}
