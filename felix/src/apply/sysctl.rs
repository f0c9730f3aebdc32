//! Kernel settings under `/proc/sys/net`, in the network namespace of the calling thread.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::agent::Forwarding;

/// A setting with the value it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Path below `/proc/sys/net`.
    pub path: String,
    /// The value.
    pub value: String,
    /// Whether an endpoint may be up without it.
    pub weight: Weight,
}

/// The consequence of a failed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The interface is not configured.
    Required,
    /// A warning is logged.
    Desired,
}

/// A setting that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("sysctl net.{} = {value}: {cause}", .path.replace('/', "."))]
pub struct SysctlError {
    /// Path below `/proc/sys/net`.
    pub path: String,
    /// The value.
    pub value: String,
    /// The kernel's error.
    pub cause: io::Error,
}

/// Access to the settings.
#[derive(Clone, Debug)]
pub struct Sysctl {
    root: PathBuf,
}

impl Default for Sysctl {
    fn default() -> Self {
        Self::at("/proc/sys/net")
    }
}

impl Sysctl {
    /// Returns settings below another directory, for tests.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Writes a setting, unless it already has the value.
    ///
    /// # Errors
    ///
    /// The file does not exist or cannot be written.
    pub fn set(&self, setting: &Setting) -> Result<(), SysctlError> {
        if self.read(&setting.path).as_deref() == Some(&setting.value) {
            return Ok(());
        }
        let path = self.root.join(&setting.path);
        // Without O_CREAT: an unknown setting must not become a file.
        let written = std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| io::Write::write_all(&mut file, setting.value.as_bytes()));
        written.map_err(|cause| SysctlError {
            path: setting.path.clone(),
            value: setting.value.clone(),
            cause,
        })
    }

    /// Raises a number to a minimum. Returns whether it has it; not if the setting does not exist.
    pub(crate) fn raise(&self, path: &str, minimum: u64) -> bool {
        let found = self.read(path).and_then(|value| value.parse::<u64>().ok());
        let is_low = found.is_some_and(|found| found < minimum);
        let raised = setting(path.into(), &minimum.to_string(), Weight::Desired);
        found.is_some() && (!is_low || self.set(&raised).is_ok())
    }

    /// Returns a setting's value.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns whether the kernel has IPv6.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.root.join("ipv6").is_dir()
    }

    /// Returns whether the host answers ARP requests for each of its addresses on every interface,
    /// which is the kernel's default (`arp_ignore`, set by kube-proxy's strict ARP).
    pub(crate) fn answers_arp_for_any_address(&self) -> bool {
        let ignore = self.read("ipv4/conf/all/arp_ignore");
        ignore.is_none_or(|value| value == "0")
    }

    /// Returns the `rp_filter` of all interfaces: the higher value of it and the interface's own counts.
    pub(crate) fn common_rp_filter(&self) -> String {
        self.read("ipv4/conf/all/rp_filter")
            .unwrap_or_else(|| UNCHECKED.into())
    }

    /// Returns the `rp_filter` of new interfaces; 1 if it cannot be read.
    pub(crate) fn default_rp_filter(&self) -> String {
        self.read("ipv4/conf/default/rp_filter")
            .unwrap_or_else(|| "1".into())
    }
}

/// The `rp_filter` with which the kernel does not check source addresses. With any other value, an
/// interface without an address accepts only sources that are routed to it.
pub(crate) const UNCHECKED: &str = "0";

fn setting(path: String, value: &str, weight: Weight) -> Setting {
    Setting {
        path,
        value: value.into(),
        weight,
    }
}

/// Returns the host's own settings, which enable forwarding unless it is left as it is.
pub fn host_settings(wanted: Forwarding) -> Vec<Setting> {
    let accounts = "netfilter/nf_conntrack_acct".into();
    let mut settings = vec![setting(accounts, "1", Weight::Desired)];
    if wanted.enabled {
        settings.push(setting("ipv4/ip_forward".into(), "1", Weight::Required));
    }
    if wanted.enabled && wanted.ipv6 {
        settings.push(setting(
            "ipv6/conf/all/forwarding".into(),
            "1",
            Weight::Required,
        ));
    }
    settings
}

