//! One client.

use futures_util::StreamExt;
use jiff::Zoned;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::ask::{Ask, RouteAsk};
use super::lines::Lines;
use super::protocols::Which;
use super::routes::Count;
use super::{VERSION, View, protocols, routes, status};
use crate::limits::{BIRD_IDLE, BIRD_LINE_OCTETS_MAX, WRITE};
use crate::report::{Neighbors, Status};
use crate::request::{Request, ask};
use crate::{Command, Reply};

/// Text after the code of an unsupported command.
const UNKNOWN: &str = "syntax error: known are show status, show protocols and show route";

/// Answers a client until it disconnects, is silent for long, or does not read the answers.
pub(crate) async fn serve(stream: UnixStream, requests: mpsc::Sender<Request>, view: View) {
    let (read, write) = stream.into_split();
    let codec = LinesCodec::new_with_max_length(BIRD_LINE_OCTETS_MAX);
    let mut lines = FramedRead::new(read, codec);
    let mut client = Client {
        write,
        requests,
        view,
        out: Lines::default(),
    };
    client.out.end(1, format_args!("BIRD {VERSION} ready."));
    while let Some(()) = client.send().await {
        match timeout(BIRD_IDLE, lines.next()).await {
            Ok(Some(Ok(line))) => {
                if let Err(Gone) = client.answer(&line).await {
                    return;
                }
            }
            Ok(Some(Err(LinesCodecError::MaxLineLengthExceeded))) => {
                client.out.end(9000, "Command too long");
                client.send().await;
                return;
            }
            _ => return,
        }
    }
}

/// The client no longer reads answers.
struct Gone;

struct Client {
    write: OwnedWriteHalf,
    requests: mpsc::Sender<Request>,
    view: View,
    out: Lines,
}

impl Client {
    /// Sends the pending text; `None` if that takes too long.
    async fn send(&mut self) -> Option<()> {
        let text = self.out.take();
        let sent = timeout(WRITE, self.write.write_all(text.as_bytes())).await;
        sent.ok()?.ok()
    }

    async fn answer(&mut self, line: &str) -> Result<(), Gone> {
        match Ask::parse(line) {
            Ask::Route(which) => return self.routes(which).await,
            Ask::Status => {
                let answered = self.status().await;
                self.finish(answered);
            }
            Ask::Protocols { all, name } => {
                let answered = self.protocols(all, name.as_deref()).await;
                self.finish(answered);
            }
            Ask::Restrict => self.out.end(16, "Access restricted"),
            Ask::Denied => self.out.end(8007, "Access denied"),
            Ask::Unknown => self.out.end(9001, UNKNOWN),
        }
        Ok(())
    }

    /// Ends the answer; an error of the daemon becomes one of BIRD's errors.
    fn finish(&mut self, answered: Result<(), String>) {
        if let Err(why) = answered {
            self.out.end(8004, why);
        }
    }

    async fn status(&mut self) -> Result<(), String> {
        let report = self.report().await?;
        status::write(&mut self.out, &report, &Zoned::now());
        Ok(())
    }

    async fn protocols(&mut self, all: bool, name: Option<&str>) -> Result<(), String> {
        let report = self.report().await?;
        let neighbors = self.neighbors().await?;
        let view = self.view;
        let which = Which { view, name, all };
        let now = Zoned::now();
        protocols::write(&mut self.out, &neighbors, &report, which, &now);
        Ok(())
    }

    /// Routes go out a page at a time: the daemon makes the next one when the client has taken the
    /// one before.
    async fn routes(&mut self, which: RouteAsk) -> Result<(), Gone> {
        let mut count = Count::default();
        for family in self.view.families() {
            let mut after = None;
            loop {
                let command = Command::Routes {
                    prefix: which.prefix,
                    why: true,
                    family: Some((*family).to_owned()),
                    after: after.clone(),
                };
                let page = match ask(&self.requests, command).await {
                    Reply::Routes(page) => page,
                    other => {
                        self.finish(Err(unexpected(&other)));
                        return Ok(());
                    }
                };
                routes::write(&mut self.out, &page, &which, &mut count);
                self.send().await.ok_or(Gone)?;
                if page.next.is_none() || page.next == after {
                    break;
                }
                after = page.next;
            }
        }
        routes::end(&mut self.out, &which, &count);
        Ok(())
    }

    async fn report(&self) -> Result<Status, String> {
        match ask(&self.requests, Command::Status {}).await {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    async fn neighbors(&self) -> Result<Neighbors, String> {
        match ask(&self.requests, Command::Neighbors {}).await {
            Reply::Neighbors(neighbors) => Ok(neighbors),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> String {
    match reply {
        Reply::Error { message } => message.clone(),
        _ => "the daemon gave no answer".to_owned(),
    }
}
