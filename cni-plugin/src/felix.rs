//! Felix's status reports: an endpoint is ready when it is in the kernel, not when it is in the
//! datastore.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use calico_model::{EndpointFile, Mac, Network};
use notify::{RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::failure::{Code, Failure};
use crate::limits::{FELIX_LOOK, FELIX_TIMEOUT};

/// An endpoint that Felix is expected to set up.
#[derive(Debug, Clone)]
pub(crate) struct Expected<'a> {
    /// Directory of the status files of endpoints that are up.
    pub(crate) directory: &'a Path,
    /// Name of its status file.
    pub(crate) file: &'a str,
    /// Its interface, its container and its addresses: an earlier endpoint of the same name has
    /// others.
    pub(crate) interface: &'a str,
    pub(crate) index: Option<u32>,
    pub(crate) container_id: &'a str,
    pub(crate) mac: Option<Mac>,
    pub(crate) addresses: &'a [IpAddr],
}

/// A status report of Felix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Up,
    Refused(String),
}

impl Expected<'_> {
    /// Returns the directory of the files of rejected endpoints.
    fn refusals(&self) -> PathBuf {
        self.directory.with_file_name(EndpointFile::ERROR)
    }

    /// Returns the present report of Felix, if there is one.
    pub(crate) fn word(&self) -> Option<Word> {
        if self.read(self.directory).is_some() {
            return Some(Word::Up);
        }
        let refused = self.read(&self.refusals())?;
        Some(Word::Refused(refused.reason))
    }

    fn read(&self, directory: &Path) -> Option<EndpointFile> {
        let text = fs::read(directory.join(self.file)).ok()?;
        let file: EndpointFile = serde_json::from_slice(&text).ok()?;
        let networks = file.ipv4_nets.iter().chain(&file.ipv6_nets);
        let reported: BTreeSet<IpAddr> = networks.map(Network::address).collect();
        // Calico's agent writes neither of these fields; then the other fields decide.
        let is_new = file.if_index.is_none_or(|index| self.index == Some(index))
            && [self.container_id, ""].contains(&&*file.container_id);
        let is_its = is_new
            && file.iface_name == self.interface
            && file.mac == self.mac
            && reported == self.addresses.iter().copied().collect();
        is_its.then_some(file)
    }

    /// Waits until Felix has set the endpoint up.
    pub(crate) async fn wait(&self, limit: Duration) -> Result<(), Failure> {
        match timeout(limit, self.answer()).await {
            Ok(Ok(Word::Up)) => Ok(()),
            Ok(Ok(Word::Refused(reason))) => {
                let message = format!("Felix refuses the endpoint of {}: {reason}", self.interface);
                Err(Failure::new(Code::Refused, message))
            }
            Ok(Err(error)) => {
                let message = format!("creating {}: {error}", self.directory.display());
                Err(Failure::new(Code::Io, message))
            }
            Err(_) => {
                let message = format!(
                    "Felix has not set up the endpoint of {} within {limit:?}",
                    self.interface
                );
                let details = format!(
                    "there is no {} in {}; see whether it runs: `cambric show endpoints`",
                    self.file,
                    self.directory.display()
                );
                Err(Failure::new(Code::Later, message).details(details))
            }
        }
    }

    async fn answer(&self) -> io::Result<Word> {
        let changed = Arc::new(Notify::new());
        // The plugin or the agent creates the directories, whichever runs first.
        for directory in [self.directory, &self.refusals()] {
            make(directory)?;
        }
        // The kernel limits the watchers of a user (`fs.inotify.max_user_instances`), and pods that
        // start at the same time may need more.
        let watcher = self.watch(changed.clone()).ok();
        let look_every = watcher.as_ref().map_or(FELIX_LOOK, |_| FELIX_TIMEOUT);
        Ok(self.look(&changed, look_every).await)
    }

    /// Watches both directories, and notifies of each change.
    fn watch(&self, changed: Arc<Notify>) -> notify::Result<impl Sized> {
        // An error also triggers another look.
        let mut watcher = notify::recommended_watcher(move |_| changed.notify_one())?;
        for directory in [self.directory, &self.refusals()] {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
        }
        Ok(watcher)
    }

    /// Looks for a report after each notification, and at this interval.
    async fn look(&self, changed: &Notify, every: Duration) -> Word {
        loop {
            // A file that existed before the watch causes no event.
            if let Some(word) = self.word() {
                return word;
            }
            // Late is as good as changed: then it looks again.
            let _ = timeout(every, changed.notified()).await;
        }
    }
}