/// The memory for incomplete packets, for each way in which the kernel reassembles them. With more of
/// it, the budget of a workload is a part.
pub(crate) const FRAGMENT_MEMORY: [&str; 3] = [
    "ipv4/ipfrag_high_thresh",
    "ipv6/ip6frag_high_thresh",
    "netfilter/nf_conntrack_frag6_high_thresh",
];

/// Returns the settings of a workload interface. `rp_filter` is the host's default for new
/// interfaces.
pub fn interface_settings(interface: &str, rp_filter: &str, ipv6: bool) -> Vec<Setting> {
    let conf4 = |name: &str| format!("ipv4/conf/{interface}/{name}");
    let conf6 = |name: &str| format!("ipv6/conf/{interface}/{name}");
    let required = Weight::Required;
    let mut settings = vec![
        setting(conf4("route_localnet"), "1", required),
        // The answer to a workload's ARP request is sent without delay.
        setting(
            format!("ipv4/neigh/{interface}/proxy_delay"),
            "0",
            Weight::Desired,
        ),
        setting(conf4("proxy_arp"), "1", required),
        setting(conf4("forwarding"), "1", required),
        setting(conf4("rp_filter"), rp_filter, required),
    ];
    if ipv6 {
        settings.extend([
            // The host ignores router advertisements of workloads.
            setting(conf6("accept_ra"), "0", required),
            setting(conf6("proxy_ndp"), "1", required),
            setting(conf6("forwarding"), "1", required),
        ]);
    }
    settings
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net.{} = {}", self.path.replace('/', "."), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_written_only_when_it_differs_and_never_created() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("ipv4/conf/cali1")).unwrap();
        let file = root.path().join("ipv4/conf/cali1/proxy_arp");
        std::fs::write(&file, "0\n").unwrap();
        let sysctl = Sysctl::at(root.path());
        let proxy_arp = setting("ipv4/conf/cali1/proxy_arp".into(), "1", Weight::Required);
        sysctl.set(&proxy_arp).unwrap();
        assert_eq!(
            sysctl.read("ipv4/conf/cali1/proxy_arp").as_deref(),
            Some("1")
        );
        let absent = setting("ipv4/conf/cali2/proxy_arp".into(), "1", Weight::Required);
        let error = sysctl.set(&absent).unwrap_err().to_string();
        assert!(
            error.starts_with("sysctl net.ipv4.conf.cali2.proxy_arp = 1: "),
            "{error}"
        );
    }

    #[test]
    fn number_is_raised_and_never_lowered() {
        let root = tempfile::tempdir().unwrap();
        let sysctl = Sysctl::at(root.path());
        assert!(!sysctl.raise("high", 5), "the file does not exist");
        for (before, after) in [("4\n", "5"), ("6\n", "6"), ("5\n", "5")] {
            std::fs::write(root.path().join("high"), before).unwrap();
            assert!(sysctl.raise("high", 5));
            assert_eq!(sysctl.read("high").as_deref(), Some(after));
        }
        std::fs::write(root.path().join("high"), "many").unwrap();
        assert!(!sysctl.raise("high", 5));
    }

    #[test]
    fn ipv6_settings_only_where_the_kernel_has_ipv6() {
        let paths = |ipv6| -> Vec<String> {
            let settings = interface_settings("cali1", "2", ipv6);
            settings
                .into_iter()
                .map(|setting| setting.to_string())
                .collect()
        };
        assert!(paths(false).iter().all(|path| path.starts_with("net.ipv4")));
        assert!(paths(true).contains(&"net.ipv6.conf.cali1.accept_ra = 0".to_owned()));
        assert!(paths(true).contains(&"net.ipv4.conf.cali1.rp_filter = 2".to_owned()));
    }
}
