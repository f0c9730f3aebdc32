//! Requests of operators, on their way to the loop of a daemon.

use tokio::sync::{mpsc, oneshot};

use crate::{Command, Reply, events, log_level};

/// One request, to be answered with [`Request::reply`]; if it is dropped, the client gets an error.
#[derive(Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    answer: oneshot::Sender<Reply>,
}

impl Request {
    /// Answers. A client that has disconnected is not an error.
    pub fn reply(self, reply: Reply) {
        let _ = self.answer.send(reply);
    }
}

/// Answers from the history of events or about the log; passes other commands to the daemon's loop.
pub(crate) async fn ask(requests: &mpsc::Sender<Request>, command: Command) -> Reply {
    match &command {
        Command::Events(query) => return events::answer(query).await,
        Command::Log {} => return Reply::Log(log_level::state()),
        Command::SetLog(request) => {
            let set = log_level::answer(request);
            return set.map_or_else(Reply::error, Reply::Log);
        }
        _ => {}
    }
    let (answer, answered) = oneshot::channel();
    if requests.send(Request { command, answer }).await.is_err() {
        return Reply::error("the daemon is shutting down");
    }
    answered
        .await
        .unwrap_or_else(|_| Reply::error("the daemon gave no answer"))
}
