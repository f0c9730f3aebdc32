//! The modules of the resolver: libraries that the C library loads at a look-up.
//!
//! A confined process maps no file as code, so they are loaded before.

#![allow(unsafe_code)] // A library is loaded.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;

/// The C library's own modules, in libraries of their own before glibc 2.34.
const OWN: &[&str] = &["files", "dns"];

/// Look-ups of a daemon: names of hosts, and users of the host guard.
const DATABASES: &[&str] = &["hosts", "passwd"];

/// Loads the modules that the configuration of the C library names. A missing one stays missing, as
/// for every program.
pub(super) fn load() {
    let text = fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    for module in named(&text) {
        let Ok(library) = CString::new(format!("libnss_{module}.so.2")) else {
            continue;
        };
        // SAFETY: the C library loads the same library at a look-up, from the same directories. It
        // stays loaded, so nothing refers to a library that was unloaded.
        unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY) };
    }
}

/// Returns the modules that `nsswitch.conf` names, and the C library's own ones.
fn named(text: &str) -> BTreeSet<&str> {
    let mut modules: BTreeSet<&str> = OWN.iter().copied().collect();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some((database, services)) = line.split_once(':') else {
            continue;
        };
        if DATABASES.contains(&database.trim()) {
            modules.extend(services_of(services));
        }
    }
    modules
}

/// Returns the services of a line, without actions such as `[NOTFOUND=return]`.
fn services_of(services: &str) -> impl Iterator<Item = &str> {
    let outside = services.split('[').enumerate().map(|(index, part)| {
        let after_action = part.split_once(']').map_or("", |(_, after)| after);
        if index == 0 { part } else { after_action }
    });
    let words = outside.flat_map(str::split_whitespace);
    words.filter(|word| !word.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_hosts_and_users_are_named() {
        let text = "# hosts: one\npasswd:  files systemd\nshadow: two\n\
                    hosts: mymachines resolve [!UNAVAIL=return NOTFOUND=continue] myhostname ../x\n";
        let expected = [
            "dns",
            "files",
            "myhostname",
            "mymachines",
            "resolve",
            "systemd",
        ];
        assert_eq!(named(text), expected.into());
        assert_eq!(named(""), ["dns", "files"].into());
    }
}
