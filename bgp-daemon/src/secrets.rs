//! Passwords that resources refer to, in a directory of files: the key `k` of the secret `s` is the
//! file `s/k`.
//!
//! A file that cannot be read, or has invalid keys, does not end an established session: programs
//! that write these files swap symbolic links, write in two steps or set wrong permissions. A
//! password that was read once stays valid as long as a resource refers to it, and another value
//! replaces it when it was read twice in a row. Files are read beside the loop: a directory that
//! does not answer delays the daemon at most for [`SECRETS_ANSWER_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::future::pending;
use std::io::{Error, ErrorKind, Read, Result};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bgp_config::SessionKeys;
use bgp_io::bgp_speaker::Password;
use calico_bgp::{Fault, SecretKeyRef, Secrets};
use nix::fcntl::OFlag;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant as Clock, sleep_until, timeout_at};

use crate::limits::{SECRET_OCTETS_MAX, SECRETS_ANSWER_MAX, SECRETS_READ_EVERY};

#[cfg(test)]
mod tests;

/// The name of a secret, and the key within it.
type Place = (String, String);

/// The result of a read of each file.
type Found = BTreeMap<Place, Result<Password>>;

/// The passwords that resources refer to.
#[derive(Debug)]
pub(crate) struct Keeper {
    directory: PathBuf,
    all: BTreeMap<Place, Secret>,
    /// The current read, and how long it is waited for.
    reading: Option<(JoinHandle<Found>, Clock)>,
    /// When to read again.
    read_at: Clock,
}

/// One password.
#[derive(Debug, Default)]
struct Secret {
    /// The password in use.
    value: Option<Password>,
    /// Another value that was read once, by the last read.
    seen: Option<Password>,
    /// The last error.
    trouble: Option<String>,
    /// Whether it was read at all.
    is_known: bool,
}

impl Keeper {
    /// Creates a keeper of no password. Must be called within a Tokio runtime.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            all: BTreeMap::new(),
            reading: None,
            read_at: Clock::now(),
        }
    }

    /// Sets the wanted passwords; removes all others.
    pub(crate) fn want(&mut self, wanted: BTreeSet<SecretKeyRef>) {
        let places = wanted.into_iter().map(|secret| (secret.name, secret.key));
        let mut former = mem::take(&mut self.all);
        self.all = places
            .map(|place| {
                let secret = former.remove(&place).unwrap_or_default();
                (place, secret)
            })
            .collect();
        if !self.is_settled() {
            self.read_at = Clock::now();
        }
    }

    /// Returns whether every password was read, or was not found for long enough.
    pub(crate) fn is_settled(&self) -> bool {
        self.all.values().all(|secret| secret.is_known)
    }

    /// Returns the passwords that were found.
    pub(crate) fn passwords(&self) -> Secrets {
        let all = self.all.iter();
        all.filter_map(|(place, secret)| Some((place.clone(), secret.value.clone()?)))
            .collect()
    }

    /// Returns the files with an error.
    pub(crate) fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        let all = self.all.iter();
        all.filter_map(|((name, key), secret)| {
            let trouble = secret.trouble.as_deref()?;
            let kept = match secret.value {
                Some(_) => ": the last password stays in effect",
                None => "",
            };
            Some(Fault {
                key: self.directory.join(name).join(key).display().to_string(),
                field: String::new(),
                reason: format!("{trouble}{kept}"),
            })
        })
    }

    /// Waits until a read ends or takes too long; returns whether anything has changed.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> bool {
        if self.all.is_empty() {
            return pending().await;
        }
        if self.reading.is_none() {
            sleep_until(self.read_at).await;
            let (directory, places) = (self.directory.clone(), self.all.keys().cloned());
            let places: Vec<Place> = places.collect();
            let reading = spawn_blocking(move || read(&directory, places));
            self.reading = Some((reading, Clock::now() + SECRETS_ANSWER_MAX));
        }
        let Some((reading, until)) = &mut self.reading else {
            return false;
        };
        let found = match self.all.values().all(|secret| secret.is_known) {
            true => reading.await,
            false => match timeout_at(*until, &mut *reading).await {
                Ok(found) => found,
                Err(_) => return self.give_up(),
            },
        };
        self.reading = None;
        let changed = self.take(found.unwrap_or_default());
        self.read_at = match self.is_settled() {
            true => Clock::now() + SECRETS_READ_EVERY,
            false => Clock::now(), // Another password was requested during the read.
        };
        changed
    }

    /// Counts passwords that were not found yet as missing.
    fn give_up(&mut self) -> bool {
        for secret in self.all.values_mut().filter(|secret| !secret.is_known) {
            secret.is_known = true;
            secret.trouble = Some("the directory does not answer".to_owned());
        }
        true
    }

    /// Processes the result of a read.
    fn take(&mut self, found: Found) -> bool {
        let mut changed = false;
        for (place, found) in found {
            if let Some(secret) = self.all.get_mut(&place) {
                changed |= secret.take(found);
            }
        }
        changed
    }
}

impl Secret {
    /// Processes the result of a read; returns whether anything has changed.
    fn take(&mut self, found: Result<Password>) -> bool {
        let (found, trouble) = match found {
            Ok(found) => match SessionKeys::read(&found) {
                Ok(_) => (Some(found), None),
                Err(reason) => (None, Some(reason)),
            },
            // The peer that needs it reports it.
            Err(error) if self.value.is_none() && error.kind() == ErrorKind::NotFound => {
                (None, None)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let first = !mem::replace(&mut self.is_known, true);
        let seen = mem::replace(&mut self.seen, found.clone());
        let taken = found.filter(|found| self.value.is_none() || seen.as_ref() == Some(found));
        let another = taken.is_some() && taken != self.value;
        if another {
            self.value = taken;
        }
        let trouble_changed = trouble != self.trouble;
        self.trouble = trouble;
        first || another || trouble_changed
    }
}

fn read(directory: &Path, places: Vec<Place>) -> Found {
    let found = places.into_iter().map(|place| {
        let found = read_one(directory, &place);
        (place, found)
    });
    found.collect()
}

fn read_one(directory: &Path, (name, key): &Place) -> Result<Password> {
    if !is_plain(name) || !is_plain(key) {
        return Err(Error::new(ErrorKind::InvalidInput, "is no name of a file"));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits()) // A named pipe does not block the read.
        .open(directory.join(name).join(key))?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "is no regular file"));
    }
    let mut text = String::new();
    file.take(SECRET_OCTETS_MAX).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).into())
}

/// Returns whether a name leads into no other directory.
fn is_plain(name: &str) -> bool {
    !(name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']))
}
