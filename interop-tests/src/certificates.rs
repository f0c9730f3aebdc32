//! Certificates signed by one authority.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use crate::{Site, foreign};

/// The certificate of an authority and those that it has signed, as PEM.
#[derive(Debug)]
pub struct Certificates {
    /// The authority.
    pub authority: String,
    /// A server's certificate and its key.
    pub server: (String, String),
    /// A client's certificate and its key.
    pub client: (String, String),
}

/// A request for a certificate with a new key.
const REQUEST: &str = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -x509 -days 2";

/// The signature of the authority, for the certificate of a server or client.
const LEAF: &str = "-CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE";

fn openssl_run(openssl: &Path, directory: &Path, arguments: &str) {
    let mut command = Command::new(openssl);
    command.args(arguments.split(' ')).current_dir(directory);
    let output = command.output().expect("OpenSSL runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
}

impl Certificates {
    /// Makes the certificates in a directory, for a server with this address. Returns `None`, with
    /// a notice, where OpenSSL is not installed.
    ///
    /// # Panics
    /// If OpenSSL fails.
    pub fn make(directory: &Path, server: Ipv4Addr) -> Option<Self> {
        let openssl = foreign("openssl")?;
        let run = |arguments: &str| openssl_run(&openssl, directory, arguments);
        let address = format!("-addext subjectAltName=IP:{}", IpAddr::V4(server));
        run(&format!(
            "{REQUEST} -subj /CN=authority -keyout ca.key -out ca.pem"
        ));
        run(&format!(
            "{REQUEST} {LEAF} {address} -subj /CN=server -keyout server.key -out server.pem"
        ));
        run(&format!(
            "{REQUEST} {LEAF} -subj /O=client -keyout client.key -out client.pem"
        ));
        let read = |name: &str| {
            std::fs::read_to_string(directory.join(name)).expect("OpenSSL has written it")
        };
        let pair = |name: &str| (read(&format!("{name}.pem")), read(&format!("{name}.key")));
        Some(Self {
            authority: read("ca.pem"),
            server: pair("server"),
            client: pair("client"),
        })
    }

    /// Makes certificates of clients with these common names, which are users of etcd, in the
    /// directory of [`Self::make`]: `NAME.pem` and `NAME.key`.
    ///
    /// # Panics
    /// If OpenSSL fails or is not installed.
    pub fn of_users<'n>(directory: &Path, names: impl IntoIterator<Item = &'n str>) {
        let openssl = foreign("openssl").expect("OpenSSL");
        for name in names {
            openssl_run(
                &openssl,
                directory,
                &format!("{REQUEST} {LEAF} -subj /CN={name} -keyout {name}.key -out {name}.pem"),
            );
        }
    }

    /// Writes a client's files into a host's directory: `ca.pem`, `client.pem` and `client.key`.
    ///
    /// # Panics
    /// If a file cannot be written.
    pub fn save(&self, site: &Site) {
        site.save("ca.pem", &self.authority);
        site.save("client.pem", &self.client.0);
        site.save("client.key", &self.client.1);
    }
}
