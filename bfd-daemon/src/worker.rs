//! A thread that answers one request at a time, so that no packet waits for the answer.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use tokio::sync::Notify;

/// The end that requests.
#[derive(Debug)]
pub(crate) struct Worker<Q, A> {
    requests: SyncSender<Q>,
    answers: Receiver<A>,
    answered: Arc<Notify>,
}

impl<Q: Send + 'static, A: Send + 'static> Worker<Q, A> {
    /// Starts the thread. It has the priority of the calling one: call it before that is raised.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(
        name: &str,
        stack_octets: usize,
        answer: impl Fn(Q) -> A + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, requested) = sync_channel(1);
        let (sender, answers) = sync_channel(1);
        let answered = Arc::new(Notify::new());
        let wake = answered.clone();
        // It ends with the process, or with the other ends of the channels.
        thread::Builder::new()
            .name(name.to_owned())
            .stack_size(stack_octets)
            .spawn(move || {
                for request in requested {
                    if sender.send(answer(request)).is_err() {
                        return;
                    }
                    wake.notify_one();
                }
            })?;
        Ok(Self {
            requests,
            answers,
            answered,
        })
    }

    /// Requests an answer. One request may be in flight. Never waits: without its thread, there is no answer.
    pub(crate) fn request(&self, request: Q) {
        let _ = self.requests.try_send(request);
    }

    /// Returns the answer, if it has arrived.
    pub(crate) fn answer(&self) -> Option<A> {
        self.answers.try_recv().ok()
    }

    /// Waits until an answer has arrived. Cancel-safe.
    pub(crate) async fn ready(&self) {
        self.answered.notified().await;
    }
}
