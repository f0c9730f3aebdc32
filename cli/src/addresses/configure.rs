//! `cambric ipam configure`.

use anyhow::{Result, bail};
use calico_model::{COOL_DOWN_S_MAX, HOST_BLOCKS_MAX, IpamConfig, IpamKey};
use calico_store::{Error, LeaseId, Revision, Store};

use crate::resources::Connection;

/// Attempts to write the settings while other programs write them.
const ATTEMPTS_MAX: usize = 8;

/// The arguments of `cambric ipam configure`.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true, id = "setting", args = ["strictaffinity", "max_blocks_per_host", "ip_cooldown_seconds"])]
pub(crate) struct Configure {
    /// Whether hosts use only their own blocks
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    strictaffinity: Option<bool>,
    /// Maximum number of blocks of a host; 0 for the built-in number, 20
    #[arg(long, value_name = "NUMBER")]
    max_blocks_per_host: Option<u32>,
    /// How long a released address is not allocated again
    #[arg(long, value_name = "SECONDS")]
    ip_cooldown_seconds: Option<u32>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs `cambric ipam configure`.
pub(super) async fn run(args: Configure) -> Result<()> {
    args.check()?;
    let store = args.connection.store().await?;
    for _ in 0..ATTEMPTS_MAX {
        let key = IpamKey::Config.to_string();
        let (mut config, was) = match store.get(key.clone().into()).await? {
            Some(found) => (IpamConfig::parse(&found.value)?, found.mod_revision),
            None => (IpamConfig::default(), Revision::ZERO),
        };
        let text = args.set(&mut config);
        let value = config.encode();
        let done = if was == Revision::ZERO {
            store.create(key.into(), value.into(), LeaseId::NONE).await
        } else {
            store
                .update(key.into(), value.into(), LeaseId::NONE, was)
                .await
        };
        match done {
            Ok(_) => {
                print!("{text}");
                return Ok(());
            }
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("too many concurrent writes of the settings by other programs; try again")
}

impl Configure {
    fn check(&self) -> Result<()> {
        for (name, found, most) in [
            (
                "--max-blocks-per-host",
                self.max_blocks_per_host,
                HOST_BLOCKS_MAX,
            ),
            (
                "--ip-cooldown-seconds",
                self.ip_cooldown_seconds,
                COOL_DOWN_S_MAX,
            ),
        ] {
            if found.is_some_and(|found| i64::from(found) > i64::from(most)) {
                bail!("{name} is {most} at most");
            }
        }
        Ok(())
    }

    /// Sets the given settings; returns them in words.
    fn set(&self, config: &mut IpamConfig) -> String {
        let mut text = String::new();
        if let Some(strict) = self.strictaffinity {
            config.strict_affinity = strict;
            text.push_str(&format!("Successfully set StrictAffinity to: {strict}\n"));
        }
        if let Some(most) = self.max_blocks_per_host {
            config.max_blocks_per_host = most;
            text.push_str(&format!("Successfully set MaxBlocksPerHost to: {most}\n"));
        }
        if let Some(seconds) = self.ip_cooldown_seconds {
            config.ip_cooldown_seconds = seconds;
            text.push_str(&format!(
                "Successfully set IPCooldownSeconds to: {seconds}\n"
            ));
        }
        text
    }
}
