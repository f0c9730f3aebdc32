//! The files of the CNI plugin: its programs, its kubeconfig and, last of all, its configuration.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use calico_store::shared::replace_file;
use serde_json::{Value, json};

use super::limits::TEMPLATE_OCTETS_MAX;

/// The programs, and the names under which Calico's configurations call them.
const PROGRAMS: [(&str, &str); 2] = [("cambric-cni", "calico"), ("cambric-ipam", "calico-ipam")];

/// The files of Calico's secret with the credentials of etcd, and the names of their placeholders.
const SECRETS: [(&str, &str); 3] = [
    ("etcd-ca", "ETCD_CA_CERT_FILE"),
    ("etcd-cert", "ETCD_CERT_FILE"),
    ("etcd-key", "ETCD_KEY_FILE"),
];

/// Fields of the plugin without an effect: it has no log.
const WITHOUT_EFFECT: [&str; 2] = ["log_level", "log_file_path"];

/// The directory of the copies of these files, beside the configuration.
const SECRETS_COPY: &str = "calico-tls";

/// The name of the plugin's kubeconfig.
const KUBECONFIG: &str = "calico-kubeconfig";

/// The places of the files.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Places {
    /// The directory of CNI configurations, as this process sees it
    #[arg(long, value_name = "DIR", default_value = "/host/etc/cni/net.d")]
    cni_directory: PathBuf,
    /// The directory of CNI programs, as this process sees it
    #[arg(long, value_name = "DIR", default_value = "/host/opt/cni/bin")]
    cni_programs: PathBuf,
    /// The directory from which the programs are copied
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    programs: PathBuf,
    /// The directory with the credentials of etcd for the plugin, if there are any
    #[arg(long, value_name = "DIR", default_value = "/calico-secrets")]
    secrets: PathBuf,
}

/// The configuration of the plugin.
#[derive(Debug)]
pub(super) struct Cni {
    places: Places,
    /// The directory of configurations as runtimes see it.
    directory: PathBuf,
    /// The name of the configuration.
    name: String,
    /// Its text, with the values of this node.
    text: String,
    server: String,
    ca: Vec<u8>,
}

impl Cni {
    /// Reads the template in `CNI_NETWORK_CONFIG`, or in the file of `CNI_NETWORK_CONFIG_FILE`. Returns
    /// `None` without one.
    pub(super) fn read(
        places: &Places,
        variables: &BTreeMap<String, String>,
        node: &str,
        ca: Vec<u8>,
    ) -> Result<Option<Self>> {
        let get = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let template = match (get("CNI_NETWORK_CONFIG_FILE"), get("CNI_NETWORK_CONFIG")) {
            (Some(file), _) => {
                let mut text = String::new();
                let limit = u64::try_from(TEMPLATE_OCTETS_MAX).unwrap_or(u64::MAX);
                let opened =
                    File::open(file).with_context(|| format!("CNI_NETWORK_CONFIG_FILE: {file}"))?;
                opened.take(limit).read_to_string(&mut text)?;
                text
            }
            (None, Some(text)) => text.clone(),
            (None, None) => return Ok(None),
        };
        if template.len() >= TEMPLATE_OCTETS_MAX {
            bail!("the template of the CNI configuration has {TEMPLATE_OCTETS_MAX} octets or more");
        }
        let directory = get("CNI_NET_DIR").map_or("/etc/cni/net.d", String::as_str);
        let directory = PathBuf::from(directory);
        let name = get("CNI_CONF_NAME").map_or("10-calico.conflist", String::as_str);
        if name.contains('/') || name.starts_with('.') {
            bail!("CNI_CONF_NAME: is not the name of a file");
        }
        let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
        let (host, port) = (get(host).cloned(), get(port).cloned());
        let server = match host.zip(port) {
            Some((host, port)) if host.contains(':') => format!("https://[{host}]:{port}"),
            Some((host, port)) => format!("https://{host}:{port}"),
            None => String::new(),
        };
        let text = fill_in(&template, |placeholder| {
            Ok(match placeholder {
                "KUBERNETES_NODE_NAME" => node.to_owned(),
                "KUBECONFIG_FILEPATH" => directory.join(KUBECONFIG).display().to_string(),
                "CNI_MTU" => get("CNI_MTU").map_or("0", String::as_str).to_owned(),
                "DATASTORE_TYPE" => "etcdv3".to_owned(),
                "SERVICEACCOUNT_TOKEN" => bail!(
                    "__SERVICEACCOUNT_TOKEN__: every user of the host could read it; use \
                     kubernetes.kubeconfig"
                ),
                other => match SECRETS
                    .iter()
                    .find(|(_, placeholder)| *placeholder == other)
                {
                    Some((file, _)) if places.secrets.join(file).is_file() => directory
                        .join(SECRETS_COPY)
                        .join(file)
                        .display()
                        .to_string(),
                    Some(_) => {
                        let own = format!("CNI_CONF_{}", other.trim_end_matches("_FILE"));
                        get(&own)
                            .or_else(|| get(other))
                            .cloned()
                            .unwrap_or_default()
                    }
                    None => get(other).cloned().unwrap_or_default(),
                },
            })
        })?;
        let parsed: Value = serde_json::from_str(&text).context("the CNI configuration")?;
        if !parsed["plugins"].is_array() && !parsed["type"].is_string() {
            bail!("the CNI configuration has neither plugins nor a type");
        }
        Ok(Some(Self {
            places: places.clone(),
            directory,
            name: name.to_owned(),
            text,
            server,
            ca,
        }))
    }

