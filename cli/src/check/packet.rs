//! `cambric check packet`: asks Felix for the verdict of its rules on a packet.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use daemon_common::command::PacketQuery;
use daemon_common::report::{PacketStep, PacketVerdict, RuleOwner};
use daemon_common::{Command, Reply, paths};

use crate::ask::{Answers, Targets, json};
use crate::show::clean;

/// The daemon that answers.
const FELIX: &[&str] = &["felix"];

/// The arguments of `cambric check packet`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The sender: an endpoint (namespace/name, namespace/workload or interface) or an address
    #[arg(long, value_name = "ENDPOINT|IP")]
    from: String,
    /// The receiver: an endpoint or an address
    #[arg(long, value_name = "ENDPOINT|IP")]
    to: String,
    /// The protocol: a name such as tcp, udp, sctp, icmp or icmpv6, or a number
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp")]
    proto: String,
    /// The destination port, for TCP, UDP and SCTP
    #[arg(long)]
    port: Option<u16>,
    /// The source address [default: an address of the sender]
    #[arg(long, value_name = "IP")]
    from_ip: Option<IpAddr>,
    /// The source port [default: any]
    #[arg(long, value_name = "PORT")]
    from_port: Option<u16>,
    /// Print one JSON object: daemon name to its verdict
    #[arg(long)]
    json: bool,
    /// Query the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Runs `cambric check packet`.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let answers = args.ask(Path::new(paths::RUN)).await?;
    match args.json {
        true => print!("{}", json(&answers)?),
        false => print!("{}", text(&answers)),
    }
    Ok(match is_allowed(&answers) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

impl Args {
    async fn ask(&self, run: &Path) -> anyhow::Result<Answers> {
        let targets = Targets {
            daemons: FELIX,
            socket: self.socket.as_deref(),
            run,
        };
        let query = PacketQuery {
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.proto.clone(),
            port: self.port.map(u64::from),
            from_ip: self.from_ip,
            from_port: self.from_port.map(u64::from),
        };
        targets.ask(&Command::Packet(query), usize::MAX).await
    }
}

fn is_allowed(answers: &Answers) -> bool {
    let mut replies = answers.values();
    replies.any(|reply| matches!(reply, Reply::Packet(verdict) if verdict.allowed == Some(true)))
}

fn text(answers: &Answers) -> String {
    let mut text = String::new();
    for reply in answers.values() {
        if let Reply::Packet(verdict) = reply {
            add(&mut text, verdict);
        }
    }
    text
}

fn add(text: &mut String, verdict: &PacketVerdict) {
    let _ = writeln!(
        text,
        "{}, first packet of a connection: {}",
        clean(&verdict.packet),
        clean(&verdict.verdict)
    );
    for step in &verdict.steps {
        let _ = writeln!(text, "  {}", clean(&line(step)));
        let _ = writeln!(
            text,
            "    chain {}: {}",
            clean(&step.chain),
            clean(&step.rule)
        );
    }
    if !verdict.in_sync {
        text.push_str("note: the kernel does not have these rules yet\n");
    }
    for one in &verdict.elsewhere {
        let _ = writeln!(text, "{}", clean(one));
    }
    text.push_str("not evaluated:\n");
    for one in &verdict.not_evaluated {
        let _ = writeln!(text, "  {}", clean(one));
    }
}

fn line(step: &PacketStep) -> String {
    let mut line = step.part.clone();
    if let Some(endpoint) = &step.endpoint {
        let _ = write!(line, " of {endpoint}");
    }
    let _ = write!(line, ": {}: {}", step.verdict, cause(&step.by));
    line
}

fn cause(by: &RuleOwner) -> String {
    let parts = [
        by.tier.as_ref().map(|tier| format!("tier {tier}")),
        by.list.clone(),
        by.rule.as_ref().map(|rule| format!("rule {rule}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match (parts.is_empty(), by.words.is_empty()) {
        (false, _) => parts.join(", "),
        (true, false) => by.words.clone(),
        (true, true) => "a rule of Felix".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use daemon_common::control::Control;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn verdict() -> PacketVerdict {
        PacketVerdict {
            packet: "TCP 10.65.0.1 > 10.65.0.2 port 443".to_owned(),
            allowed: Some(false),
            verdict: "denied".to_owned(),
            steps: vec![PacketStep {
                part: "ingress".to_owned(),
                endpoint: Some("prod/web".to_owned()),
                verdict: "drop".to_owned(),
                by: RuleOwner {
                    tier: Some("default".to_owned()),
                    list: Some("NetworkPolicy prod/db".to_owned()),
                    rule: Some("ingress[2]".to_owned()),
                    words: "ingress[2]".to_owned(),
                },
                chain: "pi-np/prod/db".to_owned(),
                rule: "counter drop".to_owned(),
            }],
            elsewhere: vec!["egress of prod/a is not on this host: ask n2".to_owned()],
            in_sync: false,
            not_evaluated: vec!["other tables".to_owned()],
        }
    }

    #[test]
    fn verdict_is_shown_with_tier_policy_and_rule() {
        let answers: Answers = [("felix".to_owned(), Reply::Packet(verdict()))].into();
        let shown = text(&answers);
        let wanted = "TCP 10.65.0.1 > 10.65.0.2 port 443, first packet of a connection: denied\n  \
                      ingress of prod/web: drop: tier default, NetworkPolicy prod/db, rule \
                      ingress[2]\n    chain pi-np/prod/db: counter drop\nnote: the kernel does not \
                      have these rules yet\negress of prod/a is not on this host: ask n2\nnot \
                      evaluated:\n  other tables\n";
        assert_eq!(shown, wanted);
        assert!(!is_allowed(&answers));
        let other = RuleOwner {
            words: "control port of the fabric".to_owned(),
            ..RuleOwner::default()
        };
        assert_eq!(cause(&other), "control port of the fabric");
    }

    #[tokio::test]
    async fn packet_is_asked_of_felix_as_given() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = paths::control_below(directory.path(), "felix");
        let mut control = Control::bind(path).expect("bound");
        let line = "x --from prod/a --to 10.65.0.2 --proto udp --port 53 --from-ip 10.65.0.1 \
                    --from-port 7";
        let args = Line::try_parse_from(line.split_whitespace())
            .expect("arguments")
            .args;
        let answer = async {
            let request = control.next().await;
            let wanted = PacketQuery {
                from: "prod/a".to_owned(),
                to: "10.65.0.2".to_owned(),
                protocol: "udp".to_owned(),
                port: Some(53),
                from_ip: "10.65.0.1".parse().ok(),
                from_port: Some(7),
            };
            assert_eq!(request.command, Command::Packet(wanted));
            let allowed = PacketVerdict {
                allowed: Some(true),
                ..verdict()
            };
            request.reply(Reply::Packet(allowed));
        };
        let (answers, ()) = tokio::join!(args.ask(directory.path()), answer);
        assert!(is_allowed(&answers.expect("an answer")));
    }
}
