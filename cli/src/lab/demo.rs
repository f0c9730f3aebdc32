//! `cambric lab demo`, within its namespaces: starts a fabric, disturbs it, and checks it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use netns_lab::{Host, until};
use serde::Serialize;
use tokio::time::{Duration, Instant, sleep};

use super::args::{DemoArgs, Inside};
use super::diagram::Scene;
use super::journal::{Journal, Step, milliseconds, print_line};
use super::limits::{
    CONVERGE, DIFFERENCES_SHOWN_MAX, FLOW_MARGIN, FLOW_PERIOD, LOG_LINES_SHOWN_MAX, MOVED_LINGER,
    PING,
};
use super::policy::Pair;
use super::stage::{self, Stage};
use super::usage::{self, DaemonUsage};
use super::{containers, kernels, policy, reach, sessions};

/// Runs the demo; the exit code is that of a failure if any step failed.
pub(super) async fn run(args: &DemoArgs, inside: Inside, directory: PathBuf) -> Result<ExitCode> {
    let began = Instant::now();
    let shape = args.fabric.shape();
    let reflectors = if shape.mesh {
        "in a full mesh".to_owned()
    } else {
        format!("under {}", count(shape.reflectors, "route reflector"))
    };
    print_line(&format!(
        "A fabric of {} {reflectors}, {} on each; store: {}\n",
        count(shape.nodes, "node"),
        count(shape.workloads_per_node, "workload"),
        args.fabric.store.name(),
    ));
    let mut journal = Journal::default();
    let mut stage = stage::build(&args.fabric, inside, directory, &mut journal).await?;
    let mut show = Show {
        journal,
        dead: Vec::new(),
        usage: Vec::new(),
    };
    if let Err(error) = show.acts(&mut stage).await {
        show.journal.bad("stopped", None, format!("{error:#}"));
        show_logs(&stage);
    }
    show.finish(&stage, began.elapsed());
    if let Some(logs) = &args.logs {
        for host in stage.fabric.hosts() {
            copy_logs(host, logs).with_context(|| format!("copying to {}", logs.display()))?;
        }
    }
    if let Some(file) = &args.json {
        let report = Report {
            nodes: shape.nodes,
            reflectors: stage.fabric.reflectors.len(),
            workloads: stage.fabric.plan.workloads.len(),
            sessions: stage.fabric.plan.sessions(),
            store: args.fabric.store.name(),
            good: show.journal.all_good(),
            took_ms: began.elapsed().as_secs_f64() * 1e3,
            steps: show.journal.steps(),
            daemons: &show.usage,
        };
        let text = serde_json::to_string_pretty(&report)?;
        fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(if show.journal.all_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// `1 node`, `2 nodes`.
fn count(number: u16, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    nodes: u16,
    reflectors: usize,
    workloads: usize,
    sessions: usize,
    store: &'static str,
    /// Whether all steps succeeded.
    good: bool,
    took_ms: f64,
    steps: &'a [Step],
    daemons: &'a [DaemonUsage],
}

/// The running demo.
struct Show {
    journal: Journal,
    /// Machines that have their daemons killed on purpose.
    dead: Vec<String>,
    usage: Vec<DaemonUsage>,
}

impl Show {
    async fn acts(&mut self, stage: &mut Stage) -> Result<()> {
        stage.start_daemons(&mut self.journal).await?;
        stage.add_workloads(&mut self.journal).await?;
        self.ping_all(stage, "pings").await?;
        if !stage.fabric.stores.is_empty() {
            self.kill_member(stage).await?;
        }
        self.close_pair(stage).await?;
        if stage.fabric.nodes.len() > 1 && !stage.fabric.workloads.is_empty() {
            self.move_workload(stage).await?;
        }
        if !stage.fabric.workloads.is_empty() {
            self.withdraw(stage).await?;
        }
        if stage.fabric.reflectors.len() > 1 {
            self.kill_reflector(stage).await?;
        }
        self.ping_all(stage, "pings again").await?;
        self.usage = usage::idle(&stage.fabric).await;
        Ok(())
    }

    async fn ping_all(&mut self, stage: &Stage, name: &'static str) -> Result<()> {
        let began = Instant::now();
        let pings = reach::all_pairs(&stage.fabric).await?;
        let took = Some(began.elapsed());
        if pings.lost.is_empty() {
            let slowest = milliseconds(pings.slowest.as_secs_f64() * 1e3);
            let all = pings.answered;
            let outcome = format!("all {all} pings answered, IPv4 and IPv6, slowest {slowest}");
            self.journal.good(name, took, outcome);
        } else {
            let shown: Vec<_> = pings
                .lost
                .iter()
                .take(DIFFERENCES_SHOWN_MAX)
                .cloned()
                .collect();
            let more = if pings.lost.len() > shown.len() {
                ", …"
            } else {
                ""
            };
            let of = pings.lost.len() + pings.answered;
            let outcome = format!(
                "{} of {of} pings without answer: {}{more}",
                pings.lost.len(),
                shown.join(", "),
            );
            self.journal.bad(name, took, outcome);
        }
        Ok(())
    }

    /// Closes a pair of workloads by a policy, and opens it again.
    async fn close_pair(&mut self, stage: &Stage) -> Result<()> {
        let workloads = &stage.fabric.workloads;
        let (Some(from), Some(to)) = (workloads.first(), workloads.last()) else {
            return Ok(());
        };
        if from.name == to.name {
            return Ok(());
        }
        let pair = Pair::open(from, to)?;
        pair.opens().await?;
        let written = Instant::now();
        stage.records.apply(policy::closed(from, to)).await?;
        let closed = pair.closes().await?.saturating_duration_since(written);
        let deleted = Instant::now();
        stage.records.delete_policy(policy::NAME).await?;
        let opened = pair.opens().await? - deleted;
        let outcome = format!(
            "a policy closes {} to {}: no connection is answered;\nwithout it they are again after {}",
            to.name,
            from.name,
            milliseconds(opened.as_secs_f64() * 1e3),
        );
        self.journal.good("policy", Some(closed), outcome);
        Ok(())
    }

    /// Moves the first workload to the last node, while another one pings it.
    async fn move_workload(&mut self, stage: &mut Stage) -> Result<()> {
        let place = stage.fabric.nodes.len() - 1;
        let Some(moving) = stage.fabric.workloads.first() else {
            return Ok(());
        };
        let name = moving.name.clone();
        let from = stage.fabric.node(moving.place)?.plan.name.clone();
        let to = stage.fabric.node(place)?.plan.name.clone();
        let flows = match stage.fabric.workloads.get(1) {
            Some(watcher) => {
                let pinger = watcher.pinger()?;
                let flow = |to| pinger.flow(to, FLOW_PERIOD);
                moving.addresses().map(flow).collect()
            }
            None => Vec::new(),
        };
        sleep(FLOW_MARGIN / 4).await;

        let began = Instant::now();
        let addresses = stage.disconnect(&name).await?;
        stage.connect(&name, place, &addresses).await?;
        let agreed = stage
            .kernels
            .agree(&mut stage.fabric, &stage.owners)
            .await?;
        reaches_all(stage, &name).await?;
        let mut away = Duration::ZERO;
        for flow in flows {
            away = away.max(flow.stop_within(MOVED_LINGER).await.gap);
        }
        let outcome = format!(
            "{name} went from {from} to {to}, by DEL and ADD: every kernel follows;\nout of reach for {}",
            milliseconds(away.as_secs_f64() * 1e3),
        );
        self.journal.good("moved", Some(agreed - began), outcome);
        Ok(())
    }

    /// Kills one member of the store; the next steps use the others.
    async fn kill_member(&mut self, stage: &mut Stage) -> Result<()> {
        let members = stage.fabric.plan.stores.len();
        let victim = stage.fabric.stores.last_mut().context("no member")?;
        victim.daemon("store")?.process.kill().await?;
        victim.daemons.clear();
        let name = &victim.plan.name;
        let outcome = format!(
            "{name} is down: the store continues with {} of {members}",
            members - 1
        );
        self.journal.good("store member killed", None, outcome);
        Ok(())
    }

    /// Kills one reflector while every node sends and receives.
    async fn kill_reflector(&mut self, stage: &mut Stage) -> Result<()> {
        let flows = reach::ring(&stage.fabric)?;
        sleep(FLOW_MARGIN).await;
        let killed_at = Instant::now();
        let victim = stage
            .fabric
            .reflectors
            .first_mut()
            .context("no reflector")?;
        let plan = victim.plan.clone();
        let name = plan.name.clone();
        victim.daemon(sessions::REFLECTOR)?.process.kill().await?;
        // It was killed on purpose: from here on only the others are checked.
        victim.daemons.clear();
        self.dead.push(name.clone());
        let noticed = until(CONVERGE, "every node notices", async || {
            for node in &stage.fabric.nodes {
                if sessions::established_with(node.control(sessions::NODE), &plan).await {
                    let late = format!("{} still has a session with it", node.plan.name);
                    return anyhow::Ok(Err(late));
                }
            }
            Ok(Ok(()))
        });
        let ((), took) = noticed.await?;
        sleep(FLOW_MARGIN).await;
        let (mut sent, mut lost) = (0, 0);
        for flow in flows {
            let report = flow.stop().await;
            sent += report.sent;
            lost += report.lost();
        }
        let mut wrong = stage.kernels.left_since(&stage.fabric, killed_at);
        for node in 0..stage.fabric.nodes.len() {
            wrong.extend(kernels::differences(&stage.fabric, &stage.owners, node).await?);
        }
        if lost > 0 {
            wrong.push(format!("{lost} of {sent} pings were lost"));
        }
        stage.fabric.check()?;
        if wrong.is_empty() {
            let pings = match sent {
                0 => "no workload could be pinged".to_owned(),
                sent => format!("none of the {sent} pings during this step was lost"),
            };
            let noticed = "detected everywhere: no route was removed from a kernel";
            let outcome = format!("{name} by SIGKILL, {noticed},\n{pings}");
            self.journal.good("killed", Some(took), outcome);
        } else {
            let outcome = format!("{name} by SIGKILL:\n{}", wrong.join("\n"));
            self.journal.bad("killed", Some(took), outcome);
        }
        Ok(())
    }

    /// Removes the last workload.
    async fn withdraw(&mut self, stage: &mut Stage) -> Result<()> {
        let Some(workload) = stage.fabric.workloads.last() else {
            return Ok(());
        };
        let name = workload.name.clone();
        let began = Instant::now();
        let had = stage.disconnect(&name).await?;
        let agreed = stage
            .kernels
            .agree(&mut stage.fabric, &stage.owners)
            .await?;
        let outcome = format!("{name} disconnected by CNI: removed from every kernel");
        self.journal
            .good("withdrawn", Some(agreed - began), outcome);
        stage.fabric.workloads.pop();
        if let (Some(first), Some(&gone)) = (stage.fabric.workloads.first(), had.first())
            && first.pinger()?.ping(gone, PING / 4).await.is_some()
        {
            bail!("{name} still answers after it was disconnected");
        }
        Ok(())
    }

    fn finish(&self, stage: &Stage, took: Duration) {
        print_line(&format!(
            "\n{}",
            Scene::of(&stage.fabric, &self.dead).draw()
        ));
        if !self.usage.is_empty() {
            print_line(&format!("{}\n", usage::table(&self.usage)));
        }
        let times = ["sessions", "converged", "moved", "withdrawn"].map(|name| {
            format!(
                "{name} {}",
                self.journal.took(name).as_deref().unwrap_or("-")
            )
        });
        print_line(&times.join(" · "));
        let took = milliseconds(took.as_secs_f64() * 1e3);
        if self.journal.all_good() {
            print_line(&format!("All steps succeeded, after {took}."));
        } else {
            print_line(&format!("A step FAILED (see ✗ above), after {took}."));
        }
    }
}

/// Waits until a workload reaches every other.
async fn reaches_all(stage: &Stage, name: &str) -> Result<()> {
    let all = &stage.fabric.workloads;
    let pinger = containers::workload(&stage.fabric, name)?.pinger()?;
    let others = all.iter().filter(|other| other.name != name);
    for address in others.flat_map(|other| other.addresses()) {
        let what = "the moved workload reaches the others";
        until(CONVERGE, what, async || {
            let answer = pinger.ping(address, PING).await;
            anyhow::Ok(answer.ok_or_else(|| format!("no answer from {address}")))
        })
        .await?;
    }
    Ok(())
}

/// Prints the ends of the logs, to find the cause of a failure.
fn show_logs(stage: &Stage) {
    let machines = stage.fabric.reflectors.iter().chain(&stage.fabric.nodes);
    let daemons = machines.flat_map(|m| &m.daemons).chain(&stage.fabric.store);
    for daemon in daemons {
        let tail = daemon.process.log_tail();
        let lines: Vec<_> = tail.lines().rev().take(LOG_LINES_SHOWN_MAX).collect();
        print_line(&format!("--- {}", daemon.process.name()));
        for line in lines.iter().rev() {
            print_line(line);
        }
    }
}

/// Copies the logs and configurations of a host, as `<host>-<file>`.
fn copy_logs(host: &Host, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(host.directory())? {
        let path = entry?.path();
        let wanted = path.extension().is_some_and(|e| e == "log" || e == "toml");
        if let (true, Some(name)) = (wanted, path.file_name()) {
            let name = format!("{}-{}", host.name(), name.to_string_lossy());
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
