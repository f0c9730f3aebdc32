//! `cambric key`: creates the TCP-MD5 key of BGP sessions in a directory of secrets, and changes it
//! in steps. Neighbors that are one step apart have a valid key in common.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use bgp_config::SessionKeys;
use bgp_config::limits::PASSWORD_OCTETS_MAX;
use clap::Subcommand;
use ring::digest::{SHA256, digest};

#[cfg(test)]
mod tests;

/// Random octets of a key; the key has two hexadecimal digits for each.
const RANDOM_OCTETS: usize = 32;

const _: () = assert!(2 * RANDOM_OCTETS <= PASSWORD_OCTETS_MAX);

/// Octets of the digest that names a key.
const LABEL_OCTETS: usize = 4;

/// The name of a key that is not random.
const OTHER_KEY: &str = "manual";

/// Octets that are read of a secret; a longer one is invalid.
const SECRET_OCTETS_MAX: u64 = 4096;

/// Permissions of a new secret, and of its directory: root, and the group of the daemons.
const SECRET_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;

/// The arguments of `cambric key`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Create a secret with a random key
    Create(Place),
    /// Change the key of a secret in three steps. Copy the secret to all hosts after each step
    #[command(subcommand)]
    Rotate(Step),
    /// Show digests of the keys of a secret. It prints no key
    Show(Place),
}

#[derive(Clone, Debug, Subcommand)]
enum Step {
    /// Add a second, random key
    Begin(Place),
    /// Use another one of the two keys, and keep both valid. Without effect if it is in use already
    Switch {
        #[command(flatten)]
        place: Place,
        /// The key to use, as `cambric key show` prints it
        #[arg(long, value_name = "KEY")]
        to: String,
    },
    /// Remove the key that is not in use
    End {
        #[command(flatten)]
        place: Place,
        /// The key to keep, as `cambric key show` prints it: it must be in use
        #[arg(long, value_name = "KEY")]
        keep: String,
    },
}

/// Which secret.
#[derive(Clone, Debug, clap::Args)]
struct Place {
    /// The secret and the key in it, as in `secretKeyRef`
    #[arg(value_name = "NAME/KEY")]
    secret: Secret,
    /// The directory of the secrets, as in `[secrets] dir`
    #[arg(long, value_name = "DIR", default_value = "/etc/cambric/secrets")]
    dir: PathBuf,
}

/// The name of a secret, and the key in it.
#[derive(Clone, Debug)]
struct Secret {
    name: String,
    key: String,
}

impl FromStr for Secret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected NAME/KEY";
        let (name, key) = text.split_once('/').ok_or(FORM)?;
        let is_plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
        (is_plain(name) && is_plain(key))
            .then(|| Self {
                name: name.to_owned(),
                key: key.to_owned(),
            })
            .ok_or(FORM)
    }
}

/// Runs `cambric key`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let report = match &args.what {
        What::Create(place) => place.create()?,
        What::Show(place) => report(&place.read()?),
        What::Rotate(Step::Begin(place)) => place.change(begin)?,
        What::Rotate(Step::Switch { place, to }) => place.change(|keys| switch(keys, to))?,
        What::Rotate(Step::End { place, keep }) => place.change(|keys| end(keys, keep))?,
    };
    println!("{report}");
    Ok(ExitCode::SUCCESS)
}

fn report(keys: &SessionKeys) -> String {
    let used = label(&keys.password);
    match &keys.second {
        None => format!("1 key: {used}"),
        Some(second) => format!("2 keys: {used} is used, {} is valid, too", label(second)),
    }
}

/// Returns the name of a key: a digest of a random one. The digest of a password could be compared
/// with the digests of many words.
fn label(key: &str) -> String {
    let is_digit = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
    if key.len() != 2 * RANDOM_OCTETS || !key.bytes().all(is_digit) {
        return OTHER_KEY.to_owned();
    }
    let digest = digest(&SHA256, format!("cambric key label\n{key}").as_bytes());
    let shown = digest.as_ref().iter().take(LABEL_OCTETS);
    shown.map(|octet| format!("{octet:02x}")).collect()
}

fn begin(mut keys: SessionKeys) -> Result<SessionKeys> {
    ensure!(
        keys.second.is_none(),
        "the secret already has two keys: run `switch` or `end`"
    );
    keys.second = Some(random()?.into());
    Ok(keys)
}

fn switch(keys: SessionKeys, to: &str) -> Result<SessionKeys> {
    let second = keys.second.as_ref().context(ONE_KEY)?;
    let labels = (label(&keys.password), label(second));
    ensure!(labels.0 != labels.1, "both keys are {to}: edit the file");
    if labels.0 == to {
        return Ok(keys);
    }
    ensure!(
        labels.1 == to,
        "{to} is no key of the secret: {}",
        report(&keys)
    );
    Ok(SessionKeys {
        password: second.clone(),
        second: Some(keys.password),
    })
}

