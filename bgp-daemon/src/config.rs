//! The configuration file of a BGP daemon: what all have, and a section of its own.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use admin::bird::View;
use intent::{BgpFile, Intent, NextHops, Problems, Report, Source};
use serde::de::DeserializeOwned;

/// What a program's own section of the file means.
pub trait Settings: Debug + Sized {
    /// The section as it is written; [`intent::NoKernel`] for a program that has none.
    type Section: Debug + DeserializeOwned;

    /// Where the control socket is unless the file says otherwise.
    const CONTROL_DEFAULT: &'static str;

    /// How next hops are looked up: the program's choice, not the operator's.
    const NEXT_HOPS: NextHops;

    /// The section's meaning; only good when `problems` stays empty.
    fn check(section: Option<&Self::Section>, problems: &mut Problems<'_>) -> Self;

    /// What is allowed but worth knowing.
    fn notes(&self) -> Vec<String>;
}

/// A file, read and found good.
#[derive(Debug)]
pub struct Config<S: Settings> {
    /// Where it was read.
    pub path: PathBuf,
    /// Its keys.
    pub file: BgpFile<S::Section>,
    /// What they mean for the speaker.
    pub intent: Intent,
    /// What they mean for the rest of the program.
    pub settings: S,
}

impl<S: Settings> Config<S> {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn read(path: &Path) -> Result<Self, Report> {
        Self::parse(&Source::read(path)?)
    }

    /// Checks text at hand.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn parse(source: &Source) -> Result<Self, Report> {
        let file: BgpFile<S::Section> = source.parse()?;
        let mut problems = source.problems();
        let mut intent = file.intent(S::NEXT_HOPS, &mut problems);
        let settings = S::check(file.kernel.as_ref(), &mut problems);
        problems.finish()?;
        intent.notes.extend(settings.notes());
        Ok(Self {
            path: source.path().to_owned(),
            file,
            intent,
            settings,
        })
    }

    /// Where the control socket is.
    pub fn control(&self) -> PathBuf {
        let control = self.file.control.clone();
        control.unwrap_or_else(|| S::CONTROL_DEFAULT.into())
    }

    /// Where BIRD's tools are answered, and what they are shown there.
    pub(crate) fn bird_controls(&self) -> Vec<(PathBuf, View)> {
        let file = &self.file;
        let first = match file.bird6_control {
            None => View::Both,
            Some(_) => View::Ipv4,
        };
        let both = [
            (&file.bird_control, first),
            (&file.bird6_control, View::Ipv6),
        ];
        let set = both.into_iter();
        set.filter_map(|(path, view)| Some((path.clone()?, view)))
            .collect()
    }

    /// Keys that only a start reads, and whose value is another one in `new`.
    pub(crate) fn restart_keys(&self, new: &Self) -> Vec<&'static str> {
        let (old, new) = (&self.file, &new.file);
        let listen =
            |file: &BgpFile<_>| -> Vec<_> { file.listen.iter().map(|at| *at.get_ref()).collect() };
        let changed = [
            ("listen", listen(old) != listen(new)),
            ("control", old.control != new.control),
            ("bird_control", old.bird_control != new.bird_control),
            ("bird6_control", old.bird6_control != new.bird6_control),
            ("log", old.log != new.log),
            ("log_format", old.log_format != new.log_format),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(key, _)| key).collect()
    }
}
