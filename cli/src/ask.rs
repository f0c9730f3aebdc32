//! Queries of the daemons of this host over their control sockets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use daemon_common::client::{self, CallError};
use daemon_common::paths;
use daemon_common::report::{Route, Routes};
use daemon_common::{Command, Reply};
use ipnet::IpNet;

/// The daemons that speak BGP.
pub(crate) const BGP_DAEMONS: &[&str] = &["bgp-client", "route-reflector"];

/// All daemons.
pub(crate) const DAEMONS: &[&str] = &["bgp-client", "route-reflector", "felix", "bfd", "kube"];

/// Daemon name to its reply.
pub(crate) type Answers = BTreeMap<String, Reply>;

/// The daemons of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Targets<'a> {
    /// The daemons that can answer.
    pub(crate) daemons: &'static [&'static str],
    /// The socket that the user gave.
    pub(crate) socket: Option<&'a Path>,
    /// The directory with the directories of the other sockets.
    pub(crate) run: &'a Path,
}

impl Targets<'_> {
    /// Queries the given socket, or all daemons that can answer; for at most `limit` routes.
    pub(crate) async fn ask(&self, command: &Command, limit: usize) -> anyhow::Result<Answers> {
        let mut answers = Answers::new();
        let mut failures = Vec::new();
        for socket in self.sockets() {
            let name = socket.file_stem().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            match fetch(&socket, command.clone(), limit).await {
                Ok(reply) => {
                    answers.insert(name, reply);
                }
                Err(failure) => failures.push(failure),
            }
        }
        if answers.is_empty() {
            return Err(self.no_answer(&failures));
        }
        for failure in failures
            .iter()
            .filter(|failure| !matches!(failure, CallError::Absent(_)))
        {
            eprintln!("cambric: {failure}");
        }
        Ok(answers)
    }

    /// Returns the sockets to query.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let all = self.daemons.iter();
        match self.socket {
            Some(socket) => vec![socket.to_owned()],
            None => all
                .map(|name| paths::control_below(self.run, name))
                .collect(),
        }
    }

    /// Returns the error for no answer, in one line.
    pub(crate) fn no_answer(&self, failures: &[CallError]) -> anyhow::Error {
        let absent = |failure: &CallError| matches!(failure, CallError::Absent(_));
        match failures
            .iter()
            .find(|failure| !absent(failure))
            .or_else(|| failures.first())
        {
            Some(failure) if self.socket.is_some() || !absent(failure) => {
                anyhow::anyhow!("{failure}")
            }
            _ => {
                let sockets = self.sockets();
                let sockets: Vec<_> = sockets.iter().map(|path| path.to_string_lossy()).collect();
                anyhow::anyhow!(
                    "no daemon that could answer runs here: no socket {}; start one, or name its \
                     control socket with --socket",
                    sockets.join(", no "),
                )
            }
        }
    }
}

/// Marks a page of which routes were left out, in place of the next page: no page begins there.
const MORE: &str = "--limit";

/// Returns one reply; for routes it reads pages until there are more than `limit`.
async fn fetch(socket: &Path, mut command: Command, limit: usize) -> Result<Reply, CallError> {
    let mut all = Routes::default();
    loop {
        let mut page = match client::call(socket, &command).await? {
            Reply::Routes(page) => page,
            other => return Ok(other),
        };
        all.routes.append(&mut page.routes);
        all.next = page.next;
        let Command::Routes { after, .. } = &mut command else {
            return Ok(Reply::Routes(all));
        };
        if all.next.is_none() || all.routes.len() >= limit || *after == all.next {
            all.routes.sort_by_cached_key(order);
            if all.routes.len() > limit {
                all.routes.truncate(limit);
                all.next = Some(MORE.to_owned());
            }
            return Ok(Reply::Routes(all));
        }
        after.clone_from(&all.next);
    }
}

/// Returns the sort key of a route: the family, then the prefix.
fn order(route: &Route) -> (String, Option<IpNet>, String) {
    (
        route.family.clone(),
        route.prefix.parse().ok(),
        route.prefix.clone(),
    )
}

/// Returns the reports as JSON without the tag of their kind, which follows from the command.
pub(crate) fn json(answers: &Answers) -> anyhow::Result<String> {
    let mut object = serde_json::Map::new();
    for (name, reply) in answers {
        let serde_json::Value::Object(tagged) = serde_json::to_value(reply)? else {
            bail!("a reply that is no object");
        };
        object.extend(tagged.into_iter().map(|(_, report)| (name.clone(), report)));
    }
    Ok(format!("{}\n", serde_json::to_string_pretty(&object)?))
}
