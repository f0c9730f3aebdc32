//! The status files of this host's endpoints for plugins: one in `endpoint-status` while an
//! endpoint is up, as written by Calico's agent, and one in `endpoint-error` while it is rejected.
//!
//! They survive the program, like its kernel objects. A file of an earlier run is removed as soon
//! as its endpoint does not exist, otherwise after this run has had the time to bring the endpoint
//! up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use calico_model::{EndpointFile, EndpointState};
use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use crate::agent::EndpointView;
use crate::agent::retry::Retry;
use crate::calc::{Endpoint, EndpointId};

#[cfg(test)]
mod tests;

/// The files of all endpoints, if they are enabled.
#[derive(Debug, Default)]
pub(crate) struct EndpointFiles {
    place: Option<Place>,
    /// All endpoints of this host.
    endpoints: BTreeMap<EndpointId, (EndpointState, Content)>,
    /// Endpoints of which the files may be outdated.
    pending: BTreeSet<EndpointId>,
    retry: Retry,
}

/// The two directories, and their files.
#[derive(Debug)]
struct Place {
    /// The directory of both.
    prefix: PathBuf,
    up: Directory,
    error: Directory,
}

/// One directory.
#[derive(Debug)]
struct Directory {
    state: EndpointState,
    path: PathBuf,
    /// Temporary file that is renamed after writing, so that no reader sees a partial file.
    draft: PathBuf,
    /// Names of an earlier run's files; `None`: not read yet.
    left: Option<BTreeSet<String>>,
    /// This run's files.
    held: BTreeMap<EndpointId, Content>,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    endpoint: Endpoint,
    link: Option<u32>,
    reason: Option<String>,
}

impl Place {
    /// Returns files below `prefix`, without accessing them.
    fn new(prefix: &Path) -> Self {
        let directory = |state, name: &str| Directory {
            state,
            path: prefix.join(name),
            draft: prefix.join(format!(".{name}.new")),
            left: None,
            held: BTreeMap::new(),
        };
        Self {
            prefix: prefix.to_owned(),
            up: directory(EndpointState::Up, EndpointFile::UP),
            error: directory(EndpointState::Error, EndpointFile::ERROR),
        }
    }

    /// Removes the files of this run.
    fn remove_all(&self) -> Result<(), String> {
        let mut outcome = Ok(());
        for directory in [&self.up, &self.error] {
            for id in directory.held.keys() {
                let removed = directory.remove(&name(id));
                outcome = outcome.and(removed);
            }
        }
        outcome
    }
}

impl EndpointFiles {
    /// Moves the files below `prefix`; `None`: there are none. The former ones are removed.
    pub(crate) fn follow(&mut self, prefix: Option<&Path>) {
        if self.place.as_ref().map(|place| place.prefix.as_path()) == prefix {
            return;
        }
        let former = std::mem::replace(&mut self.place, prefix.map(Place::new));
        if let Some(Err(reason)) = former.map(|former| former.remove_all()) {
            let reason = Text::new(reason);
            emit(Event::EndpointFilesFailed { reason });
        }
        self.pending.extend(self.endpoints.keys().cloned());
        self.retry = Retry::default();
    }

    /// Updates the files with the state of these endpoints of this host, some of which may be
    /// deleted; all others are unchanged. Must be called only after the datastore has been read in
    /// full; `settled` is whether endpoints have had the time to come up since.
    pub(crate) fn update<'v>(
        &mut self,
        now: Instant,
        changed: impl IntoIterator<Item = (&'v EndpointId, Option<EndpointView<'v>>)>,
        settled: bool,
    ) {
        for (id, view) in changed {
            match view.map(|view| (view.state, Content::of(view))) {
                Some(content) => self.endpoints.insert(id.clone(), content),
                None => self.endpoints.remove(id),
            };
            self.pending.insert(id.clone());
        }
        let Some(Place { up, error, .. }) = &mut self.place else {
            self.pending.clear();
            return;
        };
        if self.retry.reason().is_some() && !self.retry.is_due(now) {
            return;
        }
        let mut undone = BTreeSet::new();
        let mut outcome = Ok(());
        for id in std::mem::take(&mut self.pending) {
            let content = self.endpoints.get(&id);
            let is_up = up.update(&id, content);
            let done = error.update(&id, content).and(is_up);
            if done.is_err() {
                undone.insert(id);
            }
            outcome = outcome.and(done);
        }
        self.pending = undone;
        if up.left.is_none() || error.left.is_none() {
            self.pending.extend(self.endpoints.keys().cloned());
        }
        for directory in [up, error] {
            let cleaned = directory.clean(&self.endpoints, settled);
            outcome = outcome.and(cleaned);
        }
        if let Some(reason) = self.retry.note(now, outcome) {
            let reason = Text::new(reason);
            emit(Event::EndpointFilesFailed { reason });
        }
    }

    /// Returns when a failed write is retried.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.retry.timeout()
    }

    /// Returns why a file is outdated.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.retry.reason()
    }
}

