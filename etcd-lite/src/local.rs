//! A core owned by one task, to which all others send commands.

use std::time::Duration;

use futures_util::stream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::info;

use crate::core::{Core, CoreConfig, WatchCursor, WatchPoll};
use crate::kept::{Kept, KeptError, Saved};
use crate::limits::{
    FULL_DISK_RECHECK, KEPT_FRAME_OCTETS, KEPT_PIECE_OCTETS, MAILBOX_COMMANDS_MAX,
};
use calico_store::Error;
use calico_store::{Answer, Store, Watch, WatchRequest};
use calico_store::{Batch, Lease, LeaseId, LeaseState, Listing, Query, Revision};
use calico_store::{Txn, TxnReply};

/// A command for the owner task: it runs with the core and the time since the core was created, and
/// returns the notification of its caller, which is sent after the changes are stored.
type Command = Box<dyn FnOnce(&mut Core, Duration) -> Reply + Send>;

/// Gets whether the changes are stored.
type Reply = Box<dyn FnOnce(Saved) + Send>;

/// A handle to a core in a task. Cheap to clone; the task ends with the last handle.
#[derive(Debug, Clone)]
pub struct Local {
    mailbox: mpsc::Sender<Command>,
    /// Counts changes that may give watches a new result.
    changes: watch::Receiver<u64>,
}

impl Local {
    /// Moves a core to a new task. Must be called within a tokio runtime.
    pub fn spawn(core: Core) -> Self {
        Self::spawn_kept(core, None).0
    }

    /// Moves a core to a new task that writes all changes into a file before it answers. On a
    /// failure the store stops, and returns the error.
    pub(crate) fn spawn_kept(
        core: Core,
        kept: Option<Kept>,
    ) -> (Self, oneshot::Receiver<KeptError>) {
        let (mailbox, commands) = mpsc::channel(MAILBOX_COMMANDS_MAX);
        let (changed, changes) = watch::channel(0);
        let (failed, failure) = oneshot::channel();
        tokio::spawn(async move {
            if let Err(error) = own(core, kept, commands, changed).await {
                // The receiver is gone: the store stops all the same.
                let _ = failed.send(error);
            }
        });
        (Self { mailbox, changes }, failure)
    }

    /// Returns an empty store with default limits.
    pub fn empty() -> Self {
        Self::spawn(Core::new(CoreConfig::default()))
    }

    /// Runs a closure on the core, as one step, and returns its result. The closure gets the time
    /// since the core was moved to the task.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core, Duration) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let gone = || Error::Unavailable("the store has stopped".into());
        let (reply, answer) = oneshot::channel();
        let command: Command = Box::new(move |core, now| {
            let done = work(core, now);
            Box::new(move |saved| {
                let done = match saved {
                    Saved::Stored => Ok(done),
                    Saved::NotStored => Err(Error::NoSpace),
                };
                // The caller is gone: the work is done all the same.
                let _ = reply.send(done);
            })
        });
        self.mailbox.send(command).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    async fn try_call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core, Duration) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.call(work).await?
    }

    /// Wakes the tasks that poll cursors of this core.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

async fn own(
    mut core: Core,
    mut kept: Option<Kept>,
    mut commands: mpsc::Receiver<Command>,
    changed: watch::Sender<u64>,
) -> Result<(), KeptError> {
    let origin = Instant::now();
    let mut published = core.stamp();
    let mut replies: Vec<Reply> = Vec::new();
    let mut next_look = origin + FULL_DISK_RECHECK;
    loop {
        let expiry = core.next_expiry().map(|ends| origin + ends);
        let look = core.is_full().then_some(next_look);
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => replies.push(command(&mut core, origin.elapsed())),
                None => return Ok(()),
            },
            () = wait_until(expiry) => core.expire(origin.elapsed()),
            () = wait_until(look) => core.look_for_space(),
        }
        let mut saved = Saved::Stored;
        if let Some(open) = kept.take() {
            // Queued commands share the same write to disk.
            while replies.len() < MAILBOX_COMMANDS_MAX
                && core.journal_octets() < KEPT_FRAME_OCTETS
                && let Ok(command) = commands.try_recv()
            {
                replies.push(command(&mut core, origin.elapsed()));
            }
            let (open, done) = keep(open, &mut core, origin).await?;
            (kept, saved) = (Some(open), done);
            if next_look <= Instant::now() {
                next_look = Instant::now() + FULL_DISK_RECHECK;
            }
        }
        replies.drain(..).for_each(|reply| reply(saved));
        let stamp = core.stamp();
        if stamp != published {
            published = stamp;
            changed.send_modify(|count| *count += 1);
        }
    }
}