fn end(keys: SessionKeys, keep: &str) -> Result<SessionKeys> {
    let is_used = label(&keys.password) == keep;
    ensure!(is_used, "{keep} is not in use: {}", report(&keys));
    let both = keys.second.as_ref().map(|second| label(second));
    ensure!(
        both.as_deref() != Some(keep),
        "both keys are {keep}: edit the file"
    );
    Ok(SessionKeys {
        second: None,
        ..keys
    })
}

const ONE_KEY: &str = "the secret has one key: run `begin` first";

/// Returns a random key.
fn random() -> Result<String> {
    let mut octets = [0; RANDOM_OCTETS];
    let mut source = File::open("/dev/urandom").context("/dev/urandom")?;
    source.read_exact(&mut octets).context("/dev/urandom")?;
    Ok(octets.iter().map(|octet| format!("{octet:02x}")).collect())
}

impl Place {
    fn directory(&self) -> PathBuf {
        self.dir.join(&self.secret.name)
    }

    fn file(&self) -> PathBuf {
        self.directory().join(&self.secret.key)
    }

    /// Creates the secret. It gets the group of the directory of the secrets, which the daemons are
    /// in.
    fn create(&self) -> Result<String> {
        let (directory, file) = (self.directory(), self.file());
        let group = fs::metadata(&self.dir).with_context(|| self.dir.display().to_string())?;
        let keys = SessionKeys {
            password: random()?.into(),
            second: None,
        };
        let made = DirBuilder::new().mode(DIRECTORY_MODE).create(&directory);
        match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made
                .and_then(|()| fchown(File::open(&directory)?, None, Some(group.gid())))
                .with_context(|| directory.display().to_string())?,
        }
        let _lock = self.lock()?;
        let owner = (None, group.gid(), SECRET_MODE);
        write(&file, &keys, owner, |new| match fs::hard_link(new, &file) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("{} exists: use `cambric key rotate`", file.display())
            }
            linked => linked.with_context(|| file.display().to_string()),
        })?;
        Ok(format!("{}: {}", file.display(), report(&keys)))
    }

    /// Locks the secrets of the same directory until the result is dropped: of two commands that
    /// change a secret at the same time, the second one is refused.
    fn lock(&self) -> Result<File> {
        let directory = self.directory();
        let lock = File::open(&directory).with_context(|| directory.display().to_string())?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => bail!(
                "{0}: another `cambric key` changes a secret here now: see its result with \
                 `cambric key show`, then run this command again; if none runs, `fuser -v {0}` names \
                 the program that holds the lock",
                directory.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("locking {}", directory.display()))
            }
        }
    }

    fn read(&self) -> Result<SessionKeys> {
        self.parse(&self.text()?)
    }

    fn parse(&self, text: &str) -> Result<SessionKeys> {
        let keys = SessionKeys::read(text);
        keys.map_err(|reason| anyhow::anyhow!("{} {reason}", self.file().display()))
    }

    fn text(&self) -> Result<String> {
        let path = self.file();
        let mut text = String::new();
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        file.take(SECRET_OCTETS_MAX)
            .read_to_string(&mut text)
            .with_context(|| path.display().to_string())?;
        Ok(text)
    }

    /// Replaces the content of the secret; owner and permissions stay. A content that another program
    /// has written since the read is not replaced.
    fn change(&self, step: impl FnOnce(SessionKeys) -> Result<SessionKeys>) -> Result<String> {
        let file = self.file();
        let _lock = self.lock()?;
        let found = file.symlink_metadata();
        let found = found.with_context(|| file.display().to_string())?;
        ensure!(
            found.is_file(),
            "{} is no regular file: change the secret where it is managed",
            file.display()
        );
        let before = self.text()?;
        let keys = step(self.parse(&before)?).with_context(|| file.display().to_string())?;
        let owner = (Some(found.uid()), found.gid(), found.mode() & 0o7777);
        write(&file, &keys, owner, |new| {
            ensure!(
                self.text()? == before,
                "{} was changed by another program: see it with `cambric key show`, then run this \
                 command again",
                file.display()
            );
            fs::rename(new, &file).with_context(|| file.display().to_string())
        })?;
        Ok(format!("{}: {}", file.display(), report(&keys)))
    }
}

/// Writes a new file in the same directory, and calls `publish` with its path to give it the name of
/// the secret: a daemon reads the file as a whole, also after a crash.
fn write(
    path: &Path,
    keys: &SessionKeys,
    (owner, group, mode): (Option<u32>, u32, u32),
    publish: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let fill = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        fchown(&file, owner, Some(group))?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(keys.content().as_bytes())?;
        file.sync_all()
    };
    let filled = fill().with_context(|| new.display().to_string());
    let done = filled.and_then(|()| publish(&new));
    // The file with the keys must not stay under this name; after a renaming it does not.
    let _ = fs::remove_file(&new);
    done?;
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| directory.display().to_string())
}