impl Directory {
    /// Writes the file of an endpoint, or removes it.
    fn update(
        &mut self,
        id: &EndpointId,
        content: Option<&(EndpointState, Content)>,
    ) -> Result<(), String> {
        self.look()?;
        let content = content.filter(|(state, _)| *state == self.state);
        match content {
            Some((_, content)) if self.held.get(id) == Some(content) => Ok(()),
            Some((_, content)) => self.write(id, content),
            None if self.held.contains_key(id) => {
                self.remove(&name(id))?;
                self.held.remove(id);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Creates the directory, and reads the names of an earlier run's files.
    fn look(&mut self) -> Result<(), String> {
        if self.left.is_some() {
            return Ok(());
        }
        let names = fs::create_dir_all(&self.path)
            .and_then(|()| fs::read_dir(&self.path))
            .and_then(|entries| {
                entries
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                    .collect()
            });
        self.left = Some(names.map_err(|error| at(&self.path, &error))?);
        Ok(())
    }

    fn write(&mut self, id: &EndpointId, content: &Content) -> Result<(), String> {
        let name = name(id);
        let path = self.path.join(&name);
        let octets = serde_json::to_vec(&content.file()).map_err(|error| error.to_string())?;
        let written = fs::write(&self.draft, octets);
        let written = written.and_then(|()| fs::rename(&self.draft, &path));
        if let Err(error) = written {
            if error.kind() == ErrorKind::NotFound {
                self.left = None; // The directory was removed, and all files with it.
                self.held.clear();
            }
            return Err(at(&path, &error));
        }
        self.held.insert(id.clone(), content.clone());
        if let Some(left) = &mut self.left {
            left.remove(&name);
        }
        Ok(())
    }

    /// Removes an earlier run's files that this run does not want.
    fn clean(
        &mut self,
        endpoints: &BTreeMap<EndpointId, (EndpointState, Content)>,
        settled: bool,
    ) -> Result<(), String> {
        self.look()?;
        let Some(left) = self.left.as_ref().filter(|left| !left.is_empty()) else {
            return Ok(());
        };
        // A rejection of an earlier run must not fail a plugin now.
        let may_come = |_: &&EndpointId| !settled && self.state == EndpointState::Up;
        let kept: BTreeSet<String> = endpoints.keys().filter(may_come).map(name).collect();
        let gone: Vec<String> = left.difference(&kept).cloned().collect();
        for name in gone {
            self.remove(&name)?;
            if let Some(left) = &mut self.left {
                left.remove(&name);
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(at(&path, &error)),
            _ => Ok(()),
        }
    }
}

impl Content {
    fn of(view: EndpointView<'_>) -> Self {
        Self {
            endpoint: view.placement.endpoint.clone(),
            link: view.link,
            reason: view.reason,
        }
    }

    fn file(&self) -> EndpointFile {
        let endpoint = &self.endpoint;
        let networks = |ipv4| {
            let addresses = endpoint.addresses.iter();
            let of_family = addresses.filter(move |address| address.is_ipv4() == ipv4);
            of_family.map(|address| (*address).into()).collect()
        };
        EndpointFile {
            iface_name: endpoint.interface.clone(),
            mac: endpoint.mac,
            ipv4_nets: networks(true),
            ipv6_nets: networks(false),
            bgp_peer_name: String::new(),
            if_index: self.link,
            container_id: endpoint.container_id.clone(),
            reason: self.reason.clone().unwrap_or_default(),
        }
    }
}

fn name(id: &EndpointId) -> String {
    EndpointFile::name(&id.orchestrator, &id.workload, &id.endpoint)
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}