    /// Copies the programs and the credentials of etcd. A running program is not disturbed.
    pub(super) fn copy(&self) -> Result<()> {
        let Places {
            cni_directory,
            cni_programs,
            programs,
            secrets,
        } = &self.places;
        if programs != cni_programs {
            for (program, calico) in PROGRAMS {
                let from = programs.join(program);
                if !from.is_file() {
                    bail!("{}: is missing; see --programs", from.display());
                }
                replace(&from, &cni_programs.join(program), 0o755)?;
                // Calico's configurations name its own programs.
                if self.text.contains(&format!("\"{calico}\"")) {
                    let link = cni_programs.join(calico);
                    let beside = cni_programs.join(format!("{calico}.new"));
                    let _ = fs::remove_file(&beside);
                    symlink(program, &beside)
                        .and_then(|()| fs::rename(&beside, &link))
                        .with_context(|| link.display().to_string())?;
                }
            }
        }
        for (file, _) in SECRETS {
            let from = secrets.join(file);
            if from.is_file() {
                let copies = cni_directory.join(SECRETS_COPY);
                fs::create_dir_all(&copies).with_context(|| copies.display().to_string())?;
                replace(&from, &copies.join(file), 0o600)?;
            }
        }
        Ok(())
    }

    /// Writes the kubeconfig of the plugin with a token. Only root may read it.
    pub(super) fn write_kubeconfig(&self, token: &str) -> Result<()> {
        let ca = STANDARD.encode(&self.ca);
        let (cluster, user) = (
            json!({"server": self.server, "certificate-authority-data": ca}),
            json!({ "token": token }),
        );
        let context = json!({"cluster": "local", "user": "calico"});
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "calico-context",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "calico", "user": user}],
            "contexts": [{"name": "calico-context", "context": context}],
        });
        // JSON is YAML.
        write(
            &self.places.cni_directory.join(KUBECONFIG),
            format!("{text:#}\n").as_bytes(),
            0o600,
        )
    }

    /// Writes the configuration: from then on runtimes start pods on this node.
    pub(super) fn write_configuration(&self) -> Result<()> {
        let path = self.places.cni_directory.join(&self.name);
        if fs::read(&path).is_ok_and(|old| old == self.text.as_bytes()) {
            return Ok(());
        }
        write(&path, self.text.as_bytes(), 0o600)
    }

    /// Returns the fields of the configuration that have no effect in this plugin, with reasons.
    pub(super) fn notes(&self) -> Vec<String> {
        let parsed: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let plugins = parsed["plugins"].as_array().map_or(&[][..], Vec::as_slice);
        let own = plugins.iter().chain([&parsed]).filter(|plugin| {
            let names = PROGRAMS.iter().flat_map(|(own, calico)| [own, calico]);
            names.into_iter().any(|name| plugin["type"] == *name)
        });
        let set = own.flat_map(|plugin| {
            let all = WITHOUT_EFFECT.iter();
            all.filter(|field| !plugin[**field].is_null())
        });
        set.map(|field| {
            format!("{field} of the CNI configuration has no effect: the runtime logs the errors")
        })
        .collect()
    }

    /// Returns the path of the configuration as runtimes see it.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// Replaces the placeholders `__NAME__` of a template.
