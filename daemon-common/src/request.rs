//! Requests of operators, on their way to the loop of a daemon.

use tokio::sync::{mpsc, oneshot};

use crate::{Command, Reply, events, log_level};

/// One request, to be answered with [`Request::reply`]; dropped unanswered, the client is told so.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub command: Command,
    answer: oneshot::Sender<Reply>,
}

impl Request {
    /// Answers. A client that has left meanwhile is no error.
    pub fn reply(self, reply: Reply) {
        let _ = self.answer.send(reply);
    }
}

/// Answers from the history of events or about the log, or has the daemon's loop answer a command.
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