/// Creates a directory, and its missing parents, for the agent to write in. New directories get the
/// owner of the existing parent, because the agent's systemd unit does not run it as root.
fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        make(above)?;
    }
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let above = directory.parent().unwrap_or(directory).metadata()?;
    chown(directory, Some(above.uid()), Some(above.gid()))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn run<T>(test: impl AsyncFnOnce(&Path) -> T) -> T {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test(&directory.path().join(EndpointFile::UP)))
    }

    const ADDRESSES: [IpAddr; 2] = [
        IpAddr::V6(Ipv6Addr::new(0xfd65, 0, 0, 0, 0, 0, 0, 1)),
        IpAddr::V4(Ipv4Addr::new(10, 65, 0, 1)),
    ];

    fn expected(directory: &Path) -> Expected<'_> {
        Expected {
            directory,
            file: "cni default%2Fa eth0",
            interface: "cali1",
            index: Some(7),
            container_id: "9f3c",
            mac: Some(Mac([2; 6])),
            addresses: &ADDRESSES,
        }
    }

    /// Returns the report of Felix for the endpoint.
    fn endpoint_file() -> EndpointFile {
        EndpointFile {
            iface_name: "cali1".into(),
            if_index: Some(7),
            container_id: "9f3c".into(),
            mac: Some(Mac([2; 6])),
            ipv4_nets: vec!["10.65.0.1/32".parse().unwrap()],
            ipv6_nets: vec!["fd65::1/128".parse().unwrap()],
            ..EndpointFile::default()
        }
    }

    fn write(directory: &Path, file: &EndpointFile) {
        fs::create_dir_all(directory).unwrap();
        // Written atomically.
        let temporary = directory.join(".new");
        fs::write(&temporary, serde_json::to_vec(file).unwrap()).unwrap();
        fs::rename(temporary, directory.join("cni default%2Fa eth0")).unwrap();
    }

    /// An unprivileged user who runs this owns all of the directories in any case.
    #[test]
    fn created_directory_has_the_owner_of_its_parent() {
        let owned = tempfile::tempdir().unwrap();
        let uid = |path: &Path| path.metadata().unwrap().uid();
        let _ = chown(owned.path(), Some(4711), None);
        let below = owned.path().join("calico/endpoint-status");
        make(&below).unwrap();
        make(&below).unwrap();
        for path in [&*below, &owned.path().join("calico")] {
            assert_eq!(uid(path), uid(owned.path()), "{}", path.display());
        }
    }

    #[test]
    fn plugin_waits_for_the_file_of_its_own_endpoint() {
        run(async |directory| {
            // Files of earlier containers, each of which differs in one field only.
            let waiting = expected(directory);
            let others: [fn(&mut EndpointFile); 5] = [
                |file| file.mac = Some(Mac([1; 6])),
                |file| file.ipv4_nets = vec!["10.65.0.2/32".parse().unwrap()],
                |file| file.ipv6_nets.clear(),
                |file| file.if_index = Some(6),
                |file| file.container_id = "77aa".into(),
            ];
            for change in others {
                let mut file = endpoint_file();
                change(&mut file);
                write(directory, &file);
                assert_eq!(waiting.word(), None, "{file:?}");
            }
            let late = waiting.wait(Duration::ZERO).await.unwrap_err();
            assert_eq!(late.code, 11);
            let write = async { write(directory, &endpoint_file()) };
            let (answer, ()) = tokio::join!(waiting.answer(), write);
            assert_eq!(answer.unwrap(), Word::Up);
        });
    }

    #[test]
    fn report_is_found_without_a_watcher() {
        run(async |directory| {
            let waiting = expected(directory);
            let silent = Notify::new();
            let write = async {
                tokio::time::sleep(FELIX_LOOK / 2).await;
                write(directory, &endpoint_file());
            };
            let (word, ()) = tokio::join!(waiting.look(&silent, FELIX_LOOK), write);
            assert_eq!(word, Word::Up);
        });
    }

    #[test]
    fn endpoint_file_of_calico_felix_is_accepted() {
        run(async |directory| {
            let file = EndpointFile {
                if_index: None,
                container_id: String::new(),
                ..endpoint_file()
            };
            write(directory, &file);
            assert_eq!(expected(directory).word(), Some(Word::Up));
        });
    }

    #[test]
    fn refusal_is_returned_with_its_reason() {
        run(async |directory| {
            let waiting = expected(directory);
            let refusals = waiting.refusals();
            let file = EndpointFile {
                reason: "no such prefix".into(),
                ..endpoint_file()
            };
            let write = async { write(&refusals, &file) };
            let (answer, ()) = tokio::join!(waiting.wait(Duration::from_secs(60)), write);
            let failure = answer.unwrap_err();
            assert_eq!(failure.code, 102);
            assert!(failure.message.ends_with("no such prefix"), "{failure}");
        });
    }
}
