//! Loads a directory of YAML resources into a store.
//!
//! Every `.yaml`, `.yml` and `.json` file of the directory and those below it is read, documents
//! one after another. Their resources are written to the store; a resource that is no longer in the
//! directory is deleted from the store, if it came from the directory. A directory with a mistake
//! changes nothing: all mistakes are reported with file, line and caret, and the store stays unchanged.

mod apply;
mod document;
#[cfg(test)]
mod hostile;
pub mod limits;
#[cfg(test)]
mod mistaken;
mod mistakes;
mod parse;
mod read;
#[cfg(test)]
mod secrets;
mod syntax;
#[cfg(test)]
mod tests;
mod tree;
mod words;
mod yaml;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info};

use crate::limits::{MANIFEST_DEBOUNCE, MANIFEST_DEBOUNCE_MAX};
use apply::Applied;
use calico_store::Error;
use calico_store::Store;
use calico_store::resources::{ResourceError, Resources};
pub use document::{Document, Origin};
pub use mistakes::Mistakes;
pub use read::{documents, is_manifest, read_text, readable_documents};

/// Why a directory of manifests cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Files have mistakes.
    #[error("{0}")]
    Faults(Mistakes),
    /// The directory cannot be watched for changes.
    #[error("cannot watch {directory}: {source}", directory = .directory.display())]
    Watch {
        /// The directory.
        directory: PathBuf,
        /// The error.
        source: notify::Error,
    },
    /// The store returned an error.
    #[error("cannot write to the store: {0}")]
    Store(#[from] Error),
    /// `datastoreReady` cannot be set.
    #[error("cannot write to the store: {0}")]
    Ready(#[from] ResourceError),
}

/// One fault of a file, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file, or the directory itself.
    pub file: PathBuf,
    /// Line and column, from 1, if the fault has a place.
    pub place: Option<(u64, u64)>,
    /// Description of the fault.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some((line, column)) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

/// Returns a value in YAML. A value with a number that only text holds, such as one of 50 digits,
/// is returned in JSON, which is YAML as well.
///
/// # Errors
///
/// The value cannot be expressed in YAML, which should not happen with JSON values.
pub fn to_yaml(value: &serde_json::Value) -> Result<String, serde_saphyr::ser::Error> {
    if yaml::is_plain(value) {
        serde_saphyr::to_string(&yaml::Plain(value))
    } else {
        Ok(format!("{value:#}\n"))
    }
}

/// A directory of manifests that has been applied to a store.
pub struct Manifests {
    directory: PathBuf,
    applied: Applied,
    store: Arc<dyn Store>,
    changes: mpsc::Receiver<()>,
    /// Reports changes as long as it exists.
    _watcher: RecommendedWatcher,
}

impl Manifests {
    /// Reads a directory and writes its content to the store. Must be called within a tokio
    /// runtime.
    pub async fn load(
        directory: PathBuf,
        store: impl Store + 'static,
    ) -> Result<Self, ManifestError> {
        let store: Arc<dyn Store> = Arc::new(store);
        // Watched before it is read, so that no change is missed in between.
        let (changed, changes) = mpsc::channel(1);
        let failed = |source| ManifestError::Watch {
            directory: directory.clone(),
            source,
        };
        let mut watcher = notify::recommended_watcher(move |event| notify_changed(&changed, event))
            .map_err(failed)?;
        watcher
            .watch(&directory, RecursiveMode::Recursive)
            .map_err(failed)?;
        let mut manifests = Self {
            directory,
            applied: Applied::default(),
            store,
            changes,
            _watcher: watcher,
        };
        manifests.apply().await?;
        // Not before: a half-filled datastore must not be applied.
        let resources = Resources::from(Arc::clone(&manifests.store));
        resources.declare_ready().await?;
        Ok(manifests)
    }

    /// Reads the directory again and writes its content to the store.
    pub async fn apply(&mut self) -> Result<(), ManifestError> {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || read::directory(&directory)).await;
        let wanted = match read {
            Ok(wanted) => wanted.map_err(ManifestError::Faults)?,
            Err(_) => return Err(Error::Unavailable("the runtime is stopping".into()).into()),
        };
        let done = self.applied.apply(self.store.as_ref(), wanted).await?;
        if done.written + done.deleted > 0 {
            info!(
                directory = %self.directory.display(), written = done.written,
                deleted = done.deleted, unchanged = done.unchanged, "manifests applied"
            );
        }
        Ok(())
    }

    /// Applies the directory again whenever it changes, without end. If the directory has a fault,
    /// or the store does not answer, everything stays unchanged until the next change.
    pub async fn follow(mut self) {
        while self.changed().await {
            if let Err(error) = self.apply().await {
                error!("the manifests are not applied, the store keeps what it has:\n{error}");
            }
        }
    }

    /// Waits for a change, and then until no more changes follow.
    async fn changed(&mut self) -> bool {
        if self.changes.recv().await.is_none() {
            return false;
        }
        let latest = Instant::now() + MANIFEST_DEBOUNCE_MAX;
        loop {
            let quiet = (Instant::now() + MANIFEST_DEBOUNCE).min(latest);
            match timeout_at(quiet, self.changes.recv()).await {
                Ok(Some(())) if Instant::now() < latest => {}
                _ => return true,
            }
        }
    }
}

fn notify_changed(changed: &mpsc::Sender<()>, event: notify::Result<notify::Event>) {
    // Read accesses are not changes, and this program reads after each change. An error may hide a
    // change.
    if event.is_ok_and(|event| event.kind.is_access()) {
        return;
    }
    // Full: the directory will be read again anyway.
    let _ = changed.try_send(());
}