/// Writes the recorded changes to the file. If they do not fit, restores the core.
async fn keep(
    mut kept: Kept,
    core: &mut Core,
    origin: Instant,
) -> Result<(Kept, Saved), KeptError> {
    let records = core.take_journal();
    let looks = core.take_look_for_space();
    if records.is_empty() && !looks {
        return Ok((kept, Saved::Stored));
    }
    let was_full = kept.is_full();
    let octets = (core.octets() + core.log_octets()) as u64;
    let base = kept
        .is_wasteful(octets)
        .then(|| core.base(KEPT_PIECE_OCTETS));
    let written = tokio::task::spawn_blocking(move || {
        let saved = match records.is_empty() {
            true => Saved::Stored,
            false => kept.save(&records, base.as_deref())?,
        };
        // A rewritten file may have freed the space.
        if looks || base.is_some() {
            kept.look_for_space()?;
        }
        let restored = match saved {
            Saved::Stored => None,
            Saved::NotStored => Some(kept.restore()?),
        };
        Ok::<_, KeptError>((kept, saved, restored))
    });
    let written = match written.await {
        Ok(written) => written,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let (kept, saved, restored) = written?;
    if let Some(mut restored) = restored {
        restored.take_the_place_of(core, origin.elapsed());
        *core = restored;
    }
    if was_full && !kept.is_full() {
        info!("the disk of the store has space again: writes are accepted");
    }
    core.set_full(kept.is_full());
    Ok((kept, saved))
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The state of a watch's stream.
struct LocalWatch {
    store: Local,
    cursor: Option<WatchCursor>,
    changes: watch::Receiver<u64>,
    probes: mpsc::Receiver<()>,
}

impl LocalWatch {
    async fn next(&mut self) -> Option<Result<Batch, Error>> {
        loop {
            self.changes.mark_unchanged();
            match self.poll().await {
                Ok(WatchPoll::Events(batch)) => return Some(Ok(batch)),
                Ok(WatchPoll::Idle) => {}
                Ok(WatchPoll::Ended(error)) | Err(error) => {
                    self.cursor = None;
                    return Some(Err(error));
                }
            }
            self.cursor.as_ref()?;
            tokio::select! {
                changed = self.changes.changed() => changed.ok()?,
                Some(()) = self.probes.recv() => {
                    if let Ok(Some(progress)) = self.store.call(|core, _| core.progress()).await {
                        return Some(Ok(progress));
                    }
                }
            }
        }
    }

    async fn poll(&mut self) -> Result<WatchPoll, Error> {
        let Some(mut cursor) = self.cursor.take() else {
            return Ok(WatchPoll::Idle);
        };
        let (poll, cursor) = self
            .store
            .call(move |core, _| {
                let poll = core.poll_watch(&mut cursor);
                (poll, cursor)
            })
            .await?;
        self.cursor = Some(cursor);
        Ok(poll)
    }
}

impl Store for Local {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(self.try_call(move |core, _| core.range(&query)))
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        Box::pin(self.try_call(move |core, _| core.txn(&txn)))
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
        Box::pin(async move {
            let changes = self.changes();
            let begin = move |core: &mut Core, _| Ok((core.watch(request)?, core.header()));
            let (cursor, header) = self.try_call(begin).await?;
            let (probe, probes) = mpsc::channel(1);
            let state = LocalWatch {
                store: self.clone(),
                cursor: Some(cursor),
                changes,
                probes,
            };
            let batches = stream::unfold(state, |mut state| async move {
                let batch = state.next().await?;
                Some((batch, state))
            });
            Ok(Watch::new(header, Box::pin(batches), probe))
        })
    }

    fn compact(&self, at: Revision) -> Answer<'_, ()> {
        Box::pin(self.try_call(move |core, _| core.compact(at)))
    }

    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease> {
        Box::pin(self.try_call(move |core, now| core.lease_grant(now, LeaseId::NONE, ttl_s)))
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64> {
        Box::pin(self.try_call(move |core, now| core.lease_keep_alive(now, id)))
    }

    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        Box::pin(self.try_call(move |core, _| core.lease_revoke(id)))
    }

    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState> {
        Box::pin(self.try_call(move |core, now| core.lease_state(now, id)))
    }
}