fn fill_in(template: &str, value: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once("__") {
        text.push_str(before);
        let is_of_names = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        match behind.split_once("__") {
            Some((name, further)) if !name.is_empty() && name.chars().all(is_of_names) => {
                let value = value(name)?;
                // It is a part of a text in JSON.
                let quoted = Value::String(value).to_string();
                let inside = quoted.get(1..quoted.len() - 1);
                text.push_str(inside.unwrap_or_default());
                rest = further;
            }
            _ => {
                text.push_str("__");
                rest = behind;
            }
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// Replaces a file by the content of another one.
fn replace(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let octets = fs::read(from).with_context(|| from.display().to_string())?;
    if fs::read(to).is_ok_and(|old| old == octets) {
        return Ok(());
    }
    write(to, &octets, mode)
}

fn write(path: &Path, octets: &[u8], mode: u32) -> Result<()> {
    let fill = |mut file: &File| {
        file.write_all(octets)?;
        file.set_permissions(fs::Permissions::from_mode(mode))
    };
    let written = replace_file(path, |error: io::Error| error, fill);
    written
        .map(drop)
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The template of Calico's manifest.
    const TEMPLATE: &str = r#"{"name": "k8s-pod-network", "cniVersion": "0.3.1", "plugins": [
        {"type": "calico", "log_level": "info", "log_file_path": "/var/log/calico/cni/cni.log",
         "etcd_endpoints": "__ETCD_ENDPOINTS__", "etcd_key_file": "__ETCD_KEY_FILE__",
         "etcd_cert_file": "__ETCD_CERT_FILE__", "etcd_ca_cert_file": "__ETCD_CA_CERT_FILE__",
         "mtu": __CNI_MTU__, "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"},
         "nodename": "__KUBERNETES_NODE_NAME__",
         "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}},
        {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}]}"#;

    fn variables(more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let set = [
            ("CNI_NETWORK_CONFIG", TEMPLATE),
            ("CNI_MTU", "1440"),
            ("ETCD_ENDPOINTS", "https://10.0.0.9:2379"),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
        ];
        let all = set.iter().chain(more);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn places(root: &Path) -> Places {
        for directory in ["net.d", "bin", "programs", "secrets"] {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        for program in ["cambric-cni", "cambric-ipam"] {
            fs::write(root.join("programs").join(program), program).expect("written");
        }
        Places {
            cni_directory: root.join("net.d"),
            cni_programs: root.join("bin"),
            programs: root.join("programs"),
            secrets: root.join("secrets"),
        }
    }

    #[test]
    fn template_of_calico_is_filled_in_and_files_are_written() {
        let root = tempfile::tempdir().expect("a directory");
        let places = places(root.path());
        fs::write(root.path().join("secrets/etcd-ca"), "authority").expect("written");
        let cni = Cni::read(&places, &variables(&[]), "r1-c07", b"ca".to_vec());
        let cni = cni.expect("valid").expect("a template");
        cni.copy().expect("copied");
        cni.write_kubeconfig("QXZ").expect("written");
        assert!(
            !root.path().join("net.d/10-calico.conflist").exists(),
            "it is the last"
        );
        cni.write_configuration().expect("written");
        let text = fs::read_to_string(root.path().join("net.d/10-calico.conflist")).unwrap();
        let config: Value = serde_json::from_str(&text).expect("JSON");
        let plugin = &config["plugins"][0];
        assert_eq!(plugin["mtu"], 1440);
        let notes = cni.notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.concat().contains("log_file_path"), "{notes:?}");
        assert_eq!(plugin["nodename"], "r1-c07");
        assert_eq!(plugin["etcd_endpoints"], "https://10.0.0.9:2379");
        assert_eq!(
            plugin["etcd_ca_cert_file"],
            "/etc/cni/net.d/calico-tls/etcd-ca"
        );
        assert_eq!(plugin["etcd_key_file"], "");
        assert_eq!(
            plugin["kubernetes"]["kubeconfig"],
            "/etc/cni/net.d/calico-kubeconfig"
        );
        let link = fs::read(root.path().join("bin/calico")).expect("a program");
        assert_eq!(link, b"cambric-cni");
        let kubeconfig = root.path().join("net.d/calico-kubeconfig");
        let mode = fs::metadata(&kubeconfig)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = kube_client::Kubeconfig::read(&kubeconfig).expect("a kubeconfig");
        let access = read
            .access(&kube_client::Overrides::default())
            .expect("a server");
        assert_eq!(access.authority(), "10.96.0.1:443");
        let left = fs::read_dir(root.path().join("net.d")).unwrap().count();
        assert_eq!(left, 3, "no temporary files");
    }

    #[test]
    fn impossible_templates_are_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let places = places(root.path());
        for (template, words) in [
            ("{", "CNI configuration"),
            ("{}", "neither plugins nor a type"),
            (
                r#"{"type": "calico", "token": "__SERVICEACCOUNT_TOKEN__"}"#,
                "kubeconfig",
            ),
        ] {
            let variables = variables(&[("CNI_NETWORK_CONFIG", template)]);
            let refused = Cni::read(&places, &variables, "n", Vec::new());
            let error = format!("{:#}", refused.expect_err(words));
            assert!(error.contains(words), "{error}");
        }
        let mut without = variables(&[]);
        without.remove("CNI_NETWORK_CONFIG");
        assert!(
            Cni::read(&places, &without, "n", Vec::new())
                .unwrap()
                .is_none()
        );
        let name = variables(&[("CNI_CONF_NAME", "../x")]);
        assert!(Cni::read(&places, &name, "n", Vec::new()).is_err());
    }

    #[test]
    fn values_cannot_end_a_text_of_the_template() {
        let filled = fill_in(r#"{"a": "__A__", "b_": "__b__"}"#, |_| {
            Ok("x\", \"y\"".to_owned())
        });
        assert_eq!(filled.unwrap(), r#"{"a": "x\", \"y\"", "b_": "__b__"}"#);
    }
}
